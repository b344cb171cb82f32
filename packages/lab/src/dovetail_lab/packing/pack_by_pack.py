"""pack-by-pack(epsilon): balanced packs, longest tasks first (Aupy 2013, section 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.compiled import pack_by_pack as pack_by_pack_kernel
from dovetail_lab.packing.make_pack import by_time
from dovetail_lab.packing.schedule import Packing, fill_partition

ONE = (0.5,)
NINE = tuple(i / 10 for i in range(1, 10))


def pack_by_pack(times: NDArray[np.float64], k: int, epsilons: Sequence[float] = NINE) -> Packing:
    """The cheapest of pack-by-pack(epsilon) over ``epsilons`` (ties: the first).

    While the tasks within a share ``epsilon`` of the longest need fewer than p processors, the longest
    gets one more; else the first of them that fit p processors and k tasks become a pack.  Algorithm 1
    fills each pack in the end.  A small epsilon balances packs, a large one makes them sooner; the
    paper leaves out its values, 0.5 and 0.1 to 0.9 are ours.  Up to n p steps for each epsilon.
    """
    if not epsilons or not all(0.0 < epsilon < 1.0 for epsilon in epsilons):
        raise InputError(f"epsilons {list(epsilons)}: expected one or more numbers between 0 and 1")
    n = times.shape[0]
    order = by_time(times, np.ones(n, np.int64))
    pack_of = np.empty(n, np.int64)
    best = np.empty(n, np.int64)
    least = np.inf
    for epsilon in epsilons:
        cost = pack_by_pack_kernel(times, order, k, epsilon, pack_of)
        if cost < least:
            least = cost
            best[:] = pack_of
    return fill_partition(times, best)
