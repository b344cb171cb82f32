"""What became of a batch job of Slurm: where it has started, how it has ended, from Slurm and from its node.

Slurm gives the state of a job; the record of its node (`dovetail_slurm.queue_task`) holds more, and is
looked at first. Neither may be there: a node can be lost, and Slurm forgets.
"""

from __future__ import annotations

import time
from dataclasses import replace

from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    Allocation,
    Cluster,
    DeviceClass,
    Ended,
    Part,
    Started,
    State,
    Usage,
)
from dovetail.process.spawn_log import ended
from dovetail_slurm.batch import BatchStatus, JobFacts, node_indices
from dovetail_slurm.queue_folder import HandedOverStart, QueueFolder, RunRecord

MISSED = 3
"""Looks at which a job may be missing before it is given up."""
TERMINAL = {
    "CANCELLED": State.CANCELLED,
    "DEADLINE": State.CANCELLED,
    "REVOKED": State.CANCELLED,
    "TIMEOUT": State.TIMEOUT,
    "NODE_FAIL": State.NODE_FAIL,
    "BOOT_FAIL": State.NODE_FAIL,
    "PREEMPTED": State.NODE_FAIL,
    "OUT_OF_MEMORY": State.OUT_OF_MEMORY,
    "FAILED": State.FAILED,
    "COMPLETED": State.COMPLETED,
}
AGAIN = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT")
"""States of a job that Slurm has put back into its queue after it had run."""
MEMORY_KILL = ("emory limit", "oom-kill", "oom_kill")
"""slurmstepd's words where a job's memory was the reason of its end."""
RUNS = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


def start_of(
    cluster: Cluster, handed: HandedOverStart, seen: BatchStatus | None, record: RunRecord
) -> Started:
    """Where it runs, in terms of ``cluster``."""
    request, began = handed.submit.request, record.start["at"]
    nodes = node_indices(cluster, record.start["nodes"] or (seen.nodes if seen else ""))
    if len(nodes) != request.nodes:
        return Started(handed.job, started_at=began)
    parts: list[Part] = []
    for n in nodes:
        node = cluster.nodes[n]
        cpus = {WHOLE_POOL: node.cpus, HOST_CPUS: node.host_cpus}.get(request.cpus, request.cpus)
        devices: list[int] = []
        for kind, count in request.devices:
            numbers = [i for i, d in enumerate(node.devices) if d.kind == kind]
            visible = _visible_numbers(record) if node.name == record.start["node"] else []
            held = [i for i in numbers if node.devices[i].local in visible] or numbers
            devices += held[: max(1, int(count))]
        parts.append(Part(1 << n, cpus, tuple(devices), memory=request.memory))
    first = cluster.nodes[nodes[0]]
    models = [first.devices[d].model for d in parts[0].devices] or [first.cpu_model]
    device = DeviceClass(handed.kind, models[0])
    return Started(handed.job, Allocation(request, tuple(parts)), device, started_at=began)


def _visible_numbers(record: RunRecord) -> list[int]:
    words = [w for text in record.start["visible"].values() for w in text.split(",")]
    return [int(word) for word in words if word.isdecimal()]


def end_of(
    files: QueueFolder, handed: HandedOverStart, seen: BatchStatus | None, record: RunRecord | None
) -> Ended | None:
    """How it has ended, by Slurm and its node; ``None`` while it has not, or it is not known yet."""
    state = None if seen is None else TERMINAL.get(seen.state)
    if seen is not None and state is None and seen.state != "COMPLETING":
        return None
    if record is not None and record.end is not None:
        intent = {"job": handed.job, "attempt": handed.attempt, "files": handed.files}
        found = replace(ended(intent, record.end), attempt=None)
        if found.state is State.COMPLETED:
            return found
        if seen is not None and state is None:
            return None  # Slurm is about to show whether it was cancelled
        if state is None and handed.stop:
            state = State.CANCELLED
        if state in (None, State.COMPLETED, State.FAILED):
            return found
        state_words = f"Slurm: {seen.state if seen else state.value}"
        return replace(found, state=_asked_or(handed, state), detail=f"{state_words}; {found.detail}")
    if seen is not None and state is None:
        return None
    return _wordless_end(files, handed, seen, state, record)


def _wordless_end(
    files: QueueFolder,
    handed: HandedOverStart,
    seen: BatchStatus | None,
    state: State | None,
    record: RunRecord | None,
) -> Ended | None:
    """The same of a job whose node has written down no end: Slurm's word counts."""
    if state is None or state is State.COMPLETED:
        handed.missed += 1  # what its node has written may not be visible here yet
        if handed.missed < MISSED:
            return None
        files.fence(handed)
        why = "Slurm no longer knows it, and it has left no word of how it ended"
        return Ended(handed.job, State.NODE_FAIL, None, why)
    files.fence(handed)
    at = time.time()
    began = at if record is None else record.start["at"]
    state_words = f"Slurm: {seen.state if seen else ''}"
    log = files.said(handed.batch) if state is State.FAILED else []
    killed = next((line for line in log if any(words in line for words in MEMORY_KILL)), "")
    if killed:  # by Slurm's accounting, which calls that a failure; by a cgroup it has its own state
        state = State.OUT_OF_MEMORY
    detail = f"{state_words}: {killed or log[-1]}" if log else state_words
    return Ended(handed.job, _asked_or(handed, state), None, detail, Usage(), began, at)


def _asked_or(handed: HandedOverStart, state: State) -> State:
    """The state that its stop named, if that is why it ended."""
    return State(handed.stop) if handed.stop and state is State.CANCELLED else state


def script_start(seen: BatchStatus | None, facts: JobFacts | None) -> RunRecord | None:
    """When and where a user's batch script began, by Slurm's word; ``None`` if it has not."""
    if seen is None or not seen.nodes:
        return None
    at = seen.start if facts is None or facts.start is None else facts.start
    return RunRecord(
        {"at": time.time() if at is None else at, "nodes": seen.nodes, "node": "", "visible": {}}, None
    )


def end_of_script(handed: HandedOverStart, seen: BatchStatus | None, facts: JobFacts | None) -> Ended | None:
    """How a user's batch script has ended, by Slurm's word alone; ``None`` while it has not."""
    state = None if seen is None else TERMINAL.get(seen.state)
    if seen is None or state is None:
        return None
    code = None if facts is None else facts.exit_code
    if state is State.COMPLETED and code is None:
        code = 0
    at = time.time() if facts is None or facts.end is None else facts.end
    began = (None if facts is None else facts.start) or seen.start
    detail = f"Slurm: {seen.state}"
    if code is not None and code < 0:
        detail += f", signal {-code}"
    if state is State.COMPLETED or (state is State.FAILED and code is not None and code > 0):
        detail = ""
    ran = bool(seen.nodes)
    return Ended(handed.job, _asked_or(handed, state), code, detail, Usage(), began, at, ran=ran)
