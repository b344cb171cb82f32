"""What is a batch script, and the lines of its head that hold options.

The rules are those of sbatch (Slurm 22.05, ``src/sbatch/opt.c``): a script begins with ``#!``; its head goes
on over comments and blank lines to the first command; a line of options begins with ``#SBATCH`` in the
first column; a ``#`` outside quotes ends it, also within a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dovetail.errors import InputError
from dovetail.records import dataclass

SBATCH, DOVETAIL = "#SBATCH", "#DOVETAIL"
SLURM = "#SLURM"
"""An older word for `SBATCH`, which sbatch still reads."""
FOREIGN = ("#PBS", "#BSUB")
"""Lines of other batch systems, of which sbatch reads some."""
BYTE_ORDER_MARK = "\ufeff"
_OPTIONS = re.compile(rf"^(?:{SBATCH}|{DOVETAIL})", re.MULTILINE)
_COMPONENTS = ("hetjob", "packjob")


@dataclass(frozen=True, slots=True)
class Directive:
    """A line of options: where it stands, with which word it begins, what follows; of sbatch's in words."""

    line: int
    keyword: str
    words: tuple[str, ...]
    rest: str


def is_script(text: str) -> bool:
    """Whether a text is a batch script, and so no list of commands. Linear.

    It is one if its first line that is not blank begins with ``#!``, or if any line begins with ``#SBATCH``
    or ``#DOVETAIL``.

    >>> is_script("#!/bin/sh\\ntrue\\n"), is_script("#SBATCH -n 2\\ntrue\\n"), is_script("# list\\ntrue\\n")
    (True, True, False)
    """
    bare = text.removeprefix(BYTE_ORDER_MARK)
    return bare.lstrip().startswith("#!") or _OPTIONS.search(bare) is not None


def check_script(text: str, name: str) -> str:
    """The text without a byte order mark. Raises `InputError` for what sbatch refuses as a script."""
    text = text.removeprefix(BYTE_ORDER_MARK)
    lines = text.split("\n")
    if "\r\n" in text or text.endswith("\r"):
        number = next(at for at, line in enumerate(lines, 1) if line.endswith("\r"))
        raise InputError(
            r"found DOS line ends (\r\n), expected UNIX line ends (\n); dos2unix changes them",
            where=f"{name}: line {number}",
        )
    if not text.startswith("#!"):
        found = "an empty line" if not lines[0].strip() else repr(lines[0][:40])
        raise InputError(
            f"found {found}, expected #! and the path of an interpreter, such as #!/bin/sh, which begin a "
            "batch script",
            where=f"{name}: line 1",
        )
    return text


def head_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of the head with their numbers: comments, up to the first command."""
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if bare and not bare.startswith("#"):
            return
        if bare:
            yield number, line


def read_directives(text: str, name: str) -> Iterator[Directive]:
    """The lines of options of a script's head, in order. Raises `InputError` with file and line."""
    for number, line in head_lines(text):
        for word in (SBATCH, DOVETAIL, SLURM, *FOREIGN):
            if line.startswith(word):
                where = f"{name}: line {number}"
                rest = line[len(word) :]
                keyword = SBATCH if word == SLURM else word
                words = split_words(rest, where) if keyword == SBATCH else []
                if words and words[0] in _COMPONENTS:
                    raise InputError(
                        f"found {words[0]}, a job of several components, expected a job of one kind of node",
                        where=where,
                    )
                yield Directive(number, keyword, tuple(words), rest)
                break


def split_words(text: str, where: str) -> list[str]:
    """The words of a line of options, as sbatch splits them. Raises `InputError`.

    Quotes may stand anywhere in a word; a backslash keeps the next character, but not a blank outside quotes;
    an unquoted ``#`` and an empty word end the line.

    >>> split_words(" -J 'a b'c --mem=1G#now -t 5", "job.sh: line 2")
    ['-J', 'a bc', '--mem=1G']
    """
    words: list[str] = []
    at, end = 0, len(text)
    while True:
        while at < end and text[at].isspace():
            at += 1
        if at == end or text[at] == "#":
            return words
        if text[at] == ":":
            raise InputError(
                "found ':', which parts jobs of several components, expected an option", where=where
            )
        word, at, over = _next_word(text, at, where)
        if word:
            words.append(word)
        if over or not word:
            return words


def _next_word(text: str, at: int, where: str) -> tuple[str, int, bool]:
    """The word that begins here, where it ends, and whether a comment follows at once."""
    found: list[str] = []
    quote, escaped = "", False
    while at < len(text) and (quote or not text[at].isspace()):
        character = text[at]
        at += 1
        if escaped:
            escaped = False
            found.append(character)
        elif character == "\\":
            escaped = True
        elif quote:
            if character == quote:
                quote = ""
            else:
                found.append(character)
        elif character in "\"'":
            quote = character
        elif character == "#":
            return "".join(found), at, True
        else:
            found.append(character)
    if quote:
        raise InputError(f"found {quote} without its end, expected a closing {quote}", where=where)
    return "".join(found), at, False
