"""The invariant checker: a schedule is proven, not trusted.

`check_schedule` rebuilds, from the records alone, what every core, device and byte of memory was doing
at every instant, without the engine's own book-keeping.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

from dovetail.errors import InvariantError
from dovetail.model import (
    CPU,
    FRACTION_UNITS,
    Allocation,
    Cluster,
    JobId,
    Node,
    Part,
    Record,
    Request,
    Result,
    Seconds,
    State,
    Workload,
    bit_indices,
)
from dovetail.testing.operated import check_operated

__all__ = ["check_schedule"]

RELATIVE = 1e-9
_Changes = dict[tuple[int, str, int], list[tuple[Seconds, int, int, JobId]]]
"""By node, kind and number of a resource: time, 0 for an end, amount, job."""


def check_schedule(
    result: Result,
    workload: Workload,
    *,
    promises: bool = True,
    work: bool = True,
) -> None:
    """Raise `InvariantError` unless the schedule keeps every rule.

    Capacity of every core, device and byte at every instant; each job at most once and all accounted
    for; nothing before its submission; gang members together and of the requested size; work done equals
    the requested work (``work``; for isolated rates); promises kept, but for those broken by overruns
    (``promises``). O(events · log events) in the size of the expanded schedule.
    """
    _check_jobs(result, workload)
    for record in result.records:
        _check_gang(record, result.cluster)
        if work and result.operated is None:
            _check_work(record, result, workload)
    _check_capacity(result)
    if result.operated is not None:
        check_operated(result, workload, work=work)
    if promises:
        # A job that runs on beyond its walltime can break a promise without any fault of the policy.
        kept = result.promises_broken - result.broken_by_overrun
        if kept:
            raise InvariantError(f"{kept} promises were broken, and no overrun explains them")


def _check_jobs(result: Result, workload: Workload) -> None:
    seen = [record.job.id for record in result.records]
    if len(set(seen)) != len(seen):
        raise InvariantError("a job appears twice in the records")
    rejected = {r.id for r in result.rejected}
    missing = {job.id for job in workload.jobs} - set(seen) - rejected
    if missing:
        raise InvariantError(f"jobs without a record: {', '.join(sorted(missing)[:5])}")
    for record in result.records:
        job = record.job
        if record.state in (State.PENDING, State.RUNNING):
            raise InvariantError(f"job {job.id} is {record.state} at the end")
        if record.start is None:
            if record.state is not State.CANCELLED:
                raise InvariantError(f"job {job.id} is {record.state} but never started")
            continue
        if record.start < job.submit_time:
            raise InvariantError(
                f"job {job.id} starts at {record.start}, before its submission at {job.submit_time}"
            )
        if record.end is None or record.end < record.start:
            raise InvariantError(f"job {job.id} ends at {record.end}, before its start at {record.start}")


def _is_offered(request: Request, choice: Request) -> bool:
    """Whether a request is that of a choice, or the same on fewer models of its devices."""
    # A class of devices that is suspended for the app leaves the others, while the job runs; its record keeps
    # the whole choice.
    narrowed = not choice.models or set(request.models) <= set(choice.models)
    return narrowed and replace(request, models=choice.models) == choice


def _check_gang(record: Record, cluster: Cluster) -> None:
    allocation, implementation = record.allocation, record.implementation
    if allocation is None or implementation is None:
        return
    job, request = record.job, allocation.request
    if not any(c.implementation is implementation and _is_offered(request, c.request) for c in job.choices):
        raise InvariantError(f"job {job.id} runs in a way that it does not offer")
    nodes = [n for part in allocation.parts for n in bit_indices(part.nodes)]
    if len(nodes) != request.nodes or len(set(nodes)) != len(nodes):
        raise InvariantError(f"job {job.id} runs on {len(nodes)} nodes and needs {request.nodes}")
    for part in allocation.parts:
        for n in bit_indices(part.nodes):
            node = cluster.nodes[n]
            # -1 and -2 stand for the whole pool and for the CPUs beside devices, which each node has its own
            # number of.
            cpus = {-1: node.cpus, -2: node.host_cpus}.get(request.cpus, request.cpus)
            cores = allocation.cores_on(n, node)
            if part.cpus != cpus or len(set(cores)) != cpus or not set(cores) <= set(node.cores):
                raise InvariantError(f"job {job.id} holds cores {cores} of {node.name} and needs {cpus} CPUs")
            if part.memory != request.memory:
                raise InvariantError(f"job {job.id} holds {part.memory} bytes and needs {request.memory}")
            held = [node.devices[d].kind for d in part.devices]
            held += [
                cluster.nodes[donor.donor].devices[donor.device].kind
                for donor in allocation.donors
                if donor.client == n
            ]
            requested = [kind for kind, count in request.devices for _ in range(max(1, int(count)))]
            if sorted(held) != sorted(requested):
                raise InvariantError(f"job {job.id} holds {held} on {node.name} and needs {requested}")
            if request.partition and request.partition not in node.partitions:
                raise InvariantError(f"job {job.id} runs outside of its partition, on {node.name}")
            if request.models and any(node.devices[d].model not in request.models for d in part.devices):
                raise InvariantError(f"job {job.id} holds a device model that it does not allow")
            _check_devices(job.id, part, request, node, borrows=bool(allocation.donors))


def _check_devices(job: JobId, part: Part, request: Request, node: Node, *, borrows: bool) -> None:
    """Each device is large enough, and gives what was requested: a part, memory, or all of it."""
    least = min((count for _, count in request.devices), default=1.0)
    for device in (node.devices[d] for d in part.devices):
        if device.memory is not None and device.memory < max(request.gpu_memory, request.gpu_least):
            raise InvariantError(f"job {job} holds {node.name}/{device.name}, which has too little memory")
        units = FRACTION_UNITS if least >= 1 else max(1, round(least * FRACTION_UNITS))
        # Where memory is requested of a device, it is divided by memory, and units are not counted.
        if least >= 1 and request.gpu_memory and device.memory is not None and not borrows:
            units = 0
        if request.sharing:
            units = (
                FRACTION_UNITS
                if device.memory is not None and not request.gpu_memory
                else FRACTION_UNITS // 2
            )
        if device.exclusive:
            units = FRACTION_UNITS  # it is not shared, however little is requested
        memory = 0 if borrows else request.gpu_memory
        if (part.units, part.gpu_memory) != (units, memory):
            held = f"{part.units} units and {part.gpu_memory} bytes of {node.name}/{device.name}"
            raise InvariantError(f"job {job} holds {held} and needs {units} and {memory}")


def _check_work(record: Record, result: Result, workload: Workload) -> None:
    if record.allocation is None or record.implementation is None:
        return
    if record.state not in (State.COMPLETED, State.TIMEOUT) or result.live:
        return
    assert record.start is not None
    assert record.end is not None
    requested = workload.truth.seconds(record.job, record.implementation, record.allocation.request)
    if requested is None:
        raise InvariantError(f"job {record.job.id} ran without a true time")
    if any(span.state is None for span in record.earlier):
        return  # it moved while it ran: only its rate model knows how long it stood still
    done = record.end - record.start
    if record.state is State.TIMEOUT:
        if done > requested:
            raise InvariantError(f"job {record.job.id} was killed after {done} s of {requested} s")
        return
    if abs(done - requested) > RELATIVE * max(1.0, record.end):
        raise InvariantError(f"job {record.job.id} ran {done} s and needed {requested} s")


def _check_capacity(result: Result) -> None:
    """Sweep over all resources: ends before starts at one instant, zero-length jobs hold nothing."""
    cluster = result.cluster
    changes: _Changes = defaultdict(list)
    for record in result.records:
        for start, end, allocation in _held_places(record):
            _add_use(changes, record.job.id, start, end, allocation, cluster)
    for (n, what, number), events in changes.items():
        node = cluster.nodes[n]
        if what == "device memory":
            limit = node.devices[number].memory or 0
        else:
            limit = {CPU: 1, "device": FRACTION_UNITS, "memory": node.memory or 0}[what]
        events.sort(key=lambda event: event[:2])
        used = 0
        for time, _, amount, job in events:
            used += amount
            if used > limit:
                name = cluster.nodes[n].name
                raise InvariantError(
                    f"{what} {number} of {name} holds {used} of {limit} at {time} (job {job})"
                )


def _held_places(record: Record) -> list[tuple[Seconds, Seconds, Allocation]]:
    """What a job held and when: its earlier attempts and places, then the last."""
    spans = [(span.start, span.end, span.allocation) for span in record.earlier]
    if record.allocation is not None and record.start is not None and record.end is not None:
        start = record.start if record.since is None else record.since
        spans.append((start, record.end, record.allocation))
    for (_, before, _), (after, _, _) in pairwise(spans):
        if after < before:
            raise InvariantError(f"job {record.job.id} is in two places at {after}")
    return spans


def _add_use(
    changes: _Changes, job: JobId, start: Seconds, end: Seconds, allocation: Allocation, cluster: Cluster
) -> None:
    if end <= start:
        return

    def note_use(key: tuple[int, str, int], amount: int) -> None:
        changes[key].append((start, 1, amount, job))
        changes[key].append((end, 0, -amount, job))

    for part in allocation.parts:
        for n in bit_indices(part.nodes):
            for core in allocation.cores_on(n, cluster.nodes[n]):
                note_use((n, CPU, core), 1)
            for device in part.devices:
                note_use((n, "device", device), part.units)
                size = cluster.nodes[n].devices[device].memory
                if size is not None:
                    share = part.gpu_memory or size * part.units // FRACTION_UNITS
                    note_use((n, "device memory", device), share)
            if part.memory and cluster.nodes[n].memory is not None:
                note_use((n, "memory", 0), part.memory)
    # A lent device is held whole, with all of its memory, whatever the request.
    for donor in allocation.donors:
        note_use((donor.donor, "device", donor.device), FRACTION_UNITS)
        size = cluster.nodes[donor.donor].devices[donor.device].memory
        if size is not None:
            note_use((donor.donor, "device memory", donor.device), size)
