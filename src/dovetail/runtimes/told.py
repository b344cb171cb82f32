"""What a simulation takes for true: the times that jobs give, else those that a model expects."""

from __future__ import annotations

from collections import Counter

from dovetail.interfaces import RuntimeModel
from dovetail.model import Cluster, Implementation, Job, Truth, Workload
from dovetail.runtimes.expected import with_expected_times

__all__ = ["never_ran", "told_or_expected"]

NAMED = 4
"""So many of the ways of which nothing is known are named."""


def told_or_expected(
    jobs: Workload, machine: Cluster, runtimes: RuntimeModel | None
) -> tuple[Workload, list[str]]:
    """Jobs that give no times with those that ``runtimes`` expects, if there is such a model.

    Also sentences for people: for how many jobs that was done, and of which ways of running an app on this
    cluster nothing is known, so that nobody takes a device for useless that was only never tried.
    """
    silent = [job for job in jobs.jobs if not _ways(job, jobs.truth, known=True)]
    if runtimes is not None:
        jobs = with_expected_times(jobs, machine, runtimes)
    told = sum(bool(_ways(job, jobs.truth, known=True)) for job in silent)
    notes = []
    if told:
        who = "1 job gives no time: it takes" if told == 1 else f"{told:,} jobs give no times: they take"
        notes.append(f"{who} as long as the history expects.")
    return jobs, [*notes, *_unknown(jobs, machine, programs_alone=False)]


def never_ran(jobs: Workload, machine: Cluster) -> list[str]:
    """The same sentence of jobs that give times, where a way that could run for real has none.

    So it is of a run that has been: what it never tried is unknown, not useless. O(jobs).
    """
    return _unknown(jobs, machine, programs_alone=True)


def _unknown(jobs: Workload, machine: Cluster, *, programs_alone: bool) -> list[str]:
    missing: Counter[str] = Counter()
    for job in jobs.jobs:
        if len(job.choices) > 1 and _ways(job, jobs.truth, known=True):
            ways = [i for i in _ways(job, jobs.truth, known=False) if i.command or not programs_alone]
            missing.update(f"{job.app.name} as {i.name}" for i in ways if machine.device_classes(i.kind))
    if not missing:
        return []
    common = missing.most_common(NAMED)
    named = [f"{what} ({count:,} job{'s' if count > 1 else ''})" for what, count in common]
    more = f" and {len(missing) - NAMED} more" if len(missing) > NAMED else ""
    return [f"Nothing is known of {', '.join(named)}{more}: no job is simulated so."]


def _ways(job: Job, truth: Truth, *, known: bool) -> list[Implementation]:
    """The implementations whose time is known, or those of which nothing is."""
    there: dict[str, bool] = {}
    for choice in job.choices:
        name, seconds = choice.implementation.name, truth.seconds(job, choice.implementation, choice.request)
        there[name] = there.get(name, False) or seconds is not None
    return [job.app.implementation(name) for name, found in there.items() if found is known]
