"""Search for a plan of one-node jobs on unlike machines: which machine runs which job.

``times``: float64, shape ``(jobs, machines)``, seconds of a job on a machine, infinite where it cannot run
(every job has a finite one). ``ready``: float64, shape ``(machines,)``, seconds until a machine is free.
``assigned``: int64, shape ``(jobs,)``, the machine of each job. Chance is counter-based: the same input gives
the same plan. `native/assigning.c` is the compiled side.
"""

from __future__ import annotations

import math

from dovetail.files.arrays import Floats, Ints, np
from dovetail.native.library import kernel

MIN_MIN, MAX_MIN, SUFFERAGE = 0, 1, 2
CLOSE_ENOUGH = 1.0005
"""A plan within this factor of the lower bound is not searched any further."""
TEMPTED = 1.002
"""After a kick a plan is gone on with if it is at most this factor longer than the one before."""
LOOKED_AT = 256
"""Moves, or swaps, that are compared at least before the best of them is made."""
ROUNDS = 100
"""Steps of the lower bound."""


def _draw(chance: Ints, below: int) -> int:
    """The next whole number from 0 to below ``below``; ``chance`` holds the counter's state."""
    chance[0] = chance[0] * 6364136223846793005 + 1442695040888963407
    return int(((chance[0] >> 33) & 0x7FFFFFFF) % below)


def _loads(times: Floats, ready: Floats, assigned: Ints, load: Floats) -> float:
    """Write when each machine is done to ``load``; the last of these ends, with what runs already."""
    load[:] = ready
    for j in range(len(assigned)):
        load[assigned[j]] += times[j, assigned[j]]
    return float(load.max())


def _in_order(times: Floats, ready: Floats, order: Ints, assigned: Ints) -> None:
    """Job after job, each where it ends first."""
    load = ready.copy()
    for i in range(len(order)):
        j = order[i]
        best, end = -1, np.inf
        for u in range(len(load)):
            if load[u] + times[j, u] < end:
                best, end = u, load[u] + times[j, u]
        assigned[j] = best
        load[best] = end


def _batch(times: Floats, ready: Floats, rule: int, assigned: Ints) -> None:
    """Min-min, max-min or sufferage (Maheswaran et al. 1999, section 3.3). O(jobs²), mostly."""
    n, machines = times.shape
    load = ready.copy()
    first = np.full(n, -1, np.int64)
    second = np.full(n, -1, np.int64)
    best = np.empty(n)
    next_best = np.empty(n)
    open_ = np.ones(n, np.bool_)
    changed = -1
    # After a job is placed only one machine's load has changed: jobs whose best or second best it is not keep
    # what they know. A load only grows, so it cannot have become anyone's best.
    for _ in range(n):
        chosen, score = -1, -np.inf
        for j in range(n):
            if not open_[j]:
                continue
            if changed < 0 or first[j] == changed or second[j] == changed:
                first[j], second[j], best[j], next_best[j] = -1, -1, np.inf, np.inf
                for u in range(machines):
                    end = load[u] + times[j, u]
                    if end < best[j]:
                        second[j], next_best[j] = first[j], best[j]
                        first[j], best[j] = u, end
                    elif end < next_best[j]:
                        second[j], next_best[j] = u, end
            value = -best[j]
            if rule == MAX_MIN:
                value = best[j]
            elif rule == SUFFERAGE:
                value = next_best[j] - best[j]
            if chosen < 0 or value > score:
                chosen, score = j, value
        open_[chosen] = False
        assigned[chosen] = first[chosen]
        load[first[chosen]] = best[chosen]
        changed = first[chosen]


def _by_acceleration(times: Floats, ready: Floats, kinds: Ints, assigned: Ints) -> None:
    """The machine that is free first takes the job that it accelerates most (heteroprio)."""
    n, machines = times.shape
    gain = np.empty((n, machines))
    for j in range(n):
        for u in range(machines):
            other = np.inf
            for v in range(machines):
                if kinds[v] != kinds[u] and times[j, v] < other:
                    other = times[j, v]
            # -1: it cannot run here; infinite: it can run nowhere else, so it goes before all others.
            if times[j, u] == np.inf:
                gain[j, u] = -1.0
            elif other == np.inf or times[j, u] <= 0:
                gain[j, u] = np.inf
            else:
                gain[j, u] = other / times[j, u]
    load = ready.copy()
    open_ = np.ones(n, np.bool_)
    left = n
    while left:
        u = int(np.argmin(load))
        chosen = -1
        for j in range(n):
            if open_[j] and gain[j, u] >= 0 and (chosen < 0 or gain[j, u] > gain[chosen, u]):
                chosen = j
        if chosen < 0:
            # This machine can run nothing of what is left: infinite, or it stays the first one.
            load[u] = np.inf
            continue
        open_[chosen] = False
        assigned[chosen] = u
        load[u] += times[chosen, u]
        left -= 1


@kernel
def makespan_bound(times: Floats, ready: Floats) -> float:
    """A lower bound of the last end, by the dual of the fractional assignment.

    For weights l of sum 1, no plan ends before ``sum l[u] ready[u] + sum_j min_u l[u] times[j, u]``; the
    weights are found by multiplicative updates. O(rounds jobs machines).
    """
    n, machines = times.shape
    weight = np.full(machines, 1.0 / machines)
    load = np.empty(machines)
    bound = 0.0
    for j in range(n):
        # The simplest bound, that of the longest job alone; the dual is weak where one job decides.
        bound = max(bound, np.min(times[j] + ready))
    for step in range(ROUNDS):
        load[:] = ready
        value = 0.0
        for j in range(n):
            best, least = -1, np.inf
            for u in range(machines):
                if weight[u] * times[j, u] < least:
                    best, least = u, weight[u] * times[j, u]
            if best >= 0:
                value += least
                load[best] += times[j, best]
        for u in range(machines):
            value += weight[u] * ready[u]
        bound = max(bound, value)
        top = load.max()
        if top <= 0:
            break
        # Steps that shrink: with constant ones the weights circle around the best ones and never settle.
        pace = 1.0 / (1.0 + 0.2 * step)
        total, rest = 0.0, 0.0
        for u in range(machines):
            weight[u] *= math.exp((load[u] / top - 1.0) * pace)
            total += weight[u]
        # Zero times the infinite time of a job that cannot run there is no number, and would spoil the bound.
        for u in range(machines):
            weight[u] = max(weight[u] / total, 1e-12)
            rest += weight[u]
        weight /= rest
    return float(bound)


def _descend(times: Floats, assigned: Ints, load: Floats, left: int, chance: Ints) -> int:
    """Move or swap a job off the machine that ends last while that helps; the evaluations left.

    Of all moves, else of all swaps, the best is taken, or of the first `LOOKED_AT` from a random place on if
    one of those helps.
    """
    n, machines = times.shape
    while left > 0:
        c = int(np.argmax(load))
        # A move must win more than rounding does, here and below: else two equal plans take turns for ever.
        job, other, target, reached = -1, -1, -1, load[c] * (1.0 - 1e-12)
        before, first = left, _draw(chance, n)
        for i in range(n):
            j = (first + i) % n
            if assigned[j] != c:
                continue
            rest = load[c] - times[j, c]
            for u in range(machines):
                end = max(rest, load[u] + times[j, u])
                if u != c and end < reached:
                    job, target, reached = j, u, end
            left -= machines - 1
            if left <= 0 or (job >= 0 and before - left >= LOOKED_AT):
                # Swaps cost a factor `n` more than moves: they are tried only where no move helps.
                break
        before = left
        for i in range(n if job < 0 else 0):
            j = (first + i) % n
            if assigned[j] != c:
                continue
            for k in range(n):
                u = assigned[k]
                if u == c:
                    continue
                left -= 1
                end = max(load[c] - times[j, c] + times[k, c], load[u] - times[k, u] + times[j, u])
                if end < reached:
                    job, other, target, reached = j, k, u, end
                    if before - left >= LOOKED_AT:
                        break
            if left <= 0 or (job >= 0 and before - left >= LOOKED_AT):
                break
        if job < 0:
            return left
        load[c] -= times[job, c]
        load[target] += times[job, target]
        assigned[job] = target
        if other >= 0:
            load[target] -= times[other, target]
            load[c] += times[other, c]
            assigned[other] = c
    return left


def _kick(times: Floats, assigned: Ints, chance: Ints) -> None:
    """Move two to four jobs to machines at random."""
    n, machines = times.shape
    for _ in range(2 + _draw(chance, 3)):
        j, u = _draw(chance, n), _draw(chance, machines)
        if times[j, u] < np.inf:
            assigned[j] = u


def _level(times: Floats, assigned: Ints, load: Floats, top: float) -> None:
    """Level what does not end last: move a job wherever the later of the two ends comes earlier by it."""
    n, machines = times.shape
    for _ in range(4):
        moved = False
        for j in range(n):
            here = assigned[j]
            best, end = here, load[here] * (1.0 - 1e-12)
            for u in range(machines):
                if u != here and load[u] + times[j, u] < end:
                    best, end = u, load[u] + times[j, u]
            if best != here and end <= top:
                load[here] -= times[j, here]
                load[best] = end
                assigned[j] = best
                moved = True
        if not moved:
            return


def least_makespan(
    times: Floats, ready: Floats, kinds: Ints, before: Ints, budget: int, seed: int
) -> tuple[Ints, float, float]:
    """Search for the plan whose last machine ends first: (machine of each job, last end, lower bound).

    ``kinds[machine]`` is equal for like machines; ``before`` the plan in force, or empty. Starts from the
    best of the plan in force, longest first, the order given, min-min, max-min, sufferage and heteroprio;
    then local search on the machine that ends last, with kicks, for ``budget`` evaluations.
    O(jobs² + (jobs + budget) machines).
    """
    best, bound = np.empty(len(times), np.int64), np.empty(1)
    least = _least_makespan(times, ready, kinds, before, budget, seed, best, bound)
    return best, least, float(bound[0])


@kernel
def _least_makespan(
    times: Floats,
    ready: Floats,
    kinds: Ints,
    before: Ints,
    budget: int,
    seed: int,
    best: Ints,
    bound: Floats,
) -> float:
    n, machines = times.shape
    load = np.empty(machines)
    tried = np.empty(n, np.int64)
    shortest = np.array([np.min(times[j]) for j in range(n)])
    least = np.inf
    for start in range(7):
        if start == 0:
            if len(before) != n:
                continue
            tried[:] = before
        elif start == 1:
            _in_order(times, ready, np.argsort(-shortest, kind="mergesort"), tried)
        elif start == 2:
            _in_order(times, ready, np.arange(n), tried)
        elif start == 6:
            _by_acceleration(times, ready, kinds, tried)
        else:
            _batch(times, ready, start - 3, tried)
        end = _loads(times, ready, tried, load)
        if end < least * (1.0 - 1e-12):
            least = end
            best[:] = tried
    bound[0] = makespan_bound.plain(times, ready)
    enough = bound[0] * CLOSE_ENOUGH
    chance = np.array([seed], np.int64)
    current, reached = best.copy(), least
    left = budget
    while left > 0 and least > enough and n > 1:
        tried[:] = current
        # The first descent starts from the best plan itself, without a kick.
        if left < budget:
            _kick(times, tried, chance)
        _loads(times, ready, tried, load)
        left = _descend(times, tried, load, left - 1, chance)
        end = _loads(times, ready, tried, load)
        # A plan a little worse is gone on with (`TEMPTED`), or the search could not leave its valley.
        if end <= reached * TEMPTED:
            current[:] = tried
            reached = end
        if end < least * (1.0 - 1e-12):
            least = end
            best[:] = tried
    _loads(times, ready, best, load)
    # Levelled last: it does not change the last end, but what ends early leaves room for what is to come.
    _level(times, best, load, least)
    return _loads(times, ready, best, load)


def _cost(times: Floats, ready: Floats, weight: Floats, own: float, assigned: Ints) -> float:
    """The weighted sum of completions, each machine running its jobs by time over weight."""
    total = 0.0
    for j in range(len(assigned)):
        u = assigned[j]
        total += weight[j] * (ready[u] + own * times[j, u])
        for k in range(j):
            if assigned[k] == u:
                total += min(weight[k] * times[j, u], weight[j] * times[k, u])
    return total


def _settle(
    times: Floats, ready: Floats, weight: Floats, own: float, assigned: Ints, left: int, chance: Ints
) -> int:
    """Move single jobs to where they cost least until none moves; the evaluations left.

    What a job adds to a machine is its own completion and the delay of those after it: summed over the
    others there, the lesser of "it waits for the other" and "the other waits for it".
    """
    n, machines = times.shape
    adds = np.empty(machines)
    still, j = 0, _draw(chance, n)
    while still < n and left > 0:
        for u in range(machines):
            adds[u] = weight[j] * (ready[u] + own * times[j, u])
        for k in range(n):
            u = assigned[k]
            if k != j:
                adds[u] += min(weight[k] * times[j, u], weight[j] * times[k, u])
        here = assigned[j]
        best, least = here, adds[here] * (1.0 - 1e-12)
        for u in range(machines):
            if adds[u] < least and times[j, u] < np.inf:
                best, least = u, adds[u]
        still = 0 if best != here else still + 1
        assigned[j] = best
        left -= 1
        j = (j + 1) % n
    return left


def least_total(
    times: Floats,
    ready: Floats,
    weight: Floats,
    own: float,
    kinds: Ints,
    before: Ints,
    budget: int,
    seed: int,
) -> Ints:
    """Search for the plan with the least weighted sum of completions; the machine of each job.

    ``weight[job]`` is what a second of its completion costs; with ``own`` 0 a job's own time costs nothing
    (waits are summed), with 1 it does. A step of the ``budget`` looks at one job on all machines: O(jobs).
    """
    best = np.empty(len(times), np.int64)
    _least_total(times, ready, weight, own, kinds, before, budget, seed, best)
    return best


@kernel
def _least_total(
    times: Floats,
    ready: Floats,
    weight: Floats,
    own: float,
    kinds: Ints,
    before: Ints,
    budget: int,
    seed: int,
    best: Ints,
) -> None:
    n = len(times)
    tried = np.empty(n, np.int64)
    chance = np.array([seed], np.int64)
    least = np.inf
    for start in range(4):
        if start == 0:
            if len(before) != n:
                continue
            tried[:] = before
        elif start == 3:
            _by_acceleration(times, ready, kinds, tried)
        else:
            _batch(times, ready, MIN_MIN if start == 1 else SUFFERAGE, tried)
        cost = _cost(times, ready, weight, own, tried)
        if cost < least:
            least = cost
            best[:] = tried
    left = _settle(times, ready, weight, own, best, budget, chance)
    least = _cost(times, ready, weight, own, best)
    while left > 0 and n > 1:
        tried[:] = best
        _kick(times, tried, chance)
        left = _settle(times, ready, weight, own, tried, left - 1, chance)
        cost = _cost(times, ready, weight, own, tried)
        if cost < least * (1.0 - 1e-12):
            least = cost
            best[:] = tried
