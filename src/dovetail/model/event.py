"""What happens: the engine's only input. Events of one call happen at one instant."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dovetail.model.allocation import Allocation
from dovetail.model.frozen import frozen
from dovetail.model.job import Job, JobId, Recipients, Request, Seconds
from dovetail.model.node import DeviceClass, Node
from dovetail.model.outside import Shape, TimeUsed
from dovetail.model.plan import Plan
from dovetail.model.reservation import Reservation
from dovetail.records import dataclass

__all__ = [
    "Adopted",
    "Cancelled",
    "ClusterEnds",
    "Delayed",
    "Ended",
    "Ending",
    "Estimated",
    "Event",
    "Foreseen",
    "Held",
    "KeptOff",
    "Lingering",
    "Migrated",
    "Moved",
    "NodeDrained",
    "NodeJoined",
    "NodeLost",
    "PastJob",
    "PastStretch",
    "Paused",
    "Planned",
    "Recalled",
    "RecentEnd",
    "RecentSubmission",
    "Released",
    "Requeued",
    "Reserved",
    "Signalled",
    "Sized",
    "Started",
    "State",
    "Submitted",
    "Updated",
    "Usage",
    "Withdrawn",
    "Woken",
]


# The names of Slurm, so that tables, scripts and accounting can be read side by side.
class State(StrEnum):
    """States of a job. REJECTED jobs are listed apart and have no record."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"


# `None` where a backend cannot measure: 0 would be learned as a figure.
@dataclass(frozen=True, slots=True)
class Usage:
    """What a finished process used: CPU seconds, peak resident bytes, and its report of its transfers.

    ``sent``, ``received`` are bytes to and from the device, ``sent_time``, ``received_time`` seconds;
    ``wall_time`` is the run time as the backend measured it. ``gpu_memory`` is the peak in bytes on the one
    of its devices where it held most, ``gpu_use`` the mean part of its devices' time that it used (0 to 1).
    """

    cpu_time: Seconds | None = None
    peak_memory: int | None = None
    sent: float | None = None
    sent_time: Seconds | None = None
    received: float | None = None
    received_time: Seconds | None = None
    wall_time: Seconds | None = None
    gpu_memory: int | None = None
    gpu_use: float | None = None


# `frozen` and not `dataclass` for what a simulation makes by the million: it guards no assignment.
@frozen(frozen=True, slots=True)
class Submitted:
    """A job is known from now on: in the queue, or held back for the reason ``held``.

    Under an earlier driver it was started ``attempts`` times, of which ``failures`` count as retried.
    """

    job: Job
    held: str = ""
    attempts: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Adopted:
    """A job that was just submitted runs already: an earlier driver started it at ``start_time``.

    ``start_time`` may lie before this driver's time 0. ``attempt`` counts the starts of the job, this one
    included. ``predicted`` are the seconds that were expected at its start and ``limit`` the bound of its run
    time then; ``None``: they are predicted now.
    """

    job: JobId
    implementation: str
    allocation: Allocation
    start_time: Seconds
    attempt: int = 1
    predicted: Seconds | None = None
    limit: Seconds | None = None


# An executor may report a start minutes late (a queue that is polled): `at` puts it where it was.
@dataclass(frozen=True, slots=True)
class Started:
    """A backend started the job.

    After `Submit`, what an outside scheduler chose: ``allocation`` in terms of our cluster where it knows
    them, and the ``device_class`` that runs it (``None``: the one of the allocation); ``at`` is when,
    if that was before (an earlier driver may have received it); ``started_at`` is that in seconds since the
    epoch, from a backend that has measured it.
    """

    job: JobId
    allocation: Allocation | None = None
    device_class: DeviceClass | None = None
    at: Seconds | None = None
    started_at: Seconds | None = None


@frozen(frozen=True, slots=True)
class Ended:
    """A job ended in a final state.

    ``started_at`` and ``ended_at`` are seconds since the epoch, where the backend has measured them
    nearer to the process than a later reader. ``attempt`` is which start of the job ended
    (``None``: the present one). ``ran``: its command was executed, as far as is known. ``on_device``: it was
    a device whose memory was too little, where the state is OUT_OF_MEMORY; ``available`` is how much of it
    processes that are not ours left then (``None``: there were none, as far as is known).
    """

    job: JobId
    state: State = State.COMPLETED
    exit_code: int | None = 0
    detail: str = ""
    usage: Usage | None = None
    started_at: Seconds | None = None
    ended_at: Seconds | None = None
    # An end may be reported when the job has begun again.
    attempt: int | None = None
    ran: bool = True
    on_device: bool = False
    available: int | None = None


@dataclass(frozen=True, slots=True)
class Migrated:
    """A migration is over: the job holds its new place alone, or its old one for the reason ``failed``.

    With ``stays`` what the job has borrowed can never move, which may be known before any migration.
    """

    job: JobId
    failed: str = ""
    stays: bool = False


@dataclass(frozen=True, slots=True)
class Requeued:
    """An ended job goes back into the queue, at its old place, for another attempt."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Sized:
    """A waiting job requests other amounts of memory: bytes a node, for each of its choices in their order.

    ``kills`` is how often it was killed for memory so far. ``gpu`` is the same of its devices: for each
    choice the bytes on each device, and those that a device must have; below 0: the choice is dropped.
    Empty: as it was. ``gpu_kills`` counts kills for that.
    """

    job: JobId
    memory: tuple[int, ...]
    kills: int = 0
    gpu: tuple[tuple[int, int], ...] = ()
    gpu_kills: int = 0


# A prediction, not a fact: a place that is given away early may have to be taken back (`Lingering`).
@dataclass(frozen=True, slots=True)
class KeptOff:
    """A waiting job is to stay off the devices of the reservations with these bits (0: of none)."""

    job: JobId
    avoids: int


@dataclass(frozen=True, slots=True)
class Ending:
    """A job that runs will have ended in a moment: its place may be given to one that begins after it."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Lingering:
    """A job that was reported withdrawn goes on, and holds its place again."""

    job: JobId


# No attempt was made, so none is counted.
@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A job that was to begin after others has not begun, and will not: it waits again, as before."""

    job: JobId


@dataclass(frozen=True, slots=True)
class Held:
    """A waiting job is held back: no policy sees it until it is `Released`."""

    job: JobId
    reason: str = "held"


@dataclass(frozen=True, slots=True)
class Released:
    """A held job goes into the queue, at its old place."""

    job: JobId


# The whole job and the names of what changed: a journal replays the job, a person reads the names.
@dataclass(frozen=True, slots=True)
class Updated:
    """A user has changed these ``fields`` of a job, which is ``into`` from now on.

    One that waits keeps its place; of one that runs only the walltime changes.
    """

    job: JobId
    into: Job
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A waiting job has another place: right ``after`` another one that waits, or (``None``) the first.

    ``turn`` is the number of that place on record.
    """

    job: JobId
    after: JobId | None
    turn: float


# A running job ends by `Ended`, with the figures of its run: this event alone would lose them.
@dataclass(frozen=True, slots=True)
class Cancelled:
    """A waiting job is cancelled; ``detail`` is why. A running one is stopped and then `Ended`."""

    job: JobId
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Signalled:
    """A running job is sent a signal, and goes on: all its processes, its ``first``, or all ``others``."""

    job: JobId
    number: int
    to: Recipients = "all"


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone, perhaps ``for_good``; what ran on it ends as NODE_FAIL."""

    node: int
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class NodeDrained:
    """A node starts nothing more; what runs on it goes on."""

    node: int


# Indices are never used twice: allocations, journals and records name nodes by them.
@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A lost or drained node is back; or, with ``new``, one that was never seen before.

    A new node takes the next index of the cluster.
    """

    node: int
    new: Node | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """From now on no waiting job starts on these kinds of devices (``all``: anywhere); empty: all may again.

    What runs goes on. A job that can run on another kind may start there.
    """

    kinds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserved:
    """From now on these are all reservations that there are; `KeptOff` names the jobs that stay off them."""

    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterEnds:
    """All nodes will be gone in ``left`` seconds, counted from this instant; ``None``: no end is known.

    Jobs that are not expected to end before that are set aside, until a later end is known.
    """

    left: Seconds | None


# Invalidates what was computed from predictions; the engine computes it again only where it is looked at.
@dataclass(frozen=True, slots=True)
class Estimated:
    """Predictions of this app may have changed (``None``: of any app)."""

    app: str | None = None


@dataclass(frozen=True, slots=True)
class Delayed:
    """What keeps a job, by the outside scheduler that was given it; empty: nothing out of the ordinary."""

    job: JobId
    reason: str


@dataclass(frozen=True, slots=True)
class Foreseen:
    """The outside scheduler's answer: jobs of that shape would start in ``wait`` seconds from this instant.

    ``None``: never, for the reason ``why``. ``room`` is how many of them would find free nodes at once,
    ``used`` what jobs there have used of their walltimes, where that is known.
    """

    shape: Shape
    wait: Seconds | None
    room: int = 0
    why: str = ""
    used: TimeUsed | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A planner has made a plan, which replaces the one before."""

    plan: Plan


# Not whole jobs: a service that runs for months would keep their commands and environments alive.
class RecentEnd(NamedTuple):
    """A job that ended as it is remembered: whose it was, the bound of its run time, and how long it ran."""

    user: str | None
    bound: Seconds
    seconds: Seconds


class RecentSubmission(NamedTuple):
    """A job that was submitted as it is remembered: whose it was, when, its request, and its bound."""

    user: str | None
    submit_time: Seconds
    request: Request
    bound: Seconds


class PastJob(NamedTuple):
    """A job of the past as it is remembered; ``None``: it has not started, or not ended."""

    job: Job
    bound: Seconds
    start: Seconds | None
    seconds: Seconds | None


@dataclass(frozen=True, eq=False)
class PastStretch:
    """All jobs that waited, ran or came between two moments, in the order of their submissions.

    ``submissions`` is the number of those that came.
    """

    origin: Seconds
    until: Seconds
    submissions: int
    jobs: tuple[PastJob, ...]


@dataclass(frozen=True, slots=True)
class Recalled:
    """What an engine before this one remembered: the last jobs that ended or came, oldest first."""

    ran: tuple[RecentEnd, ...]
    came: tuple[RecentSubmission, ...] = ()


# Without fields: policies are called in any case, and look for themselves whether their moment has come.
@dataclass(frozen=True, slots=True)
class Woken:
    """A moment that a `Wait` named has come."""


Event = (
    Submitted
    | Adopted
    | Started
    | Ended
    | Migrated
    | Ending
    | Lingering
    | Withdrawn
    | Requeued
    | Sized
    | KeptOff
    | Held
    | Released
    | Updated
    | Moved
    | Cancelled
    | Signalled
    | NodeLost
    | NodeDrained
    | NodeJoined
    | Paused
    | Reserved
    | ClusterEnds
    | Estimated
    | Delayed
    | Foreseen
    | Planned
    | Recalled
    | Woken
)
