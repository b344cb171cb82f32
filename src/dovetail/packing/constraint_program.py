"""The stronger integer program for CP-SAT (OR-tools), started from a heuristic's packs."""

from __future__ import annotations

import os
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail.packing.bounds import quick_bound
from dovetail.packing.contiguous import contiguous
from dovetail.packing.deadline import Deadline
from dovetail.packing.integer_program import MOST_VARIABLES, useful_counts
from dovetail.packing.pack_by_pack import pack_by_pack
from dovetail.packing.schedule import Outcome, fill

__all__ = ["constraint_program"]

Floats = NDArray[np.float64]

STEPS = 10_000_000  # the longest time in the solver's whole units, where times are not whole already


def constraint_program(
    times: Floats, k: int, *, seed: int = 0, deadline: Deadline | None = None, workers: int | None = None
) -> Outcome:
    """Optimal packs by CP-SAT, or the best found by the deadline with the bound proven until then.

    The program is the strong form of ``integer_program``.  CP-SAT computes with whole numbers: times
    are rounded down to 1e-7 of the longest (whole seconds stay as they are), so that its bound holds
    for the true times; an optimum is one up to that rounding.  Raises ``InputError`` when OR-tools is
    not installed or the program is too large.
    """
    if find_spec("ortools") is None:
        raise InputError("cp-sat needs OR-tools, which is not installed; expected the extra dovetail[exact]")
    from ortools.sat.python import cp_model

    n, p = times.shape
    deadline = deadline or Deadline()
    counts = useful_counts(times)
    if sum(len(counts[i]) * (i + 1) for i in range(n)) > MOST_VARIABLES:
        raise InputError(f"cp-sat takes at most {MOST_VARIABLES} variables, got {n} tasks on {p} processors")
    whole = bool(np.all(times == np.floor(times))) and times.max() <= STEPS
    unit = 1.0 if whole else float(times.max()) / STEPS
    scaled = np.floor(times / unit).astype(np.int64)
    best = min(pack_by_pack(times, k), contiguous(times, k), key=lambda packing: packing.cost)
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
    model.minimize(sum(longest))
    for (i, j, b), variable in x.items():
        useful = max(count for count in counts[i] if count <= given[i])
        model.add_hint(variable, pack_of[i] == b and j == useful)

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = workers or os.cpu_count() or 1
    solver.parameters.random_seed = seed
    if np.isfinite(deadline.left):
        solver.parameters.max_time_in_seconds = max(deadline.left, 1e-2)
    status = solver.solve(model)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        groups: list[list[int]] = [[] for _ in range(n)]
        for (i, _, b), variable in x.items():
            if solver.value(variable):
                groups[b].append(i)
        found = fill(times, [group for group in groups if group])
        best = min(best, found, key=lambda packing: packing.cost)
    proven = status == cp_model.OPTIMAL
    bound = max(float(np.ceil(solver.best_objective_bound - 1e-6)) * unit, quick_bound(times, k))
    notes = () if proven else ("the time limit ended the search before optimality was proven",)
    return Outcome(best, min(bound, best.cost), proven, notes)
