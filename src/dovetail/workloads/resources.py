"""How much of a machine jobs ask for: CPUs, or GPUs where any job uses them."""

from __future__ import annotations

from collections.abc import Iterable

from dovetail.model import HOST_CPUS, WHOLE_POOL, Cluster, Job, Request, Workload
from dovetail.workloads.fitting import Fitting

__all__ = ["asked_request", "counts", "cpus_of", "offered_load", "span", "uses_devices"]


def asked_request(job: Job) -> Request:
    """The request of the job's first choice at the node count that it asked for."""
    return next((c.request for c in job.choices if c.request.nodes == job.nodes), job.choices[0].request)


def uses_devices(jobs: Iterable[Job]) -> bool:
    """Whether any job, as asked, uses a device that is not a CPU."""
    return any(request.devices for request in {asked_request(job) for job in jobs})


def cpus_of(request: Request, cluster: Cluster | None) -> int | None:
    """CPUs on all nodes together; ``None`` for a whole pool whose size is not known."""
    if request.cpus not in (WHOLE_POOL, HOST_CPUS):
        return request.nodes * request.cpus
    if request.cpus == HOST_CPUS:
        groups = cluster.groups if cluster else ()
        return request.nodes * max((group.node.host_cpus for group in groups), default=0)
    if cluster is None:
        return None
    alike = [group.node for group in cluster.groups]
    fitting = [node.cpus for node in alike if Fitting(Cluster((node,))).count(request)]
    return request.nodes * min(fitting) if fitting else None


def counts(workload: Workload, cluster: Cluster | None, *, devices: bool) -> list[float | None]:
    """Resources that each job asks for: devices, or CPUs. O(jobs)."""
    known: dict[Request, float | None] = {}
    found: list[float | None] = []
    for job in workload.jobs:
        request = asked_request(job)
        if request not in known:
            known[request] = request.nodes * request.gpus if devices else cpus_of(request, cluster)
        found.append(known[request])
    return found


def span(workload: Workload) -> float:
    """Seconds from the first to the last submission; 0 without jobs."""
    submits = [job.submit_time for job in workload.jobs]
    return max(submits) - min(submits) if submits else 0.0


def offered_load(workload: Workload, cluster: Cluster, *, devices: bool | None = None) -> float | None:
    """Resources times true time, over capacity times the span of submit times.

    Counted in GPUs where jobs use GPUs, else in CPUs, unless ``devices`` says. ``None`` without capacity,
    span, or true times. O(jobs).
    """
    if devices is None:
        devices = uses_devices(workload.jobs)
    capacity = cluster.total_devices if devices else cluster.total_cpus
    work = 0.0
    for job, count in zip(workload.jobs, counts(workload, cluster, devices=devices), strict=True):
        choice = next((c for c in job.choices if c.request.nodes == job.nodes), job.choices[0])
        seconds = workload.truth.seconds(job, choice.implementation, choice.request)
        if count is None or seconds is None:
            return None
        work += count * seconds
    length = span(workload)
    return work / (capacity * length) if capacity and length > 0 else None
