"""Which jobs somebody means: ``last``, ``all``, ``7``, ``3-7``, ``3,5``, ``12_0-4``, a name."""

from __future__ import annotations

import re
from typing import Literal

from dovetail.errors import InputError
from dovetail.records import dataclass

_NUMBER = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")
_ELEMENTS = re.compile(r"([0-9]{1,15})_\[?([0-9][0-9:,-]*)\]?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")
MOST_ELEMENTS = 100_000
"""Elements of one array."""


@dataclass(frozen=True, slots=True)
class Selector:
    """One part of what was written.

    ``numbers`` are the first and the last number that are meant, ``elements`` those of an array (empty: the
    whole job); ``name`` is a job's name.
    """

    kind: Literal["last", "all", "numbers", "name"]
    numbers: tuple[int, int] = (0, 0)
    elements: tuple[int, ...] = ()
    name: str = ""


def parse_selectors(text: str) -> list[Selector]:
    """What was written, part by part; raises `InputError`.

    >>> [s.kind for s in parse_selectors("last,3-7,12_0,train")]
    ['last', 'numbers', 'numbers', 'name']
    """
    found: list[Selector] = []
    for part in _parts(text):
        if part in ("last", "all"):
            found.append(Selector("last" if part == "last" else "all"))
        elif match := _NUMBER.fullmatch(part):
            first = int(match[1])
            last = first if match[2] is None else int(match[2])
            if last < first:
                raise InputError(f"jobs: found {part!r}, expected the lower number first")
            found.append(Selector("numbers", (first, last)))
        elif match := _ELEMENTS.fullmatch(part):
            number = int(match[1])
            found.append(Selector("numbers", (number, number), tuple(parse_indices(match[2], "jobs"))))
        else:
            found.append(Selector("name", name=part))
    if not found:
        raise InputError("jobs: found nothing, expected numbers, ranges, names, 'last' or 'all'")
    return list(dict.fromkeys(found))


def _parts(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts = [""]
    depth = 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def parse_indices(text: str, where: str) -> list[int]:
    """``0-9``, ``1,3,5``, ``0-20:5``, as Slurm has them; ascending, each once. Raises `InputError`.

    >>> parse_indices("0-6:3,1", "array")
    [0, 1, 3, 6]
    """
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InputError(f"{where}: found {part!r}, expected indices such as 0-9, 1,3,5 or 0-20:5")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        step = 1 if match[3] is None else int(match[3])
        if last < first or step < 1:
            raise InputError(f"{where}: found {part!r}, expected the lower index first and a step above 0")
        if (last - first) // step + 1 + len(found) > MOST_ELEMENTS:
            raise InputError(f"{where}: found more than {MOST_ELEMENTS} indices, expected at most so many")
        found.update(range(first, last + 1, step))
    return sorted(found)


def parse_array(text: str) -> tuple[list[int], int | None]:
    """The indices of an array, and how many may run at once (``0-9%2``). Raises `InputError`."""
    indices, percent, limit = text.partition("%")
    if not percent:
        return parse_indices(indices, "array"), None
    if not limit.isdecimal() or not 1 <= int(limit) <= MOST_ELEMENTS:
        raise InputError(f"array: found {limit!r} after '%', expected how many may run at once")
    return parse_indices(indices, "array"), int(limit)
