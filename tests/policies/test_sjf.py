from __future__ import annotations

from dataclasses import replace

from dovetail.model import Workload
from dovetail.policies.sjf import Sjf
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, rigid_workload
from dovetail.testing.invariants import check_schedule


def test_ascending_walltime_and_the_head_blocks() -> None:
    rows = [(0.0, 2, 10.0, 10.0), (1.0, 1, 1.0, 9.0), (1.0, 2, 3.0, 5.0), (1.0, 1, 1.0, 5.0)]
    work, cluster = rigid_workload(rows, 2)
    result = simulate(work, cluster, Sjf(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert [record.start for record in result.records] == [0, 13, 10, 13]


def test_a_default_walltime_counts_and_none_comes_last() -> None:
    rows = [(0.0, 1, 9.0, 9.0), (1.0, 1, 1.0, None), (1.0, 1, 1.0, 50.0)]
    work, cluster = rigid_workload(rows, 1)
    starts = {}
    for default in ("actual", 20.0, 60.0, float("inf")):
        options = SimulationOptions(default_walltime=default)  # type: ignore[arg-type]
        result = simulate(work, cluster, Sjf(), TrueTimesModel(work.truth), options=options)
        starts[default] = [record.start for record in result.records]
    assert starts == {"actual": [0, 9, 10], 20.0: [0, 9, 10], 60.0: [0, 10, 9], float("inf"): [0, 10, 9]}


def test_priorities_are_ignored() -> None:
    work, cluster = rigid_workload([(0, 1, 4, 4), (1, 1, 1, 1), (1, 1, 2, 2)], 1)
    jobs = [replace(job, priority=job.index) for job in work.jobs]
    result = simulate(Workload("ranked", jobs, work.truth), cluster, Sjf(), TrueTimesModel(work.truth))
    assert [record.start for record in result.records] == [0, 4, 5]


def test_learned_walltimes_order_the_queue_anew_as_more_is_known() -> None:
    """By walltimes the second job goes first; its upper bound by the model is the larger one."""
    work, cluster = rigid_workload([(0, 1, 4, 4), (1, 1, 6, 10), (1, 1, 2, 20)], 1)
    user = simulate(work, cluster, Sjf(), TrueTimesModel(work.truth))
    learned = simulate(work, cluster, Sjf(walltime="learned"), TrueTimesModel(work.truth))
    check_schedule(learned, work)
    assert [record.start for record in user.records] == [0, 4, 10]
    assert [record.start for record in learned.records] == [0, 6, 4]
