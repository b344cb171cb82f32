"""What the owner of a waiting job could request instead: one thing changed at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dovetail.driver.prepare import Validator
from dovetail.model import Choice, Cluster, Job, Rejected, Request
from dovetail.model.batch_options import options_for, partition_of

PARTS = (2, 4)
"""By which a walltime is divided."""
MOST = 12
"""Other requests of a job that are rolled out."""
Change = Mapping[str, str | float | int]
"""What is requested: ``on``, ``walltime`` (seconds), ``partition``, ``nodes``, ``memory`` (bytes)."""


def other_requests(job: Job, cluster: Cluster) -> list[tuple[Change, Job]]:
    """Other requests that its owner may make of this job, what costs least first.

    Only what the job has been given: implementations and node counts that it has, half of its memory, other
    partitions where it is in some. Those that no node could run are left out.
    """
    validator = Validator(cluster)
    found: list[tuple[Change, Job]] = []
    for change, other in _changed(job, cluster):
        admitted = validator.admit_job(other)
        # A way that no node can run was removed from the job: it would be another change than is shown.
        if not isinstance(admitted, Rejected) and len(admitted.choices) == len(other.choices):
            found.append((change, admitted))
    return found[:MOST]


def _changed(job: Job, cluster: Cluster) -> Iterator[tuple[Change, Job]]:
    names = dict.fromkeys(one.implementation.name for one in job.choices)
    if len(names) > 1:
        for name in names:
            ways = tuple(one for one in job.choices if one.implementation.name == name)
            yield {"on": name}, replace(job, choices=ways)
    if job.walltime is not None:
        for part in PARTS:
            yield {"walltime": job.walltime / part}, replace(job, walltime=job.walltime / part)
    for partition in _other_partitions(job, cluster):
        ways = tuple(_requesting(one, replace(one.request, partition=partition)) for one in job.choices)
        yield {"partition": partition}, replace(job, choices=ways)
    counts = sorted({one.request.nodes for one in job.choices})
    if len(counts) > 1:
        for count in counts:
            ways = tuple(one for one in job.choices if one.request.nodes == count)
            yield {"nodes": count}, replace(job, choices=ways, nodes=count)
    elif counts and counts[0] > 1:
        half = -(-counts[0] // 2)
        ways = tuple(_requesting(one, one.request.on(half)) for one in job.choices)
        yield {"nodes": half}, replace(job, choices=ways, nodes=half)
    if any(one.request.memory > 1 for one in job.choices) and not job.sizing.auto:
        ways = tuple(
            _requesting(one, replace(one.request, memory=one.request.memory // 2)) for one in job.choices
        )
        largest = max(one.request.memory for one in job.choices)
        yield {"memory": largest // 2}, replace(job, choices=ways)


def _requesting(choice: Choice, request: Request) -> Choice:
    return replace(choice, request=request)


def _other_partitions(job: Job, cluster: Cluster) -> list[str]:
    """Partitions in which it may not start now; none where a batch system's options name its own."""
    every = dict.fromkeys(name for node in cluster.nodes for name in node.partitions)
    if any(partition_of(options_for(job.batch_options, one.implementation)) for one in job.choices):
        return []
    named = {name for one in job.choices for name in one.request.partition.split(",") if name}
    usable = named or set(every) - cluster.closed
    return [name for name in every if name not in usable]
