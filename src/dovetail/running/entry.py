"""A row of the ledger: what is known of one job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dovetail.engine.journal.checked import check_fields
from dovetail.engine.journal.codec import decode_fields, decode_json
from dovetail.model import Allocation, Job, Seconds, State

COLUMNS = (
    "seq, job.doc, state, held, attempt, implementation, allocation, nodes, devices, submitted, started,"
    " ended, predicted, exit_code, detail, batch, job.number, element, asked"
)
"""Of the table of jobs, in the order of `Entry`; the form of the job is taken apart by who has its app."""


class Entry(NamedTuple):
    """A job as the ledger has it; times are seconds since the epoch.

    ``number``, ``element`` and ``batch`` are those of a service. ``failures`` counts the earlier attempts
    that ended as FAILED or NODE_FAIL, ``wish`` is its user's wish while it runs.
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
    wish: str | None = None
    failures: int = 0


def entry_of(row: Sequence[Any], job: Job, failures: int = 0) -> Entry:
    """The entry of a row of `COLUMNS`. Raises `DAMAGED`."""
    seq, _, state, held, attempt, implementation, place, nodes, devices, *rest = row
    submitted, started, ended, predicted, exit_code, detail, batch, number, element, wish = rest
    return check_fields(
        Entry(
            seq,
            job,
            State(state),
            held or "",
            attempt,
            implementation,
            None if place is None else decode_fields(Allocation, decode_json(place)),
            nodes or "",
            tuple(devices.split(",")) if devices else (),
            submitted,
            started,
            ended,
            predicted,
            exit_code,
            detail or "",
            batch,
            number,
            element,
            wish,
            failures,
        )
    )
