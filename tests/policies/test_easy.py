"""EASY on small examples worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import log10

import pytest

from dovetail.interfaces import Policy, View
from dovetail.model import (
    Cluster,
    Decision,
    DeviceClass,
    Event,
    Implementation,
    Job,
    NodeJoined,
    NodeLost,
    Prediction,
    Request,
    Reserve,
    Result,
    Workload,
)
from dovetail.policies.easy import Easy
from dovetail.policies.parts.orders import f1_first
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, rigid, rigid_workload, timed, workload
from dovetail.testing.invariants import check_schedule

Row = tuple[float, int, float, float | None]


def run(rows: list[Row], nodes: int, policy: Policy | None = None, **options: object) -> Result:
    work, cluster = rigid_workload(rows, nodes)
    chosen = SimulationOptions(**options)  # type: ignore[arg-type]
    result = simulate(work, cluster, policy or Easy(), TrueTimesModel(work.truth), options=chosen)
    check_schedule(result, work)
    return result


def starts(result: Result) -> list[float | None]:
    return [record.start for record in result.records]


def promised(result: Result) -> list[float | None]:
    return [record.promised for record in result.records]


def test_backfills_what_ends_by_the_shadow_time() -> None:
    """The head needs all three nodes at 10: a job that ends exactly then may go first, a longer one not."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 3, 5, 5), (2, 1, 8, 8), (2, 1, 9, 9)]
    assert starts(run(rows, 3)) == [0, 10, 2, 15]
    assert promised(run(rows, 3)) == [None, 10, None, 15]


def test_backfills_on_extra_nodes() -> None:
    """At 10 the head takes 2 of 4 nodes; two are extra, one of them free now."""
    rows: list[Row] = [(0, 3, 10, 10), (1, 2, 5, 5), (2, 1, 99, 99), (3, 1, 99, 99)]
    assert starts(run(rows, 4)) == [0, 10, 2, 10]


def test_jobs_that_end_at_the_shadow_time_count_towards_the_extra_nodes() -> None:
    """Two jobs end at 10; the head takes the nodes of one, so a long job may use those of the other."""
    rows: list[Row] = [(0, 1, 10, 10), (0, 1, 10, 10), (1, 2, 5, 5), (2, 1, 99, 99)]
    assert starts(run(rows, 3)) == [0, 0, 10, 2]


def test_a_promise_moves_earlier_when_jobs_end_early() -> None:
    rows: list[Row] = [(0, 1, 4, 20), (0, 1, 6, 10), (1, 2, 5, 5)]
    result = run(rows, 2)
    assert starts(result) == [0, 0, 6]
    assert promised(result) == [None, None, 10]


def test_the_head_with_a_promise_stays_head_in_every_order() -> None:
    """Shorter jobs arrive after the promise: they may be backfilled, but do not become the head."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 2, 9, 9), (2, 2, 1, 1), (3, 1, 2, 2)]
    assert starts(run(rows, 2, Easy(order="sjf"))) == [0, 10, 19, 20]


def test_a_later_high_priority_does_not_break_a_promise() -> None:
    work, cluster = rigid_workload([(0, 2, 10, 10), (1, 2, 5, 5), (2, 2, 5, 5), (2, 2, 5, 5)], 2)
    jobs = [replace(job, priority=rank) for job, rank in zip(work.jobs, (0, 0, 0, 9), strict=True)]
    result = simulate(Workload("ranked", jobs, work.truth), cluster, Easy(), TrueTimesModel(work.truth))
    assert starts(result) == [0, 10, 20, 15]


def test_candidates_follow_the_order() -> None:
    """Behind the promised head only one of two may go: the shortest, or the largest that fits."""
    rows: list[Row] = [(0, 2, 10, 10), (1, 4, 5, 5), (2, 1, 8, 8), (2, 2, 8, 8), (2, 1, 7, 7)]
    assert starts(run(rows, 4, Easy(order="sjf")))[2:] == [2, 15, 2]
    assert starts(run(rows, 4, Easy(order="largest")))[2:] == [15, 2, 15]
    assert starts(run(rows, 4))[2:] == [2, 15, 2]


def test_the_first_by_the_order_is_promised() -> None:
    rows: list[Row] = [(0, 2, 10, 10), (1, 2, 9, 9), (1, 2, 5, 5)]
    result = run(rows, 2, Easy(order="sjf"))
    assert starts(result) == [0, 15, 10]
    assert promised(result) == [None, 24 - 9, 10]


def test_f1_is_the_published_function() -> None:
    """F1 = log10(r) * n + 870 * log10(s)."""
    job = rigid([(1000.0, 16, 60.0, 3600.0)]).jobs[0]
    assert f1_first(job, 3600.0) == (0, pytest.approx(log10(3600) * 16 + 870 * 3))
    early = rigid([(0.0, 1, 1.0, 0.5)]).jobs[0]
    assert f1_first(early, 0.5) == (0, 0)


def test_one_reservation_at_a_time_and_never_later() -> None:
    seen: list[tuple[str, float]] = []

    @dataclass(frozen=True)
    class Watched(Easy):
        def decide(self, view: View) -> Iterable[Decision]:
            assert len(view.reservations) <= 1
            decisions = list(Easy.decide(self, view))
            seen.extend((d.job, d.start) for d in decisions if isinstance(d, Reserve))
            return decisions

    rows: list[Row] = [(0, 1, 4, 20), (0, 1, 6, 10), (1, 2, 5, 5), (2, 2, 5, 5), (2, 1, 3, 3)]
    run(rows, 2, Watched())
    assert seen == [("2", 20), ("2", 10), ("2", 7), ("3", 12)]


def test_an_overrun_breaks_a_promise_and_is_counted_apart() -> None:
    rows: list[Row] = [(0, 2, 30, 10), (1, 2, 5, 5), (2, 1, 3, 3)]
    result = run(rows, 2, overrun="run")
    assert starts(result) == [0, 30, 35]
    assert (result.promises_broken, result.broken_by_overrun) == (1, 1)
    assert starts(run(rows, 2)) == [0, 10, 15]


def test_a_head_that_can_be_promised_nothing_waits() -> None:
    """The running job has no bound: a short job may not take the node that the head waits with."""
    rows: list[Row] = [(0, 1, 10, None), (1, 2, 5, 5), (2, 1, 1, 1), (3, 1, 1, 1)]
    result = run(rows, 2, default_walltime=float("inf"))
    assert starts(result) == [0, 10, 15, 15]
    assert promised(result)[1] is None
    rows[1] = (1, 1, 5, 5)
    assert starts(run(rows, 2, default_walltime=float("inf"))) == [0, 1, 6, 7]


def test_several_implementations_and_gpus() -> None:
    """The head wants the GPU; a CPU job passes it, a long GPU job does not."""
    rows = [
        ("a", {"gpu": 10.0}),
        ("b", {"cpu": 50.0, "gpu": 3.0}, 1.0),
        ("c", {"gpu": 4.0}, 2.0),
        ("d", {"cpu": 20.0}, 2.0),
    ]
    work = workload(rows)  # type: ignore[arg-type]
    result = simulate(work, Cluster.uniform(1, 1, 1), Easy(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert starts(result) == [0, 10, 13, 2]


def test_extra_nodes_outside_the_heads_plan() -> None:
    """The normal placement would delay the head; a node outside its plan does not."""
    gpu = Request(1, 0, (("gpu", 1),))
    work = rigid([(0, 1, 10, 10), (1, 1, 5, 5), (2, 1, 99, 99)], gpu)
    head = work.jobs[1]
    whole = Implementation("gpu", "gpu", Request(1, 0, (("gpu", 2),)))
    app = replace(head.app, implementations=(whole,))
    choice = replace(head.choices[0], implementation=whole, request=whole.request)
    jobs = [work.jobs[0], replace(head, app=app, choices=(choice,)), work.jobs[2]]
    nodes = (*Cluster.uniform(1, 1, 2).nodes, replace(Cluster.uniform(1, 1, 1).nodes[0], name="n1"))
    cluster = Cluster((replace(nodes[1], name="n0"), replace(nodes[0], name="n1")))
    mixed = Workload("mixed", jobs, work.truth)
    result = simulate(mixed, cluster, Easy(placement="spread"), TrueTimesModel(work.truth))
    check_schedule(result, mixed)
    assert starts(result) == [0, 10, 2]
    assert result.records[2].allocation is not None
    assert result.records[2].allocation.nodes == [0]


def test_lost_nodes_void_the_promise_and_a_new_one_is_made() -> None:
    work, cluster = rigid_workload([(0, 2, 10, 10), (1, 2, 5, 5), (2, 3, 1, 1)], 3)
    incidents: list[tuple[float, Event]] = [(3.0, NodeLost(2)), (12.0, NodeJoined(2))]
    result = simulate(work, cluster, Easy(), TrueTimesModel(work.truth), incidents=incidents)
    assert starts(result) == [0, 10, 15]


class Guessing(TrueTimesModel):
    """Thinks that every job takes 4 seconds, 5 at most."""

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        return Prediction(4.0, 5.0, 9, "a guess", 3.0)


def test_learned_walltimes_make_other_promises() -> None:
    """By the users' walltimes the head starts at 100, by the learned bound at 5: a job of 5 is too long."""
    rows: list[Row] = [(0, 1, 4, 100), (1, 2, 5, 100), (2, 1, 4, 50), (2, 1, 1, 100)]
    work, cluster = rigid_workload(rows, 2)
    learned = simulate(work, cluster, Easy(walltime="learned"), Guessing(work.truth))
    assert starts(learned) == [0, 4, 9, 9]
    assert promised(learned)[1] == 5
    assert starts(run(rows, 2)) == [0, 6, 2, 11]
    assert (learned.promises_broken, learned.broken_by_overrun) == (0, 0)


def test_a_learned_bound_that_is_too_low_is_counted_apart() -> None:
    rows: list[Row] = [(0, 2, 30, 100), (1, 2, 5, 100)]
    work, cluster = rigid_workload(rows, 2)
    result = simulate(work, cluster, Easy(walltime="learned"), Guessing(work.truth))
    check_schedule(result, work)
    assert starts(result) == [0, 30]
    assert (result.promises_broken, result.broken_by_overrun) == (1, 1)


def test_moldable_jobs_run_as_asked() -> None:
    job, _ = timed("m", {"cpu": 5.0})
    implementation = job.choices[0].implementation
    choices = tuple(replace(job.choices[0], request=implementation.request.on(n)) for n in (1, 2, 4))
    from dovetail.model import TableTruth

    moldable = replace(job, choices=choices, nodes=2)
    truth = TableTruth({("m", "cpu", n): 8.0 / n for n in (1, 2, 4)})
    work = Workload("moldable", [moldable], truth)
    result = simulate(work, Cluster.uniform(4, 1), Easy(), TrueTimesModel(truth))
    check_schedule(result, work)
    assert result.records[0].end == 4
