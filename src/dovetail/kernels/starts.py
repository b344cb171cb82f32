"""Run times drawn for jobs that run and wait, and their queue rolled out until they start.

Times are seconds from now. Jobs are numbered: first those that run, then those that wait, in the order of the
queue. A machine is a count of like nodes, each of which one job takes whole, or nodes with names that jobs
share; of these each has so many CPUs, devices and bytes of memory free. Chance is counter-based: the same
input gives the same draws. `native/starts.c` is the compiled side.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right, insort
from typing import NamedTuple

from dovetail.files.arrays import Floats, Ints, np
from dovetail.native.library import kernel

FCFS, EASY, GREEDY = 0, 1, 2
"""In turn; the others before the head where they do not delay it; all that fit, in the order of the line."""
OWN, OTHERS = 64, 1500
"""Ends that are looked at: the last ones of the job's user, the last ones of all others."""
RARE = 1e-9
UNKNOWN_PART, UNKNOWN_LENGTH = 8.0, 600.0
"""Where nothing is known, the shortest length: that part of the walltime, or seconds where it has none."""
LEAST_TAIL = 0.05
"""Nothing runs for longer than one over this times what it has run, where nothing else is known."""
COPIED, COPIES = 0.5, 1_000_003
AMOUNTS = 3
_WORD = (1 << 64) - 1


class Kinds(NamedTuple):
    """What decides how long jobs run: ``user`` (-1: unknown), ``app``, ``width``, ``wall`` (infinite: none).

    ``last`` is the last end of the user, a place in `Ends`, or -1; ``spent`` the seconds that it has run (0:
    it waits); ``seed`` decides the draws, and is to stay the same from one forecast to the next.
    """

    user: Ints
    app: Ints
    width: Ints
    last: Ints
    wall: Floats
    spent: Floats
    seed: Ints


class Ends(NamedTuple):
    """Jobs that have ended, in the order of their ends; ``before`` is the place of the user's end before."""

    user: Ints
    app: Ints
    width: Ints
    before: Ints
    wall: Floats
    ran: Floats


class Nodes(NamedTuple):
    """What is free now: ``idle`` nodes where nodes are counted, else ``free``, shape (nodes, AMOUNTS).

    ``group`` are the groups that a node belongs to, as bits.
    """

    idle: int
    free: Ints
    group: Ints


class Line(NamedTuple):
    """The jobs: the first ``running`` of them run, the others wait, in order.

    A job takes ``need`` (CPUs, devices, bytes) of each of ``width`` nodes, of a ``group`` that it may use.
    ``wall`` is the bound that the policy plans with. ``held`` are the nodes of those that run, job after job.
    ``length`` has a row for each draw: how long each runs in all.
    """

    policy: int
    running: int
    width: Ints
    wall: Floats
    spent: Floats
    need: Ints
    group: Ints
    held: Ints
    length: Floats


class Ahead(NamedTuple):
    """What is known to come. Times are seconds from now.

    A waiting job joins the line at ``begin`` or later, once those of ``after`` from its place in
    ``after_from`` up to the next one's have ended; those that wait for nothing are in the line. At ``time``
    (ascending) ``amount`` more, shape (changes, AMOUNTS), is free on ``node``, or less; where nodes are
    counted, as many nodes as its first column gives.
    """

    begin: Floats
    after_from: Ints
    after: Ints
    time: Floats
    node: Ints
    amount: Ints


class Past(NamedTuple):
    """Submissions of the past by ``time``; one that has not ended runs as long as is drawn for ``job``."""

    time: Floats
    width: Ints
    wall: Floats
    ran: Floats
    job: Ints
    need: Ints
    group: Ints


def chance(one: int, other: int) -> float:
    """A number in [0, 1) that looks drawn at random, the same for the same pair (splitmix64's finish)."""
    x = (one * 0x9E3779B97F4A7C15 + other * 0xD1B54A32D192ED03 + 0x8CB92BA72F3D8DD7) & _WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _WORD
    return float((x ^ (x >> 31)) >> 11) * 2.0**-53


class _Kind(NamedTuple):
    user: int
    app: int
    width: int
    last: int
    wall: float


def _likeness(ends: Ends, i: int, kind: _Kind, app: float, width: float, wall: float) -> float:
    found = 1.0
    if ends.app[i] != kind.app:
        found *= app
    if ends.width[i] != kind.width:
        found *= math.exp(-width * (1.0 + abs(math.log(float(ends.width[i]) / float(kind.width)))))
    if ends.wall[i] != kind.wall:
        apart = 1.0
        if ends.wall[i] < math.inf and kind.wall < math.inf:
            apart += abs(math.log((float(ends.wall[i]) + 1) / (kind.wall + 1)))
        found *= math.exp(-wall * apart)
    return found


def _carried(ends: Ends, i: int, kind: _Kind, part: float) -> float:
    """How long a job of this kind would have run instead of that one."""
    ran, wall = float(ends.ran[i]), float(ends.wall[i])
    if wall != kind.wall and wall < math.inf and kind.wall < math.inf and wall > 0:
        ran *= math.pow(kind.wall / wall, part)
    return min(ran, kind.wall)


def _gather(ends: Ends, kind: _Kind, weights: Floats) -> tuple[list[float], list[float]]:
    """Lengths, ascending, with the sum of the weights up to each."""
    w = weights.tolist()
    values: list[float] = []
    weight: list[float] = []
    i = kind.last
    while i >= 0 and len(values) < OWN:
        values.append(_carried(ends, i, kind, w[5]))
        weight.append(_likeness(ends, i, kind, *w[2:5]) * math.exp(-float(len(weight)) / w[0]))
        i = int(ends.before[i])
    kept = len(values)
    for i in range(len(ends.user) - 1, -1, -1):
        if len(values) == kept + OTHERS:
            break
        if kind.last >= 0 and ends.user[i] == kind.user:
            continue
        values.append(_carried(ends, i, kind, w[6]))
        weight.append(_likeness(ends, i, kind, *w[7:10]) * math.exp(-float(len(weight) - kept) / w[1]))
    own = others = 0.0
    for one in weight[:kept]:
        own += one
    for one in weight[kept:]:
        others += one
    # A user's own ends weigh by their number: w[10] like ends make up a half, and the others' are scaled to
    # the rest, so that a thousand strangers do not drown the few ends of a user.
    if own > 0 and others > 0:
        share = w[10] / (own + w[10])
        part, rest = (1 - share) / own, share / others
        weight = [one * (part if at < kept else rest) for at, one in enumerate(weight)]
    order = sorted(range(len(values)), key=values.__getitem__)
    upto, total = [], 0.0
    for at in order:
        total += weight[at]
        upto.append(total)
    return [values[at] for at in order], upto


def length_at(values: list[float], upto: list[float], spent: float, wall: float, at: float) -> float:
    """How long a job runs that has run for ``spent``, at a quantile of the lengths above that."""
    low = bisect_right(values, spent)
    every = upto[-1] if upto else 0.0
    below = upto[low - 1] if low else 0.0
    # The job has outlived all that is known. Run times have heavy tails (Pareto with exponent 1): having run
    # for t, a job runs beyond 2t with a probability of a half. `LEAST_TAIL` cuts the tail, whose mean is
    # infinite.
    if every - below <= RARE * every:
        shortest = spent if spent > 0 else wall / UNKNOWN_PART if wall < math.inf else UNKNOWN_LENGTH
        return min(wall, shortest / max(1.0 - at, LEAST_TAIL))
    wanted = below + at * (every - below)
    return values[bisect_right(upto, wanted, low, len(values) - 1)]


@kernel
def draw_lengths(jobs: Kinds, ends: Ends, weights: Floats, found: Floats) -> None:
    """Fill in how long each job runs in each draw (a row of ``found``).

    Lengths are those of like jobs that have ended: the user's last ones, the more alike and the later the
    more likely; then those of all others. A job that runs takes longer than it has run. In half of the draws
    all jobs of a user share one quantile, as those of one campaign err together; a job that waits may copy
    what its like, one that runs, draws. O(kinds · ends looked at + draws · jobs).
    """
    chains: dict[tuple[int, int, int, float], list[int]] = {}
    for j in range(len(jobs.user)):
        key = int(jobs.user[j]), int(jobs.app[j]), int(jobs.width[j]), float(jobs.wall[j])
        chains.setdefault(key, []).append(j)
    for (user, app, width, wall), chain in chains.items():
        kind = _Kind(user, app, width, int(jobs.last[chain[0]]), wall)
        values, upto = _gather(ends, kind, weights)
        # Jobs of one kind that run and wait are often one campaign: what the longest running one draws, its
        # like may copy. It must come first in the chain (`like < j`), since its own draw is copied.
        like = -1
        for j in chain:
            if jobs.spent[j] > 0 and (like < 0 or jobs.spent[j] > jobs.spent[like]):
                like = j
        for j in chain:
            spent, seed = float(jobs.spent[j]), int(jobs.seed[j])
            for d in range(len(found)):
                copies = spent <= 0 and 0 <= like < j
                if copies and chance(int(jobs.seed[like]), d + COPIES) < COPIED:
                    found[d, j] = found[d, like]
                else:
                    # A negative number for the user's quantile: seeds are not negative, so no job shares it.
                    at = chance(-1 - user if d % 2 == 0 and user >= 0 else seed, d)
                    found[d, j] = length_at(values, upto, spent, wall, at)


class _World:
    """One roll-out: what is free, runs, waits."""

    def __init__(self, nodes: Nodes, line: Line, ahead: Ahead, lengths: list[float]) -> None:
        self.named = len(nodes.free) > 0
        self.idle = nodes.idle
        self.free = nodes.free.tolist()
        self.groups = nodes.group.tolist()
        self.policy = line.policy
        self.width, self.wall = line.width.tolist(), line.wall.tolist()
        self.need, self.group = line.need.tolist(), line.group.tolist()
        self.length = list(lengths)
        self.held: dict[int, list[int]] = {}
        self.by_end: list[tuple[float, int]] = []
        self.by_bound: list[tuple[float, int, int]] = []
        self.turn = 0
        at = 0
        for j in range(line.running):
            spent = float(line.spent[j])
            if self.named:
                self.held[j] = line.held[at : at + self.width[j]].tolist()
                at += self.width[j]
            self._run_job(j, max(self.length[j] - spent, 0.0), self.wall[j] - spent)
        self._expect(line, ahead)

    def _expect(self, line: Line, ahead: Ahead) -> None:
        """Who is in the line, who joins it later, and what becomes free or is taken at which time."""
        jobs = len(self.width)
        first, after = ahead.after_from.tolist(), ahead.after.tolist()
        self.begin = ahead.begin.tolist()
        self.blockers = [first[j + 1] - first[j] for j in range(jobs)]
        self.heirs: dict[int, list[int]] = {}
        for j in range(line.running, jobs):
            for blocker in after[first[j] : first[j + 1]]:
                self.heirs.setdefault(blocker, []).append(j)
        self.waiting = [j for j in range(line.running, jobs) if self.begin[j] <= 0.0 and not self.blockers[j]]
        self.outside = set(range(line.running, jobs)).difference(self.waiting)
        # Descending, so that the next one is taken off the end.
        self.begins = sorted((self.begin[j] for j in self.outside if self.begin[j] > 0.0), reverse=True)
        self.changes = list(zip(ahead.time.tolist(), ahead.node.tolist(), ahead.amount.tolist(), strict=True))
        self.changes.reverse()

    def next_known(self) -> float:
        """When the next job may join the line, or the machine changes."""
        begins = self.begins[-1] if self.begins else math.inf
        return min(begins, self.changes[-1][0] if self.changes else math.inf)

    def meet_expected(self, now: float) -> None:
        """Jobs join the line, at the places that they have by number; the machine changes."""
        while self.begins and self.begins[-1] <= now:
            self.begins.pop()
        for job in sorted(self.outside):
            if self.begin[job] <= now and not self.blockers[job]:
                self.outside.discard(job)
                insort(self.waiting, job)
        while self.changes and self.changes[-1][0] <= now:
            _, node, amount = self.changes.pop()
            if self.named:
                self.free[node] = [has + more for has, more in zip(self.free[node], amount, strict=True)]
            else:
                self.idle += amount[0]

    def _run_job(self, job: int, end: float, bound: float) -> None:
        heapq.heappush(self.by_end, (end, job))
        self.turn += 1
        insort(self.by_bound, (bound, self.turn, job))

    def _fits_node(self, free: list[int], job: int) -> bool:
        # What a job does not need may be overdrawn: what is reserved may still be held.
        return all(has >= takes or not takes for has, takes in zip(free, self.need[job], strict=True))

    def _place_job(self, free: list[list[int]], job: int, barred: set[int]) -> list[int] | None:
        """Nodes for a job, those with the fewest free devices first; ``None`` where there are too few."""
        fit = [
            i
            for i, has in enumerate(free)
            if i not in barred and self.groups[i] & self.group[job] and self._fits_node(has, job)
        ]
        fit.sort(key=lambda i: free[i][1])
        return fit[: self.width[job]] if len(fit) >= self.width[job] else None

    def _change_nodes(self, free: list[list[int]], job: int, nodes: list[int], sign: int) -> None:
        # `sort` is stable, so that ties keep the order of the nodes, as the insertion in starts.c does.
        for i in nodes:
            free[i] = [has + sign * takes for has, takes in zip(free[i], self.need[job], strict=True)]

    def _choose_nodes(self, job: int) -> list[int] | None:
        """Where a job that fits now goes; ``None`` where it does not."""
        if self.named:
            return self._place_job(self.free, job, set())
        return [] if self.width[job] <= self.idle else None

    def _start_job(self, job: int, nodes: list[int], now: float) -> None:
        if self.named:
            self._change_nodes(self.free, job, nodes, -1)
            self.held[job] = nodes
        else:
            self.idle -= self.width[job]
        self._run_job(job, now + self.length[job], now + self.wall[job])

    def end_by(self, now: float) -> None:
        """Those that have ended by now give back what they held."""
        while self.by_end and self.by_end[0][0] <= now:
            job = heapq.heappop(self.by_end)[1]
            for heir in self.heirs.get(job, ()):
                self.blockers[heir] -= 1
            if self.named:
                self._change_nodes(self.free, job, self.held[job], 1)
            else:
                self.idle += self.width[job]
            # The bounds stay sorted only if the job leaves them too: an early end frees its slot in the
            # shadow.
            self.by_bound = [one for one in self.by_bound if one[2] != job]

    def _count_fitting(self, free: list[list[int]], head: int) -> int:
        return sum(
            bool(self.groups[i] & self.group[head]) and self._fits_node(has, head)
            for i, has in enumerate(free)
        )

    def decide(self, now: float) -> list[int]:
        """Who starts now."""
        started: list[int] = []
        while self.waiting:
            nodes = self._choose_nodes(self.waiting[0])
            if nodes is None:
                break
            started.append(self.waiting.pop(0))
            self._start_job(started[-1], nodes, now)
        if self.policy != FCFS and len(self.waiting) > 1:
            started += self._backfill_jobs(now)
        return started

    def _backfill_jobs(self, now: float) -> list[int]:
        """Who delays the head's start by its bounds may not go; others go in the order of the line."""
        if not self.named and self.idle <= 0:
            return []
        if self.policy == GREEDY:
            return self._start_fitting(now)
        head = self.waiting[0]
        wanted = self.width[head]
        then = [list(has) for has in self.free]
        when, ready = now, self._count_fitting(then, head) if self.named else self.idle
        for bound, _, job in self.by_bound:
            # Ends at one time count together: the head may need several of them.
            if bound > when:
                if ready >= wanted:
                    break
                when = bound
            if self.named:
                self._change_nodes(then, job, self.held[job], 1)
                ready = self._count_fitting(then, head)
            else:
                ready += self.width[job]
        shadow, extra = (when, ready - wanted) if ready >= wanted else (math.inf, 0)
        planned = set(self._place_job(then, head, set()) or ()) if self.named else set()
        started: list[int] = []
        for job in self.waiting[1:]:
            nodes = self._choose_nodes(job)
            if nodes is None:
                continue
            if now + self.wall[job] > shadow:
                if not self.named:
                    if self.width[job] > extra:
                        continue
                    extra -= self.width[job]
                else:
                    # Counting `extra` is not enough where nodes differ: whether the head still finds its
                    # nodes then has to be tried, and the nodes that it will find may be others.
                    nodes = self._nodes_beside_head(then, job, head, planned, nodes)
                    if nodes is None:
                        continue
                    planned = set(self._place_job(then, head, set()) or ())
            self._start_job(job, nodes, now)
            started.append(job)
        self.waiting = [job for job in self.waiting if job not in set(started)]
        return started

    def _start_fitting(self, now: float) -> list[int]:
        started: list[int] = []
        for job in self.waiting[1:]:
            nodes = self._choose_nodes(job)
            if nodes is not None:
                self._start_job(job, nodes, now)
                started.append(job)
        self.waiting = [job for job in self.waiting if job not in set(started)]
        return started

    def _nodes_beside_head(
        self, then: list[list[int]], job: int, head: int, planned: set[int], nodes: list[int]
    ) -> list[int] | None:
        """Nodes that leave the head its start; they are taken of what is free ``then``."""
        self._change_nodes(then, job, nodes, -1)
        if not planned.isdisjoint(nodes) and self._count_fitting(then, head) < self.width[head]:
            self._change_nodes(then, job, nodes, 1)
            others = self._place_job(self.free, job, planned)
            if others is None:
                return None
            nodes = others
            self._change_nodes(then, job, nodes, -1)
        return nodes

    def arrive_again(self, past: Past, coming: int) -> None:
        """A submission of the past comes again."""
        drawn = int(past.job[coming])
        self.waiting.append(len(self.width))
        self.width.append(int(past.width[coming]))
        self.wall.append(float(past.wall[coming]))
        self.need.append(past.need[coming].tolist())
        self.group.append(int(past.group[coming]))
        self.length.append(float(past.ran[coming]) if drawn < 0 else self.length[drawn])


@kernel
def roll_starts(
    nodes: Nodes,
    line: Line,
    ahead: Ahead,
    past: Past,
    origins: Floats,
    until: float,
    target: int,
    horizon: float,
    starts: Floats,
) -> None:
    """Fill in when each waiting job starts in each draw (a row of ``starts``; infinite: not in time).

    What was submitted after a draw's origin comes again, from now on; after what was submitted ``until`` now
    the stretch begins anew. A roll-out is over when the target has started (a place among those that wait),
    or all have where that is -1, or after the ``horizon``.
    """
    times = past.time.tolist()
    for d, row in enumerate(line.length):
        world = _World(nodes, line, ahead, row.tolist())
        world.meet_expected(0.0)
        starts[d] = np.inf
        known = len(line.width) - line.running
        left = known if target < 0 else 1
        origin = float(origins[d])
        span = until - origin
        first = coming = bisect_right(times, origin)
        now = 0.0
        while left > 0:
            for job in world.decide(now):
                place = job - line.running
                if place < known:
                    starts[d, place] = now
                    left -= target < 0 or place == target
            if left <= 0:
                break
            # Arrivals are taken in before ends, and both before the next decision: the policy sees all that
            # has happened by this instant at once, as the engine's does.
            following = world.by_end[0][0] if world.by_end else math.inf
            if coming == len(times) and len(times) > first:  # the stretch comes again
                origin -= span
                coming = first
            arrives = times[coming] - origin if coming < len(times) else math.inf
            # An arrival of an earlier round may lie before now: time does not go back for it.
            now = max(now, min(following, arrives, world.next_known()))
            # Infinite where nothing is left to happen: over as well.
            if not now <= horizon:
                break
            while coming < len(times) and times[coming] - origin <= now:
                world.arrive_again(past, coming)
                coming += 1
            world.end_by(now)
            world.meet_expected(now)
