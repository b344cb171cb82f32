"""What twins of rigid jobs have in common: what is asked, the jobs as columns, and the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, isfinite
from typing import NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from dovetail.engine.asked import Asked, SimulationOptions
from dovetail.model import Job, JobId, Record, Request, Result, Seconds, Workload
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.parts.orders import ORDERS
from dovetail.runtimes.perfect import PerfectModel

__all__ = [
    "Floats",
    "Ints",
    "JobColumns",
    "bounds",
    "by_rank",
    "columns",
    "lasting",
    "modelled",
    "plainly_asked",
    "result_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class JobColumns(NamedTuple):
    """Jobs by submission as columns, shape (jobs,); ``place`` is that in the file."""

    submit: Floats
    nodes: Ints
    seconds: Floats
    walltime: Floats
    place: Ints
    best: Mapping[JobId, Seconds]


def modelled(policy: object) -> TypeGuard[Fcfs | Easy | Conservative]:
    """Whether it is `Fcfs`, or `Easy` or `Conservative` with users' walltimes."""
    if type(policy) is Fcfs:
        return True
    return type(policy) in (Easy, Conservative) and getattr(policy, "walltime", None) == "user"


def plainly_asked(asked: Asked) -> bool:
    """Whether times are perfectly known, at rate 1, no node is gone, and nobody asks what was considered."""
    perfect = type(asked.runtimes) is PerfectModel and asked.runtimes.truth is asked.workload.truth
    shared = asked.rates is not None or asked.forecast is not None
    considered = asked.options.keep_considered
    return perfect and not (shared or considered or asked.cluster.gone) and bool(asked.workload.jobs)


def columns(workload: Workload, suits: Callable[[Request], bool]) -> JobColumns | None:
    """The jobs as columns, O(jobs).

    ``None`` where any depends on another, may be tried again, is throttled, has several choices, takes nobody
    knows how long, or asks for what does not suit.
    """
    table = workload.table
    if table is not None:
        if not all(suits(choices[0].request) for _, choices in table.forms):
            return None
        if not np.isfinite(table.seconds).all():
            return None
        return JobColumns(table.submit, table.nodes, table.seconds, table.walltime, table.place, table.times)
    known: dict[Request, bool] = {}
    seconds: dict[JobId, Seconds] = {}
    for job in workload.jobs:
        found = _seconds(job, workload, suits, known)
        if found is None:
            return None
        seconds[job.id] = found
    if len(seconds) < len(workload.jobs):
        return None  # an id was used twice, which the engine refuses
    return JobColumns(
        np.array([job.submit_time for job in workload.jobs], float),
        np.array([job.choices[0].request.nodes for job in workload.jobs], np.int64),
        np.array(list(seconds.values()), float),
        np.array([job.walltime for job in workload.jobs], float),
        np.array([job.index for job in workload.jobs], np.int64),
        seconds,
    )


def _seconds(
    job: Job, workload: Workload, suits: Callable[[Request], bool], known: dict[Request, bool]
) -> Seconds | None:
    """The true seconds of a job of this kind; ``None`` of any other."""
    if len(job.choices) != 1 or job.depends or job.retries or job.throttles or job.sizing.auto:
        return None
    choice = job.choices[0]
    if choice.request not in known:
        known[choice.request] = suits(choice.request)
    seconds = workload.truth.seconds(job, choice.implementation, choice.request)
    return seconds if known[choice.request] and seconds is not None and isfinite(seconds) else None


def bounds(jobs: JobColumns, options: SimulationOptions) -> tuple[Floats, Floats]:
    """What is known beforehand of each run time, and after how long each job is ended."""
    walltime, default = jobs.walltime, options.default_walltime
    missing = np.isnan(walltime)
    bound = np.where(missing, jobs.seconds if isinstance(default, str) else default, walltime)
    if options.overrun != "kill":
        return bound, np.full(len(bound), inf)
    return bound, np.where(missing, inf if isinstance(default, str) else default, walltime)


def lasting(jobs: JobColumns, bound: Floats, limit: Floats) -> bool:
    """Whether every promise can be kept: all bounds are above zero and finite, nobody runs past them."""
    ends = np.minimum(jobs.seconds, limit)
    return bool((bound > 0).all() and np.isfinite(bound).all() and (ends <= bound).all())


def by_rank(workload: Workload, policy: object, bound: Floats) -> Ints:
    """The jobs in the order of the queue."""
    key, bounded = ORDERS[policy.order if isinstance(policy, (Easy, Conservative)) else "fcfs"]
    table = workload.table
    if table is not None and key is ORDERS["fcfs"].key:
        return np.arange(len(bound))  # jobs of a table have no priorities
    jobs = workload.jobs if table is None else table.fleeting()
    if bounded:
        keys = [key(job, limit) for job, limit in zip(jobs, bound.tolist(), strict=True)]
    else:
        keys = [key(job) for job in jobs]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def result_of(
    asked: Asked, records: Sequence[Record], jobs: JobColumns, *, broken: int = 0, by_overrun: int = 0
) -> Result:
    """The records with what was asked; the counts are those of broken promises."""
    workload, options = asked.workload, asked.options
    return Result(
        policy=options.policy_name or type(asked.policy).__name__,
        options=options.policy_options,
        workload=workload.name,
        cluster=asked.cluster,
        records=records,
        seed=options.seed,
        knowledge=options.knowledge,
        rejected=workload.rejected,
        skipped=workload.skipped,
        best=jobs.best,
        promises_broken=broken,
        broken_by_overrun=by_overrun,
        overrun=options.overrun,
        default_walltime=options.default_walltime if np.isnan(jobs.walltime).any() else None,
    )
