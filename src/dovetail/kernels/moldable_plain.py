"""Plain-Python twins of the kernels that place a gang: slow, short, and the oracle of the tests.

The arguments are those of `dovetail.kernels.gangs` for one lane a node, without its scratch arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

__all__ = ["occupy", "place"]

Floats = NDArray[np.float64]
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
