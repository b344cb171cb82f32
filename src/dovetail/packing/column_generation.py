"""Column generation over packs: a lower bound that holds at any time, and packs to choose from.

The master is a set cover, min sum cost(A) x_A with every task in at least one pack A (dropping a task
never makes a pack dearer, so covering is partitioning).  Pricing is exact: for a price on every task,
``best_ratio`` bounds (price of A) / cost(A) over all packs A.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csc_array

from dovetail.kernels.packing import one_pack
from dovetail.kernels.packing_pricing import best_column, best_ratio
from dovetail.packing.bounds import quick_bound
from dovetail.packing.deadline import Deadline

__all__ = ["ColumnPool", "cover", "generate_columns"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Groups = list[list[int]]

_linprog: Any = linprog  # the stubs know neither sparse matrices nor partial options
_milp: Any = milp

CONVERGED = 1e-6  # relative gap between the master and the bound
SAFETY = 1e-9  # taken off the bound for rounding in the knapsacks, which add up fewer than 10^3 numbers
MIXTURES = (0.9, 0.6, 0.3, 0.0)  # weights of the best prices so far (Wentges); pricing is cheap
NEW_COLUMNS = 60  # at most, per pricing
MASTER_COLUMNS = 12  # per task, before dear columns leave the master


@dataclass(slots=True)
class ColumnPool:
    """Packs seen so far, each once, with their costs; and what the pricing proved.

    ``prices`` is a feasible dual solution, one price a task, worth ``proven``; ``lower_bound`` is that
    or a quick bound, whichever is greater.
    """

    times: Floats
    k: int
    lower_bound: float
    proven: float = 0.0
    prices: Floats | None = None
    converged: bool = False
    groups: list[tuple[int, ...]] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    _index: dict[tuple[int, ...], int] = field(default_factory=dict)

    def add(self, group: Iterable[int]) -> int:
        """The index of a pack, added unless it is there already."""
        key = tuple(sorted(group))
        if key not in self._index:
            self._index[key] = len(self.groups)
            self.groups.append(key)
            self.costs.append(_cost(self.times, key))
        return self._index[key]

    def matrix(self, columns: Sequence[int]) -> csc_array:
        """Tasks by packs, 1 where the task is in the pack."""
        rows = np.fromiter((i for c in columns for i in self.groups[c]), dtype=np.int32)
        starts = np.cumsum([0] + [len(self.groups[c]) for c in columns]).astype(np.int32)
        return csc_array((np.ones(len(rows)), rows, starts), shape=(self.times.shape[0], len(columns)))

    def reduced_costs(self, prices: Floats) -> Floats:
        """Cost less the prices of the tasks, for every pack."""
        result: Floats = np.array(self.costs) - prices @ self.matrix(range(len(self.groups)))
        return result


def generate_columns(
    times: Floats,
    k: int,
    start: Iterable[Sequence[int]],
    *,
    deadline: Deadline | None = None,
    upper_bound: float = np.inf,
) -> ColumnPool:
    """Solve the master by column generation from the packs ``start``, which must cover all tasks.

    Prices divided by the greatest ratio of price to cost are feasible for the dual, so after every
    pricing their sum bounds the optimum from below (Farley): ``lower_bound`` is valid whenever the
    deadline stops the work.  Pricing also runs at mixtures of the master's prices and the best so far,
    which swing less.  ``upper_bound`` stops the work once that cost is proven optimal.  One pricing is
    at most n p knapsacks of O(n k p).
    """
    n, p = times.shape
    k = min(k, p, n)
    deadline = deadline or Deadline()
    pool = ColumnPool(times, k, lower_bound=quick_bound(times, k))
    active = {pool.add(group) for group in start}
    pricing = _Pricing(times, k)
    while not deadline.passed():
        master = sorted(active)
        solved = _linprog(
            np.array(pool.costs)[master],
            A_ub=-pool.matrix(master),
            b_ub=-np.ones(n),
            method="highs",
            options={"time_limit": max(deadline.left, 1e-3)} if np.isfinite(deadline.left) else {},
        )
        if solved.status != 0:
            break  # out of time: what is proven stands
        exact = np.maximum(-solved.ineqlin.marginals, 0.0)
        found: set[int] = set()
        for weight in MIXTURES if pool.prices is not None else (0.0,):
            prices = exact if pool.prices is None else weight * pool.prices + (1.0 - weight) * exact
            columns, ratio = pricing.run(prices, deadline)
            bound = float(prices.sum()) / ratio * (1.0 - SAFETY)
            if bound > pool.proven:
                pool.proven = bound
                pool.prices = prices / ratio
            found.update(pool.add(column) for column in columns)
            if deadline.passed():
                break
        pool.lower_bound = max(pool.lower_bound, pool.proven)
        if pool.lower_bound >= min(float(solved.fun), upper_bound) * (1.0 - CONVERGED):
            pool.converged = True
            break
        if found <= active and not pricing.stopped:
            break  # nothing improves the master: what is left of the gap is rounding
        active |= found
        if len(active) > MASTER_COLUMNS * n:
            reduced = pool.reduced_costs(exact)
            active = found | set(np.argsort(reduced, kind="stable")[: MASTER_COLUMNS * n // 2].tolist())
    return pool


class _Pricing:
    """Exact pricing within a deadline; learns how long a knapsack takes."""

    def __init__(self, times: Floats, k: int) -> None:
        self.times, self.k, self.levels = times, k, np.unique(times)
        self.seconds = 0.0  # for one knapsack, as measured
        self.stopped = False  # whether the last pricing was cut short

    def run(self, prices: Floats, deadline: Deadline) -> tuple[Groups, float]:
        """Packs worth more than they cost, and an upper bound on the ratio of price to cost."""
        by_price = np.argsort(-prices, kind="stable").astype(np.int64)
        most = len(self.levels)
        if self.seconds == 0.0:
            most = min(most, 32)
        elif np.isfinite(deadline.left):
            most = max(1, min(most, int(0.5 * deadline.left / self.seconds)))
        visited = np.empty(most, np.int64)
        values = np.empty(most)
        begin = perf_counter()
        ratio, looked = best_ratio(
            self.times, self.levels, prices, by_price, self.k, 0.5, most, visited, values
        )
        self.seconds = max((perf_counter() - begin) / looked, 1e-9)
        self.stopped = looked == most < len(self.levels)
        ratios = values[:looked] / self.levels[visited[:looked]]
        column = np.empty(self.k, np.int64)
        columns: Groups = []
        for r in np.argsort(-ratios, kind="stable")[:NEW_COLUMNS]:
            if ratios[r] <= 1.0 + CONVERGED or deadline.passed():
                break
            size = best_column(self.times, self.levels[visited[r]], prices, by_price, self.k, column)
            if size:
                columns.append(column[:size].tolist())
        return columns, float(ratio)


def cover(
    pool: ColumnPool, upper_bound: float, *, deadline: Deadline | None = None, gap: float = 1e-6
) -> Groups | None:
    """The cheapest packs of the pool that cover all tasks, or ``None`` when time or the pool gives none.

    An integer program over the packs whose reduced cost is within the gap between ``upper_bound`` and
    what the prices prove: no others can be part of anything cheaper.  A task covered twice stays in the pack
    that gains least from losing it.
    """
    deadline = deadline or Deadline()
    if pool.prices is None or deadline.left < 1e-2:
        return None
    slack = upper_bound - pool.proven + 1e-9 * upper_bound
    columns = np.flatnonzero(pool.reduced_costs(pool.prices) <= slack).tolist()
    if not columns:
        return None
    options: dict[str, float] = {"mip_rel_gap": gap}
    if np.isfinite(deadline.left):
        options["time_limit"] = deadline.left
    solved = _milp(
        np.array(pool.costs)[columns],
        integrality=np.ones(len(columns)),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(pool.matrix(columns), lb=1.0),
        options=options,
    )
    if solved.x is None:
        return None
    chosen = [list(pool.groups[c]) for c, x in zip(columns, solved.x, strict=True) if x > 0.5]
    return _without_repeats(pool.times, chosen)


def _without_repeats(times: Floats, groups: Groups) -> Groups:
    """Leave every task in one pack: the one that gains least from losing it."""
    for task in sorted({i for group in groups for i in group}):
        holders = [group for group in groups if task in group]
        gains = [_cost(times, group) - _cost(times, [i for i in group if i != task]) for group in holders]
        keeper = int(np.argmin(gains))
        for position, group in enumerate(holders):
            if position != keeper:
                group.remove(task)
    return [group for group in groups if group]


def _cost(times: Floats, group: Sequence[int]) -> float:
    """The optimal cost of a pack."""
    tasks = np.array(group, dtype=np.int64)
    size = len(tasks)
    return float(one_pack(times, tasks, size, np.empty(size, np.int64), np.empty(size))) if size else 0.0
