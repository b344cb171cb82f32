"""The commands that pages show: `dovetail …` in blocks and in the text, as a shell would read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

__all__ = ["blocks", "shown"]

_INLINE = re.compile(r"`(dovetail [^`]+)`")
_MARKED = re.compile(r"<!-- figures: (dovetail .*?) (?:\| |-->)")
"""A command that ``tools/figures.py`` runs."""
_ENDS = frozenset({"|", "||", "&&", ";", "&", ">", ">>", "2>", "<", "2>&1"})


def blocks(text: str) -> list[str]:
    """The blocks of code of a page, indented or fenced, without their indent and fences."""
    return _parts(text)[0]


def _parts(text: str) -> tuple[list[str], str]:
    """The blocks of code, and the prose around them."""
    code: list[list[str]] = []
    prose: list[str] = []
    fenced = inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
            inside = False
        elif fenced or line.startswith("    "):
            code = code if inside else [*code, []]
            inside = True
            code[-1].append(line if fenced else line[4:])
        else:
            inside = inside and not line
            prose.append(line)
    return ["\n".join(lines) for lines in code], "\n".join(prose)


def shown(page: Path) -> Iterator[list[str]]:
    """The words after ``dovetail`` of every command of a page, without what a shell does with them."""
    code, prose = _parts(page.read_text(encoding="utf-8"))
    for line in map(str.strip, "\n".join(code).replace("\\\n", " ").splitlines()):
        found = re.match(
            r"(?:\w*\$ )?(?:\w+=\S+ )*(?:(?:nohup|salloc|srun|time|ssh|uvx) [^|]*?)?dovetail (.*)", line
        )
        if found:
            yield _words(found[1])
    line = prose.replace("\n", " ")
    for command in _INLINE.findall(line) + _MARKED.findall(line):
        yield _words(command.removeprefix("dovetail "))


def _words(text: str) -> list[str]:
    if re.search(r"\[-|\[[A-Z]|\w\|\w", text):
        return []  # a form with choices, not a command
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if word in _ENDS or set(word) <= set(";|&<>"):
            break
        if word not in ("…", "..."):
            words.append(word)
    return words
