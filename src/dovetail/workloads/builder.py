"""What all trace readers share: interned requests, unique ids, rejection, the order of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dovetail.errors import InputError
from dovetail.model import (
    HOST_CPUS,
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    Rejected,
    Request,
    Seconds,
    TableTruth,
    Workload,
)
from dovetail.workloads.resources import Fitting

UNKNOWN_LENGTH = "unknown length"
MOST_JOBS = 12_000_000
"""Jobs of one trace. The largest that is public has 11 million."""


class Interned:
    """One `App`, one `Implementation` and one tuple of `Choice` for each (app name, request)."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Request], tuple[App, tuple[Choice, ...]]] = {}

    def get(self, name: str, request: Request) -> tuple[App, tuple[Choice, ...]]:
        """The app of that name with this request alone, and a job's choices. O(1)."""
        key = (name, request)
        if key not in self._known:
            kind = request.devices[0][0] if request.devices else "cpu"
            implementation = Implementation(kind, kind, request)
            self._known[key] = App(name, (implementation,)), (Choice(implementation, request),)
        return self._known[key]


def gpu_request(
    nodes: int, gpus: float, *, cpus: int = HOST_CPUS, memory: int = 0, models: tuple[str, ...] = ()
) -> Request:
    """A request for GPUs on each of ``nodes`` nodes; for the CPUs given where there is no GPU."""
    return Request(nodes, cpus, (("gpu", gpus),) if gpus else (), memory, models if gpus else ())


def unique_ids(ids: Sequence[str]) -> list[str]:
    """The ids, later ones of the same text as ``ID#2``, ``ID#3`` … in file order.

    >>> unique_ids(["7", "8", "7"])
    ['7', '8', '7#2']
    """
    seen = set(ids)
    if len(seen) == len(ids):
        return list(ids)
    used: set[str] = set()
    counts: dict[str, int] = {}
    unique: list[str] = []
    for id in ids:
        name = id
        while name in used or (name != id and name in seen):
            counts[id] = counts.get(id, 1) + 1
            name = f"{id}#{counts[id]}"
        used.add(name)
        unique.append(name)
    return unique


class TraceBuilder:
    """Collects the jobs of a trace in file order and makes the `Workload`.

    Rejected are jobs of unknown or negative length, without resources, or larger than the cluster. Where the
    cluster's nodes name the partition that is a job's queue, it runs on these nodes alone.
    """

    def __init__(self, name: str, cluster: Cluster | None, *, app: str) -> None:
        self.fitting = Fitting(cluster)
        self._name = name
        self._app = app
        self._interned = Interned()
        self._jobs: list[Job] = []
        self._run_times: list[Seconds | None] = []
        self._reasons: list[str | None] = []
        self._starts: list[Seconds | None] = []

    def add(
        self,
        id: str,
        submit: Seconds,
        run_time: Seconds | None,
        request: Request,
        *,
        walltime: Seconds | None = None,
        user: str | None = None,
        group: str | None = None,
        queue: str | None = None,
        priority: float = 0,
        reason: str | None = None,
        start: Seconds | None = None,
    ) -> None:
        """One job in file order; ``reason`` rejects it whatever it requests, ``start`` is when it started."""
        if len(self._jobs) == MOST_JOBS:
            raise InputError(f"found more than {MOST_JOBS:,} jobs, expected at most that", where=self._name)
        if queue and queue in self.fitting.partitions:
            request = replace(request, partition=queue)
        app, choices = self._interned.get(self._app, request)
        job = Job(
            id,
            app,
            choices,
            len(self._jobs),
            submit,
            nodes=request.nodes,
            walltime=walltime if walltime is not None and walltime > 0 else None,
            user=user or None,
            group=group or None,
            queue=queue or None,
            priority=priority,
        )
        self._jobs.append(job)
        self._run_times.append(run_time)
        self._reasons.append(reason or self._refusal_reason(run_time, request))
        self._starts.append(start)

    def _refusal_reason(self, run_time: Seconds | None, request: Request) -> str | None:
        if run_time is None:
            return UNKNOWN_LENGTH
        if run_time < 0:
            return f"negative run time ({run_time:g})"
        if request.nodes < 1 or (request.cpus in (0, HOST_CPUS) and not request.devices):
            return "requests no CPU and no device"
        return self.fitting.refusal_reason(request)

    def build_workload(self, *, skipped: int = 0, rebase: bool = False) -> Workload:
        """Jobs by (submit time, file order); ``rebase`` counts times from the first submission."""
        ids = unique_ids([job.id for job in self._jobs])
        zero = min((job.submit_time for job in self._jobs), default=0.0) if rebase else 0.0
        kept: list[Job] = []
        times: dict[str, Seconds] = {}
        starts: dict[str, Seconds] = {}
        rejected: list[Rejected] = []
        rows = zip(self._jobs, ids, self._run_times, self._reasons, self._starts, strict=True)
        for job, id, run_time, reason, start in rows:
            if reason is not None or run_time is None:
                rejected.append(Rejected(id, reason or UNKNOWN_LENGTH))
                continue
            times[id] = run_time
            if start is not None:
                starts[id] = start - zero
            if id != job.id or zero:
                job = replace(job, id=id, submit_time=job.submit_time - zero)
            kept.append(job)
        # Stable: file order within one instant.
        kept.sort(key=lambda job: job.submit_time)
        return Workload(self._name, kept, TableTruth(fixed=times), rejected, skipped, recorded=starts)
