"""Under which conditions a simulated machine is operated: failures, windows, preemption, priorities.

A cluster file has them beside its nodes (`dovetail.model.conditions_file`); a simulation keeps to them. Times
are seconds after the workload's own zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import ceil, floor, inf
from typing import Literal

from dovetail.model.job import EMPTY, Job, Seconds
from dovetail.records import dataclass

__all__ = [
    "NO_CONDITIONS",
    "Checkpoints",
    "Conditions",
    "Failures",
    "JobClass",
    "ListedFailure",
    "Operated",
    "Outage",
    "Preemption",
    "PriorityRule",
    "Window",
    "WindowHeld",
]

ON_FAILURE = Literal["requeue", "lost"]
PREEMPT_MODE = Literal["requeue", "suspend"]
SLACK = 1e-9
"""Part of a checkpoint's cycle by which a sum of floats may fall short of it."""


@dataclass(frozen=True, slots=True)
class ListedFailure:
    """A node's failure that is known beforehand; ``repair`` seconds later it is back (infinite: never)."""

    node: int
    at: Seconds
    repair: Seconds = inf


@dataclass(frozen=True, slots=True)
class Failures:
    """How nodes fail, and what becomes of the jobs on them.

    Each of ``nodes`` fails, ``mtbf`` seconds after its last repair in the mean, by a Weibull distribution of
    this ``shape`` (1: exponential), and is back after ``mttr`` seconds in the mean, exponentially; without
    ``mtbf`` only the ``listed`` failures happen. ``jobs``: a job on a node that fails waits again (at most
    ``most_restarts`` times) or is lost. ``seed`` is that of the draws.
    """

    nodes: tuple[int, ...] = ()
    mtbf: Seconds | None = None
    mttr: Seconds = 0.0
    shape: float = 1.0
    seed: int = 1
    jobs: ON_FAILURE = "requeue"
    most_restarts: int = 64
    listed: tuple[ListedFailure, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Each job writes a checkpoint after every ``every`` seconds of work, which takes ``cost`` seconds.

    A job that starts again goes on from the last one that was complete, after ``restart`` seconds. There is
    none at the very end of a job.

    >>> Checkpoints(every=100.0, cost=10.0).lengthened(250.0)
    270.0
    """

    every: Seconds
    cost: Seconds = 0.0
    restart: Seconds = 0.0

    def count(self, work: Seconds) -> int:
        """How many a run writes that does so much work."""
        return max(0, ceil(work / self.every - SLACK) - 1)

    def lengthened(self, work: Seconds) -> Seconds:
        """How long a run takes that does so much work."""
        return work if work == inf else work + self.count(work) * self.cost

    def progress(self, ran: Seconds, work: Seconds = inf) -> tuple[Seconds, Seconds]:
        """Of a run that was to do ``work`` and was cut after ``ran`` seconds: the work done, and that kept.

        >>> Checkpoints(every=100.0, cost=10.0).progress(225.0, 1000.0)
        (205.0, 200.0)
        """
        if ran <= 0:
            return 0.0, 0.0
        cycle = self.every + self.cost
        whole = floor(ran / cycle + SLACK)
        if work < inf:
            whole = min(self.count(work), whole)
        over, kept = (whole * cycle, whole * self.every) if whole else (0.0, 0.0)
        done = min(work, kept + min(self.every, max(0.0, ran - over)))
        return done, min(done, kept)


@dataclass(frozen=True, slots=True)
class Window:
    """From ``start`` for ``span`` seconds nodes or devices are kept for ``users``; none: for maintenance.

    ``every``: so many seconds after its start it begins again (``None``: once).
    """

    name: str
    start: Seconds
    span: Seconds
    nodes: tuple[int, ...] = ()
    devices: tuple[tuple[int, int], ...] = ()
    users: tuple[str, ...] = ()
    every: Seconds | None = None

    @property
    def is_maintenance(self) -> bool:
        """Whether nothing at all runs there then."""
        return not self.users


@dataclass(frozen=True, slots=True)
class JobClass:
    """Jobs with a priority of their own: those that match every list that is given, in file order.

    With ``preempts`` its jobs take the places of running jobs of lower priority, where these are
    ``preemptable``. ``factor`` is what the class adds to a multifactor priority, 0 to 1.
    """

    name: str
    priority: float = 0.0
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    apps: tuple[str, ...] = ()
    preempts: bool = False
    preemptable: bool = True

    def matches(self, job: Job) -> bool:
        """Whether a job is of this class."""
        partition = job.choices[0].request.partition if job.choices else None
        found = (
            (self.users, job.user),
            (self.groups, job.group),
            (self.queues, job.queue),
            (self.partitions, partition or None),
            (self.qos, job.options.get("qos")),
            (self.apps, job.app.name),
        )
        return all(value in wanted for wanted, value in found if wanted)


@dataclass(frozen=True, slots=True)
class Preemption:
    """What becomes of a job whose place is taken: it waits again (requeue), or stands still (suspend)."""

    mode: PREEMPT_MODE = "requeue"


@dataclass(frozen=True, slots=True)
class PriorityRule:
    """Who goes first: by a weighted sum of parts between 0 and 1, computed anew every ``every`` seconds.

    Without any weight as in a service with fair shares: among jobs of the same priority those of the user who
    has used least for his share, strictly.

    ``age`` is the time waited over ``max_age``; ``fair_share`` is 2^(-used / share), as parts of what all
    have used and of all shares, usage forgotten by ``half_life``; ``size`` is the part of the machine that a
    job requests (or 1 less it, where ``favor`` is ``small``); ``job_class`` its class's priority over the
    highest.
    """

    age: float = 0.0
    fair_share: float = 0.0
    size: float = 0.0
    job_class: float = 0.0
    max_age: Seconds = 7 * 86400.0
    half_life: Seconds = 7 * 86400.0
    every: Seconds = 300.0
    favor: Literal["large", "small"] = "large"
    shares: Mapping[str, float] = EMPTY

    @property
    def weighs(self) -> bool:
        """Whether any part has a weight."""
        return bool(self.age or self.fair_share or self.size or self.job_class)


@dataclass(frozen=True, slots=True)
class Conditions:
    """All of them; nothing by default."""

    failures: Failures | None = None
    checkpoints: Checkpoints | None = None
    windows: tuple[Window, ...] = ()
    preemption: Preemption | None = None
    classes: tuple[JobClass, ...] = ()
    priority: PriorityRule | None = None
    fields: tuple[str, ...] = field(default=())
    """The keys of the file that gave them, for sentences."""

    def __bool__(self) -> bool:
        return self != NO_CONDITIONS

    def class_of(self, job: Job) -> JobClass | None:
        """The first class that a job is of."""
        return next((one for one in self.classes if one.matches(job)), None)


NO_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True)
class Outage:
    """A node was down from ``start`` to ``end``, which is infinite where it never came back."""

    node: int
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True)
class WindowHeld:
    """A window at one of its times."""

    window: Window
    start: Seconds
    end: Seconds


@dataclass(frozen=True, slots=True)
class Operated:
    """What a simulation was under: its conditions, when nodes were down, when windows were."""

    conditions: Conditions
    outages: tuple[Outage, ...] = ()
    windows: tuple[WindowHeld, ...] = ()
