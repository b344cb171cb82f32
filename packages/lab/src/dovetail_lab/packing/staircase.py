"""Branch and bound over the staircase: how many packs cost at least each level.

The sum of the packs' costs is the area under N(c), the number of packs that cost at least c.  In a
co-schedule N(c) is a whole number; in the master of column generation it is a fraction, and most of the
distance between the two comes from that (65 tasks in packs of four need 17 packs, the linear program
makes do with 16.25).  So branch on a level c: N(c) <= m, or N(c) >= m + 1.  A step adds the same price
to every pack of one level, which leaves pricing a knapsack (Ryan and Foster's branching on pairs of
tasks would not).
"""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np

from dovetail_lab.packing.column_generation import (
    CONVERGED,
    ColumnPool,
    Groups,
    Relaxation,
    Step,
    solve_relaxation,
    without_repeats,
)
from dovetail_lab.packing.deadline import Deadline
from dovetail_lab.packing.schedule import Packing, fill_groups

SLACK = 0.03  # of the gap at the root: how far a node's linear program may stay from solved
WHOLE = 1e-6  # a weight this near to a whole number is one
NEAR = 0.6  # packs of this share of a new step's level are also counted at it


def branch_and_bound(
    pool: ColumnPool, root: Relaxation, best: Packing, *, deadline: Deadline, gap: float = CONVERGED
) -> tuple[float, Packing]:
    """A better lower bound, and the better of ``best`` and what the search came across.

    The node of least bound is split first, so that the bound rises evenly; it is valid whenever the
    ``deadline`` stops the search, or a relative ``gap`` is reached.  ``root`` must be solved.
    """
    times = pool.times
    slack = SLACK * max(best.total_cost - root.bound, 0.0)
    open_nodes: list[tuple[float, int, Relaxation]] = [(root.bound, 0, root)]
    closed = np.inf  # the least bound of nodes that are not split any more
    made = 0
    while open_nodes and not deadline.has_passed():
        bound, _, node = open_nodes[0]
        if bound >= min(closed, best.total_cost * (1.0 - gap)):
            break  # nothing that is open holds the bound down
        groups = _whole_packs(pool, node)
        if groups is not None:
            found = fill_groups(times, groups)
            best = min(best, found, key=lambda packing: packing.total_cost)
        step = widest_step(pool, node)
        heapq.heappop(open_nodes)
        if step is None:  # the staircase is whole, the packs are not: this search cannot split them
            closed = min(closed, bound)
            continue
        # Two children: at most floor(N) packs of this cost, or one more at least.
        for child in (step, replace(step, sense=1, count=step.count + 1)):
            prices = None if node.prices is None else np.append(node.prices, 0.0)
            start = Relaxation((*node.steps, child), bound, np.inf, prices, node.active)
            made += 1
            solved = solve_relaxation(
                pool,
                _raise_levels(pool, start),
                deadline=deadline,
                upper_bound=best.total_cost,
                tolerance=slack,
            )
            heapq.heappush(open_nodes, (max(bound, solved.bound), made, solved))
    least = min(closed, open_nodes[0][0] if open_nodes else np.inf, best.total_cost)
    return least, best


def widest_step(pool: ColumnPool, node: Relaxation) -> Step | None:
    """Where N(c) is fractional over the most seconds, as the step "at most floor(N)"; ``None`` if nowhere."""
    costs = np.array([pool.costs[c] for c in node.columns])
    used = node.weights > WHOLE
    if not used.any():
        return None
    levels, position = np.unique(-costs[used], return_inverse=True)
    levels = -levels  # descending: N is constant down to the next one
    packs = np.cumsum(np.bincount(position, weights=node.weights[used]))
    below = np.append(levels[1:], 0.0)
    down = packs - np.floor(packs + WHOLE)
    # Far from whole, and over a wide range of costs: there a decision changes most.
    score = np.minimum(np.maximum(down, 0.0), 1.0 - down) * (levels - below)
    at = int(np.argmax(score))
    if score[at] <= WHOLE * levels[0]:
        return None
    middle = 0.5 * (levels[at] + below[at]) if below[at] > 0.0 else levels[at]
    times = np.unique(pool.times)
    level = float(times[np.searchsorted(times, middle)])
    return Step(level, -1, int(np.floor(packs[at] + WHOLE)))


def _raise_levels(pool: ColumnPool, start: Relaxation) -> Relaxation:
    """Count somewhat cheaper packs at the level of a new "at least" step too, to start from."""
    step = start.steps[-1]
    # Only a step "at least" can lack columns; "at most" leaves those that there are.
    if step.sense < 0:
        return start
    near = [c for c in start.active if NEAR * step.level <= pool.costs[c] < step.level]
    raised = {pool.add(pool.groups[c], step.level) for c in near}
    return replace(start, active=start.active | raised)


def _whole_packs(pool: ColumnPool, node: Relaxation) -> Groups | None:
    """The packs of a node whose weights are all whole, each task once; ``None`` for others."""
    if np.any(np.abs(node.weights - np.round(node.weights)) > WHOLE):
        return None
    chosen = [list(pool.groups[c]) for c, x in zip(node.columns, node.weights, strict=True) if x > 0.5]
    groups = without_repeats(pool.times, chosen)
    return groups if sum(map(len, groups)) == pool.times.shape[0] else None
