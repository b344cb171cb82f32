"""Names of files with ``%`` signs, as sbatch fills them in; what only the start of a job shows stays open.

=======  ================================================================================
``%A``   number of the array, of another job its own
``%a``   index in the array, of another job 4294967294, as in Slurm
``%b``   the last digit of that index
``%J``   number of the job, as ``%j``: a script is no step
``%j``   number of the job; each job of an array has its own
``%N``   short name of the first node
``%n``   0: the first node
``%s``   ``batch``: no step
``%t``   0: the first task
``%u``   name of the user
``%x``   name of the job, with ``_`` for ``/``
``%%``   the sign itself
=======  ================================================================================

A width such as in ``%4j`` fills numbers up with zeros. A backslash leaves all signs as they are.
"""

from __future__ import annotations

import re

_SIGN = re.compile(r"%(\d{0,4})(.?)", re.DOTALL)
NO_INDEX = "4294967294"
MOST_WIDTH = 10
"""Digits that a number is filled up to at most, as in Slurm."""
OPEN = {"j": "j", "J": "j", "A": "A", "a": "a", "b": "b", "N": "H"}
"""Signs that are filled in when the job starts, and their marks in `dovetail.model.Launch`."""


def fill_pattern(pattern: str, name: str, user: str, *, is_array: bool) -> tuple[str, list[str]]:
    """A path with marks for what is not known yet, and the signs that mean nothing.

    >>> fill_pattern("%x-%3t.%q%%", "a b", "ada", is_array=False)
    ('a b-000.%q%', ['%q'])
    """
    if "\\" in pattern:
        return pattern.replace("\\", ""), []
    unknown: list[str] = []

    def fill_mark(match: re.Match[str]) -> str:
        width, sign = min(MOST_WIDTH, int(match[1] or 0)), match[2]
        if sign == "%" and not match[1]:
            return "%"
        if sign == "x":
            return plain_name(name)
        if sign == "u":
            return user
        if sign == "s":
            return "batch"
        if sign in ("n", "t"):
            return "0".zfill(width)
        if sign in ("a", "b") and not is_array:
            return (NO_INDEX if sign == "a" else NO_INDEX[-1]).zfill(width)
        if sign in OPEN:
            return f"\0{width}{OPEN[sign]}" if width and sign != "N" else f"\0{OPEN[sign]}"
        unknown.append(match[0])
        return match[0]

    return _SIGN.sub(fill_mark, pattern), unknown


def plain_name(name: str) -> str:
    """A job's name as a part of a file's name."""
    return name.replace("/", "_").replace("\0", "_")
