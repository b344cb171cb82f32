"""Column generation over packs: a lower bound that holds at any time, and packs to choose from.

The master is a set cover, min sum cost(A) x_A with every task in at least one pack A (dropping a task
never makes a pack dearer, so covering is partitioning).  Branching (``staircase``) adds steps: limits on
how many packs cost at least some level.  Pricing is exact: for a price on every task and every step,
``best_ratio`` bounds (price of A) / cost(A) over all packs A.

Two things make it converge on hundreds of tasks.  Prices begin near their end (``level_program``).  And the
master is solved for prices near the best so far only (boxstep: Marsten, Hogan and Blankenship 1975): a master
of few packs believes in prices that are worth nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csc_array, hstack

from dovetail_lab.packing.bounds import quick_bound
from dovetail_lab.packing.compiled import one_pack
from dovetail_lab.packing.compiled_pricing import best_column, best_ratio
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.level_program import level_prices, some_levels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Groups = list[list[int]]

_linprog: Any = linprog  # the stubs know neither sparse matrices nor partial options
_milp: Any = milp

CONVERGED = 1e-6  # relative gap between the master and the bound
SAFETY = 1e-9  # taken off the bound for rounding in the knapsacks, which add up fewer than 10^3 numbers
BOX, LEAST_BOX, MOST_BOX = 0.05, 0.01, 0.3  # how far prices may be from the best so far, as a share of them
WIDER, NARROWER = 1.5, 0.7  # the box after a step that kept half of its promise, and after one that failed
FLOOR = 0.1  # of the mean price: so much a price counts at least, where the box is a share of it
SHARES = (0.0, 0.5, 0.8)  # of the best prices in those that are priced, until one is better
LEVELS = 60  # of the linear program that the prices begin with
SEEDS, SEED_WORTH = 12, 0.93  # packs of each of its levels that the master begins with, and their least worth
NEW_LEVELS, NEW_PACKS = 40, 2  # at most, that enter the master in one pricing; packs of a level share no task
WORTHY = 0.99  # least price over cost of such a pack
MASTER_COLUMNS = 6  # per task, before dear columns leave the master


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
        own = _pack_cost(self.times, tasks)
        # A pack may come in at several levels, which are columns of their own.
        key = (tasks, max(own, level))
        if key not in self._index:
            self._index[key] = len(self.groups)
            self.groups.append(tasks)
            self.costs.append(key[1])
            self.raised.append(level > own)
        return self._index[key]

    def incidence_matrix(self, columns: Sequence[int]) -> csc_array:
        """Tasks by columns, 1 where the task is in the pack."""
        # Columns one after the other, as the solver stores them: no sorting, and no dense matrix.
        rows = np.fromiter((i for c in columns for i in self.groups[c]), dtype=np.int32)
        starts = np.cumsum([0] + [len(self.groups[c]) for c in columns]).astype(np.int32)
        return csc_array((np.ones(len(rows)), rows, starts), shape=(self.times.shape[0], len(columns)))

    def reduced_costs(self, prices: Floats) -> Floats:
        """Cost less the prices of the tasks, for every column."""
        result: Floats = np.array(self.costs) - prices @ self.incidence_matrix(range(len(self.groups)))
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
    # A pack never holds more than p tasks, whatever k allows: each needs a processor.
    pool = ColumnPool(times, min(k, p, n), lower_bound=quick_bound(times, k))
    active = frozenset(pool.add(group) for group in start)
    # The relaxation without steps is the bound that all branches start from.
    root = solve_relaxation(
        pool, Relaxation((), 0.0, np.inf, None, active), deadline=deadline, upper_bound=upper_bound
    )
    if root.prices is not None:
        pool.proven, pool.prices = root.bound, root.prices
    pool.lower_bound = max(pool.lower_bound, pool.proven)
    # Converged also where the packs at hand are proven best, without the master being solved to its end.
    pool.converged = pool.lower_bound >= min(root.value, upper_bound) * (1.0 - CONVERGED)
    return pool, root


def solve_relaxation(
    pool: ColumnPool,
    start: Relaxation,
    *,
    deadline: Deadline | None = None,
    upper_bound: float = np.inf,
    tolerance: float = 0.0,
) -> Relaxation:
    """Solve the master under ``start.steps`` until bound and value are within ``tolerance`` seconds.

    Prices divided by the greatest ratio of price to cost are feasible for the dual, so after every
    pricing their worth bounds the optimum from below (Farley).  The master's prices stay in a box around
    the best ones; where they turn out to be worth less, mixtures of the two are priced.  A master that
    promises nothing more within the box has found the optimum: its value is concave in the prices.
    ``upper_bound`` ends the work once nothing cheaper is left, and is what a broken step costs in the
    master: with steps it must be finite.  One pricing is at most n p knapsacks of O(n k p).
    """
    deadline = deadline or Deadline()
    pricing = _Pricing(pool, start.steps)
    active = set(start.active)
    bound, best = pricing.initial_prices(start.prices, active, deadline)
    value, columns, weights = np.inf, list[int](), np.empty(0)
    box = BOX
    while best is not None and not deadline.has_passed() and bound < upper_bound * (1.0 - CONVERGED):
        # Sorted, so that the master, and with it the result, does not depend on the order of a set.
        master = sorted(active)
        solved = pricing.solve_master(master, best, box, upper_bound, deadline)
        if solved is None:
            # Whatever was proven before holds on: a bound needs no solved master.
            break  # out of time: what is proven stands
        exact, value, weights = solved
        columns = master
        promised = value - bound
        # Inside of the box the master's value is concave in the prices: no promise means the optimum.
        if promised <= tolerance and pricing.inside(exact, best, box):
            break
        if promised <= CONVERGED * value:
            if box >= BOX:
                break
            box = BOX  # a narrow box promises little anyway
            continue
        found: set[int] = set()
        before = bound
        for share in SHARES:
            # Towards the best prices: the master's own jump about, and their bound is often worse.
            mixed = share * best + (1.0 - share) * exact
            new, ratio = pricing.run(mixed, deadline)
            found |= new
            # Dividing by the ratio makes the prices feasible, which proves their worth (Farley).
            proven = pricing.dual_objective(mixed) / ratio * (1.0 - SAFETY)
            if proven > bound:
                bound, best = proven, mixed / max(ratio, 0.5)
                break
            if deadline.has_passed():
                break
        # The prices moved as far as was promised: a larger step may be worth trying.
        if bound - before > 0.5 * promised:
            box = min(box * WIDER, MOST_BOX)
        elif bound == before:
            box = max(box * NARROWER, LEAST_BOX)
            if found <= active and not pricing.stopped:
                break  # what is left of the gap is rounding
        active |= found
        if len(active) > MASTER_COLUMNS * pool.times.shape[0]:
            basis = {c for c, x in zip(columns, weights, strict=True) if x > 0.0}
            cheap = np.argsort(pricing.reduced_costs(exact), kind="stable")
            active = found | basis | set(cheap[: len(active) // 2].tolist())
    return Relaxation(start.steps, bound, value, best, frozenset(active), tuple(columns), weights)


class _Pricing:
    """Master and exact pricing under some steps, within a deadline; learns how long a knapsack takes."""

    def __init__(self, pool: ColumnPool, steps: Sequence[Step]) -> None:
        self.pool, self.levels = pool, np.unique(pool.times)
        self.thresholds = np.array([step.level for step in steps])
        self.senses = np.array([float(step.sense) for step in steps])
        self.counts = np.array([float(step.count) for step in steps])
        self.unit = float(pool.times.mean())  # of the master, whose solver has absolute tolerances
        self.seconds = 0.0  # for one knapsack, as measured
        self.stopped = False  # whether the last pricing was cut short

    def initial_prices(
        self, prices: Floats | None, active: set[int], deadline: Deadline
    ) -> tuple[float, Floats | None]:
        """A bound and prices to begin with; adds packs to ``active`` that are worth their cost by them.

        Prices of a relaxation with fewer steps are feasible here too, at 0 for the further ones.
        """
        if prices is not None:
            return self.dual_objective(prices) * (1.0 - SAFETY), prices
        pool = self.pool
        # No pack of an optimum is dearer than the packs at hand, at whose cost all tasks fit a pack.
        levels = some_levels(pool.times, max(pool.costs[c] for c in active), LEVELS)
        tasks = level_prices(pool.times, pool.k, levels, deadline)
        if tasks is None:
            return 0.0, None
        best = np.concatenate([tasks, np.zeros(len(self.senses))])
        _, ratio = self.run(best, deadline)
        best /= ratio
        for level in levels:
            if deadline.has_passed():
                break
            active |= self._valuable_packs(float(level), best[: len(tasks)], 0.0, SEEDS, SEED_WORTH)
        return self.dual_objective(best) * (1.0 - SAFETY), best

    def solve_master(
        self, columns: Sequence[int], best: Floats, box: float, upper_bound: float, deadline: Deadline
    ) -> tuple[Floats, float, Floats] | None:
        """The best prices in the box that no pack of ``columns`` exceeds; their worth; the packs' weights.

        The dual of the set cover.  The price of a step is at most ``upper_bound``, the cost of breaking it.
        ``None`` when time is up.
        """
        costs = np.array(self.pool.costs)[columns]
        rows: Any = self.pool.incidence_matrix(columns).T
        if len(self.senses):
            counted = self.senses[None, :] * (costs[:, None] >= self.thresholds[None, :])
            rows = hstack([rows, csc_array(counted)])
        low, high = self._price_box(best, box)
        low = np.concatenate([low, np.zeros(len(self.senses))]) / self.unit
        high = np.concatenate([high, np.full(len(self.senses), upper_bound)]) / self.unit
        # A pack that costs more than any prices of the box bids for nothing there.
        bidding = np.flatnonzero(np.asarray(rows.maximum(0.0) @ high) * self.unit >= costs)
        limit = {"time_limit": max(deadline.wall_left, 1e-3)} if np.isfinite(deadline.left) else {}
        solved = _linprog(
            -np.concatenate([np.ones(self.pool.times.shape[0]), self.senses * self.counts]),
            A_ub=rows.tocsr()[bidding].tocsc(),
            b_ub=costs[bidding] / self.unit,
            bounds=np.stack([low, high], axis=1),
            method="highs-ds",
            options=limit,
        )
        if solved.status != 0:
            return None
        weights = np.zeros(len(costs))
        weights[bidding] = -solved.ineqlin.marginals
        return solved.x * self.unit, -float(solved.fun) * self.unit, weights

    def _price_box(self, best: Floats, box: float) -> tuple[Floats, Floats]:
        tasks = best[: self.pool.times.shape[0]]
        reach = box * np.maximum(tasks, FLOOR * tasks.mean())
        return np.maximum(tasks - reach, 0.0), tasks + reach

    def inside(self, prices: Floats, best: Floats, box: float) -> bool:
        """Whether no price of a task is held back by the box."""
        low, high = self._price_box(best, box)
        tasks = prices[: len(low)]
        edge = 1e-6 * self.unit
        return bool(np.all((tasks > low + edge) | (low == 0.0)) and np.all(tasks < high - edge))

    def dual_objective(self, prices: Floats) -> float:
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
        for r in np.argsort(-ratios[:looked], kind="stable")[:NEW_LEVELS]:
            if ratios[r] <= 1.0 + CONVERGED or deadline.has_passed():
                break
            at = visited[r]
            found |= self._valuable_packs(float(self.levels[at]), tasks, float(extra[at]), NEW_PACKS, WORTHY)
        # All prices may be worth nothing under "at most" steps: then any multiple of them is feasible.
        return found, max(float(ratio), 1e-6)

    def _valuable_packs(
        self, level: float, tasks: Floats, extra: float, wanted: int, worth: float
    ) -> set[int]:
        """Up to ``wanted`` packs without a common task, each of most value in what the former leave.

        Each is worth ``worth`` of its cost at least.  A master over one pack a level converges slowly: many
        packs of one level are worth the same.
        """
        pool = self.pool
        left = tasks.copy()
        column = np.empty(pool.k, np.int64)
        found: set[int] = set()
        for _ in range(wanted):
            by_price = np.argsort(-left, kind="stable").astype(np.int64)
            size = best_column(pool.times, level, left, by_price, pool.k, column)
            group = column[:size].tolist()
            if not size or left[group].sum() + extra < worth * level:
                break
            own = pool.add(group)
            found.add(own)
            if np.any((pool.costs[own] < self.thresholds) & (self.thresholds <= level)):
                found.add(pool.add(group, level))
            left[group] = 0.0
        return found


def cheapest_cover(
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
        options["time_limit"] = deadline.wall_left
    solved = _milp(
        np.array(pool.costs)[columns],
        integrality=np.ones(len(columns)),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(pool.incidence_matrix(columns), lb=1.0),
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
        gains = [
            _pack_cost(times, group) - _pack_cost(times, [i for i in group if i != task]) for group in holders
        ]
        keeper = int(np.argmin(gains))
        for position, group in enumerate(holders):
            if position != keeper:
                group.remove(task)
    return [group for group in groups if group]


def _pack_cost(times: Floats, group: Sequence[int]) -> float:
    """The optimal cost of a pack."""
    tasks = np.array(group, dtype=np.int64)
    size = len(tasks)
    return float(one_pack(times, tasks, size, np.empty(size, np.int64), np.empty(size))) if size else 0.0
