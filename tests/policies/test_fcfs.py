from __future__ import annotations

from dataclasses import replace

from dovetail.model import Workload
from dovetail.policies.fcfs import Fcfs
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, rigid_workload, workload
from dovetail.testing.invariants import check_schedule


def test_the_head_blocks() -> None:
    """The third job would fit beside the first, but the second waits before it."""
    work, cluster = rigid_workload([(0, 2, 10, 10), (1, 3, 5, 5), (2, 1, 1, 1)], 3)
    result = simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert [record.start for record in result.records] == [0, 10, 15]


def test_higher_priority_goes_first_before_file_order() -> None:
    work, cluster = rigid_workload([(0, 1, 4, 4), (1, 1, 1, 1), (1, 1, 1, 1), (2, 1, 1, 1)], 1)
    ranks = [0, 0, 1, 1]
    jobs = [replace(job, priority=rank) for job, rank in zip(work.jobs, ranks, strict=True)]
    result = simulate(Workload("ranked", jobs, work.truth), cluster, Fcfs(), TrueTimesModel(work.truth))
    assert [record.start for record in result.records] == [0, 6, 4, 5]


def test_waits_for_the_fastest_implementation() -> None:
    work = workload([("a", {"cpu": 5, "gpu": 2}), ("b", {"cpu": 5, "gpu": 2}), ("c", {"cpu": 1})])
    _, cluster = rigid_workload([], 1)
    cluster = type(cluster).uniform(1, 1, 1)
    result = simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert [record.start for record in result.records] == [0, 2, 2]
