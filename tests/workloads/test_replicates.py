"""Replicates of a trace: what stays, what moves, and how often their interval holds the truth."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import dovetail
from dovetail.comparison import compare
from dovetail.errors import InputError
from dovetail.model import Cluster, Dependency, Replicate, Workload
from dovetail.report.intervals import compare_paired, group_variants
from dovetail.workloads.load import load_workload
from dovetail.workloads.replicates import SESSION, WEEK, draw_replicate, plan_replicates
from dovetail.workloads.resources import offered_load

HOUR = 3600.0
FULL = bool(os.environ.get("DOVETAIL_TEST_FULL"))
CLUSTER = Cluster.parse("4x1cpu")


@pytest.fixture(scope="module")
def trace() -> Workload:
    """Ten weeks of four nodes, with users and sessions."""
    return load_workload("synthetic:lublin?jobs=1500&nodes=4&load=0.5&users=9", CLUSTER)


def test_number_0_is_the_trace_as_it_is(trace: Workload) -> None:
    assert draw_replicate(trace, CLUSTER, Replicate(0, 600.0, True)) is trace


def test_jitter_moves_each_submission_by_so_much_at_most(trace: Workload) -> None:
    found = draw_replicate(trace, CLUSTER, Replicate(1, 600.0))
    before = {job.id: job for job in trace.jobs}
    moves = [job.submit_time - before[job.id].submit_time for job in found.jobs]
    assert len(found.jobs) == len(trace.jobs)
    assert 300 < max(map(abs, moves)) <= 600.5
    assert abs(np.mean(moves)) < 60
    assert [job.submit_time for job in found.jobs] == sorted(job.submit_time for job in found.jobs)
    assert all(replace(job, submit_time=0.0, index=0).choices == before[job.id].choices for job in found.jobs)
    seconds = found.truth.seconds
    for job in found.jobs[:50]:
        assert seconds(job, job.choices[0].implementation, job.choices[0].request) == trace.truth.seconds(
            before[job.id], job.choices[0].implementation, job.choices[0].request
        )


def test_weeks_are_drawn_whole_with_their_sessions_and_the_load_is_kept(trace: Workload) -> None:
    found = draw_replicate(trace, CLUSTER, Replicate(3, 0.0, bootstrap=True))
    before = {job.id: job for job in trace.jobs}
    copies = Counter(job.id.partition("#")[0] for job in found.jobs)
    assert max(copies.values()) > 1
    assert len(copies) < len(before)
    assert offered_load(found, CLUSTER) == pytest.approx(offered_load(trace, CLUSTER), rel=0.002)
    by_user = defaultdict(list)
    for job in trace.jobs:
        by_user[job.user].append(job)
    apart = pairs = 0
    for jobs in by_user.values():  # who was submitted in one session is drawn as often
        for one, other in pairwise(jobs):
            if other.submit_time - one.submit_time <= SESSION:
                pairs += 1
                apart += copies[one.id] != copies[other.id]
    assert pairs > 100
    assert not apart


def test_a_week_comes_on_the_same_days_of_the_week(trace: Workload) -> None:
    found = draw_replicate(trace, CLUSTER, Replicate(2, 0.0, bootstrap=True))
    before = {job.id: job.submit_time for job in trace.jobs}
    then = np.array([before[job.id.partition("#")[0]] for job in found.jobs])
    now = np.array([job.submit_time for job in found.jobs])
    by = np.diff(then) > HOUR  # of neighbours of one week, by what factor gaps were scaled to keep the load
    factor = np.median(np.diff(now)[by] / np.diff(then)[by])
    shifts = (now / factor - then) / WEEK
    assert np.median(np.abs(shifts - np.rint(shifts - np.median(shifts)) - np.median(shifts))) * WEEK < HOUR
    assert len(set(np.rint(shifts))) > 3


def test_the_same_number_gives_the_same_trace_and_another_one_another(trace: Workload) -> None:
    one, again, other = (draw_replicate(trace, CLUSTER, Replicate(n, 600.0, True)) for n in (1, 1, 2))
    when = [(job.id, job.submit_time) for job in one.jobs]
    assert when == [(job.id, job.submit_time) for job in again.jobs]
    assert when != [(job.id, job.submit_time) for job in other.jobs]


def test_jobs_that_depend_on_each_other_move_together_and_copies_on_copies(trace: Workload) -> None:
    jobs = list(trace.jobs)
    jobs[-1] = replace(jobs[-1], depends=(Dependency("afterok", jobs[-40].id),))
    jobs[900] = replace(jobs[900], depends=(Dependency("afterany", jobs[880].id),))
    tied = replace(trace, jobs=jobs)
    for number in range(1, 4):
        found = draw_replicate(tied, CLUSTER, Replicate(number, 600.0, True))
        submits = {job.id: job.submit_time for job in found.jobs}
        for job in found.jobs:
            for one in job.depends:
                assert one.job.partition("#")[2] == job.id.partition("#")[2]
                assert submits[one.job] <= job.submit_time
    dovetail.simulate(found, cluster=CLUSTER, policy="fcfs")


def test_what_is_drawn_by_default(trace: Workload) -> None:
    assert [r.number for r in plan_replicates(trace)] == list(range(10))
    assert plan_replicates(trace)[1] == Replicate(1, 600.0, True, int(_length(trace) // WEEK))
    short = replace(trace, jobs=trace.jobs[:100])
    assert not plan_replicates(short)[1].bootstrap
    moment = replace(trace, jobs=trace.jobs[:2])
    assert plan_replicates(moment)[1].jitter == pytest.approx(min(600.0, _length(moment) / 100))
    assert [r.number for r in plan_replicates(replace(trace, jobs=trace.jobs[:1]))] == [0]
    with pytest.raises(InputError, match=r"expected none, or two weeks at least"):
        plan_replicates(moment, bootstrap="week")


def _length(workload: Workload) -> float:
    return workload.jobs[-1].submit_time - workload.jobs[0].submit_time


RIGID = "rigid?jobs=1500&nodes=1&load=0.6"  # ten weeks
COVERED = ("mean_wait", "mean_bounded_slowdown", "p95_wait")


def coverage(traces: int, truths: int) -> dict[str, float]:
    """How many intervals of SJF against FCFS, each from one trace, hold the mean of fresh draws."""
    machine = Cluster.parse("1x1cpu")
    fresh = compare(f"synthetic:{RIGID}", "fcfs,sjf", cluster=machine, replicates=truths, workers=1)
    groups = group_variants(fresh.results)
    truth = {m: compare_paired(groups["sjf"], groups["fcfs"], m).difference.mean for m in COVERED}
    held: Counter[str] = Counter()
    for seed in range(1000, 1000 + traces):
        trace = load_workload(f"synthetic:{RIGID}&seed={seed}", machine)
        found = compare(trace, "fcfs,sjf", cluster=machine, replicates=10, workers=1)
        assert found.results[-1].replicate.bootstrap
        for metric, known in found.summary().items():
            if metric in COVERED:
                held[metric] += known["sjf"]["low"] <= truth[metric] <= known["sjf"]["high"]
    return {metric: held[metric] / traces for metric in COVERED}


def test_intervals_from_one_trace_hold_what_fresh_draws_give() -> None:
    """The long form of it is the table of docs/explanation/trace-studies.md."""
    least = 0.9 if FULL else 0.75
    assert min(coverage(*((200, 400) if FULL else (3, 8))).values()) >= least
