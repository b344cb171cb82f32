"""Which jobs a cluster can run at all: impossible choices go, impossible jobs are rejected with a reason.

The same is looked at again where nodes have left for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from operator import is_not
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.engine.state.mistakes import blame_policy
from dovetail.errors import InputError, UnsupportedWorkload
from dovetail.interfaces import traits_of
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    Choice,
    Cluster,
    Event,
    Job,
    JobId,
    Node,
    NodeJoined,
    NodeLost,
    Rejected,
    Request,
    Requeued,
    Submitted,
    Truth,
    Workload,
)
from dovetail.model.fitting import suits_request
from dovetail.model.tables import JobTable

if TYPE_CHECKING:
    from dovetail.engine.state.core import Engine

MOST_UNITS = 250_000
"""CPU pools and devices of the largest cluster for policies that look at each of them at every instant."""


class Validator:
    """Checks jobs against a cluster, one at a time; with ``truth`` only timed choices pass.

    O(1) a job after the first of its request.
    """

    def __init__(self, cluster: Cluster, truth: Truth | None = None) -> None:
        self._whole = FreeCapacity(Layout(cluster))
        self._possible: dict[Request, bool] = {}
        self._memory: dict[tuple[object, ...], int] = {}  # bytes that fit, of requests but for their memory
        self._truth = truth
        self._cluster = cluster

    def _fits_cluster(self, request: Request) -> bool:
        found = self._possible.get(request)
        if found is None:
            # Where another one like it fits that needs more memory, so does this one.
            sizes = request.gpu_memory, request.gpu_least
            alike = (request.nodes, request.cpus, request.devices, request.models, request.partition, sizes)
            found = request.memory <= self._memory.get(alike, -1)
            if not found and self._whole.count(request) >= request.nodes:
                self._memory[alike] = request.memory
                found = True
            self._possible[request] = found
        return found

    def _has_true_time(self, job: Job, choice: Choice) -> bool:
        truth = self._truth
        return truth is None or truth.seconds(job, choice.implementation, choice.request) is not None

    def admits_table(self, table: JobTable) -> bool:
        """Whether all jobs of a table may enter as they are. O(forms)."""
        return all(self._fits_cluster(choices[0].request) for _, choices in table.forms)

    def admit_job(self, job: Job) -> Job | Rejected:
        """The job with the choices that are possible here, or why there is none."""
        choices, truth = job.choices, self._truth
        if len(choices) == 1 and self._possible.get(choices[0].request):  # traces have a hundred thousand
            only = choices[0]
            if truth is None or truth.seconds(job, only.implementation, only.request) is not None:
                return job
        fitting = [choice for choice in choices if self._fits_cluster(choice.request)]
        if not fitting:
            return Rejected(job.id, describe_lack(choices, self._cluster))
        timed = tuple(choice for choice in fitting if self._has_true_time(job, choice))
        if not timed:
            return Rejected(job.id, "its run time is unknown")
        return job if len(timed) == len(choices) else replace(job, choices=timed)


def prepare_workload(workload: Workload, cluster: Cluster, *, need_truth: bool) -> Workload:
    """The workload as it can run on the cluster: choices dropped, jobs rejected with a reason. O(jobs)."""
    validator = Validator(cluster, workload.truth if need_truth else None)
    if workload.table is not None and validator.admits_table(workload.table):
        return workload
    # Several policies get the same workload one after the other, and the same jobs are admitted.
    shape = (need_truth, cluster)
    known = _LAST.get(workload)
    if known is None or known[0][0] is not need_truth or known[0][1] is not cluster:
        known = _LAST[workload] = (shape, _admitted(workload, validator))
    return workload if known[1] is None else known[1]


_LAST: WeakKeyDictionary[Workload, tuple[tuple[bool, Cluster], Workload | None]] = WeakKeyDictionary()
"""Of each workload the last preparation, ``None`` where it stayed as it was."""


def _admitted(workload: Workload, validator: Validator) -> Workload | None:
    found = list(map(validator.admit_job, workload.jobs))
    if not any(map(is_not, found, workload.jobs)):
        return None
    jobs = [job for job in found if isinstance(job, Job)]
    rejected = [job for job in found if isinstance(job, Rejected)]
    return replace(workload, jobs=jobs, rejected=[*workload.rejected, *rejected])


def check_policy(policy: object, name: str, workload: Workload, cluster: Cluster) -> None:
    """Have the policy check whether it can place these jobs here, before anything runs.

    A policy may have a method ``refuses(jobs, cluster) -> str | None``; the string is the reason, e.g.
    ``places jobs on one node only; job a needs 4``. By its `Traits` one keeps
    requests to their partition, or looks at every unit of the cluster: that one is refused where they are
    more than `MOST_UNITS`. Raises `UnsupportedWorkload`. O(jobs).
    """
    if traits_of(policy).each_unit and len(cluster.units) > MOST_UNITS:
        raise UnsupportedWorkload(
            f"policy {name} looks at every CPU pool and device by itself: found {len(cluster.units):,} "
            f"in the cluster, expected at most {MOST_UNITS:,} "
            "(fcfs, sjf, easy and conservative have no such limit)"
        )
    refuses = getattr(policy, "refuses", None)
    with blame_policy(policy, name, "refuses"):
        reason = refuses(workload.jobs, cluster) if refuses is not None else None
    if reason:
        raise UnsupportedWorkload(f"policy {name} {reason}")
    if workload.table is None and not traits_of(policy).partitions:
        job = next((job for job in workload.jobs if any(c.request.partition for c in job.choices)), None)
        if job is not None:
            raise UnsupportedWorkload(
                f"policy {name} knows no partitions of nodes; job {job.id} names one "
                "(fcfs, sjf, easy and conservative know them)"
            )


def check_depends(workload: Workload) -> None:
    """Refuse dependencies on jobs that are not there, or that go round in a circle. Raises `InputError`."""
    jobs = [] if workload.table is not None else [job for job in workload.jobs if job.depends]
    if not jobs:
        return
    known = {job.id for job in workload.jobs} | {rejected.id for rejected in workload.rejected}
    graph: Mapping[JobId, list[JobId]] = {job.id: [d.job for d in job.depends] for job in jobs}
    for job, others in graph.items():
        missing = [other for other in others if other not in known]
        if missing:
            raise InputError(
                f"job {job} depends on {missing[0]!r}, which is no job here", where=workload.name
            )
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise InputError(f"dependencies go round in a circle: {circle}", where=workload.name) from None


def describe_lack(choices: tuple[Choice, ...], cluster: Cluster) -> str:
    """What the machine lacks for each of the choices, none of which fits. O(shapes of nodes) a choice."""
    nodes = [group.node for group in cluster.groups]
    found = dict.fromkeys(_describe_missing_resource(choice.request, nodes, cluster) for choice in choices)
    return "; ".join(found)


def _describe_missing_resource(request: Request, nodes: list[Node], cluster: Cluster) -> str:
    """The first thing of which no node has enough, else that too few nodes have all of it."""
    for kind, count in request.devices:
        most = max((sum(d.kind == kind for d in node.devices) for node in nodes), default=0)
        if not most:
            return f"needs a device of kind {kind}, and there is none"
        if count > most:
            return f"needs {count:g} {kind} on a node, and no node has more than {most}"
    if request.models and not any(d.model in request.models for node in nodes for d in node.devices):
        return f"needs a device of model {' or '.join(request.models)}, and there is none"
    for kind, _ in request.devices:
        sizes = [
            d.memory for node in nodes for d in node.devices if suits_request(d, kind, _any_size(request))
        ]
        wanted, most_bytes = (
            max(request.gpu_memory, request.gpu_least),
            max((m or 0 for m in sizes), default=0),
        )
        if sizes and None not in sizes and wanted > most_bytes:
            return (
                f"needs {_format_size(wanted)} of memory on a {kind}, and none has more than "
                f"{_format_size(most_bytes)}"
            )
    cpus = max((node.cpus for node in nodes), default=0)
    if request.cpus in (WHOLE_POOL, HOST_CPUS):
        if not cpus and not request.devices:
            return "needs a CPU, and there is none"
    elif request.cpus > cpus:
        needed = "1 CPU" if request.cpus == 1 else f"{request.cpus} CPUs"
        return f"needs {needed} on a node, and no node has more than {cpus}"
    memory = [node.memory for node in nodes]
    if all(size is not None and size < request.memory for size in memory):
        most_memory = max((size or 0 for size in memory), default=0)
        needed, there = _format_size(request.memory), _format_size(most_memory)
        return f"needs {needed} of memory on a node, and no node has more than {there}"
    if request.nodes > len(cluster.nodes):
        return f"needs {request.nodes} nodes, and there are {len(cluster.nodes)}"
    return "larger than the machine: too few nodes have all that it needs at once"


def _any_size(request: Request) -> Request:
    """The same, on devices with any memory."""
    return replace(request, gpu_memory=0, gpu_least=0)


def _format_size(count: float) -> str:
    """Bytes in the unit in which they read well.

    >>> _format_size(34_359_738_368), _format_size(512)
    ('34.4 GB', '512 bytes')
    """
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if count >= 1000**power:
            return f"{count / 1000**power:.3g} {unit}"
    return f"{count:g} bytes"


NO_NODE = "no node is left that could run it"
"""How the detail begins of jobs that were cancelled for that: another cluster can take them up."""


class StrandedJobs:
    """Nodes that are gone for good, and the jobs that came to wait since the last call."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._gone: set[int] = set()
        self._validator: Validator | None = None  # of the nodes that are left
        self._came: list[JobId] = []

    def take_in_events(self, batch: Iterable[Event]) -> None:
        """Take in what has happened. O(batch)."""
        for event in batch:
            if isinstance(event, NodeLost) and event.for_good:
                self._gone.add(event.node)
                self._validator = None
            elif isinstance(event, NodeJoined):
                self._gone.discard(event.node)
                self._validator = None
            elif self._gone and isinstance(event, Submitted | Requeued):
                self._came.append(event.job.id if isinstance(event, Submitted) else event.job)

    def find_stranded(self) -> Mapping[JobId, str]:
        """Jobs that can never start, and why; those that wait for others come first.

        O(queue) after nodes have left, else O(jobs that came since).
        """
        engine, validator = self._engine, self._validator
        if not self._gone:
            return {}
        came, self._came = [job for job in self._came if engine.records[job].end is None], []
        if validator is None:
            left = [node for n, node in enumerate(engine.cluster.nodes) if n not in self._gone]
            validator = self._validator = Validator(Cluster(left))
            bound = [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
            came = [*(job.id for job in engine.queue), *bound, *engine.held]
        found: dict[JobId, str] = {}
        for job in map(self._as_submitted, came):
            answer = validator.admit_job(job)
            if isinstance(answer, Rejected):
                found[job.id] = f"{NO_NODE}: {answer.reason}"
        behind = self._waiting_for(found)
        while behind:
            found |= behind
            behind = self._waiting_for(found)
        return dict(reversed(found.items()))

    def _as_submitted(self, job: JobId) -> Job:
        """With all its choices, also those that cannot end before the cluster does."""
        return self._engine.horizon.narrowed.get(job) or self._engine.records[job].job

    def _waiting_for(self, found: Mapping[JobId, str]) -> dict[JobId, str]:
        """Jobs, not among these, that wait for one of these."""
        engine = self._engine
        held: Sequence[Job] = [engine.records[job].job for job in engine.held if job not in found]
        first = {job.id: next((d.job for d in job.depends if d.job in found), None) for job in held}
        return {job: f"{NO_NODE}: it waits for job {other}" for job, other in first.items() if other}
