"""What happens: the engine's only input. Events of one call happen at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from dovetail.model.allocation import Allocation
from dovetail.model.frozen import frozen
from dovetail.model.job import Job, JobId, Seconds
from dovetail.model.plan import Plan

__all__ = [
    "Cancelled",
    "Ended",
    "Estimated",
    "Event",
    "NodeJoined",
    "NodeLost",
    "Planned",
    "Started",
    "State",
    "Submitted",
    "Usage",
    "Woken",
]


class State(StrEnum):
    """States of a job. REJECTED jobs are listed apart and have no record."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    NODE_FAIL = "NODE_FAIL"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a finished process used: CPU seconds, peak resident bytes, and what it said of its transfers.

    ``sent``, ``received`` are bytes to and from the device, ``sent_time``, ``received_time`` seconds;
    ``wall_time`` is the run time as the backend measured it.
    """

    cpu_time: Seconds | None = None
    peak_memory: int | None = None
    sent: float | None = None
    sent_time: Seconds | None = None
    received: float | None = None
    received_time: Seconds | None = None
    wall_time: Seconds | None = None


@frozen(frozen=True, slots=True)
class Submitted:
    """A job enters the queue."""

    job: Job


@dataclass(frozen=True, slots=True)
class Started:
    """A backend started the job; ``allocation`` where it chose the nodes itself (after `Submit`)."""

    job: JobId
    allocation: Allocation | None = None


@frozen(frozen=True, slots=True)
class Ended:
    """A job ended in a final state.

    ``started_at`` and ``ended_at`` are seconds since the epoch, where the backend has measured them
    nearer to the process than whoever hears of it later.
    """

    job: JobId
    state: State = State.COMPLETED
    exit_code: int | None = 0
    detail: str = ""
    usage: Usage | None = None
    started_at: Seconds | None = None
    ended_at: Seconds | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Somebody cancelled the job; a running one is stopped by the driver and then reported `Ended`."""

    job: JobId


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is gone; what ran on it ends as NODE_FAIL."""

    node: int


@dataclass(frozen=True, slots=True)
class NodeJoined:
    """A lost node is back."""

    node: int


@dataclass(frozen=True, slots=True)
class Estimated:
    """Predictions of this app may have changed (``None``: of any app)."""

    app: str | None = None


@dataclass(frozen=True, slots=True)
class Planned:
    """A planner has made a plan, which replaces the one before."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Woken:
    """A moment that a `Wait` asked for has come."""


Event = Submitted | Started | Ended | Cancelled | NodeLost | NodeJoined | Estimated | Planned | Woken
