"""``auto``: the exact method where one is fast, else heuristics, annealing and column generation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail_lab.packing.annealing import anneal_packs
from dovetail_lab.packing.bounds import quick_bound
from dovetail_lab.packing.column_generation import cheapest_cover, generate_columns
from dovetail_lab.packing.contiguous import contiguous_groups
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.exhaustive import subset_dp
from dovetail_lab.packing.listed import LISTED_TASKS, cheapest_schedule, list_packs
from dovetail_lab.packing.matching import each_alone, match_pairs
from dovetail_lab.packing.pack_by_pack import NINE, pack_by_pack
from dovetail_lab.packing.schedule import Outcome, Packing, fill_groups
from dovetail_lab.packing.staircase import branch_and_bound

Floats = NDArray[np.float64]

PROVEN = 1e-6  # a gap within this counts as closed: column generation stops there
FEW_TASKS, FEW_SECONDS = 15, 0.1  # a subset program of so many tasks takes so long
MATCHING_TASKS = 150  # a second; the time grows with the cube
ANNEALING_STEPS = 1_000_000
FEW_STEPS = 10_000  # for tasks that an exact method follows


def solve_automatically(times: Floats, k: int, rng: np.random.Generator, deadline: Deadline) -> Outcome:
    """A schedule within the time, with a lower bound; what is tried depends on the instance.

    k = 1 and up to 22 tasks are solved exactly, k = 2 by matching up to 150 tasks.  Beyond that: the best
    contiguous packs, annealed; column generation for the bound; branching; an integer program over the
    packs that came up; annealing of what that gives.
    """
    n, p = times.shape
    # One task at a time: there is nothing to choose, and the answer is exact.
    if k == 1 or p == 1:
        return _proven_outcome(each_alone(times))
    # Only with seconds left: cut short, the exact program would return nothing.
    if n <= FEW_TASKS and deadline.left >= FEW_SECONDS:
        packing = subset_dp(times, k, deadline)
        if packing is not None:
            return _proven_outcome(packing)
    if k == 2 and n <= MATCHING_TASKS and deadline.left >= 1.0:
        return _proven_outcome(match_pairs(times))
    return _search_schedule(times, k, rng, deadline)


def column_generation(times: Floats, k: int, rng: np.random.Generator, deadline: Deadline) -> Outcome:
    """Column generation to the end of the time, then the integer program over its packs."""
    return _search_schedule(times, k, rng, deadline, annealing=False)


def groups_in(packing: Packing) -> list[list[int]]:
    """The tasks of each pack."""
    return [[entry.task for entry in pack] for pack in packing.packs]


def _search_schedule(
    times: Floats, k: int, rng: np.random.Generator, deadline: Deadline, *, annealing: bool = True
) -> Outcome:
    n = times.shape[0]
    few = n <= LISTED_TASKS
    ways = contiguous_groups(times, k)
    greedy = pack_by_pack(times, k, NINE)
    # The better of two cheap heuristics, since neither dominates the other.
    best = min(fill_groups(times, min(ways, key=lambda way: way[0])[1]), greedy, key=_packing_cost)
    if annealing:
        # Hot annealing helps on tens of tasks; on hundreds in few packs it only shakes them up.
        heat = 1e-2 if n <= 130 else 1e-3
        steps = FEW_STEPS if few else ANNEALING_STEPS
        best = anneal_packs(
            times, k, groups_in(best), rng,
            steps=steps, deadline=deadline.at_most(0.25 * deadline.left), heat=heat,
        )  # fmt: skip
    start = [group for _, groups in ways for group in groups] + groups_in(greedy) + groups_in(best)
    pool, root = generate_columns(
        times, k, start, deadline=deadline.at_most(0.7 * deadline.left), upper_bound=best.total_cost
    )
    bound = pool.lower_bound
    if few and pool.prices is not None and not _is_proven_by(bound, best):
        groups = cheapest_cover(pool, best.total_cost, deadline=deadline.at_most(0.1 * deadline.left))
        if groups is not None:
            best = min(best, fill_groups(times, groups), key=_packing_cost)
        packs = list_packs(pool, best.total_cost, deadline)
        if packs is not None:
            best, proven = cheapest_schedule(times, packs, best, deadline)
            bound = best.total_cost if proven else bound
    # Branch first: the integer program then has the columns that came up.
    if pool.converged and not _is_proven_by(bound, best):
        bound, best = branch_and_bound(
            pool, root, best, deadline=deadline.at_most(0.7 * deadline.left), gap=PROVEN
        )
    if not _is_proven_by(bound, best):
        groups = cheapest_cover(
            pool, best.total_cost, deadline=deadline.at_most(0.8 * deadline.left), gap=1e-5
        )
        if groups is not None:
            best = min(best, fill_groups(times, groups), key=_packing_cost)
        if annealing and not _is_proven_by(bound, best):
            best = anneal_packs(times, k, groups_in(best), rng, deadline=deadline)
    bound = max(bound, quick_bound(times, k))
    closed = _is_proven_by(bound, best)
    notes = () if pool.converged or closed else (UNSOLVED,)
    return Outcome(best, min(bound, best.total_cost), closed, notes)


UNSOLVED = "the time limit ended column generation; the bound can be better"


def _is_proven_by(bound: float, best: Packing) -> bool:
    return bound >= best.total_cost * (1.0 - PROVEN)


def _packing_cost(packing: Packing) -> float:
    return packing.total_cost


def _proven_outcome(packing: Packing) -> Outcome:
    return Outcome(packing, packing.total_cost, proven_optimal=True)
