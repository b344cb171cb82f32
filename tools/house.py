"""The house in figures: lines, words, comments, names and logging calls, room by room.

    python tools/house.py             a table, and the figures of the whole
    python tools/house.py --json      the same for programs
    python tools/house.py --words     every line with a word that pages and code do without

A room is a folder of `src/dovetail`, one of the packages, or a folder of pages. Everything is counted in
the files as they are, so that a figure means the same from one commit to the next. `tests/test_words.py`
holds the limit on words.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
WORDS = re.compile(
    r"\b(told|tells?|telling|said|says?|saying|ask(?:s|ed|ing)?|heard|hears?|nobody|whoever|whom|somebody)\b",
    re.IGNORECASE,
)
"""Words for people, which sentences about components do without."""
CALLS = re.compile(r"\b(?:log|logger|LOG|_log|logging)\.(?:debug|info|warning|error|exception|critical)\(")

EXCEPTIONS: dict[tuple[str, str], str] = {
    ("docs/how-to/optuna.md", "known.ask()"): "a method of Optuna",
    ("docs/how-to/optuna.md", "known.tell("): "a method of Optuna",
    ("docs/how-to/add-a-policy.md", "in job.asked or"): "an attribute of `Job`, which policies of users read",
}
"""(file, part of a line) of the lines that may have such a word, and the reason of each."""


class Room(NamedTuple):
    """What was counted in one room."""

    lines: int = 0
    words: int = 0
    comments: int = 0
    functions: int = 0
    letters: int = 0
    one_word: int = 0
    logging: int = 0

    def plus(self, other: Room) -> Room:
        """Both together."""
        return Room(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def rates(self) -> dict[str, float]:
        """The figures that do not depend on how large a room is; of nothing, 0."""
        return {
            "words_per_1000_lines": round(1000 * self.words / max(1, self.lines), 2),
            "comments_percent": round(100 * self.comments / max(1, self.lines), 2),
            "mean_name": round(self.letters / max(1, self.functions), 2),
            "one_word_percent": round(100 * self.one_word / max(1, self.functions), 1),
        }


def list_code(root: Path) -> list[Path]:
    """The Python files of all distributions, without their tests."""
    return sorted([*root.glob("src/**/*.py"), *root.glob("packages/*/src/**/*.py")])


def list_pages(root: Path) -> list[Path]:
    """The pages that people read; what others make of code (`docs/generated`, schemas) is none."""
    found = [*root.glob("docs/**/*.md"), *root.glob("packages/*/README.md")]
    found += [root / "README.md", root / "CONTRIBUTING.md"]
    return sorted(page for page in found if "generated" not in page.parts)


def room_of(file: Path, root: Path) -> str:
    """The room of a file: `src/dovetail/engine`, `packages/lab`, `docs/how-to`."""
    parts = file.relative_to(root).parts
    return "/".join(parts[:3] if parts[0] == "src" else parts[:2])


def matching_lines(file: Path, root: Path) -> Iterator[tuple[int, str, int]]:
    """The lines with such words, but for exceptions: number, text and how many it has."""
    path = str(file.relative_to(root))
    allowed = [part for name, part in EXCEPTIONS if name == path]
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        count = len(WORDS.findall(line))
        if count and not any(part in line for part in allowed):
            yield number, line.strip(), count


def measure_file(file: Path, root: Path) -> Room:
    """Everything that is counted of a file."""
    text = file.read_text(encoding="utf-8")
    lines, words = text.count("\n"), sum(count for _, _, count in matching_lines(file, root))
    if file.suffix != ".py":
        return Room(lines, words)
    names = [
        node.name.strip("_")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__")
    ]
    return Room(
        lines,
        words,
        comments=sum(line.strip().startswith("#") for line in text.splitlines()),
        functions=len(names),
        letters=sum(map(len, names)),
        one_word=sum("_" not in name for name in names),
        logging=len(CALLS.findall(text)),
    )


def measure_rooms(files: list[Path], root: Path) -> dict[str, Room]:
    """The rooms of these files, by name."""
    found: dict[str, Room] = {}
    for file in files:
        room = room_of(file, root)
        found[room] = found.get(room, Room()).plus(measure_file(file, root))
    return dict(sorted(found.items()))


def add_rooms(rooms: dict[str, Room]) -> Room:
    """All rooms together."""
    total = Room()
    for room in rooms.values():
        total = total.plus(room)
    return total


def list_stale_exceptions(root: Path) -> list[tuple[str, str]]:
    """Exceptions whose line is gone, or has no such word any more."""
    return [
        (path, part)
        for path, part in EXCEPTIONS
        if not (root / path).is_file()
        or not any(
            part in line and WORDS.search(line)
            for line in (root / path).read_text(encoding="utf-8").splitlines()
        )
    ]


def print_table(code: dict[str, Room], pages: dict[str, Room]) -> None:
    """One line a room, then the sums."""
    heads = (
        ("lines", 7),
        ("words", 6),
        ("/1000", 6),
        ("comments", 9),
        ("name", 6),
        ("one word", 9),
        ("logging", 8),
    )
    print(f"{'room':28}", *(f"{head:>{width}}" for head, width in heads))
    sums = {"code": add_rooms(code), "pages": add_rooms(pages)}
    for name, room in {**code, **pages, **sums, "all": sums["code"].plus(sums["pages"])}.items():
        rates = room.rates()
        line = f"{name:28} {room.lines:7} {room.words:6} {rates['words_per_1000_lines']:6.1f}"
        if room.functions:
            line += f" {rates['comments_percent']:8.1f}% {rates['mean_name']:6.1f}"
            line += f" {rates['one_word_percent']:8.0f}% {room.logging:8}"
        print(line)


def main(arguments: list[str]) -> int:
    """Print the table, or what an option names."""
    files = [*list_code(ROOT), *list_pages(ROOT)]
    if "--words" in arguments:
        for file in files:
            for number, line, _ in matching_lines(file, ROOT):
                print(f"{file.relative_to(ROOT)}:{number}: {line}")
        return 0
    code, pages = measure_rooms(list_code(ROOT), ROOT), measure_rooms(list_pages(ROOT), ROOT)
    if "--json" in arguments:
        rooms = {**code, **pages, "code": add_rooms(code), "pages": add_rooms(pages)}
        print(json.dumps({name: room._asdict() | room.rates() for name, room in rooms.items()}, indent=1))
    else:
        print_table(code, pages)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
