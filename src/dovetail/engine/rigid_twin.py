"""Rigid jobs on like nodes under FCFS or backfilling: the jobs as arrays, through a kernel, as a result."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.engine.asked import Asked, SimulationOptions
from dovetail.engine.capacity import FreeCapacity, Layout
from dovetail.model import CPU, Job, JobId, Request, Result, Seconds, Workload
from dovetail.model.tables import RecordTable
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.parts.orders import ORDERS
from dovetail.runtimes.perfect import PerfectModel

if TYPE_CHECKING:
    from dovetail.kernels.rigid_world import Schedule

__all__ = ["rigid_twin"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


_BACKFILLING = (Easy, Conservative)
_MODELLED = (Fcfs, *_BACKFILLING)


class _Jobs(NamedTuple):
    """Jobs by submission as columns, shape (jobs,); ``place`` is that in the file."""

    submit: Floats
    nodes: Ints
    seconds: Floats
    walltime: Floats
    place: Ints
    best: Mapping[JobId, Seconds]


def rigid_twin(asked: Asked) -> Result | None:
    """The result, or ``None`` where jobs, nodes, policy or options are others.

    Jobs have one choice, of whole nodes, known times, and depend on nothing; nodes are alike and have no
    devices; the policy is `Fcfs`, or `Easy` or `Conservative` with users' walltimes; times are perfectly
    known, at rate 1. Under `Conservative` every job has a bound above zero and none runs past it.
    """
    workload, cluster, policy, options = asked.workload, asked.cluster, asked.policy, asked.options
    backfills = isinstance(policy, _BACKFILLING) and policy.walltime == "user"
    modelled = type(policy) in _MODELLED and (backfills or isinstance(policy, Fcfs))
    perfect = type(asked.runtimes) is PerfectModel and asked.runtimes.truth is workload.truth
    shared = asked.rates is not None or asked.forecast is not None
    if not modelled or not perfect or shared or cluster.gone or not workload.jobs or options.keep_considered:
        return None
    whole = FreeCapacity(Layout(cluster))
    jobs = _columns(workload, whole) if whole.alike() else None
    if jobs is None:
        return None
    bound, limit = _bounds(jobs, options)
    if type(policy) is Conservative and not _lasting(jobs, bound, limit):
        return None
    found = _simulated(jobs, bound, limit, _by_rank(workload, policy, bound), len(cluster), policy)
    records = RecordTable(
        workload.jobs,
        np.argsort(jobs.place, kind="stable"),
        jobs.seconds,
        found.start,
        found.end,
        found.promised,
        found.killed,
        found.first,
        found.runs,
        found.low,
        found.high,
        cluster.groups[0].node.cpus,
        cluster.device_classes(CPU)[0],
    )
    return Result(
        policy=options.policy_name or type(policy).__name__,
        options=options.policy_options,
        workload=workload.name,
        cluster=cluster,
        records=records,
        seed=options.seed,
        knowledge=options.knowledge,
        rejected=workload.rejected,
        skipped=workload.skipped,
        best=jobs.best,
        promises_broken=int(found.broken),
        broken_by_overrun=int(found.by_overrun),
        overrun=options.overrun,
        default_walltime=options.default_walltime if np.isnan(jobs.walltime).any() else None,
    )


def _simulated(
    jobs: _Jobs, bound: Floats, limit: Floats, by_rank: Ints, nodes: int, policy: object
) -> Schedule:
    """What the policy's kernel makes of the jobs."""
    from dovetail.kernels.rigid_world import Rigid  # numba takes its time: load it where it is used

    rigid = Rigid(jobs.submit, jobs.nodes, jobs.seconds, bound, limit, by_rank)
    if isinstance(policy, Conservative):
        from dovetail.kernels.conservative import simulate_conservative

        return simulate_conservative(rigid, nodes)
    from dovetail.kernels.rigid import EASY, FCFS, simulate_rigid

    if isinstance(policy, Fcfs):
        return simulate_rigid(rigid, nodes, FCFS, policy.skip)
    return simulate_rigid(rigid, nodes, EASY, 0)


def _columns(workload: Workload, whole: FreeCapacity) -> _Jobs | None:
    """The jobs as columns; ``None`` where any is of another kind. O(jobs)."""
    table = workload.table
    if table is not None:
        if not all(_is_whole(choices[0].request, whole) for _, choices in table.forms):
            return None
        if not np.isfinite(table.seconds).all():
            return None
        return _Jobs(table.submit, table.nodes, table.seconds, table.walltime, table.place, table.times)
    known: dict[Request, bool] = {}
    seconds: dict[JobId, Seconds] = {}
    for job in workload.jobs:
        found = _seconds(job, workload, whole, known)
        if found is None:
            return None
        seconds[job.id] = found
    if len(seconds) < len(workload.jobs):
        return None  # an id was used twice, which the engine refuses
    return _Jobs(
        np.array([job.submit_time for job in workload.jobs], float),
        np.array([job.choices[0].request.nodes for job in workload.jobs], np.int64),
        np.array(list(seconds.values()), float),
        np.array([job.walltime for job in workload.jobs], float),
        np.array([job.index for job in workload.jobs], np.int64),
        seconds,
    )


def _seconds(job: Job, workload: Workload, whole: FreeCapacity, known: dict[Request, bool]) -> Seconds | None:
    """The true seconds of a job of this kind; ``None`` of any other."""
    if len(job.choices) != 1 or job.depends or job.retries or job.throttles:
        return None
    choice = job.choices[0]
    if choice.request not in known:
        known[choice.request] = _is_whole(choice.request, whole)
    seconds = workload.truth.seconds(job, choice.implementation, choice.request)
    return seconds if known[choice.request] and seconds is not None and isfinite(seconds) else None


def _is_whole(request: Request, whole: FreeCapacity) -> bool:
    return not request.devices and whole.takes_whole_nodes(request)


def _bounds(jobs: _Jobs, options: SimulationOptions) -> tuple[Floats, Floats]:
    """What is known beforehand of each run time, and after how long each job is ended."""
    walltime, default = jobs.walltime, options.default_walltime
    missing = np.isnan(walltime)
    bound = np.where(missing, jobs.seconds if isinstance(default, str) else default, walltime)
    if options.overrun != "kill":
        return bound, np.full(len(bound), inf)
    return bound, np.where(missing, inf if isinstance(default, str) else default, walltime)


def _lasting(jobs: _Jobs, bound: Floats, limit: Floats) -> bool:
    """Whether every promise can be kept: all bounds are above zero and finite, nobody runs past them."""
    ends = np.minimum(jobs.seconds, limit)
    return bool((bound > 0).all() and np.isfinite(bound).all() and (ends <= bound).all())


def _by_rank(workload: Workload, policy: object, bound: Floats) -> Ints:
    """The jobs in the order of the queue."""
    key, bounded = ORDERS[policy.order if isinstance(policy, _BACKFILLING) else "fcfs"]
    table = workload.table
    if table is not None and key is ORDERS["fcfs"].key:
        return np.arange(len(bound))  # jobs of a table have no priorities
    jobs = workload.jobs if table is None else table.fleeting()
    if bounded:
        keys = [key(job, limit) for job, limit in zip(jobs, bound.tolist(), strict=True)]
    else:
        keys = [key(job) for job in jobs]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
