"""Requests of jobs against a machine: whether it could ever run them, and how much of it they take."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from dovetail.model import CPU, HOST_CPUS, WHOLE_POOL, Cluster, Job, Node, Request, Workload, fits_node


class Fitting:
    """How many nodes of a cluster, all idle, could give one node's share of a request.

    Without a cluster everything fits. ``partitions`` are those that its nodes name. Nodes are grouped by
    their shape, so a request costs O(shapes) once and O(1) after that.
    """

    def __init__(self, cluster: Cluster | None) -> None:
        shapes: Counter[tuple[object, ...]] = Counter()
        example: dict[tuple[object, ...], Node] = {}
        for group in cluster.groups if cluster is not None else ():
            node = group.node
            # All that decides whether a request fits, and nothing else: a cluster of thousands has a few
            # shapes.
            shape = (len(node.cores), node.devices, node.memory, node.host_cpus, node.partitions)
            shapes[shape] += group.count
            example.setdefault(shape, node)
        self._shapes = [(example[shape], count) for shape, count in shapes.items()]
        self._known: dict[Request, str | None] = {}
        self._unlimited = cluster is None
        self.partitions = frozenset(p for node, _ in self._shapes for p in node.partitions)
        self._models = {d.model for node, _ in self._shapes for d in node.devices if d.model}

    def known_models(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The requested device models; none where the cluster does not name its models at all."""
        # A cluster file that names no models means any device of the kind.
        return wanted if self._unlimited or self._models else ()

    def count(self, request: Request) -> int:
        """Number of nodes that could give one node's share."""
        return sum(count for node, count in self._shapes if fits_node(request, node))

    def refusal_reason(self, request: Request) -> str | None:
        """Why the request can never run here, in a few words; ``None`` if it can."""
        if self._unlimited:
            return None
        if request not in self._known:
            fitting = self.count(request)
            self._known[request] = (
                None
                if fitting >= request.nodes
                else f"requests {_describe_request(request)}; the machine has {fitting} such"
            )
        return self._known[request]


def _describe_request(request: Request) -> str:
    share = []
    if request.cpus == WHOLE_POOL:
        share.append("all CPUs")
    elif request.cpus > 0:
        share.append(f"{request.cpus} {CPU}")
    share += [f"{count:g} {kind}" for kind, count in request.devices]
    if request.models:
        share.append("model " + " or ".join(request.models))
    if request.memory:
        share.append(f"{request.memory} bytes")
    nodes = "1 node" if request.nodes == 1 else f"{request.nodes} nodes"
    if request.partition:
        nodes += f" of {request.partition}"
    return f"{nodes} with {' and '.join(share) or 'nothing'}"


def asked_request(job: Job) -> Request:
    """The request of the job's first choice at its requested node count."""
    return next((c.request for c in job.choices if c.request.nodes == job.nodes), job.choices[0].request)


def uses_devices(jobs: Iterable[Job]) -> bool:
    """Whether any job, as submitted, uses a device that is not a CPU."""
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
    # The least of the nodes that fit: the job may get any of them.
    return request.nodes * min(fitting) if fitting else None


def requested_counts(workload: Workload, cluster: Cluster | None, *, devices: bool) -> list[float | None]:
    """Resources that each job requests: devices, or CPUs. O(jobs)."""
    known: dict[Request, float | None] = {}
    found: list[float | None] = []
    for job in workload.jobs:
        request = asked_request(job)
        if request not in known:
            known[request] = request.nodes * request.gpus if devices else cpus_of(request, cluster)
        found.append(known[request])
    return found


def submission_span(workload: Workload) -> float:
    """Seconds from the first to the last submission; 0 without jobs."""
    submits = [job.submit_time for job in workload.jobs]
    return max(submits) - min(submits) if submits else 0.0


def offered_load(workload: Workload, cluster: Cluster, *, devices: bool | None = None) -> float | None:
    """Resources times true time, over capacity times the span of submit times.

    Counted in GPUs where jobs use GPUs, else in CPUs, unless ``devices`` chooses. ``None`` without capacity,
    span, or true times. O(jobs).
    """
    if devices is None:
        devices = uses_devices(workload.jobs)
    capacity = cluster.total_devices if devices else cluster.total_cpus
    work = 0.0
    for job, count in zip(workload.jobs, requested_counts(workload, cluster, devices=devices), strict=True):
        # As submitted: a moldable job counts with the nodes that it requests.
        choice = next((c for c in job.choices if c.request.nodes == job.nodes), job.choices[0])
        seconds = workload.truth.seconds(job, choice.implementation, choice.request)
        if count is None or seconds is None:
            return None
        work += count * seconds
    length = submission_span(workload)
    return work / (capacity * length) if capacity and length > 0 else None
