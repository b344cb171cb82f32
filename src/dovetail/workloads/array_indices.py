"""The indices of an array of jobs: ``0-9``, ``1,3,5``, ``0-20:5``, ``0-9%2``."""

from __future__ import annotations

import re

from dovetail.errors import InputError

MOST_ELEMENTS = 100_000
"""Elements of one array."""
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([0-9]{1,9}))?)?")


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
