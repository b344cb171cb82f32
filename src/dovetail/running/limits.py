"""Limits on all jobs of a run at once: how many may run together, how often one may start again."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dovetail.engine.capacity.sizing import resize_memory
from dovetail.model import Job, Launch, Throttle, Workload

AT_ONCE = "run"
"""Key of the throttle of a whole run."""


def limit_workload(
    workload: Workload,
    *,
    at_once: int | None = None,
    retries: int | None = None,
    memory: int | Literal["auto"] | None = None,
) -> Workload:
    """At most ``at_once`` jobs running together; ``retries`` and ``memory`` for jobs that give none. O(jobs).

    ``memory`` is bytes a node, beyond which a job is ended, or ``auto``: learned.
    """
    if at_once is None and not retries and memory is None:
        return workload
    throttles = () if at_once is None else (Throttle(AT_ONCE, at_once),)
    jobs = [
        replace(job, throttles=(*job.throttles, *throttles), retries=job.retries or retries or 0)
        for job in (workload.jobs if memory is None else [_with_memory(job, memory) for job in workload.jobs])
    ]
    return replace(workload, jobs=jobs)


def _with_memory(job: Job, memory: int | Literal["auto"]) -> Job:
    """The job with this memory, if it requests none of its own."""
    if job.sizing.auto or any(choice.request.memory for choice in job.choices):
        return job
    if memory == "auto":
        names = tuple(dict.fromkeys(choice.implementation.name for choice in job.choices))
        return replace(job, sizing=replace(job.sizing, auto=names))
    launch = replace(job.launch or Launch(), memory=memory)
    return replace(resize_memory(job, [memory] * len(job.choices), 0), launch=launch)
