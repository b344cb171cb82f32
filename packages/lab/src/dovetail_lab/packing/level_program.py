"""A linear program over levels, in which a pack is no set of tasks but only room at a level.

It knows y_T, how many packs cost T, and x_{i,T}, which share of task i is in packs of cost T, where it needs
need_i(T) processors: min sum T y_T with every task once, p processors and k tasks for each pack, and no
task twice in one (x_{i,T} <= y_T).  A few levels of all are enough: the prices of its tasks are nearly those
of the master of column generation, which would take hundreds of rounds to find them from nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import coo_array, vstack

from dovetail_lab.packing.bounds import needed_processors
from dovetail_lab.packing.deadline import Deadline

Floats = NDArray[np.float64]

_linprog: Any = linprog  # the stubs know no sparse matrices


def some_levels(times: Floats, longest: float, count: int) -> Floats:
    """About ``count`` of the distinct times up to ``longest``, evenly spaced on a logarithmic scale."""
    levels = np.unique(times)
    least = times[:, -1].max()  # below it some task fits no pack
    wanted = np.geomspace(times[:, -1].min(), max(longest, least), count)
    at = np.minimum(np.searchsorted(levels, np.append(wanted, least)), len(levels) - 1)
    return np.unique(levels[at])


def level_prices(times: Floats, k: int, levels: Floats, deadline: Deadline | None = None) -> Floats | None:
    """The tasks' prices, in seconds, at an optimum over ``levels``; ``None`` when time is up.

    The prices are a guess for all levels; pricing (``column_generation``) shows what they are worth.
    n * levels columns and rows: a third of a second for 260 tasks and 60 levels.
    """
    if deadline is not None and deadline.has_passed():
        return None
    n, p = times.shape
    count = len(levels)
    need = np.array([needed_processors(times, level) for level in levels])
    at, task = np.nonzero(need <= p)  # the x in use: (level, task)
    size = len(at)
    each, row = np.arange(size), np.arange(count)

    def level_rows(values: Floats, room: Floats) -> coo_array:
        """For every level: sum values x - room y <= 0."""
        entries = np.concatenate([values, -room])
        where = np.concatenate([at, row]), np.concatenate([each, size + row])
        return coo_array((entries, where), shape=(count, size + count))

    once = coo_array((np.ones(size), (task, each)), shape=(n, size + count))
    linked = coo_array(
        (np.repeat([1.0, -1.0], size), (np.tile(each, 2), np.concatenate([each, size + at]))),
        shape=(size, size + count),
    )
    limits = [
        level_rows(need[at, task].astype(np.float64), np.full(count, float(p))),
        level_rows(np.ones(size), np.full(count, float(min(k, p)))),
        linked,
    ]
    matrix = vstack(limits).tocsc()
    options = {"time_limit": max(deadline.wall_left, 1e-2)} if deadline and np.isfinite(deadline.left) else {}
    solved = _linprog(
        np.concatenate([np.zeros(size), levels]),
        A_ub=matrix,
        b_ub=np.zeros(matrix.shape[0]),
        A_eq=once.tocsc(),
        b_eq=np.ones(n),
        method="highs-ipm",
        options=options,
    )
    if solved.status != 0:
        return None
    prices: Floats = np.maximum(solved.eqlin.marginals, 0.0)
    return prices
