"""Hostlists: ``n[0-1,5]`` for n0, n1, n5, as cluster files and results write them.

Numbers keep the zero padding of the lower end of their range (``n[08-10]`` is n08, n09, n10). Several
brackets in one name are combined, the last one fastest; commas outside brackets separate names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import product

from dovetail.errors import InputError

# n[0-999999999] is eleven characters of a file that may come from anywhere.
MOST_NAMES = 1_000_000
"""A hostlist that stands for more names is refused: it would exhaust memory before anything else."""

_RANGE = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)


def expand_hostlist(text: str) -> list[str]:
    """The names that a hostlist stands for, in its order; none for an empty text.

    Raises `InputError` for a malformed list or one of more than `MOST_NAMES` names. Linear in the output.
    """
    names: list[str] = []
    for part in _split_hostlist(text):
        pieces = re.split(r"\[([^\[\]]*)\]", part)
        if not part or any("[" in p or "]" in p for p in pieces[::2]):
            raise _hostlist_error(text, f"{part!r}")
        ways: list[list[str]] = []
        total = 1
        for i, piece in enumerate(pieces):
            ways.append(_expand_range(piece, text) if i % 2 else [piece])
            # The product is bounded before it is made.
            total *= len(ways[-1])
        if len(names) + total > MOST_NAMES:
            raise InputError(f"hostlist {text!r}: found more than {MOST_NAMES} names, expected fewer")
        names.extend("".join(way) for way in product(*ways))
    return names


def _split_hostlist(text: str) -> list[str]:
    """The parts between commas that are outside brackets."""
    return re.split(r",(?![^\[\]]*\])", text) if text else []


def _expand_range(inside: str, text: str) -> list[str]:
    found: list[str] = []
    for item in inside.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise _hostlist_error(text, f"{item!r} in brackets")
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise _hostlist_error(text, f"the range {item!r}, which runs backwards")
        if int(high) - int(low) >= MOST_NAMES - len(found):
            raise InputError(f"hostlist {text!r}: found more than {MOST_NAMES} names, expected fewer")
        # A range pads as its first number is written (n[01-16]); a single number stands as it is.
        width = _padding_width(low) if match[2] else len(low)
        found.extend(f"{n:0{width}d}" for n in range(int(low), int(high) + 1))
    return found


def _hostlist_error(text: str, found: str) -> InputError:
    return InputError(
        f"hostlist {text!r}: found {found}, expected names such as 'n[0-1,5]' or 'r[1-2]n[01-16]'"
    )


def _padding_width(digits: str) -> int:
    """Width to which a range that begins with these digits pads its numbers."""
    return len(digits) if digits.startswith("0") else 1


def compress_names(names: Iterable[str]) -> str:
    """The hostlist of these names, in their order: ``expand(compress(names)) == names``.

    Neighbours that differ in their last number alone share a bracket. Linear.
    """
    parts: list[str] = []
    # Of the open bracket: first and last digits.
    ranges: list[tuple[str, str]] = []
    # What stands before and after the open bracket.
    open_around: tuple[str, str] | None = None

    def close_range() -> None:
        if open_around is None:
            return
        before, after = open_around
        inside = ",".join(a if a == b else f"{a}-{b}" for a, b in ranges)
        single = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
        parts.append(f"{before}{inside}{after}" if single else f"{before}[{inside}]{after}")
        ranges.clear()

    for name in names:
        match = _NUMBERED.fullmatch(name)
        if match is None:
            close_range()
            open_around = None
            parts.append(name)
            continue
        around, digits = (match[1], match[3]), match[2]
        if around != open_around:
            close_range()
            open_around = around
        if ranges:
            first, last = ranges[-1]
            # Only the next number in the same padding joins the range: n9,n10 and n09,n10 are different
            # names.
            if digits == f"{int(last) + 1:0{_padding_width(first)}d}":
                ranges[-1] = (first, digits)
                continue
        ranges.append((digits, digits))
    close_range()
    return ",".join(parts)
