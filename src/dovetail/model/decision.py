"""What a policy may decide. The engine checks every decision against capacity and state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail.model.allocation import Allocation
from dovetail.model.frozen import frozen
from dovetail.model.job import JobId, Request, Seconds
from dovetail.model.outside import Shape
from dovetail.records import dataclass

__all__ = [
    "Decision",
    "Dequeue",
    "Enqueue",
    "Inquire",
    "Intend",
    "Migrate",
    "Preempt",
    "Renew",
    "Reserve",
    "Start",
    "Submit",
    "Wait",
    "spelt_out",
]


# Decisions name jobs by id and carry no times but promises: the engine checks each against its own books.
@frozen(frozen=True, slots=True)
class Start:
    """Start a queued job (of the main queue or the head of a device's FIFO) now."""

    job: JobId
    implementation: str
    allocation: Allocation


# The policy still starts the job: a FIFO is an order, and whether its head fits is known only later.
@dataclass(frozen=True, slots=True)
class Enqueue:
    """Bind a queued job to one unit's FIFO (`Cluster.units` index); the policy still starts it."""

    job: JobId
    implementation: str
    unit: int


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Take a job out of its unit's FIFO: back to the main queue, at its old place."""

    job: JobId


# A promise only ever moves earlier, else it would be worth nothing to a user who relies on it.
@frozen(frozen=True, slots=True)
class Reserve:
    """Promise that a job starts at ``start`` or before; replaces an earlier, later promise."""

    job: JobId
    implementation: str
    allocation: Allocation
    start: Seconds


# One decision for many: under conservative backfilling each early end may move thousands of promises.
@frozen(frozen=True, slots=True)
class Renew:
    """Promises made anew all at once, each earlier than before; what `Profile.renew` returns."""

    promises: Sequence[Reserve]


# Two phases, since live both places are taken while the work moves: a place given away early is lost.
@dataclass(frozen=True, slots=True)
class Migrate:
    """Move a running job to another allocation, e.g. to a local device from a remote one.

    Two phases: decided, then `Migrated`. Where work moves for real, or with ``held``, the job holds its old
    place and its new one until it has moved; else (in a simulation) both fall in one instant.
    """

    job: JobId
    allocation: Allocation
    held: bool = False


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a running job and put it back into the queue; it keeps what it holds until it has ended.

    Of a job in an outside scheduler's hands: take it back if it has not started there.
    """

    job: JobId
    reason: str = "preempted"


@dataclass(frozen=True, slots=True)
class Submit:
    """Hand a job to an outside scheduler (late binding), which picks the nodes and reports `Started`.

    ``walltime`` is the limit that it is to keep to; ``reason`` is, for `explain`, why it goes there so.
    ``foreseen`` is when it would start by the outside scheduler, in seconds from now.
    """

    job: JobId
    implementation: str
    request: Request
    target: str
    walltime: Seconds | None = None
    reason: str = ""
    foreseen: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Inquire:
    """Request from the outside scheduler when it would start such a job; `Foreseen` follows, in time."""

    shape: Shape


@frozen(frozen=True, slots=True)
class Wait:
    """Why a job does not start now, for `explain`; with ``until`` the policy is called again then.

    An empty reason leaves the one that is known: of a job that waits outside, that scheduler's reason.
    """

    job: JobId
    reason: str
    until: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Intend:
    """What the policy means to do with a waiting job as things stand; without any promise.

    It is to run as ``implementation`` on ``nodes`` nodes from ``start`` on; ``why`` is for `explain`. Held by
    the engine until the job starts or is cancelled, and shown in `View.intended`: a plan is gone on with.
    """

    job: JobId
    implementation: str
    nodes: int
    start: Seconds
    why: str = ""


Decision = Start | Enqueue | Dequeue | Intend | Reserve | Renew | Migrate | Preempt | Submit | Inquire | Wait


def spelt_out(decisions: Iterable[Decision]) -> list[Decision]:
    """The decisions with each promise of a `Renew` by itself, as journals keep them."""
    single: list[Decision] = []
    for decision in decisions:
        if isinstance(decision, Renew):
            single.extend(decision.promises)
        else:
            single.append(decision)
    return single
