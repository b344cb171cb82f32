"""The optimum by all partitions, or by a program over subsets (Aupy 2013, section 4.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.compiled_subsets import cheapest_partition, subset_costs, subset_program
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.schedule import Packing, fill_groups, fill_partition

Floats = NDArray[np.float64]

EXHAUSTIVE_TASKS = 12  # Bell(12) = 4.2 million partitions
SUBSET_TASKS = 20  # 3^20 / 6 = 580 million steps, and 20 MB
CHUNK = 1 << 14  # subsets between two looks at the clock


def search_exhaustively(times: Floats, k: int) -> Packing:
    """The cheapest of all partitions into packs of at most ``k``, each filled by Algorithm 1.

    O(Bell(n)) and 2^n numbers of memory.  Raises ``InputError`` beyond ``EXHAUSTIVE_TASKS`` tasks.
    """
    n, p = times.shape
    if n > EXHAUSTIVE_TASKS:
        raise InputError(f"exhaustive takes at most {EXHAUSTIVE_TASKS} tasks, got {n}")
    costs = np.empty(1 << n)
    subset_costs(times, min(k, p), costs, 0, 1 << n)
    pack_of = np.empty(n, np.int64)
    cheapest_partition(costs, n, pack_of)
    return fill_partition(times, pack_of)


def subset_dp(times: Floats, k: int, deadline: Deadline | None = None) -> Packing | None:
    """The optimum by f(S) = min over packs A that hold the lowest task of S of cost(A) + f(S - A).

    O(2^n p + 3^n / 6); 20 tasks take seconds.  Returns ``None`` when the deadline passes first; raises
    ``InputError`` beyond ``SUBSET_TASKS`` tasks.
    """
    n, p = times.shape
    if n > SUBSET_TASKS:
        raise InputError(f"subset-dp takes at most {SUBSET_TASKS} tasks, got {n}")
    deadline = deadline or Deadline()
    full = (1 << n) - 1
    costs = np.empty(1 << n)
    # In chunks, between which the deadline is looked at: the compiled loop cannot look itself.
    for start in range(0, 1 << n, CHUNK):
        if deadline.has_passed():
            return None
        subset_costs(times, min(k, p), costs, start, min(start + CHUNK, 1 << n))
    best = np.zeros(1 << n)
    choice = np.zeros(1 << n, np.int32)
    start = 0
    # Packs hold the lowest task of what is left, so subsets without task 0 are all that the last step needs.
    while start < full:  # every subset without task 0, then the full set
        if deadline.has_passed():
            return None
        # Half of all steps lie in the last chunks, whose subsets are large.
        stop = min(start + CHUNK // 8, full)
        subset_program(costs, best, choice, start, stop, 2)
        start = stop
    subset_program(costs, best, choice, full, full + 1, 1)
    groups = []
    left = full
    # Backwards along the choices: each step names the pack that was taken off.
    while left:
        taken = int(choice[left])
        groups.append([i for i in range(n) if taken >> i & 1])
        left ^= taken
    return fill_groups(times, groups)
