"""A schedule as an SWF log: what a site's own log of this run would have been."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dovetail.files.writing import write_text
from dovetail.model import Record, Result, State
from dovetail.report.run_summary import FAILED
from dovetail.workloads.swf_writer import swf_text

STATUS = {State.COMPLETED: 1, State.CANCELLED: 5} | dict.fromkeys(FAILED, 0)


def to_swf(result: Result) -> str:
    """The records in SWF: submit, wait and run time, processors, walltime, status, user, group, queue.

    Processors are the CPUs that a job held, or its devices (rounded up) where it held no CPU, as a header
    note explains. Jobs that never started have unknown (-1) wait, run time and processors. Status is 1 for
    completed, 5 for cancelled, 0 for the other ends. O(jobs).
    """
    records = result.records
    notes = [f"a schedule by {result.policy}; processors are CPUs, or devices of jobs that hold no CPU"]
    capacity = result.cluster.total_cpus or result.cluster.total_devices
    rows: list[Mapping[int, float | None]] = []
    for record in records:
        started: dict[int, float | None] = {}
        if record.start is not None:
            wait = record.start - record.job.submit_time
            started = {3: wait, 4: record.run_time, 5: _count_processors(record)}
        rows.append({**started, 11: STATUS.get(record.state)})
    return swf_text(result.workload, [record.job for record in records], rows, capacity, notes)


def _count_processors(record: Record) -> int | None:
    if record.allocation is None:
        return None
    parts = record.allocation.parts
    cpus = sum(part.nodes.bit_count() * part.cpus for part in parts)
    devices = sum(part.nodes.bit_count() * len(part.devices) for part in parts)
    return cpus or devices + len(record.allocation.donors) or None


def write_swf(result: Result, path: str | Path) -> None:
    """Write the log (as gzip where the name ends in ``.gz``). Raises `InputError` where it cannot be."""
    write_text(path, to_swf(result))
