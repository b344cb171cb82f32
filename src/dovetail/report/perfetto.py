"""The schedule in the Chrome trace event format, which Perfetto and chrome://tracing show.

Each node is a process; its CPU pool and each of its devices are threads. Jobs that share a pool or a device
at one time lie on further threads of it, the lowest that is free, for slices of one thread must not overlap.
A process of its own counts waiting and running jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.files.writing import write_text
from dovetail.model import Cluster, Result, Seconds, bit_indices
from dovetail.report.columns import Columns, columns_of
from dovetail.report.gantt.lanes import lowest_free

MICROSECONDS = 1e6
COUNTERS = 0
"""Process id of the counters; node i is process i + 1."""
LANES = 1000
"""Thread ids of one unit: its number times this, plus the lane."""


def to_perfetto(result: Result) -> str:
    """The trace as JSON text: ``{"traceEvents": […]}``. O(jobs times nodes of a job)."""
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    events = ",\n".join(encode(event) for event in trace_events(result))
    other = json.dumps({"policy": result.policy, "workload": result.workload, "jobs": len(result.records)})
    return f'{{"displayTimeUnit": "ms", "otherData": {other}, "traceEvents": [\n{events}\n]}}\n'


def trace_events(result: Result) -> Iterator[dict[str, Any]]:
    """The events: names of processes and threads, slices in order of start, counters in order of time."""
    columns = columns_of(result)
    lanes = _Lanes(result.cluster)
    order = np.argsort(columns.stretches.start, kind="stable").tolist()
    # All slices before the names: which lanes exist is known when every slice has found its own.
    slices = [event for i in order for event in _job_slices(columns, i, lanes)]
    yield from lanes.names()
    yield from slices
    yield from _counter_events(result)


class _Lanes:
    """Finds for each slice the lowest thread of its unit that is free."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._free_at: dict[tuple[int, int], list[Seconds]] = {}

    def thread_id(self, node: int, unit: int, start: Seconds, end: Seconds) -> int:
        """Thread id for a slice on unit 0 (CPU pool) or 1 + device; slices come in order of start."""
        return unit * LANES + lowest_free(self._free_at.setdefault((node, unit), []), start, end) + 1

    def names(self) -> Iterator[dict[str, Any]]:
        """Metadata events, for nodes and units that are used."""
        yield _metadata_event("process_name", COUNTERS, 0, "jobs")
        for node in sorted({node for node, _ in self._free_at}):
            yield _metadata_event("process_name", node + 1, 0, self._cluster.nodes[node].name)
        for (node, unit), free_at in sorted(self._free_at.items()):
            name = "cpu" if unit == 0 else self._cluster.nodes[node].devices[unit - 1].name
            for lane in range(len(free_at)):
                label = name if lane == 0 else f"{name} ({lane + 1})"
                yield _metadata_event("thread_name", node + 1, unit * LANES + lane + 1, label)


def _metadata_event(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _job_slices(columns: Columns, i: int, lanes: _Lanes) -> Iterator[dict[str, Any]]:
    """What a job held in one stretch of time."""
    stretches = columns.stretches
    record, allocation = columns.records[int(stretches.job[i])], stretches.allocation(i)
    start, end, job = float(stretches.start[i]), float(stretches.end[i]), record.job
    held: list[tuple[int, int]] = []
    for part in allocation.parts:
        units = [*([0] if part.cpus else []), *(device + 1 for device in part.devices)]
        held += [(node, unit) for node in bit_indices(part.nodes) for unit in units]
    held += [(donor.donor, donor.device + 1) for donor in allocation.donors]
    details = {
        "app": job.app.name,
        "implementation": record.implementation.name if record.implementation else None,
        "user": job.user,
        "state": "moved" if (state := stretches.states[i]) is None else str(state),
        "submit": job.submit_time,
        "wait": start - job.submit_time,
        "walltime": job.walltime,
        "predicted": record.predicted.expected if record.predicted else None,
        "nodes": allocation.mask.bit_count(),
    }
    for place, (node, unit) in enumerate(held):
        event = {
            "ph": "X",
            "name": job.id,
            "cat": job.app.name,
            "pid": node + 1,
            "tid": lanes.thread_id(node, unit, start, end),
            "ts": start * MICROSECONDS,
            "dur": (end - start) * MICROSECONDS,
        }
        yield event if place else event | {"args": details}  # once for a gang, on its first node


def _counter_events(result: Result) -> Iterator[dict[str, Any]]:
    """Waiting and running jobs after each moment at which one of them changes."""
    changes: dict[Seconds, list[int]] = {}
    for record in result.records:
        changes.setdefault(record.job.submit_time, [0, 0])[0] += 1
        if record.start is not None:
            at = changes.setdefault(record.start, [0, 0])
            at[0] -= 1
            # One moment takes a job from waiting to running, so that a counter is never too high for an
            # instant.
            at[1] += 1
            if record.end is not None:
                changes.setdefault(record.end, [0, 0])[1] -= 1
        elif record.end is not None:  # cancelled before it started
            changes.setdefault(record.end, [0, 0])[0] -= 1
    waiting = running = 0
    for moment in sorted(changes):
        waiting, running = waiting + changes[moment][0], running + changes[moment][1]
        yield {
            "ph": "C",
            "name": "jobs",
            "pid": COUNTERS,
            "tid": 0,
            "ts": moment * MICROSECONDS,
            "args": {"waiting": waiting, "running": running},
        }


def write_perfetto(result: Result, path: str | Path) -> None:
    """Write the trace (as gzip where the name ends in ``.gz``). Raises `InputError` where it cannot be."""
    write_text(path, to_perfetto(result))
