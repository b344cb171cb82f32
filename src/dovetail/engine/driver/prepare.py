"""What is checked before a job may enter: impossible choices go, impossible jobs are rejected."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from operator import is_not

from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.engine.capacity.lacking import lacking
from dovetail.errors import InputError, UnsupportedWorkload
from dovetail.interfaces import traits_of
from dovetail.model import Choice, Cluster, Job, JobId, Rejected, Request, Truth, Workload
from dovetail.model.tables import JobTable

__all__ = ["MOST_UNITS", "Validator", "check_depends", "check_policy", "prepare"]

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

    def _fits(self, request: Request) -> bool:
        found = self._possible.get(request)
        if found is None:
            # Where another one like it fits that asks for more memory, so does this one.
            alike = (request.nodes, request.cpus, request.devices, request.models, request.partition)
            found = request.memory <= self._memory.get(alike, -1)
            if not found and self._whole.count(request) >= request.nodes:
                self._memory[alike] = request.memory
                found = True
            self._possible[request] = found
        return found

    def _timed(self, job: Job, choice: Choice) -> bool:
        truth = self._truth
        return truth is None or truth.seconds(job, choice.implementation, choice.request) is not None

    def admits(self, table: JobTable) -> bool:
        """Whether all jobs of a table may enter as they are. O(forms)."""
        return all(self._fits(choices[0].request) for _, choices in table.forms)

    def admit(self, job: Job) -> Job | Rejected:
        """The job with the choices that are possible here, or why there is none."""
        choices, truth = job.choices, self._truth
        if len(choices) == 1 and self._possible.get(choices[0].request):  # traces have a hundred thousand
            only = choices[0]
            if truth is None or truth.seconds(job, only.implementation, only.request) is not None:
                return job
        fitting = [choice for choice in choices if self._fits(choice.request)]
        if not fitting:
            return Rejected(job.id, lacking(choices, self._cluster))
        timed = tuple(choice for choice in fitting if self._timed(job, choice))
        if not timed:
            return Rejected(job.id, "its run time is unknown")
        return job if len(timed) == len(choices) else replace(job, choices=timed)


def prepare(workload: Workload, cluster: Cluster, *, need_truth: bool) -> Workload:
    """The workload as it can run on the cluster: choices dropped, jobs rejected with a reason. O(jobs)."""
    gate = Validator(cluster, workload.truth if need_truth else None)
    if workload.table is not None and gate.admits(workload.table):
        return workload
    found = list(map(gate.admit, workload.jobs))
    if not any(map(is_not, found, workload.jobs)):
        return workload
    jobs = [job for job in found if isinstance(job, Job)]
    rejected = [job for job in found if isinstance(job, Rejected)]
    return replace(workload, jobs=jobs, rejected=[*workload.rejected, *rejected])


def check_policy(policy: object, name: str, workload: Workload, cluster: Cluster) -> None:
    """Ask the policy whether it can place these jobs here, before anything runs.

    A policy may have a method ``refuses(jobs, cluster) -> str | None``; the string says why not, e.g.
    ``places jobs on one node only; job a asks for 4``. By its `Traits` one keeps
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
    reason = refuses(workload.jobs, cluster) if refuses is not None else None
    if reason:
        raise UnsupportedWorkload(f"policy {name} {reason}")
    if workload.table is None and not traits_of(policy).partitions:
        job = next((job for job in workload.jobs if any(c.request.partition for c in job.choices)), None)
        if job is not None:
            raise UnsupportedWorkload(
                f"policy {name} knows no partitions of nodes; job {job.id} asks for one "
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
