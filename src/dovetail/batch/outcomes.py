"""What became of a batch job: where it has started, how it has ended, by the batch system and by its node.

The batch system gives the state of a job; the record of its node (`dovetail.batch.task`) holds more, and
counts first. Neither may be there: a node can be lost, and a batch system forgets.
"""

from __future__ import annotations

import time
from dataclasses import replace

from dovetail.batch.folder import HandedOverStart, QueueFolder, RunRecord
from dovetail.batch.system import BatchStatus, JobFacts, Phase
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
from dovetail.model.hostlist import expand_hostlist
from dovetail.process.spawn_log import end_event

MISSED = 3
"""Looks at which a job may be missing before it is given up."""
MEMORY_KILL = ("emory limit", "oom-kill", "oom_kill")
"""Words in the log of a batch job whose memory was the reason of its end."""


def start_of(
    cluster: Cluster, handed: HandedOverStart, seen: BatchStatus | None, record: RunRecord
) -> Started:
    """Where it runs, in terms of ``cluster``."""
    request, began = handed.submit.request, record.start["at"]
    nodes = find_nodes(cluster, record.start["nodes"] or (seen.nodes if seen else ""))
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
    title: str,
    files: QueueFolder,
    handed: HandedOverStart,
    seen: BatchStatus | None,
    record: RunRecord | None,
) -> Ended | None:
    """How it has ended, by the batch system ``title`` and its node; ``None`` while that is not known."""
    state = None if seen is None else seen.end
    if seen is not None and state is None and seen.phase is not Phase.ENDING:
        return None
    if record is not None and record.end is not None:
        intent = {"job": handed.job, "attempt": handed.attempt, "files": handed.files}
        found = replace(end_event(intent, record.end), attempt=None)
        if found.state is State.COMPLETED:
            return found
        if seen is not None and state is None:
            # The command failed while the system is still ending the job: whether it was cancelled, or ran
            # into its limit, is known only when the system shows its final state.
            return None
        if state is None and handed.stop:
            state = State.CANCELLED
        if state in (None, State.COMPLETED, State.FAILED):
            return found
        word = f"{title}: {seen.word if seen else state.value}"
        return replace(found, state=_stopped_or(handed, state), detail=f"{word}; {found.detail}")
    if seen is not None and state is None:
        return None
    return _end_without_record(title, files, handed, seen, state, record)


def _end_without_record(
    title: str,
    files: QueueFolder,
    handed: HandedOverStart,
    seen: BatchStatus | None,
    state: State | None,
    record: RunRecord | None,
) -> Ended | None:
    """The same of a job whose node has written down no end: the batch system's word counts."""
    if state is None or state is State.COMPLETED:
        # On a shared file system what the node has written may become visible some looks later.
        handed.missed += 1
        if handed.missed < MISSED:
            return None
        files.fence(handed)
        why = f"{title} no longer knows it, and its node has left no record of how it ended"
        return Ended(handed.job, State.NODE_FAIL, None, why)
    files.fence(handed)
    at = time.time()
    began = at if record is None else record.start["at"]
    word = f"{title}: {seen.word if seen else ''}"
    log = files.read_log(handed.batch) if state is State.FAILED else []
    killed = next((line for line in log if any(words in line for words in MEMORY_KILL)), "")
    if killed:  # an accounting that polls calls this a failure; a cgroup's kill has its own state
        state = State.OUT_OF_MEMORY
    detail = f"{word}: {killed or log[-1]}" if log else word
    return Ended(handed.job, _stopped_or(handed, state), None, detail, Usage(), began, at)


def _stopped_or(handed: HandedOverStart, state: State) -> State:
    """The state in which a stop was to end it, if that is why it ended."""
    return State(handed.stop) if handed.stop and state is State.CANCELLED else state


def start_of_script(seen: BatchStatus | None, facts: JobFacts | None) -> RunRecord | None:
    """When and where a user's batch script began, by the batch system; ``None`` if it has not."""
    if seen is None or not seen.nodes:
        return None
    at = seen.start if facts is None or facts.start is None else facts.start
    return RunRecord(
        {"at": time.time() if at is None else at, "nodes": seen.nodes, "node": "", "visible": {}}, None
    )


def end_of_script(
    title: str, handed: HandedOverStart, seen: BatchStatus | None, facts: JobFacts | None
) -> Ended | None:
    """How a user's batch script has ended, by the batch system alone; ``None`` while it has not."""
    if seen is None or seen.end is None:
        return None
    state, code = seen.end, None if facts is None else facts.exit_code
    if state is State.COMPLETED and code is None:
        code = 0
    at = time.time() if facts is None or facts.end is None else facts.end
    began = (None if facts is None else facts.start) or seen.start
    detail = f"{title}: {seen.word}"
    if code is not None and code < 0:
        detail += f", signal {-code}"
    if state is State.COMPLETED or (state is State.FAILED and code is not None and code > 0):
        detail = ""
    ran = bool(seen.nodes)
    return Ended(handed.job, _stopped_or(handed, state), code, detail, Usage(), began, at, ran=ran)


def find_nodes(cluster: Cluster, nodes: str) -> list[int]:
    """The nodes of a hostlist as the cluster numbers them; those that it does not have are left out."""
    return [
        cluster.index_of[name]
        for name in (expand_hostlist(nodes) if nodes else ())
        if name in cluster.index_of
    ]
