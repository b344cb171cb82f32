"""The checker finds what is wrong: each rule is broken on purpose in a schedule that was right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from dovetail.errors import InvariantError
from dovetail.model import (
    Allocation,
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Part,
    Record,
    Request,
    Result,
    State,
    TableTruth,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, workload
from dovetail.testing.invariants import check_schedule

JOBS = workload([("a", {"cpu": 4.0, "gpu": 2.0}), ("b", {"cpu": 4.0}), ("c", {"gpu": 3.0}, 1.0)])
CLUSTER = Cluster.parse("1x2cpu+1gpu")


def right() -> Result:
    policy = load_policy("best-device").policy
    return simulate(JOBS, CLUSTER, policy, TrueTimesModel(JOBS.truth))


def record(result: Result, job: str) -> Record:
    return next(r for r in result.records if r.job.id == job)


def overlap(result: Result) -> None:
    c = record(result, "c")
    c.start, c.end = 1.0, 4.0  # the GPU runs a until 2


def early(result: Result) -> None:
    c = record(result, "c")
    c.start, c.end = 0.5, 3.5


def short(result: Result) -> None:
    record(result, "b").end = 3.0


def backwards(result: Result) -> None:
    record(result, "b").end = -1.0


def unfinished(result: Result) -> None:
    record(result, "b").state = State.RUNNING


def too_small_a_gang(result: Result) -> None:
    b = record(result, "b")
    assert b.allocation is not None
    b.allocation = replace(b.allocation, parts=())


def too_few_cpus(result: Result) -> None:
    b = record(result, "b")
    assert b.allocation is not None
    b.allocation = Allocation(b.allocation.request, (Part(1, 1),), {0: (0,)})


def no_device(result: Result) -> None:
    a = record(result, "a")
    assert a.allocation is not None
    a.allocation = Allocation(a.allocation.request, (Part(1, 0),))


def other_choice(result: Result) -> None:
    b = record(result, "b")
    b.implementation = record(result, "c").implementation


def killed_late(result: Result) -> None:
    b = record(result, "b")
    b.state, b.end = State.TIMEOUT, 99.0


@pytest.mark.parametrize(
    ("breaks", "says"),
    [
        (overlap, "device 0 of n0 holds 2000000 of 1000000"),
        (early, "before its submission"),
        (short, r"ran 3\.0 s and needed 4\.0 s"),
        (backwards, "before its start"),
        (unfinished, "is RUNNING at the end"),
        (too_small_a_gang, "runs on 0 nodes and needs 1"),
        (too_few_cpus, r"holds cores \(0,\) of n0 and needs 2 CPUs"),
        (no_device, r"holds \[\] on n0 and needs \['gpu'\]"),
        (other_choice, "in a way that it does not offer"),
        (killed_late, r"was killed after 99\.0 s of 4\.0 s"),
    ],
)
def test_a_broken_rule_is_found(breaks: Callable[[Result], None], says: str) -> None:
    result = right()
    check_schedule(result, JOBS)
    breaks(result)
    with pytest.raises(InvariantError, match=says):
        check_schedule(result, JOBS)


def test_a_missing_and_a_doubled_job_are_found() -> None:
    result = right()
    with pytest.raises(InvariantError, match="jobs without a record: c"):
        check_schedule(replace(result, records=result.records[:2]), JOBS)
    with pytest.raises(InvariantError, match="twice"):
        check_schedule(replace(result, records=[*result.records, result.records[0]]), JOBS)


def test_a_broken_promise_is_found_unless_an_overrun_explains_it() -> None:
    result = replace(right(), promises_broken=2, broken_by_overrun=1)
    with pytest.raises(InvariantError, match="1 promises were broken"):
        check_schedule(result, JOBS)
    check_schedule(replace(result, broken_by_overrun=2), JOBS)


def test_cores_and_memory_are_counted_one_by_one() -> None:
    cluster = Cluster((Node("n", (4, 5), (Device("gpu"),), memory=100),))
    implementation = Implementation("cpu", "cpu", Request(1, 1, (), 60))
    app = App("m", (implementation,))
    choice = Choice(implementation, implementation.request)
    jobs = [Job(str(i), app, (choice,), index=i) for i in range(2)]
    w = Workload("m", jobs, TableTruth(fixed={"0": 5.0, "1": 5.0}))

    def ran(i: int, core: int) -> Record:
        allocation = Allocation(implementation.request, (Part(1, 1, (), 1_000_000, 60),), {0: (core,)})
        return Record(jobs[i], State.COMPLETED, implementation, allocation, 0.0, 5.0)

    with pytest.raises(InvariantError, match="cpu 4 of n holds 2 of 1"):
        check_schedule(Result("p", "m", cluster, [ran(0, 4), ran(1, 4)]), w)
    with pytest.raises(InvariantError, match="memory 0 of n holds 120 of 100"):
        check_schedule(Result("p", "m", cluster, [ran(0, 4), ran(1, 5)]), w)
