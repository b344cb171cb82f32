"""The checker of schedules under conditions: failures, windows, checkpoints, preemption.

It takes the records and what the machine was under, and goes through the runs of each job second by second of
work, without the books of the simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from dovetail.errors import InvariantError
from dovetail.model import Checkpoints, Record, Result, Seconds, Span, State, Workload

RELATIVE = 1e-6
SUSPENDED = "suspended"
PREEMPTED = "preempted"


def check_operated(result: Result, workload: Workload, *, work: bool = True) -> None:
    """Raise `InvariantError` unless the schedule keeps to its conditions.

    Nothing runs on a node that is down, nor on one (or a device) that is kept for others, unless it began
    before and ran past its bound; maintenance ends what is left; a job whose run was cut runs again, as often
    as it may; what it does in its runs is its work, no more and no less, with its checkpoints in between
    (``work``); a suspended job goes on where it was.
    """
    for record in result.records:
        stints = list(_stints(record))
        for stint in stints:
            _check_outages(result, record, stint)
            _check_windows(result, record, stint)
        _check_restarts(result, record, stints)
        if work and stints:
            _check_work(result, record, stints, workload)


def _stints(record: Record) -> Iterator[Span]:
    yield from record.earlier
    if record.start is None or record.end is None or record.allocation is None:
        return
    assert record.implementation is not None
    start = record.start if record.since is None else record.since
    yield Span(start, record.end, record.allocation, record.implementation, record.state, record.detail)


def _overlap(stint: Span, start: Seconds, end: Seconds) -> bool:
    return stint.start < end and start < stint.end


def _check_outages(result: Result, record: Record, stint: Span) -> None:
    assert result.operated is not None
    mask = stint.allocation.mask
    for outage in result.operated.outages:
        if mask >> outage.node & 1 and _overlap(stint, outage.start, outage.end):
            name = result.cluster.nodes[outage.node].name
            raise InvariantError(f"job {record.job.id} runs on {name} while it is down, at {outage.start}")


def _check_windows(result: Result, record: Record, stint: Span) -> None:
    assert result.operated is not None
    places = set(stint.allocation.device_places())
    for held in result.operated.windows:
        window = held.window
        there = any(stint.allocation.mask >> node & 1 for node in window.nodes)
        if not (there or places & set(window.devices)) or not _overlap(stint, held.start, held.end):
            continue
        if record.job.user in window.users:
            continue
        # What began before may run past its bound: only maintenance ends it.
        late = result.overrun == "run" and stint.start < held.start and not window.is_maintenance
        if not late:
            raise InvariantError(f"job {record.job.id} runs where {window.name} is, at {held.start}")


def _check_restarts(result: Result, record: Record, stints: list[Span]) -> None:
    assert result.operated is not None
    failures = result.operated.conditions.failures
    lost = [stint for stint in stints if stint.state is State.NODE_FAIL]
    for before, after in pairwise(stints):
        if before.state is None or before.state in (State.COMPLETED, State.TIMEOUT):
            raise InvariantError(f"job {record.job.id} runs again after it was {before.state}")
        if before.detail.startswith(SUSPENDED) and before.allocation.parts != after.allocation.parts:
            raise InvariantError(f"job {record.job.id} was suspended and goes on elsewhere")
    if failures is not None and failures.jobs == "lost":
        most = record.job.retries
        if len(lost) > most + 1:
            raise InvariantError(f"job {record.job.id} runs {len(lost)} times, of {most} retries")
    elif failures is not None and record.state is State.NODE_FAIL and len(stints) <= failures.most_restarts:
        raise InvariantError(f"job {record.job.id} was lost after {len(stints)} runs")


def _check_work(result: Result, record: Record, stints: list[Span], workload: Workload) -> None:
    """Go through the runs: each is its restart, then work and checkpoints in turn."""
    assert result.operated is not None
    checkpoints = result.operated.conditions.checkpoints or Checkpoints(inf)
    done = safe = 0.0  # parts of the job's work
    resumes = False
    for stint in stints:
        request = stint.allocation.request
        total = workload.truth.seconds(record.job, stint.implementation, request)
        if total is None:
            raise InvariantError(f"job {record.job.id} ran without a true time")
        time, end = stint.start, stint.end
        if resumes:
            time += checkpoints.restart
        left = total * (1.0 - done)
        slack = RELATIVE * max(1.0, abs(end))
        while time < end - slack and left > slack:
            step = min(checkpoints.every, left, end - time)
            left, time = left - step, time + step
            if left <= slack or time >= end - slack:
                break
            time += checkpoints.cost
            if time <= end + slack:
                safe = 1.0 - left / total
        done = 1.0 - left / total if total > 0 else 1.0
        if stint.state is State.COMPLETED:
            if left > slack or abs(time - end) > slack:
                raise InvariantError(
                    f"job {record.job.id} completed at {end} with {left} s of work left at {time}"
                )
        elif stint.detail.startswith(SUSPENDED):
            resumes = resumes and end - stint.start < checkpoints.restart
        else:
            done, resumes = safe, safe > 0
