"""Texts that select jobs: ``last``, ``all``, ``7``, ``3-7``, ``3,5``, ``12_0-4``, a name."""

from __future__ import annotations

import re
from typing import Literal

from dovetail.errors import InputError
from dovetail.records import dataclass
from dovetail.workloads.array_indices import parse_indices

_NUMBER = re.compile(r"([0-9]{1,15})(?:-([0-9]{1,15}))?")
_ELEMENTS = re.compile(r"([0-9]{1,15})_\[?([0-9][0-9:,-]*)\]?")


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
    for part in _split_parts(text):
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


def _split_parts(text: str) -> list[str]:
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
