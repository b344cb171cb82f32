"""Who holds a promise in a compiled simulation, in the order of the queue, and when it is due."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit

__all__ = ["LOOKED_AT", "SIZE", "Line", "in_order", "line_up", "nobody", "take_due"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SIZE, LOOKED_AT = range(2)  # of what changes as one number


class Line(NamedTuple):
    """Who holds a promise, in the order of the queue, all of shape (jobs,) but ``whole``.

    ``job``, ``start`` and ``kind`` (the class of what it asks for) are those of each place; of each job
    ``rank`` is the place in the order of all jobs, ``version`` the one as of which it is known to have no
    earlier gap.
    """

    whole: Ints
    job: Ints
    start: Floats
    kind: Ints
    rank: Ints
    version: Ints


@njit(cache=True)
def nobody(by_rank: Ints) -> Line:
    """Nobody holds a promise yet."""
    count = by_rank.size
    rank = np.empty(count, np.int64)
    rank[by_rank] = np.arange(count)
    ints = np.empty(count, np.int64)
    return Line(np.zeros(2, np.int64), ints, np.empty(count), ints.copy(), rank, ints.copy())


@njit(cache=True)
def in_order(rank: Ints, first: int, end: int) -> Ints:
    """The jobs that were submitted together, in the order of the queue."""
    found = np.arange(first, end)
    return found if end - first < 2 else found[np.argsort(rank[first:end])]


@njit(cache=True)
def line_up(line: Line, job: int, start: float, kind: int, version: int) -> None:
    """Put a promise at its place in the line. O(jobs behind it)."""
    at = line.whole[SIZE]
    rank = line.rank[job]
    while at > 0 and line.rank[line.job[at - 1]] > rank:
        line.job[at], line.start[at], line.kind[at] = line.job[at - 1], line.start[at - 1], line.kind[at - 1]
        at -= 1
    line.job[at], line.start[at], line.kind[at] = job, start, kind
    line.version[job] = version
    line.whole[SIZE] += 1


@njit(cache=True)
def take_due(line: Line, now: float, starting: Ints) -> tuple[int, float]:
    """Take out, in order, who starts now; how many these are, and when the next one does. O(line)."""
    chosen, left, due = 0, 0, np.inf
    for at in range(line.whole[SIZE]):
        start = line.start[at]
        if start <= now:
            starting[chosen] = line.job[at]
            chosen += 1
        else:
            due = min(due, start)
            if left < at:
                line.job[left], line.start[left], line.kind[left] = line.job[at], start, line.kind[at]
            left += 1
    line.whole[SIZE] = left
    return chosen, due
