"""Search for a plan of moldable gangs: the order in which they are placed, and how each is run.

Nodes, lanes and devices are those of `dovetail.kernels.gangs`. A plan places job after job on the nodes that
give it the earliest start; nothing goes into gaps before. Chance is counter-based: the same input gives the
same plan. `native/gangs.c` is the compiled side.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from dovetail.files.arrays import Bools, Floats, Ints, np
from dovetail.kernels.gangs import occupy, place
from dovetail.native.library import kernel
from dovetail.records import dataclass

HOT, COLD = 0.05, 0.0002
"""First and last temperature, as parts of the span of the plan that is begun with."""


class Gangs(NamedTuple):
    """Ways to run jobs. Options ``bounds[j]`` to before ``bounds[j + 1]`` are those of job j.

    An option takes ``nodes`` nodes for ``seconds``, and of each by its ``shape``: ``pool`` of its
    ``lanes`` and so many ``devices`` of the ``eligible`` ones (shapes, nodes, columns), on nodes that are
    ``able`` (shapes, nodes).
    """

    lanes: int
    shape: Ints
    nodes: Ints
    seconds: Floats
    bounds: Ints
    pool: Ints
    devices: Ints
    eligible: Bools
    able: Bools


class Aim(NamedTuple):
    """What a plan is judged by, the least being best.

    ``stretch`` times the last end, ``level`` times the mean ready time of all columns, and the ends (without
    ``own``: the starts) of the jobs by ``weight``.
    """

    weight: Floats
    own: float
    stretch: float
    level: float


def _draw(chance: Ints, below: int) -> int:
    """The next whole number from 0 to below ``below``; ``chance`` holds the counter's state."""
    chance[0] = chance[0] * 6364136223846793005 + 1442695040888963407
    return int(((chance[0] >> 33) & 0x7FFFFFFF) % below)


@dataclass(slots=True)
class _Plan:
    """Jobs in order, each with its option; what the nodes are like before each place, and the sums so far."""

    order: Ints
    option: Ints
    states: Floats
    ends: Floats
    totals: Floats

    def copy(self) -> _Plan:
        return _Plan(
            self.order.copy(), self.option.copy(), self.states.copy(), self.ends.copy(), self.totals.copy()
        )

    def take_over(self, other: _Plan) -> None:
        """Have the other's jobs and options."""
        self.order[:] = other.order
        self.option[:] = other.option

    def take_over_states(self, other: _Plan, first: int, last: int | None = None) -> None:
        """Have the other's states and sums from one place on to before another."""
        for mine, others in (
            (self.states, other.states),
            (self.ends, other.ends),
            (self.totals, other.totals),
        ):
            mine[first:last] = others[first:last]


def _put(state: Floats, gangs: Gangs, option: int, chosen: Ints) -> float:
    """Place an option, and let it hold its nodes; its start (infinite: nowhere)."""
    s, wanted = gangs.shape[option], gangs.nodes[option]
    keys, at = np.empty(len(state)), np.empty(len(state))
    about = gangs.lanes, gangs.pool[s], gangs.devices[s], gangs.eligible[s]
    start = place(state, *about, gangs.able[s], wanted, True, chosen, keys, at)
    if start < np.inf:
        occupy(state, *about, chosen, wanted, start, start + gangs.seconds[option])
    return start


def _decode(plan: _Plan, gangs: Gangs, aim: Aim, first: int, enough: float) -> float:
    """Place the jobs from place ``first`` of the order on; the plan's score, or infinity above ``enough``."""
    n, states, ends, totals = len(plan.order), plan.states, plan.ends, plan.totals
    chosen = np.empty(states.shape[1], np.int64)
    for i in range(first, n):
        j = plan.order[i]
        o = plan.option[j]
        states[i + 1] = states[i]
        start = _put(states[i + 1], gangs, o, chosen)
        if start == np.inf:
            return np.inf
        end = start + gangs.seconds[o]
        ends[i + 1] = max(ends[i], end)
        totals[i + 1] = totals[i] + aim.weight[j] * (end if aim.own > 0 else start)
        # A partial score never falls, so a plan is given up as soon as it is above what would be taken.
        if aim.stretch * ends[i + 1] + totals[i + 1] > enough:
            return np.inf
    total, known = 0.0, 0
    for column in states[n].flat:
        if column < np.inf:
            total += column
            known += 1
    return float(aim.stretch * ends[n] + totals[n] + aim.level * total / max(known, 1))


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


def anneal(
    ready: Floats,
    last: float,
    gangs: Gangs,
    aim: Aim,
    orders: Ints,
    options: Ints,
    fixed: int,
    decodes: int,
    seed: int,
) -> tuple[Ints, Ints, float]:
    """The best plan found: (order of the jobs, option of each job, score); times count from now.

    ``orders`` and ``options`` hold the plans to begin with, a row each; the first ``fixed`` places keep their
    jobs. ``last`` is when all that runs has ended. ``decodes`` plans are looked at. O(decodes jobs nodes).
    """
    best_order, best_option = np.empty(orders.shape[1], np.int64), np.empty(orders.shape[1], np.int64)
    best = _anneal(
        ready, last, gangs, aim, orders, options, fixed, decodes, seed, best_order, best_option
    )  # fmt: skip
    return best_order, best_option, best


@kernel
def _anneal(
    ready: Floats,
    last: float,
    gangs: Gangs,
    aim: Aim,
    orders: Ints,
    options: Ints,
    fixed: int,
    decodes: int,
    seed: int,
    best_order: Ints,
    best_option: Ints,
) -> float:
    n, bounds = orders.shape[1], gangs.bounds
    now = _Plan(
        orders[0].copy(), options[0].copy(), np.empty((n + 1, *ready.shape)), np.zeros(n + 1), np.zeros(n + 1)
    )
    now.states[0] = ready
    now.ends[0] = last
    best_order[:], best_option[:], best = orders[0], options[0], np.inf
    for order, option in zip(orders, options, strict=True):
        now.order[:], now.option[:] = order, option
        score = _decode(now, gangs, aim, 0, np.inf)
        if score < best:
            best_order[:], best_option[:], best = order, option, score
    if best == np.inf or (n == 1 and bounds[1] - bounds[0] < 2):
        return best
    current = best
    now.order[:], now.option[:] = best_order, best_option
    _decode(now, gangs, aim, 0, np.inf)
    tried = now.copy()
    chance = np.array([seed], np.int64)
    for step in range(decodes):
        first = _random_change(tried.order, tried.option, bounds, fixed, chance)
        if first >= n:
            continue
        heat = best * HOT * (COLD / HOT) ** (step / decodes)
        # Metropolis turned round: the random number is drawn before the score, and gives the worst score that
        # is still taken, so that `_decode` may stop there. The least draw is 1, since log 0 is infinite.
        enough = current - heat * math.log((_draw(chance, 1_000_000) + 1) / 1_000_000)
        # Places before the first change are as they were: their states are not computed again.
        tried.take_over_states(now, first, first + 1)
        score = _decode(tried, gangs, aim, first, enough)
        if score <= enough and score < np.inf:
            current = score
            now.take_over_states(tried, first)
            now.take_over(tried)
            if score < best * (1.0 - 1e-12):
                best_order[:], best_option[:], best = now.order, now.option, score
        else:
            tried.take_over(now)
    return best


def where(ready: Floats, gangs: Gangs, order: Ints, option: Ints) -> tuple[Floats, Ints]:
    """What a plan means: each job's start (infinite: nowhere), and its nodes (-1 where there are fewer)."""
    starts, chosen = np.full(len(order), np.inf), np.full((len(order), len(ready)), -1, np.int64)
    _where(ready, gangs, order, option, starts, chosen)
    return starts, chosen


@kernel
def _where(ready: Floats, gangs: Gangs, order: Ints, option: Ints, starts: Floats, chosen: Ints) -> None:
    state, nodes = ready.copy(), np.empty(len(ready), np.int64)
    for j in order:
        start = _put(state, gangs, option[j], nodes)
        if start < np.inf:
            wanted = gangs.nodes[option[j]]
            starts[j] = start
            chosen[j, :wanted] = nodes[:wanted]
