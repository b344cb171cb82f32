"""A schedule as an SWF log: what a site's own log of this run would have been."""

from __future__ import annotations

from pathlib import Path

from dovetail.files.writing import write_text
from dovetail.model import Record, Result, State
from dovetail.workloads.swf_writer import legend, numbers_for, swf_header, swf_line

FAILED = (State.FAILED, State.TIMEOUT, State.NODE_FAIL, State.OUT_OF_MEMORY)
STATUS = {State.COMPLETED: 1, State.CANCELLED: 5} | dict.fromkeys(FAILED, 0)


def to_swf(result: Result) -> str:
    """The records in SWF: submit, wait and run time, processors, walltime, status, user, group, queue.

    Processors are the CPUs that a job held, or its devices (rounded up) where it held no CPU; a header note
    says so. Jobs that never started have unknown (-1) wait, run time and processors. Status is 1 for
    completed, 5 for cancelled, 0 for the other ends. O(jobs).
    """
    records = result.records
    numbers = numbers_for(r.job.id for r in records)
    users = numbers_for(r.job.user for r in records)
    groups = numbers_for(r.job.group for r in records)
    queues = numbers_for(r.job.queue for r in records)
    notes = [f"a schedule by {result.policy}; processors are CPUs, or devices of jobs that hold no CPU"]
    notes += legend("user", users) + legend("group", groups) + legend("queue", queues)
    capacity = result.cluster.total_cpus or result.cluster.total_devices
    lines = swf_header(result.workload, len(records), capacity, notes)
    for record in records:
        job = record.job
        fields = {1: numbers[job.id], 2: job.submit_time, 9: job.walltime, 11: STATUS.get(record.state)}
        if record.start is not None:
            fields |= {3: record.start - job.submit_time, 4: record.run_time, 5: _processors(record)}
        names = {12: users.get(job.user), 13: groups.get(job.group), 15: queues.get(job.queue)}
        lines.append(swf_line({**fields, **names}))
    return "\n".join(lines) + "\n"


def _processors(record: Record) -> int | None:
    if record.allocation is None:
        return None
    parts = record.allocation.parts
    cpus = sum(part.nodes.bit_count() * part.cpus for part in parts)
    devices = sum(part.nodes.bit_count() * len(part.devices) for part in parts)
    return cpus or devices + len(record.allocation.donors) or None


def write_swf(result: Result, path: str | Path) -> None:
    """Write the log (as gzip where the name ends in ``.gz``). Raises `InputError` where it cannot be."""
    write_text(path, to_swf(result))
