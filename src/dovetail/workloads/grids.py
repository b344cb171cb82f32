"""Parameter grids: every combination of the values of several names.

Written as ``--each lr=0.1,0.01 --each seed=1..5`` on the command line, as ``grid`` in a job file.
"""

from __future__ import annotations

import glob
import itertools
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.model.templates import DEVICE

T = TypeVar("T")

MOST_VALUES = 1_000_000
"""Values of one name, and combinations of all."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PADDED = re.compile(r"-?0[0-9]")
"""A bound with zeros before it: all numbers of its range are as long as the longer bound, as in a shell."""
_RANGE = re.compile(r"(-?[0-9]{1,15})\.\.(-?[0-9]{1,15})(?:\.\.([0-9]{1,15}))?")


def parse_each(texts: Sequence[str], cwd: str | os.PathLike[str] = ".") -> dict[str, list[str]]:
    """``NAME=VALUES`` of ``--each``, in the order given. Raises `InputError`.

    >>> parse_each(["lr=0.1,0.01", "seed=1..3"])
    {'lr': ['0.1', '0.01'], 'seed': ['1', '2', '3']}
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise InputError(
                f"found {show_value(text)}, expected NAME=VALUES, e.g. lr=0.1,0.01 or seed=1..5",
                where="--each",
            )
        if name in found or name == DEVICE:
            why = "a second time" if name in found else "which stands for the device"
            raise InputError(f"found the name {name!r} {why}, expected another one", where="--each")
        found[name] = parse_values(values, f"--each {name}", cwd)
    total = math.prod(len(values) for values in found.values())
    if total > MOST_VALUES:
        raise InputError(f"found {total} combinations, expected at most {MOST_VALUES}", where="--each")
    return found


def parse_values(text: str, where: str, cwd: str | os.PathLike[str] = ".") -> list[str]:
    """The values of one name: texts with commas between them, ``FIRST..LAST[..STEP]``, file patterns.

    A range takes in both ends and may fall; with zeros before a bound its numbers are as long as that. ``*``
    and ``?`` stand for files, by name. Raises `InputError`.

    >>> parse_values("1..3,10,7..3..2,08..10", "--each n")
    ['1', '2', '3', '10', '7', '5', '3', '08', '09', '10']
    """
    found: list[str] = []
    for part in text.split(","):
        span = _RANGE.fullmatch(part.strip())
        if span is not None:
            found += _range_values(span, where)
        elif "*" in part or "?" in part:
            matches = sorted(glob.glob(part, root_dir=cwd))
            if not matches:
                raise InputError(
                    f"found {show_value(part)}, which no file matches, expected files", where=where
                )
            found += matches
        elif not part:
            raise InputError(
                f"found {show_value(text)}, expected values with commas between them", where=where
            )
        else:
            found.append(part)
        if len(found) > MOST_VALUES:
            raise InputError(f"found more than {MOST_VALUES} values, expected fewer", where=where)
    return found


def _range_values(span: re.Match[str], where: str) -> Iterator[str]:
    first, last, step = int(span[1]), int(span[2]), int(span[3] or 1)
    if not step or abs(last - first) // step >= MOST_VALUES:
        raise InputError(
            f"found {show_value(span[0])}, expected a range of at most {MOST_VALUES} values", where=where
        )
    down = last < first
    width = max(map(len, span.group(1, 2))) if any(map(_PADDED.match, span.group(1, 2))) else 0
    return (f"{n:0{width}d}" for n in range(first, last + (-1 if down else 1), -step if down else step))


def grid_combinations(grid: Mapping[str, Sequence[T]]) -> Iterator[dict[str, T]]:
    """Every combination, the last name changing fastest; one empty combination without names.

    >>> list(grid_combinations({"a": [1, 2], "b": ["x"]}))
    [{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'x'}]
    """
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))
