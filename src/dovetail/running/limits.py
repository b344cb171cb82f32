"""What is asked of all jobs of a run at once: how many may run together, how often one may start again."""

from __future__ import annotations

from dataclasses import replace

from dovetail.model import Throttle, Workload

__all__ = ["limited"]

AT_ONCE = "run"
"""Key of the throttle of a whole run."""


def limited(workload: Workload, *, at_once: int | None = None, retries: int | None = None) -> Workload:
    """At most ``at_once`` jobs running together, and ``retries`` for jobs that give none. O(jobs)."""
    if at_once is None and not retries:
        return workload
    throttles = () if at_once is None else (Throttle(AT_ONCE, at_once),)
    jobs = [
        replace(job, throttles=(*job.throttles, *throttles), retries=job.retries or retries or 0)
        for job in workload.jobs
    ]
    return replace(workload, jobs=jobs)
