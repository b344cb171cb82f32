"""What a simulation takes for true: the times that jobs give, else those that a model expects.

And what is known of neither: a device on which nothing was ever tried is not useless, it is unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from dovetail.interfaces import RuntimeModel
from dovetail.model import Cluster, Implementation, Job, Note, Truth, Workload
from dovetail.runtimes.expected import with_expected_times

Kinds = Callable[[str], bool]
NAMED = 4
"""So many ways are named."""


def _any_kind(kind: str) -> bool:
    return True


def true_or_expected(
    jobs: Workload, machine: Cluster, runtimes: RuntimeModel | None, used: Kinds = _any_kind
) -> tuple[Workload, list[Note]]:
    """Jobs that give no times with those that ``runtimes`` expects, if there is such a model.

    Also notes: for how many jobs that was done, and of which ways of running an app on this cluster nothing
    is known, so that a device that was only never tried is not taken for useless. ``used`` lists the kinds
    of device the policy would go to.
    """
    before = [(job, _ways_known(job, jobs.truth, known=False)) for job in jobs.jobs]
    if runtimes is not None:
        jobs = with_expected_times(jobs, machine, runtimes)
    silent, filled = 0, Counter[str]()
    for job, missing in before:
        there = {one.name for one in _ways_known(job, jobs.truth, known=True)} if missing else set()
        in_truth = [one for one in missing if one.name in there]
        # A job without any time of its own is one silence, not one for each of its ways.
        if in_truth and len(missing) == len({choice.implementation.name for choice in job.choices}):
            silent += 1
        else:
            filled.update(_way_names(job, in_truth))
    notes = []
    if silent:
        who = "1 job gives no time: it takes" if silent == 1 else f"{silent:,} jobs give no times: they take"
        notes.append(Note(f"{who} as long as the history expects.", "expected"))
    if filled:
        notes.append(Note(f"{_list_ways(filled)}: the times are those that the history expects.", "expected"))
    return jobs, [*notes, *_unknown_notes(jobs, machine, used, programs_alone=False)]


def never_ran(jobs: Workload, machine: Cluster, used: Kinds = _any_kind) -> list[Note]:
    """The notes on what is unknown of jobs that give times, where a way that could run for real has none.

    So it is of a run that has been: what it never tried is unknown, not useless. O(jobs).
    """
    return _unknown_notes(jobs, machine, used, programs_alone=True)


def unknown_kinds(jobs: Workload, machine: Cluster, used: Kinds = _any_kind) -> list[str]:
    """Kinds of device that the cluster has and jobs could use, on which no time of any job is known.

    What would happen on such a cluster is unknown: jobs would go there. Only kinds that are ``used``
    count, and only programs that can run for real (they have a command), of jobs with a time. O(jobs).
    """
    if jobs.table is not None or all(len(job.choices) == 1 for job in jobs.jobs):
        return []
    found: dict[str, bool] = {}
    for job in jobs.jobs:
        known = _ways_known(job, jobs.truth, known=True)
        found |= {one.kind: True for one in known}
        # A job with one choice goes nowhere else: what is unknown of it is no reason to stop.
        if known and len(job.choices) > 1:
            for one in _ways_known(job, jobs.truth, known=False):
                if one.command is not None and machine.device_classes(one.kind):
                    found.setdefault(one.kind, False)
    return [kind for kind, known in found.items() if not known and used(kind)]


def _unknown_notes(jobs: Workload, machine: Cluster, used: Kinds, *, programs_alone: bool) -> list[Note]:
    missing: Counter[str] = Counter()
    for job in jobs.jobs:
        if len(job.choices) > 1 and _ways_known(job, jobs.truth, known=True):
            ways = [i for i in _ways_known(job, jobs.truth, known=False) if i.command or not programs_alone]
            missing.update(
                _way_names(job, (i for i in ways if used(i.kind) and machine.device_classes(i.kind)))
            )
    if not missing:
        return []
    return [Note(f"Nothing is known of {_list_ways(missing)}: no job is simulated so.", "unknown")]


def _way_names(job: Job, ways: Iterable[Implementation]) -> Iterator[str]:
    return (f"{job.app.name} as {one.name}" for one in ways)


def _list_ways(ways: Counter[str]) -> str:
    """The ways, the most common first, with how many jobs each has."""
    common = ways.most_common(NAMED)
    named = [f"{what} ({count:,} job{'s' if count > 1 else ''})" for what, count in common]
    return ", ".join(named) + (f" and {len(ways) - NAMED} more" if len(ways) > NAMED else "")


def _ways_known(job: Job, truth: Truth, *, known: bool) -> list[Implementation]:
    """The implementations whose time is known, or those of which nothing is."""
    there: dict[str, bool] = {}
    for choice in job.choices:
        name, seconds = choice.implementation.name, truth.seconds(job, choice.implementation, choice.request)
        there[name] = there.get(name, False) or seconds is not None
    return [job.app.implementation(name) for name, found in there.items() if found is known]
