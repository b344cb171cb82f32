"""A queue as it stands, rolled out by the policy over drawn run times and drawn arrivals."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from dovetail.files.arrays import Floats, Ints, np
from dovetail.kernels.starts import (
    AMOUNTS,
    EASY,
    FCFS,
    GREEDY,
    Ahead,
    Line,
    Nodes,
    Past,
    roll_starts,
)
from dovetail.starts.run_times import Column, JobKind, RunTimes

DRAWS, FEWEST = 100, 10
"""Roll-outs of a forecast; fewer where the queue is long, since errors of many run times level out."""
SHORT_QUEUE = 200
"""Jobs up to which all roll-outs are made."""
DAY, WEEK_DAYS, LOOK_BACK = 86_400.0, 7, 28
"""Arrivals are like those of the same hour of up to so many days ago."""
SHORTEST = 3600.0
"""Seconds of submissions that let others be expected."""
HORIZON = 4e7
"""Seconds after which a roll-out is given up: the job does not start."""
ENDLESS = 86_400.0
"""The bound that a policy plans with for a job without a walltime, seconds."""
POLICIES = {"easy": EASY, "fcfs": FCFS, "greedy": GREEDY}


class QueuedJob(NamedTuple):
    """A job that runs or waits.

    ``need`` are the CPUs, devices and bytes of each of ``nodes``, ``group`` the bits of nodes that it may
    use. ``spent`` is 0 for one that waits. ``held`` are the nodes of one that runs, where nodes have names.
    ``seed`` is a number of its own, ``key`` names its submission. A waiting job joins the line in ``begin``
    seconds or later, once the jobs ``after`` have ended, which are keys of others of the situation.
    """

    key: Hashable
    kind: JobKind
    seed: int
    nodes: int = 1
    spent: float = 0.0
    need: tuple[int, int, int] = (0, 0, 0)
    group: int = 1
    held: tuple[int, ...] = ()
    begin: float = 0.0
    after: tuple[Hashable, ...] = ()

    @property
    def bound(self) -> float:
        """The seconds that the policy plans with."""
        return ENDLESS if self.kind.walltime is None else self.kind.walltime


class Change(NamedTuple):
    """In ``time`` seconds so many more CPUs, devices and bytes are free on a node, or fewer."""

    time: float
    node: int
    amount: tuple[int, int, int]


class Situation(NamedTuple):
    """All that is known at a moment: what is free, what runs, what waits in the order of the queue.

    ``changes`` of the machine are known beforehand, as of reservations.
    """

    now: float
    policy: str
    nodes: Nodes
    running: Sequence[QueuedJob]
    waiting: Sequence[QueuedJob]
    changes: Sequence[Change] = ()


class Submissions:
    """What was submitted so far, by time, and how long each ran where that is known."""

    def __init__(self) -> None:
        self._time, self._wall, self._ran = (Column("float64") for _ in range(3))
        self._nodes, self._group = Column("int64"), Column("int64")
        self._need = Column("int64", AMOUNTS)
        self._open: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._time)

    def submit(self, time: float, job: QueuedJob) -> None:
        """One more; times ascend."""
        # A key that comes again (a requeue) means its last submission: the one before keeps its length.
        self._open[job.key] = len(self._time)
        self._time.append(time)
        self._nodes.append(job.nodes)
        self._wall.append(job.bound)
        self._ran.append(0.0)
        self._need.append(job.need)
        self._group.append(job.group)

    def end(self, key: Hashable, ran: float) -> None:
        """It has ended after so many seconds; 0 where it never ran."""
        place = self._open.pop(key, None)
        if place is not None:
            self._ran[place] = ran

    @property
    def first(self) -> float | None:
        """When the first one came."""
        return float(self._time.array()[0]) if len(self._time) else None

    def recent_past(self, now: float, places: Mapping[Hashable, int]) -> Past:
        """The last weeks; ``places`` are those of jobs in the line whose length is drawn."""
        times = self._time.array()
        # A day more than is looked back: an origin lies up to LOOK_BACK days ago, and its stretch begins
        # there.
        first = int(np.searchsorted(times, now - (LOOK_BACK + 1) * DAY))
        job = np.full(len(times) - first, -1, np.int64)
        for key, place in places.items():
            at = self._open.get(key, -1)
            if at >= first:
                job[at - first] = place
        return Past(
            times[first:],
            self._nodes.array(first),
            self._wall.array(first),
            self._ran.array(first),
            job,
            self._need.array(first),
            self._group.array(first),
        )


SHARE = 1_000_000
"""What a machine has where it is taken as one pool."""


class Queue(NamedTuple):
    """A situation as arrays."""

    now: float
    nodes: Nodes
    line: Line
    ahead: Ahead


def lay_out(situation: Situation, lengths: Floats) -> Queue:
    """The situation as arrays, where jobs take so long, shape (draws, jobs), those that run first."""
    jobs = [*situation.running, *situation.waiting]
    line = Line(
        POLICIES[situation.policy],
        len(situation.running),
        np.array([job.nodes for job in jobs], np.int64),
        np.array([job.bound for job in jobs], float),
        np.array([job.spent for job in jobs], float),
        np.array([job.need for job in jobs], np.int64).reshape(-1, AMOUNTS),
        np.array([job.group for job in jobs], np.int64),
        np.array([node for job in situation.running for node in job.held], np.int64),
        np.ascontiguousarray(lengths),
    )
    return Queue(situation.now, situation.nodes, line, _known_ahead(situation, jobs))


def _known_ahead(situation: Situation, jobs: Sequence[QueuedJob]) -> Ahead:
    """Who joins the line later, and how the machine changes. O(jobs)."""
    changes = sorted(situation.changes)
    begin = np.array([job.begin for job in jobs], float)
    after: list[int] = []
    after_from = np.zeros(len(jobs) + 1, np.int64)
    if any(job.after for job in situation.waiting):
        place = {job.key: at for at, job in enumerate(jobs)}
        for at, job in enumerate(jobs):
            if all(key in place for key in job.after):
                after += [place[key] for key in job.after]
            else:  # of what it waits for nothing is known here
                begin[at] = np.inf
            after_from[at + 1] = len(after)
    return Ahead(
        begin,
        after_from,
        np.array(after, np.int64),
        np.array([change.time for change in changes], float),
        np.array([change.node for change in changes], np.int64),
        np.array([change.amount for change in changes], np.int64).reshape(-1, AMOUNTS),
    )


def pool_machine(queue: Queue, past: Past) -> tuple[Queue, Past]:
    """The machine as one pool, of which each job takes the share of what it takes most of.

    How it is cut into nodes, and which jobs they serve, is not looked at. Where a line is so long that only
    its pace matters, roll-outs take a small part of the time.
    """
    line, ahead = queue.line, queue.ahead
    held = (line.width[: line.running, None] * line.need[: line.running]).sum(axis=0)
    # At least 1: a machine without devices would divide by zero.
    total = np.maximum(queue.nodes.free.sum(axis=0, dtype=float) + held, 1.0)

    def shares_of_pool(nodes: Ints, need: Ints) -> Ints:
        # Rounded up, and never 0: a job of no width would start at any time.
        found: Ints = np.ceil(SHARE * (nodes[:, None] * need / total).max(axis=1)).astype(np.int64)
        return np.clip(found, 1, SHARE)

    amounts = np.zeros_like(ahead.amount)
    if len(amounts):
        parts = ahead.amount / total
        most = np.abs(parts).argmax(axis=1)
        amounts[:, 0] = np.round(SHARE * parts[np.arange(len(parts)), most])
    width = shares_of_pool(line.width, line.need)
    idle = max(SHARE - int(width[: line.running].sum()), 0)
    pooled = line._replace(width=width, need=np.zeros_like(line.need), held=np.empty(0, np.int64))
    nodes = Nodes(idle, np.empty((0, AMOUNTS), np.int64), np.empty(0, np.int64))
    queue = queue._replace(nodes=nodes, line=pooled, ahead=ahead._replace(amount=amounts))
    return queue, past._replace(width=shares_of_pool(past.width, past.need))


NO_PAST = Submissions().recent_past(0.0, {})


def draws_for(jobs: int) -> int:
    """How many roll-outs are made with so many jobs."""
    return max(FEWEST, min(DRAWS, DRAWS * SHORT_QUEUE // max(jobs, 1)))


def roll_out(
    situation: Situation,
    lengths: Floats,
    past: Past = NO_PAST,
    origins: Floats | None = None,
    target: int = -1,
) -> Floats:
    """Seconds until each waiting job starts (or the target alone), shape (draws, waiting jobs).

    ``lengths`` has a row for each draw: how long each job runs in all, those that run first. What was
    submitted after each draw's origin comes again.
    """
    return roll_queue(lay_out(situation, lengths), past, origins, target)


def roll_queue(queue: Queue, past: Past = NO_PAST, origins: Floats | None = None, target: int = -1) -> Floats:
    """The same of a situation as arrays."""
    draws, jobs = queue.line.length.shape
    starts = np.full((draws, jobs - queue.line.running), np.inf)
    # No origins: every stretch begins now, so none of the past comes again.
    where = np.full(draws, queue.now) if origins is None else origins
    roll_starts(queue.nodes, queue.line, queue.ahead, past, where, queue.now, target, HORIZON, starts)
    return starts


def plan_starts(situation: Situation, target: int = -1) -> Floats:
    """The policy's own plan: as if all ran as long as their bounds and none came; shape (waiting jobs,)."""
    jobs = [*situation.running, *situation.waiting]
    # A job past its bound has no length left, but it still runs: it ends at this instant.
    lengths = np.array([max(job.bound, job.spent) for job in jobs], float).reshape(1, -1)
    found: Floats = roll_out(situation, lengths, target=target)[0]
    return found


class Futures(NamedTuple):
    """Drawn futures of a situation, one a row.

    ``lengths`` are the seconds that each job runs in all, shape (draws, jobs), those that run first. What was
    submitted after each draw's place in ``origins`` comes again, as in ``past``, from ``now`` on.
    """

    now: float
    lengths: Floats
    past: Past
    origins: Floats

    def draw_arrivals(self, draw: int, within: float) -> Arrivals:
        """The jobs that come in one of the futures in less than so many seconds. O(jobs that come)."""
        past, origin = self.past, float(self.origins[draw])
        # "right" as in the kernel: what was submitted at the origin itself does not come again.
        first, last = np.searchsorted(past.time, (origin, self.now), side="right").tolist()
        span = self.now - origin
        # Rounds: a stretch that is shorter than what is looked at comes again and again.
        rounds = int(within // span) + 1 if last > first and span > 0 else 0
        times = past.time[first:last] - origin
        when = np.concatenate([times + turn * span for turn in range(rounds)] or [np.empty(0)])
        place = np.tile(np.arange(first, last), rounds)
        when, place = when[when < within], place[when < within]
        drawn = past.job[place]
        ran = np.where(drawn < 0, past.ran[place], self.lengths[draw][drawn])
        return Arrivals(when, past.width[place], past.wall[place], ran, past.need[place], past.group[place])


class Arrivals(NamedTuple):
    """Jobs that come: seconds from now, nodes, the bound that is planned with, how long each runs, needs."""

    time: Floats
    nodes: Ints
    bound: Floats
    length: Floats
    need: Ints
    group: Ints


class StartDraws:
    """Run times and submissions so far, and the starts that they let expect."""

    def __init__(self, run_times: RunTimes | None = None) -> None:
        # A service shares one model of run times among its forecasts and its look-ahead.
        self.run_times = RunTimes() if run_times is None else run_times
        self.submissions = Submissions()

    def submit(self, time: float, job: QueuedJob) -> None:
        """A job is submitted."""
        self.submissions.submit(time, job)

    def end(self, key: Hashable, kind: JobKind, ran: float) -> None:
        """A job has ended that ran for so many seconds."""
        self.submissions.end(key, ran)
        self.run_times.end(kind, ran)

    def starts(self, situation: Situation, target: int = -1, seed: int = 0) -> Floats:
        """Seconds until waiting jobs start, shape (draws, waiting jobs); see `roll_out`."""
        return self.roll(situation, target, seed)[0]

    def roll(self, situation: Situation, target: int = -1, seed: int = 0) -> tuple[Floats, Floats]:
        """The starts, and how long each job runs in all, shape (draws, jobs), those that run first."""
        drawn = self.draw_futures(situation, draws_for(len(situation.running) + len(situation.waiting)), seed)
        return roll_out(situation, drawn.lengths, drawn.past, drawn.origins, target), drawn.lengths

    def draw_futures(self, situation: Situation, draws: int, seed: int = 0) -> Futures:
        """How long the jobs run and what comes, drawn so many times; the same for the same input."""
        jobs = [*situation.running, *situation.waiting]
        lengths = self.run_times.draw(
            [job.kind for job in jobs],
            np.array([job.spent for job in jobs], float),
            np.array([job.seed for job in jobs], np.int64),
            draws,
        )
        past = self.submissions.recent_past(situation.now, {job.key: place for place, job in enumerate(jobs)})
        return Futures(situation.now, lengths, past, self._draw_origins(situation.now, draws, seed))

    def _draw_origins(self, now: float, draws: int, seed: int) -> Floats:
        """From when on submissions come again: this hour of other days, in half the draws of this weekday.

        Where less than a day has passed, any moment of its first half; where nearly nothing has, none.
        """
        first = self.submissions.first
        seen = 0.0 if first is None else now - first
        if seen < SHORTEST:
            return np.full(draws, now)
        # A generator of its own, from the seed: a forecast that is made again gives the same answer.
        chance = np.random.Generator(np.random.PCG64(seed))
        days = min(int(seen // DAY), LOOK_BACK)
        if days < 1:
            found: Floats = now - (0.5 + 0.5 * chance.random(draws)) * seen
            return found
        back: Ints = chance.integers(1, days + 1, draws)
        weeks = days // WEEK_DAYS
        if weeks:
            # Weeks differ less than days: half of the draws keep the weekday, the rest the hour alone.
            back[::2] = WEEK_DAYS * chance.integers(1, weeks + 1, len(back[::2]))
        some_days: Floats = now - np.asarray(DAY * back, np.float64)
        return some_days


def waits_as_logs(starts: Floats) -> Floats:
    """The scale on which waits are compared: log of the seconds plus a minute.

    >>> waits_as_logs(np.array([0.0, 60.0])).round(3).tolist()
    [4.094, 4.787]
    """
    found: Floats = np.log(np.minimum(starts, HORIZON) + 60.0)
    return found
