"""Random-Pack and Random-Proc, the baselines of Aupy 2013, section 5."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.compiled import fill_packs
from dovetail_lab.packing.make_pack import make_pack
from dovetail_lab.packing.schedule import Packing, fill_partition

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def random_pack(times: Floats, k: int, runs: int, rng: np.random.Generator) -> Packing:
    """The best of ``runs``: packs of random size (uniform in 1..k) and random tasks, then Algorithm 1."""
    n = times.shape[0]

    def draw_packs() -> Ints:
        # n sizes are enough for n tasks: the packs are runs of a random order of the tasks.
        sizes = rng.integers(1, k + 1, size=n)
        pack_of = np.empty(n, np.int64)
        pack_of[rng.permutation(n)] = np.repeat(np.arange(n), sizes)[:n]
        return pack_of

    return _best_of_draws(times, draw_packs, runs)


def random_proc(
    times: Floats, k: int, runs: int, rng: np.random.Generator, *, full_range: bool = False
) -> Packing:
    """The best of ``runs``: random processors for every task, then Make-pack, then Algorithm 1.

    Processors are uniform in 1..floor(p/k), so that packs of k tasks come about; ``full_range`` draws
    from 1..p, the literal reading, under which k hardly matters.
    """
    n, p = times.shape
    most = p if full_range else max(1, p // k)

    def draw_packs() -> Ints:
        return make_pack(times, k, rng.integers(1, most + 1, size=n))[1]

    return _best_of_draws(times, draw_packs, runs)


def _best_of_draws(times: Floats, once: Callable[[], Ints], runs: int) -> Packing:
    """The cheapest of ``runs`` partitions, filled; ties: the first."""
    sigma, costs = np.empty(times.shape[0], np.int64), np.empty(times.shape[0])
    tried = [once() for _ in range(runs)]
    totals = [fill_packs(times, pack_of, int(pack_of.max()) + 1, sigma, costs) for pack_of in tried]
    return fill_partition(times, tried[int(np.argmin(totals))])
