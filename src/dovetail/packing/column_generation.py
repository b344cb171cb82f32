"""Column generation over packs: a lower bound that holds at any time, and packs to choose from.

The master is a set cover, min sum cost(A) x_A with every task in at least one pack A (dropping a task
never makes a pack dearer, so covering is partitioning).  Branching (``staircase``) adds steps: limits on
how many packs cost at least some level.  Pricing is exact: for a price on every task and every step,
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
from scipy.sparse import csc_array, eye_array, hstack, vstack

from dovetail.kernels.packing import one_pack
from dovetail.kernels.packing_pricing import best_column, best_ratio
from dovetail.packing.bounds import quick_bound
from dovetail.packing.deadline import Deadline

__all__ = ["CONVERGED", "ColumnPool", "Relaxation", "Step", "cover", "generate_columns", "relax"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Groups = list[list[int]]

_linprog: Any = linprog  # the stubs know neither sparse matrices nor partial options
_milp: Any = milp

CONVERGED = 1e-6  # relative gap between the master and the bound
SAFETY = 1e-9  # taken off the bound for rounding in the knapsacks, which add up fewer than 10^3 numbers
WEIGHTS = (0.5, 0.99)  # range of the weight of the best prices so far in a mixture (Wentges)
SHARES = (1.0, 0.67, 0.33, 0.0)  # of that weight; pricing is cheap beside the master
NEW_LEVELS = 12  # at most, whose packs enter the master in one pricing
DIVERSE_LEVELS, DIVERSE_PACKS = 4, 4  # the best levels give several packs that share no task
WORTHY = 0.98  # least price over cost of such a pack
MASTER_COLUMNS = 10  # per task, before dear columns leave the master


@dataclass(frozen=True, slots=True)
class Step:
    """At least (``sense`` 1) or at most (-1) ``count`` packs cost ``level`` or more."""

    level: float
    sense: int
    count: int


@dataclass(slots=True)
class ColumnPool:
    """Columns seen so far, each once: packs with a cost, which is the pack's own or dearer.

    A dearer column is the same pack counted at a higher level; only steps make one worth having.
    ``prices`` is a feasible dual solution without steps, one price a task, worth ``proven``;
    ``lower_bound`` is that or a better one.
    """

    times: Floats
    k: int
    lower_bound: float
    proven: float = 0.0
    prices: Floats | None = None
    converged: bool = False
    groups: list[tuple[int, ...]] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)
    raised: list[bool] = field(default_factory=list)
    _index: dict[tuple[tuple[int, ...], float], int] = field(default_factory=dict)

    def add(self, group: Iterable[int], level: float = 0.0) -> int:
        """The index of a pack at its own cost or ``level``, added unless it is there already."""
        tasks = tuple(sorted(group))
        own = _cost(self.times, tasks)
        key = (tasks, max(own, level))
        if key not in self._index:
            self._index[key] = len(self.groups)
            self.groups.append(tasks)
            self.costs.append(key[1])
            self.raised.append(level > own)
        return self._index[key]

    def matrix(self, columns: Sequence[int]) -> csc_array:
        """Tasks by columns, 1 where the task is in the pack."""
        rows = np.fromiter((i for c in columns for i in self.groups[c]), dtype=np.int32)
        starts = np.cumsum([0] + [len(self.groups[c]) for c in columns]).astype(np.int32)
        return csc_array((np.ones(len(rows)), rows, starts), shape=(self.times.shape[0], len(columns)))

    def reduced_costs(self, prices: Floats) -> Floats:
        """Cost less the prices of the tasks, for every column."""
        result: Floats = np.array(self.costs) - prices @ self.matrix(range(len(self.groups)))
        return result


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The linear program under ``steps``, as far as it was solved.

    ``bound`` is proven for all co-schedules that keep the steps.  ``prices`` (of tasks, then of steps)
    prove it; ``weights`` solve the last master, whose columns are ``columns`` and whose value is
    ``value``; ``active`` are the columns to start from next time.
    """

    steps: tuple[Step, ...]
    bound: float
    value: float
    prices: Floats | None
    active: frozenset[int]
    columns: tuple[int, ...] = ()
    weights: Floats = field(default_factory=lambda: np.empty(0))


def generate_columns(
    times: Floats,
    k: int,
    start: Iterable[Sequence[int]],
    *,
    deadline: Deadline | None = None,
    upper_bound: float = np.inf,
) -> tuple[ColumnPool, Relaxation]:
    """Solve the master by column generation from the packs ``start``, which must cover all tasks.

    ``lower_bound`` of the pool is valid whenever the deadline stops the work.  ``upper_bound`` stops it
    once that cost is proven optimal.
    """
    n, p = times.shape
    pool = ColumnPool(times, min(k, p, n), lower_bound=quick_bound(times, k))
    active = frozenset(pool.add(group) for group in start)
    root = relax(pool, Relaxation((), 0.0, np.inf, None, active), deadline=deadline, upper_bound=upper_bound)
    if root.prices is not None:
        pool.proven, pool.prices = root.bound, root.prices
    pool.lower_bound = max(pool.lower_bound, pool.proven)
    pool.converged = pool.lower_bound >= min(root.value, upper_bound) * (1.0 - CONVERGED)
    return pool, root


def relax(
    pool: ColumnPool,
    start: Relaxation,
    *,
    deadline: Deadline | None = None,
    upper_bound: float = np.inf,
    tolerance: float = 0.0,
) -> Relaxation:
    """Solve the master under ``start.steps`` until bound and value are within ``tolerance`` seconds.

    Prices divided by the greatest ratio of price to cost are feasible for the dual, so after every
    pricing their worth bounds the optimum from below (Farley).  Pricing also runs at mixtures of the
    master's prices and the best so far, which swing less; the mixtures stay closer to the best while it
    does not improve.  ``upper_bound`` ends the work once nothing cheaper is left, and is what a broken
    step costs in the master: with steps it must be finite.  One pricing is at most n p knapsacks of
    O(n k p).
    """
    deadline = deadline or Deadline()
    pricing = _Pricing(pool, start.steps)
    active = set(start.active)
    bound, prices = 0.0, start.prices
    value, columns, weights = np.inf, list[int](), np.empty(0)
    weight = 0.9
    while not deadline.passed():
        master = sorted(active)
        solved = pricing.master(master, upper_bound, deadline)
        if solved.status != 0:
            break  # out of time: what is proven stands
        exact = np.maximum(-solved.ineqlin.marginals, 0.0)
        columns, value, weights = master, float(solved.fun), solved.x[: len(master)]
        found: set[int] = set()
        improved = False
        for share in SHARES if prices is not None else (0.0,):
            mixed = exact if prices is None else weight * share * prices + (1.0 - weight * share) * exact
            new, ratio = pricing.run(mixed, deadline)
            found |= new
            proven = pricing.worth(mixed) / ratio * (1.0 - SAFETY)
            if proven > bound or prices is None:
                bound, improved = max(bound, proven), True
                prices = mixed / max(ratio, 0.5)
            if deadline.passed():
                break
        weight = max(WEIGHTS[0], weight - 0.1) if improved else min(WEIGHTS[1], 0.4 + 0.6 * weight)
        goal = min(value - tolerance, upper_bound)
        if bound >= goal - CONVERGED * min(value, upper_bound):
            break
        if found <= active and not pricing.stopped:
            break  # nothing improves the master: what is left of the gap is rounding
        active |= found
        if len(active) > MASTER_COLUMNS * pool.times.shape[0]:
            basis = {c for c, x in zip(columns, weights, strict=True) if x > 0.0}
            cheap = np.argsort(pricing.reduced_costs(exact), kind="stable")
            active = found | basis | set(cheap[: len(active) // 2].tolist())
    return Relaxation(start.steps, bound, value, prices, frozenset(active), tuple(columns), weights)


class _Pricing:
    """Master and exact pricing under some steps, within a deadline; learns how long a knapsack takes."""

    def __init__(self, pool: ColumnPool, steps: Sequence[Step]) -> None:
        self.pool, self.levels = pool, np.unique(pool.times)
        self.thresholds = np.array([step.level for step in steps])
        self.senses = np.array([float(step.sense) for step in steps])
        self.counts = np.array([float(step.count) for step in steps])
        self.seconds = 0.0  # for one knapsack, as measured
        self.stopped = False  # whether the last pricing was cut short

    def master(self, columns: Sequence[int], upper_bound: float, deadline: Deadline) -> Any:
        """Solve the master over ``columns``; breaking a step costs ``upper_bound`` for each pack."""
        costs = np.array(self.pool.costs)[columns]
        rows: Any = self.pool.matrix(columns)
        rights = np.ones(rows.shape[0])
        if len(self.senses):
            counted = csc_array(self.senses[:, None] * (costs[None, :] >= self.thresholds[:, None]))
            slack = vstack(
                [csc_array((rows.shape[0], len(self.senses))), eye_array(len(self.senses), format="csc")]
            )
            rows = hstack([vstack([rows, counted]), slack], format="csc")
            rights = np.concatenate([rights, self.senses * self.counts])
            costs = np.concatenate([costs, np.full(len(self.senses), upper_bound)])
        limit = {"time_limit": max(deadline.left, 1e-3)} if np.isfinite(deadline.left) else {}
        return _linprog(costs, A_ub=-rows, b_ub=-rights, method="highs", options=limit)

    def worth(self, prices: Floats) -> float:
        """The dual objective of prices of tasks, then of steps."""
        n = self.pool.times.shape[0]
        return float(prices[:n].sum() + prices[n:] @ (self.senses * self.counts))

    def reduced_costs(self, prices: Floats) -> Floats:
        """Cost less the prices of tasks and steps, for every column of the pool."""
        n = self.pool.times.shape[0]
        result = self.pool.reduced_costs(prices[:n])
        costs = np.array(self.pool.costs)
        for level, price in zip(self.thresholds, self.senses * prices[n:], strict=True):
            result -= price * (costs >= level)
        return result

    def run(self, prices: Floats, deadline: Deadline) -> tuple[set[int], float]:
        """Columns worth more than they cost, and an upper bound on the ratio of price to cost."""
        pool, n = self.pool, self.pool.times.shape[0]
        tasks = prices[:n]
        extra = np.zeros(len(self.levels))
        for level, price in zip(self.thresholds, self.senses * prices[n:], strict=True):
            extra[self.levels >= level] += price
        by_price = np.argsort(-tasks, kind="stable").astype(np.int64)
        most = len(self.levels)
        if self.seconds == 0.0:
            most = min(most, 32)
        elif np.isfinite(deadline.left):
            most = max(1, min(most, int(0.5 * deadline.left / self.seconds)))
        visited = np.empty(most, np.int64)
        ratios = np.empty(most)
        begin = perf_counter()
        ratio, looked = best_ratio(
            pool.times, self.levels, tasks, extra, by_price, pool.k, 0.5, most, visited, ratios
        )
        self.seconds = max((perf_counter() - begin) / looked, 1e-9)
        self.stopped = looked == most < len(self.levels)
        found: set[int] = set()
        for rank, r in enumerate(np.argsort(-ratios[:looked], kind="stable")[:NEW_LEVELS]):
            if ratios[r] <= 1.0 + CONVERGED or deadline.passed():
                break
            wanted = DIVERSE_PACKS if rank < DIVERSE_LEVELS else 1
            found |= self._packs(float(self.levels[visited[r]]), tasks, float(extra[visited[r]]), wanted)
        # All prices may be worth nothing under "at most" steps: then any multiple of them is feasible.
        return found, max(float(ratio), 1e-6)

    def _packs(self, level: float, tasks: Floats, extra: float, wanted: int) -> set[int]:
        """Up to ``wanted`` packs without a common task, each of most value in what the former leave.

        A master over one pack a level converges slowly: many packs of one level are worth the same.
        """
        pool = self.pool
        left = tasks.copy()
        column = np.empty(pool.k, np.int64)
        found: set[int] = set()
        for _ in range(wanted):
            by_price = np.argsort(-left, kind="stable").astype(np.int64)
            size = best_column(pool.times, level, left, by_price, pool.k, column)
            group = column[:size].tolist()
            if not size or left[group].sum() + extra < WORTHY * level:
                break
            own = pool.add(group)
            found.add(own)
            if np.any((pool.costs[own] < self.thresholds) & (self.thresholds <= level)):
                found.add(pool.add(group, level))
            left[group] = 0.0
        return found


def cover(
    pool: ColumnPool, upper_bound: float, *, deadline: Deadline | None = None, gap: float = 1e-6
) -> Groups | None:
    """The cheapest packs of the pool that cover all tasks, or ``None`` when time or the pool gives none.

    An integer program over the packs whose reduced cost is within the gap between ``upper_bound`` and
    what the prices prove: no others can be part of anything cheaper.
    """
    deadline = deadline or Deadline()
    if pool.prices is None or deadline.left < 1e-2:
        return None
    slack = upper_bound - pool.proven + 1e-9 * upper_bound
    near = pool.reduced_costs(pool.prices) <= slack
    columns = np.flatnonzero(near & ~np.array(pool.raised)).tolist()
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
    return without_repeats(pool.times, chosen)


def without_repeats(times: Floats, groups: Groups) -> Groups:
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
