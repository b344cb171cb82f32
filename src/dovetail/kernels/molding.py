"""Compiled search for a plan of moldable gangs: the order in which they are placed, and how each is run.

Nodes, lanes and devices are those of `dovetail.kernels.gangs`. An *option* of a job is a way to run it: it
takes ``pool`` lanes and ``count`` of the ``eligible`` devices on each of ``nodes`` nodes for ``seconds``;
``shape`` numbers what it asks of a node.
A plan places job after job on the nodes that give it the earliest start; nothing goes into gaps before.
Chance is counter-based: the same input gives the same plan.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiler import lazily
from dovetail.kernels.gangs import occupy, place

__all__ = ["anneal", "warm_up", "where"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

HOT, COLD = 0.05, 0.0002
"""First and last temperature, as parts of the span of the plan that is begun with."""


@lazily()
def _draw(chance: Ints, below: int) -> int:
    """The next whole number from 0 to below ``below``; ``chance`` holds the counter's state."""
    chance[0] = chance[0] * 6364136223846793005 + 1442695040888963407
    return int(((chance[0] >> 33) & 0x7FFFFFFF) % below)


@lazily()
def _decode(
    states: Floats,
    ends: Floats,
    totals: Floats,
    first: int,
    order: Ints,
    option: Ints,
    lanes: int,
    shape: Ints,
    nodes: Ints,
    seconds: Floats,
    pool: Ints,
    count: Ints,
    eligible: Bools,
    able: Bools,
    weight: Floats,
    own: float,
    stretch: float,
    level: float,
    enough: float,
    scratch: Ints,
    keys: Floats,
    at: Floats,
) -> float:
    """Place the jobs from place ``first`` of the order on; the plan's score, or infinity above ``enough``.

    ``states[i]`` is ``ready`` before the i-th job, ``ends`` and ``totals`` the last end and the weighted sum
    of ends so far; those from ``first + 1`` on are written.
    """
    n = len(order)
    for i in range(first, n):
        j = order[i]
        o = option[j]
        s, wanted = shape[o], nodes[o]
        states[i + 1] = states[i]
        start = place(
            states[i + 1], lanes, pool[s], count[s], eligible[s], able[s], wanted, True, scratch, keys, at
        )
        if start == np.inf:
            return np.inf
        end = start + seconds[o]
        occupy(states[i + 1], lanes, pool[s], count[s], eligible[s], scratch, wanted, start, end)
        ends[i + 1] = max(ends[i], end)
        totals[i + 1] = totals[i] + weight[j] * (end if own > 0 else start)
        if stretch * ends[i + 1] + totals[i + 1] > enough:
            return np.inf
    total, known = 0.0, 0
    for node in range(states.shape[1]):
        for c in range(states.shape[2]):
            if states[n, node, c] < np.inf:
                total += states[n, node, c]
                known += 1
    return float(stretch * ends[n] + totals[n] + level * total / max(known, 1))


@lazily()
def _random_change(order: Ints, option: Ints, bounds: Ints, fixed: int, chance: Ints) -> int:
    """Change an option (40 %), move a job (30 %) or swap two (30 %); the first place that is affected.

    The first ``fixed`` places keep their jobs.
    """
    n = len(order)
    kind = _draw(chance, 10)
    if kind < 4 or n - fixed < 2:
        place = _draw(chance, n)
        j = order[place]
        width = bounds[j + 1] - bounds[j]
        if width > 1:
            option[j] = bounds[j] + (option[j] - bounds[j] + 1 + _draw(chance, width - 1)) % width
            return int(place)
        if n - fixed < 2:
            return int(n)
    a = fixed + _draw(chance, n - fixed)
    b = fixed + _draw(chance, n - fixed)
    if a == b:
        return int(n)
    if kind < 7:
        job = order[a]
        step = 1 if b > a else -1
        for i in range(a, b, step):
            order[i] = order[i + step]
        order[b] = job
    else:
        order[a], order[b] = order[b], order[a]
    return int(min(a, b))


@lazily()
def anneal(
    ready: Floats,
    last: float,
    lanes: int,
    shape: Ints,
    nodes: Ints,
    seconds: Floats,
    bounds: Ints,
    pool: Ints,
    count: Ints,
    eligible: Bools,
    able: Bools,
    weight: Floats,
    own: float,
    stretch: float,
    level: float,
    orders: Ints,
    options: Ints,
    fixed: int,
    decodes: int,
    seed: int,
) -> tuple[Ints, Ints, float]:
    """The best plan found: (order of the jobs, option of each job, score); times count from now.

    Options ``bounds[j]`` to before ``bounds[j + 1]`` are those of job j. ``orders`` and ``options`` hold the
    plans to begin with, a row each. The score is ``stretch`` times the last end, ``level`` times the mean
    ready time of all columns, and the ends (without ``own``: the starts) of the jobs by ``weight``.
    ``decodes`` plans are looked at. O(decodes jobs nodes).
    """
    n = orders.shape[1]
    states = np.empty((n + 1, ready.shape[0], ready.shape[1]))
    ends, totals = np.zeros(n + 1), np.zeros(n + 1)
    states[0] = ready
    ends[0] = last
    scratch, keys, at = np.empty(len(ready), np.int64), np.empty(len(ready)), np.empty(len(ready))
    best_order, best_option, best = orders[0].copy(), options[0].copy(), np.inf
    for row in range(len(orders)):
        score = _decode(
            states, ends, totals, 0, orders[row], options[row], lanes, shape, nodes, seconds, pool, count,
            eligible, able, weight, own, stretch, level, np.inf, scratch, keys, at,
        )  # fmt: skip
        if score < best:
            best_order, best_option, best = orders[row].copy(), options[row].copy(), score
    if best == np.inf or (n == 1 and bounds[1] - bounds[0] < 2):
        return best_order, best_option, best
    order, option, current = best_order.copy(), best_option.copy(), best
    _decode(
        states, ends, totals, 0, order, option, lanes, shape, nodes, seconds, pool, count,
        eligible, able, weight, own, stretch, level, np.inf, scratch, keys, at,
    )  # fmt: skip
    tried_states, tried_ends, tried_totals = states.copy(), ends.copy(), totals.copy()
    tried_order, tried_option = order.copy(), option.copy()
    chance = np.array([seed], np.int64)
    for step in range(decodes):
        first = _random_change(tried_order, tried_option, bounds, fixed, chance)
        if first >= n:
            continue
        heat = best * HOT * (COLD / HOT) ** (step / decodes)
        enough = current - heat * np.log((_draw(chance, 1_000_000) + 1) / 1_000_000)
        tried_states[first] = states[first]
        tried_ends[first], tried_totals[first] = ends[first], totals[first]
        score = _decode(
            tried_states, tried_ends, tried_totals, first, tried_order, tried_option, lanes, shape, nodes,
            seconds, pool, count, eligible, able, weight, own, stretch, level, enough, scratch, keys, at,
        )  # fmt: skip
        if score <= enough and score < np.inf:
            current = score
            states[first:] = tried_states[first:]
            ends[first:] = tried_ends[first:]
            totals[first:] = tried_totals[first:]
            order[:] = tried_order
            option[:] = tried_option
            if score < best * (1.0 - 1e-12):
                best = score
                best_order[:] = order
                best_option[:] = option
        else:
            tried_order[:] = order
            tried_option[:] = option
    return best_order, best_option, best


@lazily()
def where(
    ready: Floats,
    lanes: int,
    shape: Ints,
    nodes: Ints,
    seconds: Floats,
    pool: Ints,
    count: Ints,
    eligible: Bools,
    able: Bools,
    order: Ints,
    option: Ints,
) -> tuple[Floats, Ints]:
    """What a plan means: each job's start (infinite: nowhere), and its nodes (-1 where there are fewer)."""
    n = len(order)
    state = ready.copy()
    starts = np.full(n, np.inf)
    chosen = np.full((n, len(ready)), -1, np.int64)
    scratch, keys, at = np.empty(len(ready), np.int64), np.empty(len(ready)), np.empty(len(ready))
    for i in range(n):
        j = order[i]
        o = option[j]
        s, wanted = shape[o], nodes[o]
        start = place(state, lanes, pool[s], count[s], eligible[s], able[s], wanted, True, scratch, keys, at)
        if start < np.inf:
            end = start + seconds[o]
            occupy(state, lanes, pool[s], count[s], eligible[s], scratch, wanted, start, end)
            starts[j] = start
            chosen[j, :wanted] = scratch[:wanted]
    return starts, chosen


def warm_up() -> None:
    """Compile the kernels, or load them from the cache: no decision then waits for it."""
    ready, one = np.zeros((1, 2)), np.ones(1, np.int64)
    eligible, able = np.ones((1, 1, 2), np.bool_), np.ones((1, 1), np.bool_)
    zero, bounds = np.zeros(2, np.int64), np.array([0, 1, 2])
    asked = (zero, np.ones(2, np.int64), np.ones(2))
    plans = np.array([[0, 1]])
    anneal(
        ready,
        0.0,
        1,
        *asked,
        bounds,
        one,
        one,
        eligible,
        able,
        np.ones(2),
        1.0,
        1.0,
        0.05,
        plans,
        plans,
        0,
        2,
        1,
    )
    where(ready, 1, *asked, one, one, eligible, able, plans[0], plans[0])
