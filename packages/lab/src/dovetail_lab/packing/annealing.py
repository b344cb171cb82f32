"""A short annealing over partitions: relocate a task, or swap two, and fill packs by Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.compiled import anneal as anneal_kernel
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.schedule import Packing, fill_groups

Floats = NDArray[np.float64]

STEPS = 150_000
CHUNK = 10_000  # steps between two looks at the clock
START = 1e-3  # start temperature over the mean cost of a pack; hotter gains nothing on many packs
END = 1e-5


def anneal_packs(
    times: Floats,
    k: int,
    start: Sequence[Sequence[int]],
    rng: np.random.Generator,
    *,
    steps: int = STEPS,
    deadline: Deadline | None = None,
    heat: float = START,
) -> Packing:
    """The best packing that annealing from the packs ``start`` sees; never worse than ``start``.

    The start temperature is ``heat`` times the mean cost of a pack; it falls geometrically by a hundred over
    ``steps`` moves of O(k p) each.  The same ``rng`` state gives the same result unless the deadline
    passes first.
    """
    n, p = times.shape
    k = min(k, p, n)
    deadline = deadline or Deadline()
    packing = fill_groups(times, start)
    # Arrays of fixed size, as the compiled kernel needs them: n packs at most, of k tasks each.
    members = np.zeros((n, k), np.int64)
    sizes = np.zeros(n, np.int64)
    costs = np.zeros(n)
    for b, (pack, cost) in enumerate(zip(packing.packs, packing.pack_costs, strict=True)):
        sizes[b] = len(pack)
        costs[b] = cost
        members[b, : len(pack)] = [entry.task for entry in pack]
    packs = len(packing.packs)
    best_members, best_sizes, best_packs, best = members.copy(), sizes.copy(), packs, packing.total_cost
    chunks = max(1, -(-steps // CHUNK))
    # Heat as a share of a pack's mean cost, so that one setting suits seconds and days.
    hot = heat * packing.total_cost / packs
    step = (END / START) ** (1.0 / chunks)
    for chunk in range(chunks):
        if deadline.has_passed():
            break
        # Drawn here and handed over, since the result must be the same with and without the compiled kernel.
        draws = rng.random((min(CHUNK, steps - chunk * CHUNK), 4))
        packs, better, best = anneal_kernel(
            times, members, sizes, costs, packs, draws, hot, hot * step, best_members, best_sizes, best
        )
        if better >= 0:
            best_packs = better
        hot *= step
    return fill_groups(times, [best_members[b, : best_sizes[b]].tolist() for b in range(best_packs)])
