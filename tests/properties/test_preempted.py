"""Preemption by class: the engine beside a small simulator, and every schedule checked."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.preempted_plain import PlainJob, run_plain

from dovetail.model import (
    Checkpoints,
    Cluster,
    Conditions,
    Failures,
    JobClass,
    ListedFailure,
    Preemption,
    Result,
    State,
    Window,
    Workload,
    bit_indices,
)
from dovetail.plugins import load_policy
from dovetail.report.operated import operated_metrics
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full, rigid
from dovetail.testing.invariants import check_schedule

CLASSES = (
    JobClass("urgent", 20.0, users=("u",), preempts=True),
    JobClass("high", 10.0, users=("h",), preempts=True),
    JobClass("safe", 2.0, users=("s",), preemptable=False),
    JobClass("usual", 1.0, users=("n",)),
)
USERS = ("u", "h", "s", "n", "n", "low", "low")


def simulated(work: Workload, nodes: int, policy: str, conditions: Conditions) -> Result:
    result = simulate(
        work,
        Cluster.uniform(nodes, 1),
        load_policy(policy).policy,
        PerfectModel(work.truth),
        conditions=conditions,
        options=SimulationOptions(validate=True),
    )
    check_schedule(result, work)
    return result


def drawn_work(rng: random.Random, count: int, nodes: int) -> Workload:
    rows = []
    for _ in range(count):
        seconds = float(rng.randint(1, 40))
        limit = seconds + rng.choice((0, 20))
        rows.append((float(rng.randint(0, 60)), rng.randint(1, nodes), seconds, limit))
    work = rigid(rows)
    return replace(work, jobs=[replace(job, user=rng.choice(USERS)) for job in work.jobs])


@pytest.mark.parametrize("mode", ["requeue", "suspend"])
@given(st.integers(0, 1_000_000))
@settings(max_examples=full(300, 25), deadline=None)
def test_the_engine_equals_the_small_simulator(mode: str, seed: int) -> None:
    rng = random.Random(seed)
    nodes, work = rng.randint(1, 4), drawn_work(rng, rng.randint(1, 12), 1)
    suspends = mode == "suspend"
    conditions = Conditions(preemption=Preemption("suspend" if suspends else "requeue"), classes=CLASSES)
    result = simulated(work, nodes, "fcfs", conditions)
    plain = []
    for job in sorted(work.jobs, key=lambda job: job.index):
        found = conditions.class_of(job) or JobClass("-")
        seconds = work.truth.seconds(job, job.choices[0].implementation, job.choices[0].request)
        assert seconds is not None
        plain.append(
            PlainJob(
                job.index, job.submit_time, seconds, int(found.priority), found.preempts, found.preemptable
            )
        )
    run_plain(plain, nodes, suspends=suspends)
    for record, expected in zip(result.records, plain, strict=True):
        stints = [(s.start, s.end, *bit_indices(s.allocation.mask)) for s in record.earlier]
        assert record.allocation is not None
        assert record.start is not None
        assert record.end is not None
        stints.append((record.start, record.end, *bit_indices(record.allocation.mask)))
        assert stints == expected.stints, f"job {record.job.id}"


@given(
    st.integers(0, 1_000_000),
    st.sampled_from(["fcfs", "easy", "conservative", "easy?order=sjf"]),
    st.sampled_from(["requeue", "suspend"]),
)
@settings(max_examples=full(500, 40), deadline=None)
def test_with_failures_windows_and_checkpoints_every_schedule_holds(
    seed: int, policy: str, mode: str
) -> None:
    rng = random.Random(seed)
    nodes = rng.randint(1, 6)
    listed = [
        ListedFailure(node, float(rng.randint(1, 80)), float(rng.randint(1, 20)))
        for node in range(nodes)
        if rng.random() < 0.4
    ]
    there = tuple(sorted(rng.sample(range(nodes), rng.randint(1, nodes))))
    conditions = Conditions(
        Failures(listed=tuple(listed), most_restarts=10_000) if rng.random() < 0.7 else None,
        Checkpoints(6.0, 1.0, 2.0) if rng.random() < 0.5 else None,
        (Window("w", float(rng.randint(0, 90)), 20.0, there),) if rng.random() < 0.6 else (),
        Preemption("suspend" if mode == "suspend" else "requeue"),
        CLASSES,
    )
    work = drawn_work(rng, rng.randint(1, 14), nodes)
    result = simulated(work, nodes, policy, conditions)
    assert all(record.state is State.COMPLETED for record in result.records)
    found = operated_metrics(result)
    urgent = [record for record in result.records if record.job.user == "u"]
    assert not any("preempted" in s.detail or "suspended" in s.detail for r in urgent for s in r.earlier)
    assert not found["suspensions" if mode == "requeue" else "preemptions"]


def test_a_preempted_job_loses_its_work_and_a_suspended_one_does_not() -> None:
    work = rigid([(0.0, 2, 100.0, 100.0), (30.0, 1, 10.0, 10.0)])
    work = replace(work, jobs=[replace(job, user="u" if job.id == "1" else None) for job in work.jobs])
    ends = {}
    for mode in (Preemption("requeue"), Preemption("suspend")):
        result = simulated(work, 2, "easy", Conditions(preemption=mode, classes=CLASSES))
        assert (result.records[1].start, result.records[1].end) == (30.0, 40.0)
        ends[mode.mode] = result.records[0].end
        found = operated_metrics(result)
        assert found["lost_cpu_seconds"] == (60.0 if mode.mode == "requeue" else 0.0)
    assert ends == {"requeue": 140.0, "suspend": 110.0}
