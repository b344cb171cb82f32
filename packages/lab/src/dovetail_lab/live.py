"""What studies share that run their workload for real."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dovetail.errors import InputError
from dovetail.model import JobId, Record, Seconds, State


def check_completed(records: Iterable[Record], where: str) -> None:
    """Every job came to its end, or else the makespan means nothing.

    Raises `KeyboardInterrupt` where the run was interrupted (it has ended what ran), and `InputError` with
    the first job that failed.
    """
    undone = [record for record in records if record.state is not State.COMPLETED]
    if any(record.state is State.CANCELLED for record in undone):
        raise KeyboardInterrupt
    if undone:
        first = undone[0]
        raise InputError(f"job {first.job.id} ended as {first.state} {first.detail}".rstrip(), where=where)


def slowdown_factor(records: Iterable[Record], alone: Mapping[tuple[JobId, str, int], Seconds]) -> float:
    """By what factor completed jobs on one node took longer than alone (by job, implementation, nodes)."""
    took = expected = 0.0
    for record in records:
        assert record.took is not None
        assert record.implementation is not None
        took += record.took
        expected += alone[record.job.id, record.implementation.name, 1]
    return took / expected
