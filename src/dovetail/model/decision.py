"""What a policy may decide. The engine checks every decision against capacity and state."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.model.allocation import Allocation
from dovetail.model.frozen import frozen
from dovetail.model.job import JobId, Request, Seconds

__all__ = ["Decision", "Dequeue", "Enqueue", "Migrate", "Reserve", "Start", "Submit", "Wait"]


@frozen(frozen=True, slots=True)
class Start:
    """Start a queued job (of the main queue or the head of a device's FIFO) now."""

    job: JobId
    implementation: str
    allocation: Allocation


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


@frozen(frozen=True, slots=True)
class Reserve:
    """Promise that a job starts at ``start`` or before; replaces an earlier, later promise."""

    job: JobId
    implementation: str
    allocation: Allocation
    start: Seconds


@dataclass(frozen=True, slots=True)
class Migrate:
    """Give a running job another allocation, e.g. a local device instead of a remote one."""

    job: JobId
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Submit:
    """Hand a job to an outside scheduler (late binding), which picks the nodes and reports `Started`."""

    job: JobId
    implementation: str
    request: Request
    target: str
    walltime: Seconds | None = None


@frozen(frozen=True, slots=True)
class Wait:
    """Why a job does not start now, for `explain`; with ``until`` the policy is asked again then."""

    job: JobId
    reason: str
    until: Seconds | None = None


Decision = Start | Enqueue | Dequeue | Reserve | Migrate | Submit | Wait
