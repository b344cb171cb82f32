"""A row of the ledger: what is known of one job."""

from __future__ import annotations

from typing import NamedTuple

from dovetail.model import Allocation, Job, Seconds, State

__all__ = ["Entry"]


class Entry(NamedTuple):
    """A job as the ledger has it; times are seconds since the epoch.

    ``number``, ``element`` and ``batch`` are those of a service. ``failures`` counts the earlier attempts
    that ended as FAILED or NODE_FAIL, ``asked`` is what somebody wants of it while it runs.
    """

    seq: int
    job: Job
    state: State
    held: str
    attempt: int
    implementation: str | None
    allocation: Allocation | None
    nodes: str
    devices: tuple[str, ...]
    submitted: Seconds
    started: Seconds | None
    ended: Seconds | None
    predicted: Seconds | None
    exit_code: int | None
    detail: str
    batch: int | None = None
    number: int | None = None
    element: int | None = None
    asked: str | None = None
    failures: int = 0
