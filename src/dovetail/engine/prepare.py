"""What happens to a workload before a run: impossible choices go, impossible jobs are rejected."""

from __future__ import annotations

from dataclasses import replace

from dovetail.engine.capacity import FreeCapacity, Layout
from dovetail.errors import UnsupportedWorkload
from dovetail.model import Choice, Cluster, Job, Rejected, Request, Workload

__all__ = ["check_policy", "prepare"]


def prepare(workload: Workload, cluster: Cluster, *, need_truth: bool) -> Workload:
    """Drop choices that can never fit, or whose true time is unknown where that is needed.

    A job that has no choice left is rejected, with the reason. O(jobs) with one capacity look-up per
    distinct request.
    """
    whole = FreeCapacity(Layout(cluster))
    possible: dict[Request, bool] = {}

    def fits(request: Request) -> bool:
        found = possible.get(request)
        if found is None:
            found = possible[request] = whole.count(request) >= request.nodes
        return found

    jobs: list[Job] = []
    rejected: list[Rejected] = []
    seconds = workload.truth.seconds
    for job in workload.jobs:
        choices = job.choices
        first = choices[0]
        if (  # traces have a hundred thousand of these
            len(choices) == 1
            and fits(first.request)
            and not (need_truth and seconds(job, first.implementation, first.request) is None)
        ):
            jobs.append(job)
            continue
        fitting = choices if all(fits(c.request) for c in choices) else _only(choices, fits)
        if not fitting:
            rejected.append(Rejected(job.id, "larger than the machine"))
            continue
        if need_truth:
            timed = tuple(c for c in fitting if seconds(job, c.implementation, c.request) is not None)
            if not timed:
                rejected.append(Rejected(job.id, "its run time is unknown"))
                continue
            fitting = fitting if len(timed) == len(fitting) else timed
        jobs.append(job if fitting is choices else replace(job, choices=fitting))
    if not rejected and all(a is b for a, b in zip(jobs, workload.jobs, strict=True)):
        return workload
    return replace(workload, jobs=jobs, rejected=[*workload.rejected, *rejected])


def _only(choices: tuple[Choice, ...], fits: object) -> tuple[Choice, ...]:
    assert callable(fits)
    return tuple(choice for choice in choices if fits(choice.request))


def check_policy(policy: object, name: str, workload: Workload, cluster: Cluster) -> None:
    """Ask the policy whether it can place these jobs here, before anything runs.

    A policy may have a method ``refuses(jobs, cluster) -> str | None``; the string says why not, e.g.
    ``places jobs on one node only; job a asks for 4``. Raises `UnsupportedWorkload`.
    """
    refuses = getattr(policy, "refuses", None)
    reason = refuses(workload.jobs, cluster) if refuses is not None else None
    if reason:
        raise UnsupportedWorkload(f"policy {name} {reason}")
