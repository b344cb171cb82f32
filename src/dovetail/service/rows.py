"""Jobs as clients see them: one dict a job, whether it is in memory or only in the ledger."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from dovetail.engine.state.core import Engine
from dovetail.model import Allocation, Cluster, Job, JobId, Record, Seconds, State, Usage
from dovetail.model.hostlist import compress_names
from dovetail.model.reservation import avoids_of
from dovetail.model.strangers import barred_devices, device_kinds
from dovetail.model.templates import DEVICE, render_template
from dovetail.running.ledger import Entry
from dovetail.service.elsewhere import Elsewhere
from dovetail.service.forecast import UNKNOWN_SPAN, Forecast
from dovetail.service.reservations import reserved_words
from dovetail.service.terminals import command_within
from dovetail.starts.calibration import CONFIDENCE

Row = dict[str, Any]
"""A job; times are seconds since the epoch."""

MOST_COMMAND = 500
"""Characters of a command in a row."""
WAITS = "waits for its turn"
_OWN_COPY = re.compile(r"/scripts/[0-9]+$")


def row_of_record(
    record: Record, engine: Engine, epoch: Seconds, forecast: Forecast, elsewhere: Elsewhere
) -> Row:
    """A job that is in memory."""
    job = record.job
    running = engine.running.get(job.id) or engine.ending.get(job.id)
    allocation = record.allocation
    cluster = engine.cluster
    start = None if record.start is None else epoch + record.start
    predicted_start, predicted_end, by = None, None, None
    span: Sequence[Seconds | None] = UNKNOWN_SPAN
    if record.end is None:
        predicted_start, predicted_end = forecast.predicted_times(job.id)
        span = forecast.predicted_spans(job.id)
    if running is not None and start is not None:
        predicted_start = None
        span = (None, None, *span[2:])
        predicted_end = None if running.predicted is None else start + running.predicted
        upper = None if record.predicted is None else record.predicted.upper
        by = start + upper if upper is not None and isfinite(upper) else None
    reason = ""
    if record.end is not None:
        reason = reason_of_end(record.state, record.detail)
    elif running is None:
        reason = engine.held.get(job.id) or _reserved_for_others(job, engine, epoch)
        reason = reason or record.wait_reason or _waits_for(job, engine, elsewhere)
    return {
        **_of_job(job),
        "state": str(record.state),
        "submit": epoch + job.submit_time,
        "start": start,
        "end": None if record.end is None else epoch + record.end,
        "predicted_start": predicted_start,
        "predicted_end": predicted_end,
        "predicted_end_by": by,
        **_of_span(span),
        "predicted": None if record.predicted is None else record.predicted.expected,
        "reason": reason,
        "detail": record.detail,
        "implementation": None if record.implementation is None else record.implementation.name,
        "nodes": "" if allocation is None else compress_names(allocation.node_names(cluster)),
        "devices": [] if allocation is None else allocation.device_names(cluster),
        "cores": _cores_by_node(allocation, cluster),
        "exit_code": record.exit_code,
        "attempts": record.attempts,
    }


def device_use(usage: Usage | None) -> Row:
    """The peak in bytes on one of its devices, and the part of their time used; ``None``: not known."""
    return {
        "gpu_memory": None if usage is None else usage.gpu_memory,
        "gpu_use": None if usage is None else usage.gpu_use,
    }


def foretold_row(job: JobId, foreseen: Mapping[str, Any]) -> Row:
    """A job that was not submitted, as the process beside has foreseen it."""
    start, end = foreseen["jobs"].get(job, (None, None))
    span = foreseen.get("spans", {}).get(job) or UNKNOWN_SPAN
    draws = foreseen.get("draws", {}).get(job, [])
    return {"id": job, "predicted_start": start, "predicted_end": end, **_of_span(span), "draws": draws}


def _of_span(span: Sequence[Seconds | None]) -> Row:
    """Between when and when, with the confidence; ``None`` where it is not known."""
    names = ("predicted_start_low", "predicted_start_high", "predicted_end_low", "predicted_end_high")
    known = any(time is not None for time in span)
    return {**dict(zip(names, span, strict=True)), "confidence": CONFIDENCE if known else None}


def _cores_by_node(allocation: Allocation | None, cluster: Cluster) -> dict[str, Sequence[int]]:
    """Core ids by node; of an allocation on a cluster that was larger, those of nodes that are there."""
    if allocation is None:
        return {}
    nodes = cluster.nodes
    found = {nodes[n].name: allocation.cores_on(n, nodes[n]) for n in allocation.nodes if n < len(nodes)}
    return {name: cores for name, cores in found.items() if cores}


def row_of_entry(entry: Entry, cluster: Cluster) -> Row:
    """A job that is only in the ledger."""
    ended = entry.state not in (State.PENDING, State.RUNNING)
    return {
        **_of_job(entry.job),
        "state": str(entry.state),
        "submit": entry.submitted,
        "start": entry.started,
        "end": entry.ended,
        "predicted_start": None,
        "predicted_end": None,
        "predicted_end_by": None,
        **_of_span(UNKNOWN_SPAN),
        "predicted": entry.predicted,
        "reason": reason_of_end(entry.state, entry.detail) if ended else entry.held,
        "detail": entry.detail,
        "implementation": entry.implementation,
        "nodes": entry.nodes,
        "devices": list(entry.devices),
        "cores": _cores_by_node(entry.allocation, cluster),
        "exit_code": entry.exit_code,
        "attempts": entry.attempt,
        **device_use(None),  # the history has it, the ledger has not
    }


def _of_job(job: Job) -> Row:
    return {
        "id": job.id,
        "name": job.name or job.app.name,
        "app": job.app.name,
        "command": command_words(job),
        "user": job.user,
        "priority": job.priority,
        "partition": job.queue,
        "walltime": job.walltime,
        "begin": job.begin,
        "depends": [str(one) for one in job.depends],
        "inputs": dict(job.inputs),
        "options": dict(job.options),
    }


def command_words(job: Job) -> str:
    """What runs, as one line: the command of its first way, with its inputs filled in as far as they go.

    Empty for a batch script, whose path is that of the service's own copy: its job's name stands for it.
    """
    command = next((one.command for one in job.app.implementations if one.command is not None), None)
    if command is None:
        return ""
    try:
        argv = command_within(command.argv)
        words = [render_template(word, {**job.inputs, DEVICE: "{" + DEVICE + "}"}) for word in argv]
    except (KeyError, ValueError):  # an input that is not known here
        words = list(command_within(command.argv))
    if _OWN_COPY.search(words[0]):
        return ""
    return shlex.join(words)[:MOST_COMMAND]


def _reserved_for_others(job: Job, engine: Engine, epoch: Seconds) -> str:
    """The reservations that a waiting job stays off, where it could start now but for them."""
    if not avoids_of(job):
        return ""
    free = engine.view.free()
    requests = [choice.request for choice in job.choices]
    if any(free.count(request) >= request.nodes for request in requests):
        return ""
    if not any(free.count(replace(request, avoids=0)) >= request.nodes for request in requests):
        return ""  # these devices are in use: that is what it waits for
    return f"waits: {reserved_words(job, engine.reservations, engine.cluster, epoch)}"


def _waits_for(job: Job, engine: Engine, elsewhere: Elsewhere) -> str:
    """Devices that are left alone; memory, where all else of its request is free; else others, its turn."""
    kinds = device_kinds(choice.implementation.kind for choice in job.choices)
    barred = barred_devices(engine.running.values(), engine.cluster, kinds) if kinds else ""
    if barred:
        return f"waits: {barred}"
    requests = [choice.request for choice in job.choices]
    if not any(request.memory for request in requests):
        return elsewhere.reason() or WAITS
    free = engine.view.free()
    if any(free.count(request) >= request.nodes for request in requests):
        return WAITS
    lacks = any(free.count(replace(request, memory=0)) >= request.nodes for request in requests)
    return "waits for memory" if lacks else elsewhere.reason() or WAITS


def reason_of_end(state: State, detail: str) -> str:
    """A word for why it ended so; `detail` has more."""
    if state is State.OUT_OF_MEMORY:
        return "memory"
    if state is State.COMPLETED:
        return ""
    return detail.partition(";")[0]
