"""Changing a workload: a part of it, another load, another order of what comes together."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import groupby

from dovetail.errors import InputError
from dovetail.files.arrays import np
from dovetail.files.tables import LARGEST
from dovetail.model import Cluster, Job, Seconds, Workload
from dovetail.workloads.resources import offered_load


def cut_workload(
    workload: Workload,
    *,
    begin: Seconds | None = None,
    end: Seconds | None = None,
    jobs: int | None = None,
) -> Workload:
    """The jobs submitted from ``begin`` to before ``end``, of these the first ``jobs``.

    Submit times stay as they are, so that a part can be found again in the whole. Raises `InputError`
    for an interval or a number that holds nothing. O(jobs).
    """
    low, high = begin if begin is not None else -math.inf, end if end is not None else math.inf
    if not low < high:
        raise InputError(f"found the interval {low:g} to {high:g}, expected a begin before the end")
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: found {jobs}, expected at least 1")
    kept = [job for job in workload.jobs if low <= job.submit_time < high][:jobs]
    return replace(workload, jobs=kept)


def scale_load(workload: Workload, load: float, cluster: Cluster) -> Workload:
    """The same jobs at another offered load: the gaps between submissions all change by one factor.

    The first submission stays where it is; where all submit times are whole seconds they stay whole, and
    the load is met but for that rounding. Raises `InputError` where no load is defined: without true
    times, jobs, or a span of time; and for a load so small that times leave all bounds. O(jobs).
    """
    if not (math.isfinite(load) and load > 0):
        raise InputError(f"load: found {load:g}, expected a number above 0")
    now = offered_load(workload, cluster)
    if not now:
        raise InputError(
            f"{workload.name} has no load on this cluster, expected jobs with true times, at two moments"
        )
    first = workload.jobs[0].submit_time
    factor = now / load
    whole = all(job.submit_time == math.floor(job.submit_time) for job in workload.jobs)
    moved = []
    for job in workload.jobs:
        submit = first + (job.submit_time - first) * factor
        if not abs(submit) < LARGEST:
            raise InputError(f"load: found {load:g}, expected one that keeps times below 2^53 s")
        moved.append(replace(job, submit_time=float(round(submit)) if whole else submit))
    return replace(workload, jobs=moved)


def shuffle_together(workload: Workload, rng: np.random.Generator) -> Workload:
    """The workload with the jobs that are submitted together in a random order. Linear.

    Their places in the file change; ids, times and everything else stay.
    """
    jobs: list[Job] = []
    for _, together in groupby(workload.jobs, key=lambda job: job.submit_time):
        group = list(together)
        jobs.extend(group[i] for i in rng.permutation(len(group)))
    return replace(workload, jobs=[replace(job, index=i) for i, job in enumerate(jobs)])
