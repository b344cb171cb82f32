"""The programs that a short shell script runs, where it is simple enough to say."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.workloads.shell_words import Word, tokens
from dovetail.workloads.wrappers import ASSIGNMENT, word_set

__all__ = ["INSIDE_A_SHELL", "OF_THE_SHELL", "RESERVED", "Simple", "simple_commands"]

RESERVED = word_set(
    "if then else elif fi for while until do done case esac in function select { } ! [[ ]] coproc"
)
"""Words with which a shell's grammar begins; a script that holds them as commands is not simple."""
INSIDE_A_SHELL = word_set(
    ": . [ alias cd date echo eval exit export false local mkdir module popd printf pushd read return set "
    "shift shopt source test touch trap true ulimit umask unalias unset wait"
)
"""Commands inside a script that take no time of their own."""
OF_THE_SHELL = word_set(": exit return set trap wait shift read ulimit umask")
"""Of these, what does no work at all: a job that does nothing else is named by its shell."""


@dataclass(slots=True)
class Simple:
    """One program of a script: its words, and the files that it reads through ``<``."""

    argv: list[str]
    read: list[str] = field(default_factory=list)


def simple_commands(script: str) -> list[Simple] | None:
    """The commands of a script in order; ``None`` where it has loops, functions, substitutions and the like.

    >>> [one.argv for one in simple_commands("LC_ALL=C sort -n <big.txt | gzip -9 >big.gz && echo done")]
    [['sort', '-n'], ['gzip', '-9'], ['echo', 'done']]
    """
    try:
        found = tokens(script)
    except ValueError:
        return None
    commands: list[Simple] = []
    words: list[Word] = []
    read: list[str] = []

    def end() -> None:
        while words and ASSIGNMENT.fullmatch(words[0].bare):
            del words[0]
        if words:
            commands.append(Simple([word.text for word in words], list(read)))
        words.clear()
        read.clear()

    after: str | None = None  # the redirection whose word comes next
    for token in found:
        if isinstance(token, Word):
            if after is not None:
                read += [token.text] if after == "<" else []
                after = None
            elif _substitutes(token) or (not words and token.bare in RESERVED):
                return None
            else:
                words.append(token)
        elif after is not None or token.text in ("(", ")", ";;") or token.text.startswith("<<"):
            return None
        elif token.text.strip("0123456789")[:1] in ("<", ">") or token.text.startswith("&>"):
            after = token.text
        else:
            end()
    end()
    return commands or None


def _substitutes(word: Word) -> bool:
    """Whether the word holds the output of another command."""
    return any(quote != "'" and ("$(" in text or "`" in text) for text, quote in word.pieces)
