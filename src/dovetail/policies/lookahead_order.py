"""Looking ahead with rigid jobs: EASY decides, only the order of its queue is chosen, by roll-outs.

EASY plans with walltimes, and so keeps its promises. Who goes first is a matter of how long jobs are expected
to run, by what part of their walltimes their users' last runs took (for slowdowns as far as such runs
predicted what came after them). Whenever the order can change who starts now, EASY is rolled out over the
known queue in a few orders of these lengths, as counts, with the present promise kept; the best one is EASY's
order at this instant. Where waits count, each of the first jobs that fit is then tried before all others of
its priority. The order that stands unless another promises more is Smith's rule (least work for a unit of
weight first) where slowdowns count: a job weighs one over its length, which makes ``sqrtsaf``; where waits
count it is ``sjf``. A known queue ends and the real one does not: where it would fill the machine many times,
roll-outs for slowdowns put wide jobs off for ever, and ``saf`` stands without.

An account of regret is kept beside (`dovetail.policies.lookahead_account`): where over the last submissions a
fixed order would clearly have cost less than what was done, it stands alone until that is so no more.

Where slowdowns count, room is also kept for short jobs that are likely to come. Most of the mean slowdown of
a busy machine is that of jobs of seconds that came while all was taken by jobs of hours. How many come, how
wide and how long, is estimated from the last ones. A long job that fits now waits for the next end if the
slowdowns that this spares them are more than those it costs: its own, and, as what is left free delays the
whole line, that of all who wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import islice, takewhile
from math import ceil, inf
from typing import NamedTuple
from weakref import WeakKeyDictionary

from dovetail.files.arrays import Floats, Ints, np
from dovetail.interfaces import View
from dovetail.kernels.backfilling import (
    LAST_END,
    SLOWDOWN,
    WAIT,
    Jobs,
    expected,
    futures,
    roll_outs,
    worth_keeping,
)
from dovetail.model import (
    WHOLE_POOL,
    Cluster,
    Decision,
    Job,
    JobId,
    PastStretch,
    RecentEnd,
    RecentSubmission,
    Request,
    Seconds,
    Wait,
)
from dovetail.policies.easy import Easy
from dovetail.policies.lookahead_account import Account, settle_account
from dovetail.policies.lookahead_units import Objective
from dovetail.policies.parts.orders import ORDERS, Order

TRIED: dict[Objective, tuple[Order, ...]] = {
    "makespan": ("sqrtsaf", "fcfs", "sjf", "f1", "largest", "saf"),
    "response": ("sjf", "sqrtsaf", "saf"),
    "wait": ("sjf", "sqrtsaf", "saf"),
    "slowdown": ("sqrtsaf", "saf"),
}
"""The orders that are rolled out, the one that stands first."""
STURDY: dict[Objective, Order] = {"response": "sjf", "wait": "sjf", "slowdown": "saf"}
"""The fixed order that roll-outs give way to where they have done worse."""
LEAST_SUBMISSIONS = 1536
"""Submissions from which a stretch of the past is judged: on fewer the best of six orders is best by luck."""
CLEARLY_WORSE, CLEARLY_BETTER = 1.1, 1.05
"""How much more what was done must have cost than the best fixed order, and how much more `STURDY` may."""
WINDOW = 256
"""Waiting jobs that are rolled out: the first ones in the order that stands."""
DEEP = 12
"""A queue that would fill the machine so many times is deep: roll-outs lessen its slowdowns no more."""
FUTURES = 8
"""Where waits count, so many futures are summed: one alone hangs on lengths that are unknown."""
KEPT = "fits, but room is kept for short jobs that may come"
ENOUGH = 16
"""So many jobs must have come before they count as a pattern."""
ASK_AGAIN = 60.0
"""A job that room is kept from is looked at again when an end is due: at full minutes, so there are few."""
LONGEST = 1e9
"""Seconds that an endless job is taken to run."""


def go_on_with_easy(view: View, objective: Objective, roll_outs: int, age: Seconds) -> list[Decision]:
    """EASY's decisions, in the order that promises most; who has waited too long goes before all others."""
    overdue = list(islice(takewhile(lambda job: view.now - job.submit_time > age, view.queue), WINDOW))
    if overdue:
        return Easy(TRIED[objective][0]).decide(view, overdue=overdue)
    slowdown = objective == "slowdown"
    sturdy = _sturdy_order(view, objective)
    if sturdy is not None:
        return Easy(sturdy).decide(view)
    if len(view.queue) < 2 or not _order_matters(view, any_fits=slowdown):
        return list(Easy("fcfs").decide(view))
    devices = all(request.devices for request in view.queue.requests())
    capacity = _present_capacity(view.cluster, devices)
    requests = view.queue.requests()
    waiting = gang_widths(view.cluster, requests, devices) @ np.fromiter(requests.values(), np.int64)
    deep = slowdown and waiting >= DEEP * capacity
    standing: Order = "saf" if deep else TRIED[objective][0]
    line = _Line(view, standing, capacity, devices, objective)
    rank = line.rank(standing) if deep else _best_rank(line, objective, roll_outs)
    room = _RoomForShortJobs(view, line, capacity, devices) if slowdown else None
    decisions = Easy(standing).decide(view, [line.jobs[at] for at in np.argsort(rank).tolist()], room)
    if room is not None and room.first_kept_from is not None:
        again = ceil((view.now + room.next_end) / ASK_AGAIN) * ASK_AGAIN  # also if nothing ends by then
        decisions.append(Wait(room.first_kept_from, KEPT, again))
    return decisions


def _sturdy_order(view: View, objective: Objective) -> Order | None:
    """The fixed order that would clearly have cost less of late than what was done; ``None``: none would.

    It is the one that stands, unless another one would have cost less by `CLEARLY_BETTER`.
    """
    stretch = view.recent.stretch
    if stretch is None or stretch.submissions < LEAST_SUBMISSIONS or objective not in STURDY:
        return None
    known = _accounts.setdefault(stretch, {})
    if objective not in known:
        requests = [past.job.choices[0].request for past in stretch.jobs]
        devices = all(request.devices for request in requests)
        taken = gang_widths(view.cluster, requests, devices)
        summed = SLOWDOWN if objective == "slowdown" else WAIT
        known[objective] = settle_account(stretch, taken, _present_capacity(view.cluster, devices), summed)
    account = known[objective]
    if account is None or account.done <= CLEARLY_WORSE * account.costs[account.best]:
        return None
    standing = STURDY[objective]
    near = account.costs[standing] <= CLEARLY_BETTER * account.costs[account.best]
    return standing if near else account.best


def _order_matters(view: View, any_fits: bool) -> bool:
    """Whether another order could change what EASY does now: it takes a head, or has a choice behind one.

    A choice is between jobs that fit and do not delay the head; with ``any_fits`` one of them is a choice
    too, to go or not.
    """
    head = next(iter(view.reservations.values()), None)
    if head is None:
        return True
    free = view.free()
    fitting = {r: n for r, n in view.queue.requests().items() if free.count(r) >= r.nodes}
    if any(choice.request in fitting for choice in head.job.choices):
        return True
    least = 1 if any_fits else 2
    if sum(fitting.values()) < least or len(head.job.choices) > 1:
        return sum(fitting.values()) >= least
    deadlines = view.shadow(head.job.choices[0].request, free, ()).deadlines
    line = view.queue.in_time(ORDERS["fcfs"].key, view.now, deadlines, bounded=ORDERS["fcfs"].bounded)
    return len(list(islice((job for job in line if job is not head.job), least))) == least


def _best_rank(line: _Line, objective: Objective, roll_outs: int) -> Ints:
    """Each job's place in the order in which EASY is expected to do best with the known queue."""
    summed = {"slowdown": SLOWDOWN, "makespan": LAST_END}.get(objective, WAIT)
    ranks = np.array([line.rank(order) for order in TRIED[objective][:roll_outs]])
    scores = line.score_orders(ranks, summed, inf)
    best: Ints = ranks[scores.argmin()]
    least = scores.min()
    first = line.fitting_jobs(best)[1 : 1 + roll_outs - len(ranks)]  # the first one goes first anyway
    if summed == WAIT and first:
        ranks = line.each_before_its_equals(best, first)
        scores = line.score_orders(ranks, summed, least)
        if scores.min() < least:
            best = ranks[scores.argmin()]
    return best


_accounts: WeakKeyDictionary[PastStretch, dict[Objective, Account | None]] = WeakKeyDictionary()
"""Of the stretches that engines look back on, as long as they do."""


class _Line:
    """The front of the queue and what runs, as arrays; times count from now."""

    def __init__(
        self, view: View, standing: Order, capacity: int, devices: bool, objective: Objective
    ) -> None:
        now = view.now
        order = ORDERS[standing]
        jobs = list(islice(view.queue.by(order.key, bounded=order.bounded), WINDOW))
        promised = next(iter(view.reservations.values()), None)
        # The promised job must be in the window, or no order would be tried that keeps its promise.
        if promised is not None and promised.job not in jobs:
            jobs[-1] = promised.job
        requests = [job.choices[0].request for job in jobs]
        bounds = [
            view.bound(job, job.choices[0].implementation, request)
            for job, request in zip(jobs, requests, strict=True)
        ]
        self.jobs = jobs
        self.head = -1 if promised is None else jobs.index(promised.job)
        self.width = gang_widths(view.cluster, requests, devices)
        self.wall = np.minimum(np.array(bounds, np.float64), LONGEST)
        since = [job.submit_time for job in jobs]
        self.since = np.array(since, np.float64)
        self.submit = self.since - now
        self.numbers = np.array([job.index for job in jobs])
        self.priority = np.array([job.priority for job in jobs], np.float64)
        running = sorted(view.running.values(), key=lambda placed: placed.bound)
        held = [placed.allocation.request for placed in running]
        self.running_width = gang_widths(view.cluster, held, devices)
        spent = np.array([now - placed.start_time for placed in running], np.float64)
        left = np.array([placed.bound - now for placed in running], np.float64)
        # A job past its bound may end at any moment: a second, so that no roll-out divides by nothing.
        self.running_bound = np.clip(left, 1.0, LONGEST)
        self.free = capacity - int(self.running_width.sum())
        owners = [job.user for job in jobs] + [placed.job.user for placed in running]
        walls = np.concatenate((self.wall, spent + self.running_bound))
        self.past = _Past.of(tuple(view.recent.ran))
        users = self.past.user_numbers(owners)
        if objective == "makespan":  # the last end of all is certain by walltimes only
            lengths = self.harmonic = walls
        else:
            lengths, self.harmonic = self.past.expected_lengths(users, walls)
            if objective == "slowdown":  # what Smith's rule needs where a job weighs one over its length
                lengths = np.sqrt(lengths * self.harmonic)
        self.length = lengths[: len(jobs)]
        """What jobs are sorted by, in place of their walltimes."""
        if objective in ("wait", "response"):
            started = np.concatenate((np.zeros(len(jobs)), spent))
            since += [placed.job.submit_time for placed in running]
            drawn = self.past.future_lengths(users, walls, started, since)
        else:
            drawn = lengths[None, :]
        self.long = np.minimum(drawn[:, : len(jobs)], self.wall)
        rest = drawn[:, len(jobs) :] - spent
        # Who has run for longer than expected goes on for half as long again.
        going = np.where(rest > 0, rest, np.maximum(1.0, spent / 2))
        self.running_long = np.minimum(going, self.running_bound)
        """A row is a future, here and in ``long``."""

    def rank(self, order: Order) -> Ints:
        """Each job's place in the order (see `dovetail.policies.parts.orders`), by expected lengths.

        ``f1`` goes by walltimes, the requested times of its paper.
        """
        key: Floats
        if order == "f1":
            requested, since = np.maximum(1.0, self.wall), np.maximum(1.0, self.since)
            key = np.log10(requested) * self.width + 870 * np.log10(since)
        elif order in ("fcfs", "largest"):
            key = self.since if order == "fcfs" else -self.width.astype(np.float64)
        else:
            key = self.length * self.width ** {"sjf": 0.0, "sqrtsaf": 0.5, "saf": 1.0}[order]
        rank = np.empty(len(self.jobs), np.int64)
        # Ties in the order of submission, then of numbers: the same order on every machine.
        rank[np.lexsort((self.numbers, self.since, key, -self.priority))] = np.arange(len(self.jobs))
        return rank

    def fitting_jobs(self, rank: Ints) -> list[int]:
        """Which of the jobs that hold no promise fit now, by their places in the order."""
        fit = self.width <= self.free
        if self.head >= 0:
            fit[self.head] = False
        return [int(at) for at in np.argsort(rank) if fit[at]]

    def each_before_its_equals(self, rank: Ints, places: list[int]) -> Ints:
        """The orders with each of these jobs before all others of its priority, a row each."""
        wider = np.tile(2 * rank, (len(places), 1))
        # Doubled ranks leave a free place before each group of equals.
        for row, at in zip(wider, places, strict=True):
            row[at] = row[self.priority == self.priority[at]].min() - 1
        return wider

    def score_orders(self, ranks: Ints, summed: int, enough: float) -> Floats:
        """What EASY is expected to come to in each order; infinity above the best before it."""
        jobs = Jobs(
            self.free, self.running_width, self.running_long, self.running_bound, self.width, self.wall,
            self.long, self.submit, len(self.jobs),
        )  # fmt: skip
        scores = np.empty(len(ranks))
        roll_outs(jobs, ranks, self.head, summed, enough, scores)
        return scores


class ExpectedArrivals(NamedTuple):
    """Jobs that are likely to come: the last ones that came, and how many of each kind come a second."""

    width: Ints
    long: Floats
    rate: float

    @staticmethod
    def like(came: list[RecentSubmission], width: Ints, long: Floats, now: Seconds) -> ExpectedArrivals:
        """Those that came at one moment are one event, after which as many may come again, or none."""
        if len(came) < ENOUGH:
            return ExpectedArrivals(width[:0], long[:0], 0.0)
        moments = {one.submit_time for one in came}
        # One group of arrivals is no rate: the correction makes a single moment count as none.
        return ExpectedArrivals(width, long, (1 - 1 / len(moments)) / max(1.0, now - min(moments)))


class _RoomForShortJobs:
    """The jobs to keep waiting while EASY decides. Implements `dovetail.policies.easy.RoomKept`.

    The promised job starts as soon as it fits, and so does one of a higher priority than another: no job
    passes it.
    """

    def __init__(self, view: View, line: _Line, capacity: int, devices: bool) -> None:
        self._view, self._past, self._devices, self._free = view, line.past, devices, line.free
        self._place = {job.id: at for at, job in enumerate(line.jobs)}
        self._width, self._long = line.width.tolist(), line.long[0].tolist()
        self._slower = (1 / line.harmonic[: len(line.jobs)]).tolist()
        """By how much a job's slowdown is expected to grow in a second."""
        self._least_priority = line.priority.min()
        self._promised = None if line.head < 0 else line.jobs[line.head]
        self.first_kept_from: JobId | None = None
        order = np.argsort(line.running_long[0])
        self._ends, self._widths = line.running_long[0][order], line.running_width[order]
        self.next_end = float(self._ends[0]) if len(order) else 0.0
        """When the first of the running jobs is expected to end, from now."""
        self._price = sum(self._slower) / capacity
        """What a second costs in which one part of the capacity is free."""

    @cached_property
    def _expected_arrivals(self) -> ExpectedArrivals:
        view, past = self._view, self._past
        came = list(view.recent.came)
        width = gang_widths(view.cluster, [one.request for one in came], self._devices)
        users = past.user_numbers([one.user for one in came])
        long, _ = past.expected_lengths(users, np.array([one.bound for one in came]))
        return ExpectedArrivals.like(came, width, long, view.now)

    def is_kept_from(self, job: Job) -> bool:
        """Whether the job fits now and had better wait for the next end; the first such one is noted."""
        at = self._place.get(job.id)
        if at is None:  # no job behind the front goes before those that wait there for room
            return self.first_kept_from is not None
        width = self._width[at]
        if width > self._free or job is self._promised or job.priority > self._least_priority:
            return False
        second = self._slower[at] + self._price * width
        kept: bool = worth_keeping(
            width, self._long[at], second, self._free, self._ends, self._widths,
            self._expected_arrivals.width, self._expected_arrivals.long, self._expected_arrivals.rate,
        )  # fmt: skip
        if kept and self.first_kept_from is None:
            self.first_kept_from = job.id
        return kept

    # So that the jobs behind it know that room is being kept.

    def started(self, job: Job) -> None:
        """It runs from now on."""
        at = self._place.get(job.id)
        if at is None:  # from behind the front
            choice = job.choices[0]
            width = int(gang_widths(self._view.cluster, [choice.request], self._devices)[0])
            end = self._view.bound(job, choice.implementation, choice.request)
        else:
            width, end = self._width[at], self._long[at]
        self._free -= width
        place = int(np.searchsorted(self._ends, end))
        self._ends = np.insert(self._ends, place, end)
        self._widths = np.insert(self._widths, place, width)


class _Past(NamedTuple):
    """Whose the last runs were (users by numbers), their walltimes and lengths."""

    number: dict[str | None, int]
    owners: Ints
    walls: Floats
    seconds: Floats

    @staticmethod
    @lru_cache(maxsize=4)  # it changes when a job ends, and is needed at every submission too
    def of(ran: tuple[RecentEnd, ...]) -> _Past:
        """What is remembered."""
        users, bounds, seconds = zip(*ran, strict=True) if ran else ((), (), ())
        number = {user: at for at, user in enumerate(dict.fromkeys(users))}
        owners = np.array([number[user] for user in users], np.int64)
        return _Past(number, owners, np.array(bounds, np.float64), np.array(seconds, np.float64))

    def user_numbers(self, names: list[str | None]) -> Ints:
        """Users as numbers, -1 for all of which nothing is remembered."""
        return np.array([self.number.get(name, -1) for name in names], np.int64)

    def expected_lengths(self, users: Ints, walls: Floats) -> tuple[Floats, Floats]:
        """How long jobs with these walltimes are expected to run, and the harmonic means."""
        return expected(users, walls, *self[1:])

    def future_lengths(self, users: Ints, walls: Floats, spent: Floats, since: list[Seconds]) -> Floats:
        """How long they run in `FUTURES`, a row each; one row where all are alike."""
        numbers = (np.array(since) * 1000).astype(np.int64)  # the same for a job after a restart too
        found = futures(FUTURES, numbers, users, walls, spent, *self[1:])
        return found[:1] if (found == found[0]).all() else found


def _present_capacity(cluster: Cluster, devices: bool) -> int:
    """Devices, or CPUs, of the nodes that are there; O(groups of nodes + nodes that are gone)."""
    whole = cluster.total_devices if devices else cluster.total_cpus
    gone = (cluster.nodes[n] for n in cluster.gone)
    return whole - sum(len(node.devices) if devices else node.cpus for node in gone)


def gang_widths(cluster: Cluster, requests: Iterable[Request], devices: bool) -> Ints:
    """What gangs take of the capacity: devices, or CPUs."""
    if devices:
        return np.array([max(1, round(r.nodes * r.gpus)) for r in requests], np.int64)
    pool = cluster.nodes[0].cpus
    return np.array([r.nodes * max(1, pool if r.cpus == WHOLE_POOL else r.cpus) for r in requests], np.int64)
