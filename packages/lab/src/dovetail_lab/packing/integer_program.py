"""The integer program of Theorem 4 (Aupy 2013) for HiGHS, as printed and in a stronger form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from dovetail.errors import InputError
from dovetail_lab.packing.bounds import quick_bound
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.pack_by_pack import pack_by_pack
from dovetail_lab.packing.schedule import Outcome, Packing, fill_groups

Floats = NDArray[np.float64]

_milp: Any = milp  # the stubs want every option

MOST_VARIABLES = 500_000
TOLERANCE = 1e-6  # HiGHS keeps constraints and gaps to this; the bound is lowered by as much


def useful_counts(times: Floats) -> list[list[int]]:
    """For each task the processor counts that are faster than all smaller ones (from 1)."""
    # A count that is no faster than a smaller one can be left out without losing an optimum.
    return [[j + 1 for j in range(times.shape[1]) if j == 0 or row[j] < row[j - 1]] for row in times]


def integer_program(
    times: Floats, k: int, *, deadline: Deadline | None = None, literal: bool = False
) -> Outcome:
    """Solve the integer program of Theorem 4; the better of its packs and pack-by-pack's are returned.

    x_{i,j,b}: task i runs on j processors in pack b; y_b is the time of pack b: min sum y_b
    with every task once, at most k tasks and p processors in a pack, and (iv) t_{i,j} x_{i,j,b} <= y_b.
    That is ``literal``; beyond 6 to 8 tasks it proves nothing.  Otherwise the same program is made
    stronger: (iv') sum_j t_{i,j} x_{i,j,b} <= y_b, no j that is as slow as j - 1, and pack b is the one
    whose lowest task is b.  Raises ``InputError`` when the program has too many variables.
    """
    n, p = times.shape
    deadline = deadline or Deadline()
    counts = [list(range(1, p + 1))] * n if literal else useful_counts(times)
    # Pack b may only hold tasks from b on: otherwise each solution would come in n! orders.
    variables = [(i, j, b) for i in range(n) for j in counts[i] for b in range(n if literal else i + 1)]
    if len(variables) > MOST_VARIABLES:
        raise InputError(f"ilp takes at most {MOST_VARIABLES} variables, found {len(variables)}")
    # In thousandths of the longest time, so that the solver's tolerances mean the same for all instances.
    unit = float(times.max()) / 1000.0
    rows = _build_constraints(times / unit, k, variables, literal=literal)
    # A tenth, so that what it calls optimal is optimal within our own tolerance.
    options: dict[str, float] = {"mip_rel_gap": TOLERANCE / 10}
    if np.isfinite(deadline.left):
        options["time_limit"] = max(deadline.wall_left, 1e-2)
    size = len(variables)
    solved = _milp(
        np.concatenate((np.zeros(size), np.ones(n))),
        integrality=np.concatenate((np.ones(size), np.zeros(n))),
        bounds=Bounds(np.zeros(size + n), np.concatenate((np.ones(size), np.full(n, np.inf)))),
        constraints=rows,
        options=options,
    )
    # Also without a solution in time there is one to return.
    best: Packing = pack_by_pack(times, k)
    if solved.x is not None:
        groups: list[list[int]] = [[] for _ in range(n)]
        for (i, _, b), x in zip(variables, solved.x[:size], strict=True):
            if x > 0.5:
                groups[b].append(i)
        found = fill_groups(times, [group for group in groups if group])
        best = min(best, found, key=lambda packing: packing.total_cost)
    proven = solved.status == 0
    dual = solved.mip_dual_bound
    bound = quick_bound(times, k)
    if dual is not None and np.isfinite(dual):
        # Less the tolerance: the solver's bound may be a little too high.
        bound = max(bound, float(dual) * unit * (1.0 - TOLERANCE))
    notes = () if proven else ("the time limit ended the search before optimality was proven",)
    return Outcome(best, min(bound, best.total_cost), proven, notes)


def _build_constraints(
    times: Floats, k: int, variables: Sequence[tuple[int, int, int]], *, literal: bool
) -> LinearConstraint:
    """The rows (i) to (iv) over the x in the order of ``variables``, then y_0..y_{n-1}."""
    n, p = times.shape
    size = len(variables)
    entries: list[tuple[int, int, float]] = []  # row, column, coefficient
    low = [1.0] * n + [-np.inf] * (2 * n)
    high = [1.0] * n + [float(k)] * n + [float(p)] * n
    member: dict[tuple[int, int], int] = {}  # the row (iv') of a task in a pack
    lead: dict[tuple[int, int], int] = {}  # the row that ties a task to its pack's lowest task
    for column, (i, j, b) in enumerate(variables):
        entries += [(i, column, 1.0), (n + b, column, 1.0), (2 * n + b, column, float(j))]
        if literal or (i, b) not in member:
            member[i, b] = len(low)
            entries.append((len(low), size + b, -1.0))
            low.append(-np.inf)
            high.append(0.0)
        entries.append((member[i, b], column, float(times[i, j - 1])))
        if not literal and i != b:
            if (i, b) not in lead:
                lead[i, b] = len(low)
                low.append(-np.inf)
                high.append(0.0)
            entries.append((lead[i, b], column, 1.0))
    if not literal:
        own: dict[int, list[int]] = {}
        for column, (i, _, b) in enumerate(variables):
            if i == b:
                own.setdefault(b, []).append(column)
        entries += [(row, column, -1.0) for (_, b), row in lead.items() for column in own[b]]
    at_row, at_column, values = zip(*entries, strict=True)
    matrix = coo_array((values, (at_row, at_column)), shape=(len(low), size + n)).tocsr()
    return LinearConstraint(matrix, lb=np.array(low), ub=np.array(high))
