"""Every pack that could matter, listed: an exact method for some twenty tasks.

Prices that prove a lower bound leave few packs: in a co-schedule cheaper than ``upper_bound`` no pack costs
more than its prices by more than the gap between the two.  Of the 2^20 sets of twenty tasks some
hundreds or thousands are left, and the program over subsets looks at no others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.column_generation import ColumnPool
from dovetail_lab.packing.compiled_subsets import listed_program, subset_costs
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.schedule import Packing, fill_groups

Floats = NDArray[np.float64]

LISTED_TASKS = 22  # 4 million sets and 100 MB; a second
CHUNK, STEP = 1 << 16, 1 << 11  # sets between two looks at the clock: their costs, the program
ROUNDING = 1e-9  # of the upper bound: what the sums of prices may be off


@dataclass(frozen=True, slots=True)
class Listed:
    """Packs as bit masks over the tasks, with their costs in seconds."""

    masks: NDArray[np.int64]
    costs: Floats

    def group(self, place: int) -> list[int]:
        """The tasks of one pack."""
        mask = int(self.masks[place])
        return [i for i in range(mask.bit_length()) if mask >> i & 1]


def list_packs(pool: ColumnPool, upper_bound: float, deadline: Deadline) -> Listed | None:
    """All packs that can be part of a co-schedule cheaper than ``upper_bound``; ``None`` when time is up.

    By the prices of ``pool``, which must be there.  O(2^n (p + n)).
    """
    n = pool.times.shape[0]
    assert pool.prices is not None
    # A pack whose cost exceeds its price by more than this gap cannot be part of anything cheaper than the
    # bound.
    slack = upper_bound - pool.proven + ROUNDING * upper_bound
    masks: list[NDArray[np.int64]] = []
    kept: list[Floats] = []
    costs = np.empty(1 << n)
    worth = np.zeros(1)
    # The price of each set, by doubling: a set with the next task is worth that much more.
    for price in pool.prices[:n].tolist():
        worth = np.concatenate([worth, worth + price])
    for start in range(0, 1 << n, CHUNK):
        if deadline.has_passed():
            return None
        stop = min(start + CHUNK, 1 << n)
        subset_costs(pool.times, pool.k, costs, start, stop)
        near = start + np.flatnonzero(costs[start:stop] - worth[start:stop] <= slack)
        near = near[near > 0]
        masks.append(near)
        kept.append(costs[near])
    return Listed(np.concatenate(masks), np.concatenate(kept))


def cheapest_schedule(
    times: Floats, packs: Listed, best: Packing, deadline: Deadline
) -> tuple[Packing, bool]:
    """The cheapest co-schedule of the packs, or ``best``; and whether that is proven.

    f(S) = min over listed packs A that hold the lowest task of S of cost(A) + f(S without A): 2^n / 2 sets,
    each with the packs of its lowest task.
    """
    n = times.shape[0]
    lowest = _lowest_tasks(packs.masks)
    # By lowest task, then by cost, as the program reads them.
    order = np.lexsort((packs.costs, lowest))
    masks, costs = packs.masks[order], packs.costs[order]
    first = np.searchsorted(lowest[order], np.arange(n + 1)).astype(np.int64)
    full = (1 << n) - 1
    value, choice = np.zeros(1 << n), np.zeros(1 << n, np.int64)
    start = 0
    while start < full:  # every set without task 0, then the full one
        if deadline.has_passed():
            return best, False
        stop = min(start + STEP, full)
        listed_program(masks, costs, first, value, choice, start, stop, 2)
        start = stop
    listed_program(masks, costs, first, value, choice, full, full + 1, 1)
    if value[full] < best.total_cost:
        groups = []
        left = full
        while left:
            place = int(order[choice[left]])
            groups.append(packs.group(place))
            left ^= int(packs.masks[place])
        best = min(best, fill_groups(times, groups), key=lambda packing: packing.total_cost)
    return best, True  # nothing that was left out is cheaper


def _lowest_tasks(masks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lowest task of each pack."""
    found: NDArray[np.int64] = np.log2((masks & -masks).astype(np.float64)).astype(np.int64)
    return found
