"""Random-Pack and Random-Proc, the baselines of Aupy 2013, section 5."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dovetail.packing.make_pack import make_pack
from dovetail.packing.schedule import Packing, fill

__all__ = ["random_pack", "random_proc"]

Floats = NDArray[np.float64]


def random_pack(times: Floats, k: int, runs: int, rng: np.random.Generator) -> Packing:
    """The best of ``runs``: packs of random size (uniform in 1..k) and random tasks, then Algorithm 1."""

    def once() -> Packing:
        left = rng.permutation(times.shape[0]).tolist()
        groups = []
        while left:
            size = int(rng.integers(1, k + 1))
            groups.append(left[:size])
            del left[:size]
        return fill(times, groups)

    return _best(once, runs)


def random_proc(
    times: Floats, k: int, runs: int, rng: np.random.Generator, *, full_range: bool = False
) -> Packing:
    """The best of ``runs``: random processors for every task, then Make-pack, then Algorithm 1.

    Processors are uniform in 1..floor(p/k), so that packs of k tasks come about; ``full_range`` draws
    from 1..p, the literal reading, under which k hardly matters.
    """
    n, p = times.shape
    most = p if full_range else max(1, p // k)

    def once() -> Packing:
        _, groups = make_pack(times, k, rng.integers(1, most + 1, size=n))
        return fill(times, groups)

    return _best(once, runs)


def _best(once: Callable[[], Packing], runs: int) -> Packing:
    return min((once() for _ in range(runs)), key=lambda packing: packing.cost)
