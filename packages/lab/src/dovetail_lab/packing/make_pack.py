"""Make-pack: packs for tasks whose processors are given (Algorithm 2 of Aupy 2013)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.compiled import make_pack as make_pack_kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def by_time(times: Floats, sigma: Ints) -> Ints:
    """Tasks by non-increasing time on ``sigma[i]`` processors, ties by lowest index."""
    current = times[np.arange(len(sigma)), sigma - 1]
    order: Ints = np.argsort(-current, kind="stable").astype(np.int64)
    return order


def make_pack(times: Floats, k: int, sigma: Ints) -> tuple[float, Ints]:
    """First fit by decreasing time: (cost under ``sigma``, pack of each task).

    Each task goes to the first pack with ``sigma[i]`` processors free and fewer than ``k`` tasks.
    O(n log n + n * packs).
    """
    pack_of = np.empty(len(sigma), np.int64)
    cost = make_pack_kernel(times, by_time(times, sigma), sigma, k, pack_of)
    return float(cost), pack_of
