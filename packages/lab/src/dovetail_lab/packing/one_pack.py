"""All tasks in one pack: Algorithm 1 of Aupy 2013 (Theorem 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.schedule import Packing, fill_groups


def single_pack(times: NDArray[np.float64], k: int) -> Packing:
    """The cheapest pack that holds all tasks; ``InputError`` when they are more than min(k, p).

    One processor each, then each further one to the longest task.  O(p n) here, O(p log n) by a heap.
    """
    n, p = times.shape
    if n > min(k, p):
        raise InputError(f"one-pack got {n} tasks, a pack holds at most min(k, p) = {min(k, p)}")
    return fill_groups(times, [range(n)])
