"""Compiled exact methods over subsets of tasks: subset costs, programs over subsets, all partitions.

A subset is a bit mask.  ``packing_plain`` holds the readable twins.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dovetail_lab.packing.compiled import pack_cost

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@njit(cache=True)
def subset_costs(times: Floats, k: int, costs: Floats, start: int, stop: int) -> None:
    """Write the optimal pack cost of the subsets ``start..stop-1``; infinite beyond ``k`` tasks."""
    n = times.shape[0]
    tasks = np.empty(n, np.int64)
    sigma = np.empty(n, np.int64)
    current = np.empty(n)
    for subset in range(start, stop):
        size = 0
        for i in range(n):
            if subset >> i & 1:
                tasks[size] = i
                sigma[size] = 1
                size += 1
        if size == 0:
            costs[subset] = 0.0
        elif size > k:
            costs[subset] = np.inf
        else:
            costs[subset] = pack_cost(times, tasks, size, sigma, current)


@njit(cache=True)
def subset_program(
    costs: Floats, best: Floats, choice: NDArray[np.int32], start: int, stop: int, step: int
) -> None:
    """f(S) = min over packs A that hold the lowest task of S of cost(A) + f(S without A).

    Fills ``best`` and ``choice`` (the A taken) for ``S = start, start + step, ... < stop``; what is
    smaller must be filled already.  Only the full set needs task 0, so that step 2 from 0 does for
    all others.  O(3^n / 6) in all.
    """
    for full in range(start, stop, step):
        if full == 0:
            best[0] = 0.0
            choice[0] = 0
            continue
        lowest = full & -full
        rest = full ^ lowest
        part = 0
        least = np.inf
        taken = 0
        while True:
            cost = costs[part | lowest]
            # A pack that alone costs as much as the best cannot win, and the second look-up is saved.
            if cost < least:
                cost += best[rest ^ part]
                if cost < least:
                    least = cost
                    taken = part | lowest
            if part == rest:
                break
            part = (part - rest) & rest  # the next subset of ``rest``: ties go to the lowest tasks
        best[full] = least
        choice[full] = taken


@njit(cache=True)
def listed_program(
    masks: Ints, costs: Floats, first: Ints, best: Floats, choice: Ints, start: int, stop: int, step: int
) -> None:
    """``subset_program`` over listed packs only: f(S) = min of costs[c] + f(S without masks[c]).

    The packs whose lowest task is i are ``first[i]..first[i + 1] - 1``, by increasing cost.  ``choice`` is
    the place of the pack taken; ``best`` is infinite where the packs cannot make up the set.
    """
    for full in range(start, stop, step):
        if full == 0:
            best[0] = 0.0
            choice[0] = -1
            continue
        lowest = 0
        while not full >> lowest & 1:
            lowest += 1
        least = np.inf
        taken = -1
        for c in range(first[lowest], first[lowest + 1]):
            # Packs come by increasing cost, so none that follow can be better.
            if costs[c] >= least:
                break
            if masks[c] & full == masks[c]:
                cost = costs[c] + best[full ^ masks[c]]
                if cost < least:
                    least = cost
                    taken = c
        best[full] = least
        choice[full] = taken


@njit(cache=True)
def cheapest_partition(costs: Floats, n: int, pack_of: Ints) -> float:
    """The cheapest of all partitions, written to ``pack_of``; returns its cost.

    Tasks join an open pack or open one, in turn (restricted growth), depth first; a branch that costs
    as much as the best already is cut, since no pack gets cheaper by growing.  O(Bell(n)).
    """
    # Recursion by hand, since compiled code has none that is fast: `tried` holds where each task's loop
    # stands.
    packs = np.zeros(n + 1, np.int64)  # the subset in each open pack
    opened = np.zeros(n + 1, np.int64)  # open packs when task i is to be placed
    totals = np.zeros(n + 1)  # cost of the packs then
    tried = np.zeros(n + 1, np.int64)  # the next pack to try for task i
    chosen = np.zeros(n, np.int64)
    least = np.inf
    i = 0
    while i >= 0:
        if tried[i] > 0:
            packs[tried[i] - 1] ^= 1 << i  # undo the last try
        if tried[i] > opened[i]:
            tried[i] = 0
            i -= 1
            continue
        b = tried[i]
        tried[i] += 1
        before = packs[b]
        packs[b] |= 1 << i
        total = totals[i] - costs[before] + costs[packs[b]]
        if not total < least:
            continue
        chosen[i] = b
        if i == n - 1:
            least = total
            pack_of[:] = chosen
            continue
        opened[i + 1] = max(opened[i], b + 1)
        totals[i + 1] = total
        i += 1
        tried[i] = 0
    return least
