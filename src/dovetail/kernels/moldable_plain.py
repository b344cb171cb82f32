"""Plain-Python twins of the kernels of moldable scheduling: slow, short, and the oracle of the tests.

The arguments are those of `dovetail.kernels.moldable`, without its scratch arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

__all__ = ["best_pair", "occupy", "place"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def _share(ready: Floats, pool: bool, count: int, eligible: Bools, node: int) -> tuple[float, list[int]]:
    """When the node can give its share, and the columns it gives then: the first ones that are ready."""
    columns = [c for c in range(1, ready.shape[1]) if eligible[node, c]]
    if len(columns) < count:
        return inf, []
    times = sorted(ready[node, c] for c in columns)[:count]
    start = max([*times, ready[node, 0] if pool else -inf])
    taken = [c for c in columns if ready[node, c] <= start][:count]
    return start, ([0] if pool else []) + taken


def place(
    ready: Floats, pool: bool, count: int, eligible: Bools, able: Bools, wanted: int, packed: bool
) -> tuple[float, list[int]]:
    """(start, nodes) of a gang; (infinite, none) where it cannot be placed."""
    at = {n: _share(ready, pool, count, eligible, n)[0] for n in range(len(ready)) if able[n]}
    usable = sorted((n for n in at if at[n] < inf), key=lambda n: at[n])
    if len(usable) < wanted:
        return inf, []
    start = at[usable[wanted - 1]]
    if not packed:
        return start, usable[:wanted]

    def others(n: int) -> float:
        taken = [c for c in range(1, ready.shape[1]) if eligible[n, c] and ready[n, c] <= start][:count]
        taken += [0] if pool else []
        left = [ready[n, c] for c in range(ready.shape[1]) if c not in taken and ready[n, c] < inf]
        return sum(left) if left else at[n]

    in_time = [n for n in range(len(ready)) if n in at and at[n] <= start]
    return start, sorted(in_time, key=lambda n: -others(n))[:wanted]


def occupy(
    ready: Floats, pool: bool, count: int, eligible: Bools, chosen: Sequence[int], start: float, end: float
) -> None:
    """Let a gang hold its share of the chosen nodes until ``end``."""
    for n in chosen:
        free = [c for c in range(1, ready.shape[1]) if eligible[n, c] and ready[n, c] <= start]
        for c in free[:count] + ([0] if pool else []):
            ready[n, c] = end


def best_pair(
    ready: Floats,
    latest: float,
    pool: Bools,
    count: Ints,
    eligible: Bools,
    able: Bools,
    first: Ints,
    first_seconds: Floats,
    second: Ints,
    second_seconds: Floats,
    rest: Ints,
    rest_seconds: Floats,
    roll_out: bool,
) -> tuple[int, int, bool]:
    """(option of the first, of the second, is the second placed first); option -1: there is no second."""
    orders = [False, True] if len(second) else [False]
    scores = []
    for a, b, swapped in product(range(len(first)), range(len(second)) if len(second) else [-1], orders):
        state = ready.copy()
        ends: list[float] = []
        area = 0.0
        pair = [(*first[a], first_seconds[a])]
        if b >= 0:
            pair.append((*second[b], second_seconds[b]))
        for s, wanted, seconds in reversed(pair) if swapped else pair:
            start, nodes = place(state, pool[s], count[s], eligible[s], able[s], wanted, True)
            occupy(state, pool[s], count[s], eligible[s], nodes, start, start + seconds)
            ends.append(start + seconds)
            area += (int(pool[s]) + count[s]) * wanted * seconds
        last = max([latest, *ends])
        if roll_out and last < inf:
            for (s, wanted), seconds in zip(rest, rest_seconds, strict=True):
                start, nodes = place(state, pool[s], count[s], eligible[s], able[s], wanted, False)
                if nodes:
                    occupy(state, pool[s], count[s], eligible[s], nodes, start, start + seconds)
                    last = max(last, start + seconds)
        score = tuple(np.rint(value * 1e6) for value in (last, area, sum(ends)))
        scores.append((score, (a, b, swapped)))
    return min(scores, key=lambda entry: entry[0])[1]
