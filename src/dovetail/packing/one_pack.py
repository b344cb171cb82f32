"""All tasks in one pack: Algorithm 1 of Aupy 2013 (Theorem 3), and the dynamic program beside it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.packing.schedule import Packing, fill

__all__ = ["one_pack_by_program", "single_pack"]


def single_pack(times: NDArray[np.float64], k: int) -> Packing:
    """The cheapest pack that holds all tasks; ``InputError`` when they are more than min(k, p).

    One processor each, then each further one to the longest task.  O(p n) here, O(p log n) by a heap.
    """
    n, p = times.shape
    if n > min(k, p):
        raise InputError(f"one-pack got {n} tasks, a pack holds at most min(k, p) = {min(k, p)}")
    return fill(times, [range(n)])


def one_pack_by_program(times: NDArray[np.float64]) -> float:
    """The cost of the best single pack by c(i, q) = min over q' of max(c(i-1, q-q'), t(i, q')).

    Section 4.2; O(n p^2).  It needs no Equation 2, only times that do not grow along a row.
    """
    n, p = times.shape
    best = times[0].copy()
    for i in range(1, n):
        following = np.full(p, np.inf)
        for q in range(i, p):
            # q + 1 processors in all: task i takes q' = 1..q, the others q + 1 - q'
            following[q] = np.min(np.maximum(best[q - 1 :: -1] if q else best[:0], times[i, :q]))
        best = following
    return float(best[p - 1])
