"""Lower bounds that need no search: on schedules without packs, and on co-schedules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def needed_processors(times: Floats, level: float) -> Ints:
    """need_i(T): the least processors on which each task takes at most ``level``; p + 1 if none does."""
    result: Ints = 1 + (times > level).sum(axis=1, dtype=np.int64)
    return result


def area_bound(times: Floats) -> float:
    """The least T with sum_i w_{i, need_i(T)} <= p T: no schedule of the tasks is shorter.

    By Equation 2 the fewest processors that meet T do the least work.  The work is constant between two
    neighbouring times and falls with T, so a bisection finds the interval.  O(n p log(n p)).
    """
    n, p = times.shape
    rows = np.arange(n)
    levels = np.unique(times)
    levels = levels[levels >= times[:, p - 1].max()]

    def area_at_level(level: float) -> float:
        need = needed_processors(times, level)
        return float((need * times[rows, need - 1]).sum() / p)

    low, high = 0, len(levels) - 1
    while low < high:  # the first level whose work fits before the next level
        middle = (low + high) // 2
        if area_at_level(levels[middle]) < levels[middle + 1]:
            high = middle
        else:
            low = middle + 1
    return max(float(levels[low]), area_at_level(levels[low]))


def batch_bound(times: Floats, k: int) -> float:
    """A bound from the count alone: tasks by t_{i,p}, the longest k in one pack, and so on.

    No pack costs less than its longest task on all p processors; O(n log n).
    """
    k = min(k, times.shape[1])
    return float(np.sort(times[:, -1])[::-1][::k].sum())


def quick_bound(times: Floats, k: int) -> float:
    """The better of the two; valid for every co-schedule with at most ``k`` tasks in a pack."""
    return max(area_bound(times), batch_bound(times, k))
