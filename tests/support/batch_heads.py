"""Heads of public batch scripts: the corpus that the tests of the reader share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
CORPUS, FORMS = DATA / "batch_heads.txt", DATA / "batch_forms.txt"
BODY = "true\n"


@dataclass(frozen=True)
class Head:
    """One head: its number in the file, from 1, its text there, its lines.

    ``environ`` are variables of the submission, ``words`` options on its command line.
    """

    number: int
    text: str
    lines: tuple[str, ...]
    environ: Mapping[str, str]
    words: tuple[str, ...]

    @property
    def script(self) -> str:
        """A script that begins with it."""
        return "\n".join(self.lines) + "\n" + BODY


def heads(path: Path = CORPUS) -> list[Head]:
    """All heads of a file, in order."""
    found = []
    for text in path.read_text().splitlines():
        if not text.startswith("#"):
            found.append(_head(len(found) + 1, text))
    return found


def _head(number: int, text: str) -> Head:
    first, lines, words = "#!/bin/bash", [], []
    environ: dict[str, str] = {}
    for part in text.split(";;"):
        if part.startswith("!") and not lines:
            first = f"#{part}"
        elif part.startswith("@"):
            name, _, value = part[1:].partition("=")
            environ[name] = value
        elif part.startswith("$"):
            words += part[1:].split()
        else:
            lines.append(part[1:] if part.startswith("~") else f"#SBATCH {part}")
    return Head(number, text, (first, *lines), environ, tuple(words))
