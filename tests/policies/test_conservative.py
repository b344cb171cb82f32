"""Conservative backfilling on small examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace

from dovetail.model import Cancelled, Cluster, Event, NodeJoined, NodeLost, Request, Result, Workload
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, rigid, rigid_workload
from dovetail.testing.invariants import check_schedule

Row = tuple[float, int, float, float | None]


def run(rows: list[Row], nodes: int, **options: object) -> Result:
    work, cluster = rigid_workload(rows, nodes)
    chosen = SimulationOptions(**options)  # type: ignore[arg-type]
    result = simulate(work, cluster, Conservative(), TrueTimesModel(work.truth), options=chosen)
    check_schedule(result, work)
    return result


def starts(result: Result) -> list[float | None]:
    return [record.start for record in result.records]


def promised(result: Result) -> list[float | None]:
    return [record.promised for record in result.records]


def test_every_job_is_promised_a_start_that_moves_no_promise() -> None:
    """EASY would start the last job at 2 on a node that the third job is promised from 10 on."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 3, 5, 5), (1, 3, 5, 5), (2, 1, 8, 8), (2, 1, 9, 9)]
    result = run(rows, 3)
    assert starts(result) == [0, 10, 15, 2, 20]
    assert promised(result) == [None, 10, 15, None, 20]


def test_easy_delays_others_than_the_head_and_conservative_does_not() -> None:
    rows: list[Row] = [(0, 3, 10, 10), (1, 2, 10, 10), (2, 4, 10, 10), (3, 1, 30, 30)]
    work, cluster = rigid_workload(rows, 4)
    easy = simulate(work, cluster, Easy(), TrueTimesModel(work.truth))
    assert starts(easy) == [0, 10, 33, 3]
    assert starts(run(rows, 4)) == [0, 10, 20, 30]


def test_an_early_end_moves_promises_in_queue_order() -> None:
    """The first job ends at 4 instead of 20: what follows moves up, each no later than before."""
    rows: list[Row] = [(0, 2, 4, 20), (1, 2, 5, 6), (2, 1, 9, 9), (3, 2, 1, 1)]
    result = run(rows, 2)
    assert starts(result) == [0, 4, 9, 18]
    assert promised(result) == [None, 20, 10, 18]


def test_a_promise_may_fall_due_without_an_event() -> None:
    """The third job moves up behind the slot of the fourth, which then moves too: at 15 nobody ends."""
    rows: list[Row] = [(0, 1, 4, 20), (0, 1, 10, 10), (1, 2, 5, 5), (2, 1, 5, 5)]
    result = run(rows, 2)
    assert starts(result) == [0, 0, 15, 4]
    assert promised(result) == [None, None, 15, 10]


def test_slots_on_named_nodes_and_gpus() -> None:
    one, two = Request(1, 0, (("gpu", 1),)), Request(1, 0, (("gpu", 2),))
    work = rigid([(0, 1, 10, 10), (1, 1, 5, 5), (2, 1, 8, 8), (2, 1, 9, 9)], one)
    big = work.jobs[1]
    implementation = replace(big.choices[0].implementation, request=two)
    app = replace(big.app, implementations=(implementation,))
    choice = replace(big.choices[0], implementation=implementation, request=two)
    jobs = [work.jobs[0], replace(big, app=app, choices=(choice,)), *work.jobs[2:]]
    mixed = Workload("mixed", jobs, work.truth)
    result = simulate(mixed, Cluster.uniform(1, 1, 2), Conservative(), TrueTimesModel(work.truth))
    check_schedule(result, mixed)
    assert starts(result) == [0, 10, 2, 15]


def test_incidents_make_new_promises() -> None:
    work, cluster = rigid_workload([(0, 2, 10, 10), (1, 2, 5, 5), (2, 2, 5, 5), (3, 2, 5, 5)], 2)
    lost: list[tuple[float, Event]] = [(4.0, NodeLost(0)), (6.0, NodeJoined(0))]
    result = simulate(work, cluster, Conservative(), TrueTimesModel(work.truth), incidents=lost)
    assert starts(result) == [0, 6, 11, 16]
    cancelled: list[tuple[float, Event]] = [(4.0, Cancelled("2"))]
    result = simulate(work, cluster, Conservative(), TrueTimesModel(work.truth), incidents=cancelled)
    assert starts(result) == [0, 10, None, 15]
    assert promised(result) == [None, 10, None, 15]


def test_overruns_are_excused_and_nobody_is_forgotten() -> None:
    rows: list[Row] = [(0, 2, 30, 10), (1, 2, 5, 5), (2, 2, 5, 5), (12, 1, 3, 3), (31, 1, 2, 2)]
    result = run(rows, 2, overrun="run")
    assert starts(result) == [0, 30, 35, 40, 40]
    assert result.promises_broken == result.broken_by_overrun == 2


def test_nothing_is_promised_behind_jobs_without_a_bound() -> None:
    rows: list[Row] = [(0, 2, 10, None), (1, 2, 5, 5), (2, 1, 2, 2)]
    result = run(rows, 2, default_walltime=float("inf"))
    assert starts(result) == [0, 10, 15]
    assert promised(result)[1] is None


def test_priority_counts_within_an_instant_and_in_compression() -> None:
    work, cluster = rigid_workload([(0, 2, 4, 9), (1, 2, 5, 5), (1, 2, 5, 5)], 2)
    jobs = [replace(job, priority=job.index) for job in work.jobs]
    result = simulate(
        Workload("ranked", jobs, work.truth), cluster, Conservative(), TrueTimesModel(work.truth)
    )
    assert starts(result) == [0, 9, 4]
