"""Replicates of a trace: other traces that might as well have been logged.

A trace is one draw of what its users do. How much a figure depends on that draw is found by drawing again
from the trace itself: submissions are moved a little (Tsafrir and Feitelson 2006, "Instability in parallel
job scheduling simulation": the shaking of the input), and whole weeks are drawn with replacement (a block
bootstrap; after Zakay and Feitelson 2013, "Workload resampling for performance evaluation of parallel job
schedulers", who resample users by weeks).

- **Jitter.** Each submission moves by up to so many seconds, either way. Jobs that a user submits at one
  instant stay together, and so do jobs that depend on each other; those that meet at an instant stand in a
  random order.
- **Weeks.** The time of the trace is cut into weeks, at a random hour of midnight to midnight; each is
  filled with a week of the trace, which begins at the same day of the week, drawn with replacement. A
  user's session (submissions at most 20 minutes apart) belongs to the week in which it began, with what
  depends on it. The load is kept: the gaps between submissions are scaled by what the work differs (draws
  that hold half as much again, or half as little, are left out).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dovetail.errors import InputError
from dovetail.model import (
    Cluster,
    Dependency,
    Implementation,
    Job,
    JobId,
    Replicate,
    Request,
    Seconds,
    TableTruth,
    Truth,
    Workload,
)
from dovetail.model.tables import JobTable
from dovetail.records import dataclass
from dovetail.spec.values import Bootstrap
from dovetail.workloads.builder import unique_ids
from dovetail.workloads.resources import asked_request, requested_counts, uses_devices

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

DAY, WEEK = 86_400.0, 604_800.0
FEWEST_WEEKS = 8
"""Of fewer weeks none are drawn anew: too few to estimate how they differ."""
REPLICATES = 10
JITTER = 600.0
MOST_JOBS = 100_000
"""Of larger traces replicates are drawn only on request."""
SESSION = 1200.0
"""Seconds between two submissions of one session, at most."""
SHARE = 0.01
"""The part of a trace's time by which submissions are moved at most, unless an option gives another."""
TRIES, SLACK = 256, 0.5


def plan_replicates(
    workload: Workload,
    *,
    replicates: int | None = None,
    jitter: Seconds | None = None,
    bootstrap: Bootstrap | None = None,
    seed: int = 1,
) -> list[Replicate]:
    """The replicates to draw of a trace; without a number 10.

    Of more than 100,000 jobs, and where all are submitted at one instant, so that nothing moves, it is 1.

    Without ``jitter`` 600 s, or a hundredth of the time of a trace shorter than 17 hours; without
    ``bootstrap`` weeks where there are at least 8. Raises `InputError` for weeks of a trace that has not two.
    """
    submits = submission_times(workload)
    length = float(submits.max() - submits.min()) if len(submits) else 0.0
    weeks = int(length // WEEK)
    if bootstrap == "week" and weeks < 2:
        found = f"found week, with a trace of {length / DAY:.1f} days"
        raise InputError(f"{found}, expected none, or two weeks at least", where="bootstrap")
    many = replicates or (REPLICATES if length and len(submits) <= MOST_JOBS else 1)
    draw = Replicate(
        jitter=min(JITTER, SHARE * length) if jitter is None else jitter,
        bootstrap=bootstrap == "week" or (bootstrap is None and weeks >= FEWEST_WEEKS),
        weeks=weeks,
        seed=seed,
    )
    return [replace(draw, number=number) for number in range(many)]


def draw_replicate(workload: Workload, cluster: Cluster, replicate: Replicate) -> Workload:
    """That replicate of the workload; number 0 is the workload as it is. O(jobs log jobs).

    Job ids that come twice become ``ID#2``. Recorded starts move with their jobs; where jobs were
    placed is left out.
    """
    if replicate.number == 0 or replicate.fresh or not len(workload.jobs):
        return workload
    # A stream by number: a replicate is the same, however many are drawn beside it.
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([replicate.seed, replicate.number])))
    submit = submission_times(workload)
    source, when = np.arange(len(submit)), submit
    tied = _tie_dependents(workload)
    if replicate.bootstrap:
        source, when = _weeks_anew(
            submit, _session_starts(workload, submit, tied), _work_amounts(workload, cluster), rng
        )
    together = _move_groups(workload, submit, tied)[source] if replicate.jitter else None
    if together is not None:
        when = _move_moments(when, together, replicate.jitter, rng)
    # A log in whole seconds stays one.
    if (submit == np.floor(submit)).all():
        when = np.rint(when)
    # Jobs that meet at an instant stand in a random order: their old order would favour the same ones.
    order = np.lexsort((rng.random(len(when)), when))
    return _make_workload(workload, source[order], when[order])


def submission_times(workload: Workload) -> Floats:
    """When each job is submitted, in file order, (jobs,) seconds."""
    if isinstance(workload.jobs, JobTable):
        return workload.jobs.submit
    return np.array([job.submit_time for job in workload.jobs], float)


def _user_numbers(workload: Workload) -> Ints:
    """A number for each job's user; each job without a user has a number of its own."""
    if isinstance(workload.jobs, JobTable):
        users = workload.jobs.user.astype(np.int64)
    else:
        known: dict[str, int] = {}
        names = (job.user for job in workload.jobs)
        users = np.array([-1 if n is None else known.setdefault(n, len(known)) for n in names], np.int64)
    unknown = users < 0
    users[unknown] = users.max(initial=0) + 1 + np.arange(int(unknown.sum()))
    return users


def _tie_dependents(workload: Workload) -> Ints | None:
    """For each job the first job with which dependencies connect it; ``None`` where there are none."""
    if isinstance(workload.jobs, JobTable) or not any(job.depends for job in workload.jobs):
        return None
    places = {job.id: place for place, job in enumerate(workload.jobs)}
    root = list(range(len(places)))

    def find_root(place: int) -> int:
        while root[place] != place:
            # Paths are halved on the way (union-find).
            root[place] = root[root[place]]
            place = root[place]
        return place

    for place, job in enumerate(workload.jobs):
        for dependency in job.depends:
            other = places.get(dependency.job)
            if other is not None:
                low, high = sorted((find_root(place), find_root(other)))
                # The first job is the root: its moment decides for all.
                root[high] = low
    return np.array([find_root(place) for place in range(len(root))], np.int64)


def _session_starts(workload: Workload, submit: Floats, tied: Ints | None) -> Floats:
    """For each job the moment at which its user's session began, or that of what it depends on."""
    users = _user_numbers(workload)
    order = np.lexsort((submit, users))
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(users[order]) != 0) | (np.diff(submit[order]) > SESSION)
    began = np.empty(len(order))
    began[order] = submit[order][first][np.cumsum(first) - 1]
    return began if tied is None else began[tied]


def _move_groups(workload: Workload, submit: Floats, tied: Ints | None) -> Ints:
    """For each job the number of those with which it moves."""
    if tied is not None:
        return tied
    _, found = np.unique(
        np.stack([_user_numbers(workload).astype(float), submit]), axis=1, return_inverse=True
    )
    return found.reshape(-1).astype(np.int64)


def _move_moments(when: Floats, together: Ints, jitter: Seconds, rng: np.random.Generator) -> Floats:
    """Moments moved by up to ``jitter``, alike for those together at one; none before the first."""
    _, group = np.unique(np.stack([together.astype(float), when]), axis=1, return_inverse=True)
    group = group.reshape(-1)
    shifts = rng.uniform(-jitter, jitter, int(group.max()) + 1)
    first = when.min()
    # Reflected at the first submission, so that no gap opens before it.
    moved: Floats = first + np.abs(when + shifts[group] - first)
    return moved


# ------------------------------------------------------------------------------------------------- weeks


def _weeks_anew(submit: Floats, began: Floats, work: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Which jobs there are, and when each is submitted, after weeks were drawn with replacement.

    ``began`` is the moment that decides to which week a job belongs; ``work`` is kept.
    """
    first, length = float(submit.min()), float(submit.max() - submit.min())
    begin = np.clip(began - first, 0.0, length)
    by_begin = np.argsort(begin, kind="stable")
    moments, sums = begin[by_begin], np.concatenate([[0.0], np.cumsum(work[by_begin])])
    # At a random midnight, or every draw would cut the same weeks.
    midnights = np.arange(rng.integers(0, 7) * DAY, length, WEEK)
    edges = np.unique(np.concatenate([[0.0], midnights, [length]]))
    lows: Floats = edges[:-1]
    highs: Floats = edges[1:]
    # Weeks of the trace that begin on the same day: so many lie before, and so many behind.
    # A piece may come from any week in which the whole of it lies.
    back, on = (lows // WEEK).astype(int), ((length - highs) // WEEK).astype(int)
    least = math.inf
    shift: npt.NDArray[np.floating] = np.zeros(len(lows))
    best = _slice_places(moments, lows, highs, length)
    # Draws with much more or less work are other traces: the gaps could not make up for it.
    for _ in range(TRIES):
        shifts = WEEK * rng.integers(-back, on + 1)
        found = _slice_places(moments, lows + shifts, highs + shifts, length)
        away = abs(float((sums[found[1]] - sums[found[0]]).sum()) / sums[-1] - 1.0)
        if away < least:
            least, best, shift = away, found, shifts
        if least <= SLACK:
            break
    spans = list(zip(best[0].tolist(), best[1].tolist(), shift.tolist(), strict=True))
    source = np.concatenate([by_begin[low:high] for low, high, _ in spans])
    when = np.concatenate([submit[by_begin[low:high]] - by for low, high, by in spans])
    # The load is kept by the span: gaps grow as the work does.
    kept = float(work[source].sum()) / float(work.sum()) * length / float(when.max() - when.min())
    return source, first + (when - when.min()) * kept


def _slice_places(moments: Floats, lows: Floats, highs: Floats, length: Seconds) -> tuple[Ints, Ints]:
    """Places of the jobs from each of ``lows`` to before each of ``highs``; the last moment belongs in."""
    begins = np.searchsorted(moments, lows, "left")
    ends = np.where(
        highs >= length, np.searchsorted(moments, highs, "right"), np.searchsorted(moments, highs, "left")
    )
    return begins.astype(np.int64), ends.astype(np.int64)


def _work_amounts(workload: Workload, cluster: Cluster) -> Floats:
    """Requested resources of each job times its true seconds; 1 for all where one of them is unknown."""
    jobs = workload.jobs
    if isinstance(jobs, JobTable):
        requests = [choices[0].request for _, choices in jobs.forms]
        found: Floats = jobs.by_form([r.nodes * max(1, r.cpus) for r in requests]) * jobs.seconds
    else:
        sizes = requested_counts(workload, cluster, devices=uses_devices(jobs))
        found = np.array([_job_area(workload, job, n) for job, n in zip(jobs, sizes, strict=True)])
    return found if np.isfinite(found).all() and found.sum() > 0 else np.ones(len(jobs))


def _job_area(workload: Workload, job: Job, count: float | None) -> float:
    request = asked_request(job)
    choice = next((c for c in job.choices if c.request is request), job.choices[0])
    seconds = workload.truth.seconds(job, choice.implementation, choice.request)
    return math.nan if count is None or seconds is None else count * seconds


# ------------------------------------------------------------------------------------------- the workload


def _make_workload(workload: Workload, source: Ints, when: Floats) -> Workload:
    """The jobs at these places of the workload, submitted at these moments, in this order."""
    jobs, submit = workload.jobs, submission_times(workload)
    if isinstance(jobs, JobTable):
        olds: Sequence[JobId] = jobs.ids_at(source)[:]
    else:
        olds = [jobs[place].id for place in source.tolist()]
    # A job that is drawn twice is two jobs.
    ids = unique_ids(olds)
    shifts = (when - submit[source]).tolist()
    starts = {
        new: workload.recorded[old] + shift
        for new, old, shift in zip(ids, olds, shifts, strict=True)
        if old in workload.recorded
    }
    # Where jobs were placed belongs to the schedule that was logged.
    made = replace(workload, recorded=starts, placed={})
    if isinstance(jobs, JobTable):
        columns = {name: getattr(jobs, name)[source] for name in ("seconds", "walltime", *_NUMBERS)}
        table = replace(jobs, ids=ids, place=np.arange(len(ids)), submit=when, **columns)
        return replace(made, jobs=table, truth=TableTruth(fixed=table.times))
    chosen = [jobs[place] for place in source.tolist()]
    depends = _copied_dependencies(chosen, ids)
    copies = [
        replace(job, id=new, index=index, submit_time=at, depends=depends.get(new, ()))
        for index, (new, job, at) in enumerate(zip(ids, chosen, when.tolist(), strict=True))
    ]
    originals = {new: job for new, job in zip(ids, chosen, strict=True) if new != job.id}
    truth = _OfOriginals(workload.truth, originals) if originals else workload.truth
    return replace(made, jobs=copies, truth=truth)


_NUMBERS = ("form", "user", "group", "queue")


def _copied_dependencies(chosen: Sequence[Job], ids: Sequence[JobId]) -> dict[JobId, tuple[Dependency, ...]]:
    """What each copy depends on: the copies that came with it, since they are drawn together."""
    times: Counter[JobId] = Counter()
    copy: dict[tuple[JobId, int], JobId] = {}
    number = []
    for job, new in zip(chosen, ids, strict=True):
        times[job.id] += 1
        copy[job.id, times[job.id]] = new
        number.append(times[job.id])
    return {
        new: tuple(replace(one, job=copy.get((one.job, n), one.job)) for one in job.depends)
        for job, new, n in zip(chosen, ids, number, strict=True)
        if job.depends
    }


@dataclass(slots=True)
class _OfOriginals:
    """True times of jobs of which some are copies under other ids."""

    truth: Truth
    originals: dict[JobId, Job]

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds | None:
        """True seconds of the job that it is a copy of."""
        return self.truth.seconds(self.originals.get(job.id, job), implementation, request)
