"""Packs by CP-SAT (OR-tools), after column generation: out of a list, or by the strong integer program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.extras import need_module
from dovetail_lab.packing.annealing import anneal_packs
from dovetail_lab.packing.bounds import quick_bound
from dovetail_lab.packing.column_generation import CONVERGED, cheapest_cover, generate_columns
from dovetail_lab.packing.contiguous import contiguous_packs
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.integer_program import MOST_VARIABLES, useful_counts
from dovetail_lab.packing.listed import LISTED_TASKS, Listed, cheapest_schedule, list_packs
from dovetail_lab.packing.pack_by_pack import pack_by_pack
from dovetail_lab.packing.schedule import Outcome, Packing, fill_groups

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ANNEALING = 50_000  # moves, before anything is solved
MOST_LISTED = 5_000  # packs that CP-SAT chooses among
STEPS = 10_000_000  # the longest time in the solver's whole units, where times are not whole already


def constraint_program(
    times: Floats, k: int, *, seed: int = 0, deadline: Deadline | None = None, workers: int | None = None
) -> Outcome:
    """Optimal packs by CP-SAT, or the best found by the deadline with the bound proven until then.

    Column generation comes first, for the bound and for packs to start from.  Up to ``LISTED_TASKS`` tasks
    the program then chooses among all packs that are left; beyond, it is the strong form of
    ``integer_program``, whose own bound is weak.  CP-SAT computes with whole numbers: times are rounded down
    to 1e-7 of the longest (whole seconds stay as they are), so that its bound holds for the true times; an
    optimum is one up to that rounding.  Raises ``InputError`` when OR-tools is not installed or the program
    is too large.
    """
    need_module("ortools", "cp-sat")
    n, p = times.shape
    deadline = deadline or Deadline()
    counts = useful_counts(times)
    listable = n <= LISTED_TASKS
    # Checked before minutes of column generation, whose result it could not use.
    if not listable and sum(len(counts[i]) * (i + 1) for i in range(n)) > MOST_VARIABLES:
        raise InputError(f"cp-sat takes at most {MOST_VARIABLES} variables, got {n} tasks on {p} processors")
    # Good packs first: both the bound and the solver prune by them.
    best = min(pack_by_pack(times, k), contiguous_packs(times, k), key=_packing_cost)
    rng = np.random.Generator(np.random.PCG64(seed))
    best = anneal_packs(
        times, k, [[entry.task for entry in pack] for pack in best.packs], rng, steps=ANNEALING
    )
    start = [[entry.task for entry in pack] for pack in best.packs]
    # Half of the time for the bound, which decides how many packs are left to choose among.
    share = 0.5 if np.isfinite(deadline.left) else 1.0
    pool, _ = generate_columns(
        times, k, start, deadline=deadline.at_most(share * deadline.left), upper_bound=best.total_cost
    )
    groups = cheapest_cover(pool, best.total_cost, deadline=deadline.at_most(0.2 * deadline.left))
    if groups is not None:
        best = min(best, fill_groups(times, groups), key=_packing_cost)
    bound = max(pool.lower_bound, quick_bound(times, k))
    # Equal up to the tolerance is proven: no solver is needed.
    if bound >= best.total_cost * (1.0 - CONVERGED):
        return Outcome(best, best.total_cost, proven_optimal=True)
    packs = list_packs(pool, best.total_cost, deadline) if listable and pool.prices is not None else None
    # Beyond this CP-SAT spends its time on reading the model.
    if packs is not None and len(packs.costs) > MOST_LISTED:
        best, proven = cheapest_schedule(times, packs, best, deadline.at_most(0.8 * deadline.left))
        if proven:
            note = f"{len(packs.costs)} packs were left, too many for CP-SAT: a program over subsets chose"
            return Outcome(best, best.total_cost, proven_optimal=True, notes=(note,))
    solver = _Solver(seed, workers or os.cpu_count() or 1, deadline)
    if packs is not None:
        found, proven, solved = _choose_packs(times, packs, best, solver)
    else:
        found, proven, solved = _assign_tasks(times, k, counts, best, bound, solver)
    best = best if found is None else min(best, found, key=_packing_cost)
    # What was not listed is no cheaper than what was at hand.
    bound = best.total_cost if proven else min(max(bound, solved), best.total_cost)
    notes = () if proven else ("the time limit ended the search before optimality was proven",)
    return Outcome(best, bound, proven, notes)


def _packing_cost(packing: Packing) -> float:
    return packing.total_cost


@dataclass(frozen=True, slots=True)
class _Solver:
    """How CP-SAT runs."""

    seed: int
    workers: int
    deadline: Deadline

    def run(self, model: cp_model.CpModel) -> tuple[cp_model.CpSolver, bool, bool]:
        """The solver, whether it found a solution, and whether it has proven the best."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.workers
        solver.parameters.random_seed = self.seed
        if np.isfinite(self.deadline.left):
            # The solver takes 0 for no limit.
            solver.parameters.max_time_in_seconds = max(self.deadline.left, 1e-2)
        status = solver.solve(model)
        # Infeasible is a proof as well: nothing is cheaper than what was at hand.
        proven = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        return solver, status in (cp_model.OPTIMAL, cp_model.FEASIBLE), proven


def _whole_units(values: Floats) -> tuple[Ints, float]:
    """Values in whole units, rounded down, and the unit in seconds."""
    # Whole seconds stay exact, so that a proven optimum is one without rounding.
    whole = bool(np.all(values == np.floor(values))) and values.max() <= STEPS
    unit = 1.0 if whole else float(values.max()) / STEPS
    return np.floor(values / unit).astype(np.int64), unit


def _choose_packs(
    times: Floats, packs: Listed, best: Packing, solver: _Solver
) -> tuple[Packing | None, bool, float]:
    """The packs that hold every task once and cost least, less than ``best``: packing, proof, bound."""
    from ortools.sat.python import cp_model

    if not len(packs.costs):
        return None, True, 0.0
    costs, unit = _whole_units(packs.costs)
    model = cp_model.CpModel()
    chosen = [model.new_bool_var(f"x{c}") for c in range(len(costs))]
    for i in range(times.shape[0]):
        model.add_exactly_one(chosen[c] for c in np.flatnonzero(packs.masks >> i & 1))
    total = sum(int(cost) * x for cost, x in zip(costs, chosen, strict=True))
    model.add(total <= int(best.total_cost / unit))  # what was at hand: the search begins below it
    model.minimize(total)
    run, found, proven = solver.run(model)
    # The bound is a whole number of units; rounding errors of the solver must not push it up by one.
    bound = float(np.ceil(run.best_objective_bound - 1e-6)) * unit if found or not proven else 0.0
    if not found:
        return None, proven, bound
    return fill_groups(times, [packs.group(c) for c, x in enumerate(chosen) if run.value(x)]), proven, bound


def _assign_tasks(
    times: Floats, k: int, counts: list[list[int]], best: Packing, bound: float, solver: _Solver
) -> tuple[Packing | None, bool, float]:
    """The strong program, started from ``best``, no better than ``bound``: packing, proof, bound."""
    from ortools.sat.python import cp_model

    n, p = times.shape
    scaled, unit = _whole_units(times)
    # A pack is named by its lowest task, which breaks the symmetry between packs.
    pack_of = {entry.task: min(e.task for e in pack) for pack in best.packs for entry in pack}
    given = {entry.task: entry.processors for pack in best.packs for entry in pack}
    model = cp_model.CpModel()
    longest = [model.new_int_var(0, int(scaled.max()), f"y{b}") for b in range(n)]
    x = {
        (i, j, b): model.new_bool_var(f"x{i}_{j}_{b}")
        for i in range(n)
        for j in counts[i]
        for b in range(i + 1)
    }
    inside = {(i, b): sum(x[i, j, b] for j in counts[i]) for i in range(n) for b in range(i + 1)}
    for i in range(n):
        model.add_exactly_one(x[i, j, b] for j in counts[i] for b in range(i + 1))
    for b in range(n):
        model.add(sum(inside[i, b] for i in range(b, n)) <= k)
        model.add(sum(j * x[i, j, b] for i in range(b, n) for j in counts[i]) <= p)
        for i in range(b, n):
            model.add(sum(int(scaled[i, j - 1]) * x[i, j, b] for j in counts[i]) <= longest[b])
            if i > b:
                model.add(inside[i, b] <= inside[b, b])
    # Rounding down takes less than a unit off each pack.
    model.add(sum(longest) >= max(0, int(bound / unit) - n))
    model.minimize(sum(longest))
    for (i, j, b), variable in x.items():
        # A hint in a count that has no variable would be dropped: the next lower useful one takes its place.
        useful = max(count for count in counts[i] if count <= given[i])
        model.add_hint(variable, pack_of[i] == b and j == useful)
    run, found, proven = solver.run(model)
    reached = float(np.ceil(run.best_objective_bound - 1e-6)) * unit
    if not found:
        return None, proven, reached
    groups: list[list[int]] = [[] for _ in range(n)]
    for (i, _, b), variable in x.items():
        if run.value(variable):
            groups[b].append(i)
    return fill_groups(times, [group for group in groups if group]), proven, reached
