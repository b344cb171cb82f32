"""pack-Approx: Make-pack again and again, the longest task one processor wider (Algorithm 3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.compiled import pack_approx as pack_approx_kernel
from dovetail_lab.packing.make_pack import by_time
from dovetail_lab.packing.schedule import Packing, fill_partition, groups_of, place_packs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def pack_approx_literal(times: Floats, k: int) -> Packing:
    """Algorithm 3 as printed: within 3 times the optimum when k = p (Theorem 5); O(n^2 p) steps in all."""
    pack_of, sigma = _approximation_steps(times, k)
    return place_packs(times, [[(i, int(sigma[i])) for i in group] for group in groups_of(pack_of)])


def pack_approx(times: Floats, k: int) -> Packing:
    """Algorithm 3, then Algorithm 1 once in every pack: never worse, and far better for small k.

    The paper's Figures 2 and 3 can only be had with this last pass (see docs/explanation/packs.md).
    """
    pack_of, _ = _approximation_steps(times, k)
    return fill_partition(times, pack_of)


def _approximation_steps(times: Floats, k: int) -> tuple[Ints, Ints]:
    n = times.shape[0]
    pack_of = np.empty(n, np.int64)
    sigma = np.empty(n, np.int64)
    pack_approx_kernel(times, by_time(times, np.ones(n, np.int64)), k, pack_of, sigma)
    return pack_of, sigma
