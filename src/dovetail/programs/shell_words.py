"""Words of a line as a shell splits them, what is quoted kept apart; the programs that a short script runs.

``shlex`` forgets the quotes, on which it depends whether ``$HOME`` and ``*.txt`` are expanded, and whether
``|`` is an operator or text. Rules: POSIX.1-2017, Shell Command Language, 2.2 and 2.3.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

from dovetail.programs.wrappers import ASSIGNMENT, word_set
from dovetail.records import dataclass

Quote = Literal["", "'", '"']
Piece = tuple[str, Quote]
"""Text, and the quotes around it; a character after a backslash counts as one in single quotes."""

_OPERATOR = re.compile(r"&&|&>>?|\|\|?|;;?|<{1,3}&?|>>?[&|]?|[&()\n]")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([^{}]*)\}|(\())|(`)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GLOB = re.compile(r"[*?\[]")


class Unexpandable(ValueError):  # noqa: N818 - reads as what it is
    """A word whose expansion fails: ``found`` is the part, ``expected`` what would do."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.found, self.expected = found, expected


@dataclass(frozen=True, slots=True)
class Word:
    """One word in pieces."""

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The word without its quotes, nothing expanded."""
        return "".join(text for text, _ in self.pieces)

    @property
    def bare_text(self) -> str:
        """What is outside quotes, with ``Q`` for each quoted piece."""
        return "".join("Q" if quote else text for text, quote in self.pieces)

    def replace_pieces(self, change: Callable[[str, Quote], Sequence[Piece]]) -> Word:
        """The word with each piece changed to others."""
        return Word(tuple(new for text, quote in self.pieces for new in change(text, quote)))

    def expand_word(self, cwd: str | os.PathLike[str], env: Mapping[str, str]) -> list[str]:
        """The word with ``~``, ``$NAME``, ``${NAME}`` and file patterns expanded, as outside single quotes.

        A variable's value stays one word. File names are sorted. A pattern that no file matches is an error
        if it holds a ``*``, unless the word is an option; otherwise it stays as it is. Raises
        `Unexpandable`.
        """
        pieces = [*_expand_home(self.pieces)]
        if any(quote != "'" and ("$" in text or "`" in text) for text, quote in pieces):
            pieces = [new for piece in pieces for new in _expand_variables(piece, env)]
        text = "".join(part for part, _ in pieces)
        open_ = [part for part, quote in pieces if not quote and _GLOB.search(part)]
        if not open_:
            return [text]
        # Quoted parts are text in the pattern too.
        pattern = "".join(glob.escape(part) if quote else part for part, quote in pieces)
        matches = sorted(glob.glob(pattern, root_dir=cwd))
        # With a "?" or "[" alone it may well be text (a URL, a regular expression).
        if not matches and any("*" in part for part in open_) and not text.startswith("-"):
            raise Unexpandable(repr(text), "files of that pattern, or quotes around it where it is text")
        return matches or [text]


@dataclass(frozen=True, slots=True)
class Operator:
    """What a shell would do between words: ``|``, ``&&``, ``;``, ``>``, … (a line feed is ``;``)."""

    text: str


def split_words(line: str) -> list[Word]:
    """The words of a line; ``#`` at the start of a word begins a comment. Operators are text.

    Raises `ValueError` for a quotation that stays open.

    >>> [word.text for word in split_words("gzip -9 'big file' # smaller")]
    ['gzip', '-9', 'big file']
    """
    return [token for token in _scan_characters(line, operators=False) if isinstance(token, Word)]


def split_tokens(script: str) -> list[Word | Operator]:
    """The words and operators of a shell script. Raises `ValueError` for a quotation that stays open.

    >>> [token.text for token in split_tokens("zcat a.gz | sort -n >b 2>&1")]
    ['zcat', 'a.gz', '|', 'sort', '-n', '>', 'b', '2>&', '1']
    """
    return list(_scan_characters(script, operators=True))


def _scan_characters(text: str, *, operators: bool) -> Iterator[Word | Operator]:
    """One pass over the characters."""
    pieces: list[Piece] = []
    bare = ""
    i, n = 0, len(text)

    def end_of_bare() -> None:
        nonlocal bare
        if bare:
            pieces.append((bare, ""))
            bare = ""

    while i < n:
        c = text[i]
        operator = _OPERATOR.match(text, i) if operators else None
        if operator is not None:
            # A number glued to a redirection is a descriptor, not a word.
            number = bare if c in "<>" and bare.isdigit() and not pieces else ""
            if number:
                bare = ""
            end_of_bare()
            if pieces:
                yield Word(tuple(pieces))
                pieces = []
            yield Operator(";" if c == "\n" else number + operator[0])
            i = operator.end()
        elif c.isspace():
            end_of_bare()
            if pieces:
                yield Word(tuple(pieces))
                pieces = []
            i += 1
        # Only at the start of a word: "a#b" is text.
        elif c == "#" and not bare and not pieces:
            end = text.find("\n", i)
            i = n if end < 0 else end
        elif c in "'\"" and bare.endswith("$"):
            # $'…' of bash; $"…" is translated there, and the same here.
            bare = bare[:-1]
            if c == "'":
                end_of_bare()
                i = _scan_escaped(text, i + 1, pieces)
        elif c == "'":
            end = text.find("'", i + 1)
            if end < 0:
                raise ValueError("no closing quotation")
            end_of_bare()
            pieces.append((text[i + 1 : end], "'"))
            i = end + 1
        elif c == '"':
            end_of_bare()
            i = _scan_double_quotes(text, i + 1, pieces)
        elif c == "\\":
            if i + 1 == n:
                raise ValueError("no escaped character")
            # A backslash before a line feed joins two lines.
            if text[i + 1] != "\n":
                end_of_bare()
                pieces.append((text[i + 1], "'"))
            i += 2
        else:
            bare += c
            i += 1
    end_of_bare()
    if pieces:
        yield Word(tuple(pieces))


def _scan_double_quotes(text: str, i: int, pieces: list[Piece]) -> int:
    """Adds what stands in double quotes from ``i`` on; returns where the text goes on after them."""
    found = ""
    while i < len(text):
        c = text[i]
        if c == '"':
            pieces.append((found, '"'))
            return i + 1
        # In double quotes a backslash escapes these alone, and else stands for itself.
        if c == "\\" and i + 1 < len(text) and text[i + 1] in '"\\$`\n':
            pieces.append((found, '"'))
            found = ""
            if text[i + 1] != "\n":
                pieces.append((text[i + 1], "'"))
            i += 2
            continue
        found += c
        i += 1
    raise ValueError("no closing quotation")


_ESCAPED = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|c(.))",
    re.DOTALL,
)
_LETTERS = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


def _scan_escaped(text: str, i: int, pieces: list[Piece]) -> int:
    """Adds what stands in ``$'…'`` from ``i`` on; returns where the text goes on after it.

    The escapes are those of bash (Bash Reference Manual, ANSI-C Quoting); bytes above 127 are taken together
    as UTF-8.
    """
    found = bytearray()
    while i < len(text):
        c = text[i]
        if c == "'":
            pieces.append((found.decode("utf-8", "surrogateescape"), "'"))
            return i + 1
        match = _ESCAPED.match(text, i) if c == "\\" else None
        if match is None:
            found += c.encode("utf-8", "surrogateescape")
            i += 1
            continue
        letter, octal, byte, short, long, control = match.groups()
        if letter is not None:
            found += _LETTERS.get(letter, letter).encode()
        elif octal is not None or byte is not None:
            found.append(int(octal, 8) & 255 if octal is not None else int(byte, 16))
        elif control is not None:
            found.append(ord(control.upper()) & 31)
        else:
            number = int(short or long, 16)
            # Surrogates are no characters of their own.
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                raise ValueError(f"{match[0]}, which is no character")
            found += chr(number).encode()
        # A null byte would end the argument.
        if found.endswith(b"\0"):
            raise ValueError(f"{match[0]}, a null character")
        i = match.end()
    raise ValueError("no closing quotation")


def _expand_home(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """``~`` and ``~user`` at the start of the word."""
    for place, (text, quote) in enumerate(pieces):
        if place or quote or not text.startswith("~"):
            yield text, quote
            continue
        user, slash, rest = text.partition("/")
        # "~user" expands only as a whole word, or before a slash.
        home = os.path.expanduser(user) if slash or len(pieces) == 1 else user
        yield home, "'"
        yield slash + rest, ""


def _expand_variables(piece: Piece, env: Mapping[str, str]) -> Iterator[Piece]:
    text, quote = piece
    if quote == "'":
        yield piece
        return
    at = 0
    for match in _VARIABLE.finditer(text):
        yield text[at : match.start()], quote
        at = match.end()
        if match[3] or match[4]:
            found = "$(…)" if match[3] else "`…`"
            raise Unexpandable(found, "words: no shell reads this line (sh -c '…' starts one)")
        name = match[1] or match[2]
        if not _NAME.fullmatch(name):
            raise Unexpandable(f"${{{name}}}", "${NAME}: no shell reads this line (sh -c '…' starts one)")
        if name not in env:
            raise Unexpandable(
                f"${name}", "a variable that is set, or single quotes around it where it is text"
            )
        yield env[name], "'"
    yield text[at:], quote


# -- scripts -----------------------------------------------------------------------------------------

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
        found = split_tokens(script)
    except ValueError:
        return None
    commands: list[Simple] = []
    words: list[Word] = []
    read: list[str] = []

    def end_command() -> None:
        # Assignments before a program are its environment.
        while words and ASSIGNMENT.fullmatch(words[0].bare_text):
            del words[0]
        if words:
            commands.append(Simple([word.text for word in words], list(read)))
        words.clear()
        read.clear()

    # The redirection whose word comes next.
    after: str | None = None
    for token in found:
        if isinstance(token, Word):
            if after is not None:
                read += [token.text] if after == "<" else []
                after = None
            elif _has_substitution(token) or (not words and token.bare_text in RESERVED):
                return None
            else:
                words.append(token)
        # Subshells, here-documents: more than a list of programs.
        elif after is not None or token.text in ("(", ")", ";;") or token.text.startswith("<<"):
            return None
        elif token.text.strip("0123456789")[:1] in ("<", ">") or token.text.startswith("&>"):
            after = token.text
        else:
            end_command()
    end_command()
    return commands or None


def _has_substitution(word: Word) -> bool:
    """Whether the word holds the output of another command."""
    return any(quote != "'" and ("$(" in text or "`" in text) for text, quote in word.pieces)
