"""lookahead with rigid jobs: EASY's promises, an order that pays, an age limit, what is remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import orjson
import pytest

import dovetail
from dovetail.engine.journal.codec import Codec
from dovetail.engine.state.checkpoint import make_checkpoint
from dovetail.engine.state.core import Engine
from dovetail.interfaces import Traits, View
from dovetail.kernels.backfilling import WAIT
from dovetail.model import (
    Cluster,
    Decision,
    Ended,
    Recalled,
    RecentEnd,
    RecentSubmission,
    Request,
    Result,
    Start,
    Submitted,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.policies import lookahead_order
from dovetail.policies.easy import Easy
from dovetail.policies.parts.orders import ORDERS, Order
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full, rigid, rigid_workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload

TRACES = Path(__file__).resolve().parents[2] / ".." / "shared" / "traces"
KTH = TRACES / "kth-sp2-1996-2.1-cln.first8000.swf.gz"


def run(w: Workload, policy: str, cluster: Cluster) -> Result:
    result = simulate(w, cluster, load_policy(policy).policy, TrueTimesModel(w.truth))
    check_schedule(result, w)
    return result


def crowd(seed: int, count: int = 60, nodes: int = 8) -> tuple[Workload, Cluster]:
    """Rigid jobs that come faster than they can be run."""
    rng = np.random.Generator(np.random.PCG64(seed))
    rows = []
    for _ in range(count):
        seconds = float(rng.integers(1, 200))
        wall = seconds * float(rng.integers(1, 4))
        rows.append((float(rng.integers(0, 1000)), int(rng.integers(1, nodes + 1)), seconds, wall))
    return rigid_workload(rows, nodes)


@pytest.mark.parametrize("objective", ["makespan", "response", "wait", "slowdown"])
@pytest.mark.parametrize("seed", range(full(40, 4)))
def test_no_promise_is_broken(objective: str, seed: int) -> None:
    w, cluster = crowd(seed)
    result = run(w, f"lookahead?objective={objective}", cluster)
    for record in result.records:
        if record.promised is not None:
            assert record.start is not None
            assert record.start <= record.promised


def mean_wait(result: Result) -> float:
    return float(np.mean([(r.start or 0.0) - r.job.submit_time for r in result.records]))


def test_objective_wait_waits_less_than_fixed_orders_in_the_mean() -> None:
    ratios = []
    for seed in range(full(60, 12)):
        w, cluster = crowd(seed)
        ratios.append(
            mean_wait(run(w, "lookahead?objective=wait", cluster)) / mean_wait(run(w, "easy", cluster))
        )
    assert np.mean(ratios) < 0.85


def test_one_job_before_all_others_where_every_order_packs_worse() -> None:
    # Shortest first, smallest area and root of it all start the second job, beside which the first one fits.
    rows = [(0.0, 2, 50.0, 50.0), (0.0, 2, 30.0, 30.0), (0.0, 3, 30.0, 30.0)]

    def starts(policy: str) -> list[float | None]:
        records = run(rigid(rows), policy, Cluster.parse("4x1cpu")).records
        return [record.start for record in sorted(records, key=lambda record: record.job.index)]

    assert starts("lookahead?objective=wait&budget=3") == [60.0, 0.0, 30.0]
    assert starts("lookahead?objective=wait") == [0.0, 0.0, 50.0]


def test_a_higher_priority_goes_first_whatever_that_costs() -> None:
    w = rigid([(0.0, 1, 10.0, 10.0), (0.0, 1, 100.0, 100.0), (0.0, 1, 20.0, 20.0)])
    w = replace(w, jobs=[replace(job, priority=float(job.index == 1)) for job in w.jobs])
    records = run(w, "lookahead?objective=wait", Cluster.parse("1x1cpu")).records
    assert {r.job.index: r.start for r in records} == {1: 0.0, 0: 100.0, 2: 110.0}


def test_who_has_waited_too_long_becomes_the_head() -> None:
    # One wide job, and narrow ones without end that fit beside each other.
    rows = [(1.0, 4, 10.0, 10.0), *((float(i), 2, 2.0, 2.0) for i in range(300))]
    w, cluster = rigid(rows), Cluster.parse("4x1cpu")

    def start(policy: str) -> float:
        return next(r.start for r in run(w, policy, cluster).records if r.job.id == "0") or 0.0

    assert start("lookahead?objective=wait&age=50") <= 60.0


@pytest.mark.parametrize("objective", ["makespan", "response", "wait", "slowdown"])
@pytest.mark.parametrize("seed", range(full(60, 6)))
def test_the_age_limit_holds_for_everybody(objective: str, seed: int) -> None:
    """Once a job is overdue there goes before it who runs, who holds a promise, and who has waited longer."""
    age = 400.0
    w, cluster = crowd(seed, count=80)
    records = run(w, f"lookahead?objective={objective}&age={age}", cluster).records
    walls = {record.job.id: record.job.walltime or 0.0 for record in records}
    longest = max(walls.values())
    late = 0
    for one in records:
        assert one.start is not None
        due = one.job.submit_time + age
        if one.start <= due:
            continue
        late += 1
        running = [other for other in records if other.start is not None and other.start <= due < other.end]
        ends = max((walls[other.job.id] + other.start - due for other in running), default=0.0)
        older = [
            walls[other.job.id]
            for other in records
            if other.start > due
            and (other.job.submit_time, other.job.index) < (one.job.submit_time, one.job.index)
        ]
        assert one.start - due <= ends + longest + sum(older)
    assert late


def test_what_is_remembered_survives_a_checkpoint() -> None:
    policy = load_policy("lookahead?objective=slowdown").policy
    w, cluster = crowd(1, count=10)
    engine = Engine(cluster, policy, TrueTimesModel(w.truth))  # type: ignore[arg-type]
    engine.handle_events(0.0, [Submitted(job) for job in w.jobs[:5]])
    for job in w.jobs[:3]:
        engine.recent.ran.append(RecentEnd(job.user, 60.0, 30.0))
    assert [one.submit_time for one in engine.recent.came] == [job.submit_time for job in w.jobs[:5]]
    engine.recent.came.popleft()  # as if there had been more than are remembered
    kept = make_checkpoint(engine, 0.0)
    assert kept is not None
    other = Engine(cluster, policy, TrueTimesModel(w.truth))  # type: ignore[arg-type]
    other.handle_events(0.0, [*kept.jobs, *kept.nodes], ask=False)
    assert list(other.recent.ran) == list(engine.recent.ran)
    assert list(other.recent.came) == list(engine.recent.came)
    came = RecentSubmission("ann", 3.5, Request(2, cpus=4, memory=7, partition="long"), 60.0)
    recalled = Recalled((RecentEnd(None, 60.0, 30.0), RecentEnd("ann", 5.5, 5.5)), (came,))
    codec = Codec()
    assert codec.event_from(orjson.loads(orjson.dumps(codec.encode_event(recalled)))) == recalled
    older = ["recalled", [[None, 60.0, 30.0]]]  # as journals before 23 November 2026 have it
    assert codec.event_from(older) == Recalled((RecentEnd(None, 60.0, 30.0),))


@pytest.mark.parametrize("policy", ["easy", "lookahead?objective=slowdown"])
def test_who_looks_back_remembers_what_ended_and_nobody_else_does(policy: str) -> None:
    w, cluster = crowd(2, count=1)
    engine = Engine(cluster, load_policy(policy).policy, TrueTimesModel(w.truth))  # type: ignore[arg-type]
    job = replace(w.jobs[0], user="ann", submit_time=0.0, walltime=50.0)
    engine.handle_events(0.0, [Submitted(job)])
    engine.handle_events(20.0, [Ended(job.id)])
    looks_back = policy != "easy"
    assert list(engine.recent.ran) == ([RecentEnd("ann", 50.0, 20.0)] if looks_back else [])
    assert list(engine.recent.came) == (
        [RecentSubmission("ann", 0.0, job.choices[0].request, 50.0)] if looks_back else []
    )


def short_ones_every_minute(last: tuple[float, int, float, float]) -> list[tuple[float, int, float, float]]:
    """Jobs of 10 s on one node each minute for an hour, one of 3,000 s on three nodes, then this."""
    return [*((60.0 * i, 1, 10.0, 10.0) for i in range(60)), (1201.0, 3, 3000.0, 3000.0), last]


def test_the_last_node_is_kept_for_short_jobs_that_are_likely_to_come() -> None:
    cluster, long = Cluster.parse("4x1cpu"), (1211.0, 1, 2000.0, 2000.0)
    rows = [*short_ones_every_minute(long), (1211.0, 1, 2100.0, 2100.0)]

    def starts(policy: str) -> dict[int, float | None]:
        return {record.job.index: record.start for record in run(rigid(rows), policy, cluster).records}

    kept, easy = starts("lookahead?objective=slowdown"), starts("easy?order=sqrtsaf")
    assert easy[61] == 1211.0
    assert (easy[21] or 0.0) > 1260.0 + 1000.0
    assert kept[21] == 1260.0  # the next short one; then the long one is the head, and has a promise
    assert kept[61] == 1270.0


def test_whom_room_is_kept_from_is_told_why_and_looked_at_again_when_an_end_was_expected() -> None:
    rows = [*((60.0 * i, 1, 10.0, 20.0) for i in range(20)), (1201.0, 3, 3000.0, 3000.0)]
    w = rigid([*rows, *[(1211.0, 1, 2000.0, 2000.0)] * 2])
    engine = Engine(
        Cluster.parse("4x1cpu"), load_policy("lookahead?objective=slowdown").policy, TrueTimesModel(w.truth)
    )  # type: ignore[arg-type]
    for job in w.jobs[:20]:
        engine.handle_events(job.submit_time, [Submitted(job)])
        engine.handle_events(job.submit_time + 10.0, [Ended(job.id)])
    engine.handle_events(1201.0, [Submitted(w.jobs[20])])
    engine.handle_events(1211.0, [Submitted(job) for job in w.jobs[21:]])
    assert set(engine.running) == {"20"}
    assert engine.records["21"].wait_reason == lookahead_order.KEPT
    assert engine.wake_times == [46 * 60.0]  # all took half of their walltimes: at 2,701 s
    engine.handle_events(1300.0, [Submitted(replace(w.jobs[21], id="23", index=23, submit_time=1300.0))])
    assert engine.wake_times == [46 * 60.0]


def test_room_is_not_kept_from_who_has_a_higher_priority_than_another() -> None:
    rows = [*short_ones_every_minute((1211.0, 1, 2000.0, 2000.0)), (1211.0, 1, 2100.0, 2100.0)]
    w = rigid(rows)
    w = replace(w, jobs=[replace(job, priority=float(job.index == 62)) for job in w.jobs])
    records = run(w, "lookahead?objective=slowdown", Cluster.parse("4x1cpu")).records
    assert next(record.start for record in records if record.job.index == 62) == 1211.0


def test_who_waits_alone_is_kept_from_nothing() -> None:
    rows = short_ones_every_minute((1215.0, 1, 2000.0, 2000.0))
    result = run(rigid(rows), "lookahead?objective=slowdown", Cluster.parse("4x1cpu"))
    assert next(record.start for record in result.records if record.job.index == 61) == 1215.0


def test_jobs_of_one_moment_do_not_foretell_more_of_them() -> None:
    came = [RecentSubmission(None, 0.0, Request(1), 10.0)] * 40
    ones = np.ones(40, np.int64)
    assert lookahead_order.ExpectedArrivals.like(came, ones, np.ones(40), 100.0).rate == 0.0
    two = [*came[:20], *[RecentSubmission(None, 60.0, Request(1), 10.0)] * 20]
    assert lookahead_order.ExpectedArrivals.like(two, ones, np.ones(40), 100.0).rate == pytest.approx(
        0.5 / 100
    )
    few = lookahead_order.ExpectedArrivals.like(came[:15], ones[:15], np.ones(15), 100.0)
    assert few.rate == 0.0
    assert not len(few.width)


def owned(rows: list[tuple[float, int, float, float, str]]) -> Workload:
    """Rigid jobs from (submit, nodes, run time, walltime, user)."""
    w = rigid([row[:4] for row in rows])
    return replace(w, jobs=[replace(job, user=rows[job.index][4]) for job in w.jobs])


@pytest.mark.parametrize("objective", ["wait", "slowdown"])
def test_users_whose_jobs_end_early_go_first(objective: str) -> None:
    # Two users' jobs by turns; then three at the same moment, alike but for the user, while all is busy.
    past = [(100.0 * i, 4, 90.0 if i % 2 else 20.0, 100.0, "late" if i % 2 else "early") for i in range(12)]
    rows = [*past, (1150.0, 4, 90.0, 100.0, "late"), (1150.0, 4, 20.0, 100.0, "early")]
    rows.append((1150.0, 4, 90.0, 100.0, "late"))
    result = run(owned(rows), f"lookahead?objective={objective}", Cluster.parse("4x1cpu"))
    starts = {record.job.id: record.start for record in result.records}
    assert starts["13"] == 1190.0
    assert starts["12"] == 1210.0


@pytest.mark.parametrize("order", ["fcfs", "sjf", "largest"])
@pytest.mark.parametrize("seed", range(full(40, 4)))
def test_easy_with_a_line_of_jobs_is_easy_in_that_order(seed: int, order: Order) -> None:
    @dataclass(frozen=True)
    class Told:
        """Names the first ten jobs in the order to an EASY of another one, which is the same behind them."""

        traits = Traits(settles=True, priorities=True)

        def decide(self, view: View) -> list[Decision]:
            line = view.queue.by(ORDERS[order].key, bounded=ORDERS[order].bounded)
            return Easy(order).decide(view, list(line)[:10])

    w, cluster = crowd(seed)
    told = simulate(w, cluster, Told(), TrueTimesModel(w.truth))
    fixed = run(w, f"easy?order={order}", cluster)
    assert [(r.job.id, r.start) for r in told.records] == [(r.job.id, r.start) for r in fixed.records]


@pytest.mark.parametrize("seed", range(full(40, 4)))
def test_where_no_order_is_tried_all_orders_decide_the_same(seed: int) -> None:
    passed_over = []

    @dataclass(frozen=True)
    class Compared:
        """EASY in order of submission, beside five others and the queue from its end."""

        traits = Traits(settles=True, priorities=True)

        def decide(self, view: View) -> list[Decision]:
            decisions = list(Easy().decide(view))
            if view.queue and not lookahead_order._order_matters(view, any_fits=False):
                others = [Easy(order).decide(view) for order in ORDERS]
                others.append(Easy().decide(view, list(view.queue)[::-1]))
                assert all(list(other) == decisions for other in others)
                passed_over.append(any(isinstance(decision, Start) for decision in decisions))
            return decisions

    w, cluster = crowd(seed)
    simulate(w, cluster, Compared(), TrueTimesModel(w.truth))
    assert set(passed_over) == {True, False}  # one job went, and nobody


@pytest.mark.parametrize("objective", ["makespan", "wait", "slowdown"])
@pytest.mark.parametrize("seed", range(full(20, 3)))
def test_what_comes_later_changes_nothing_before(objective: str, seed: int) -> None:
    """Other jobs after 500 s, and other lengths of those that then still run: the same starts until then."""
    w, cluster = crowd(seed)
    policy = f"lookahead?objective={objective}"
    first = run(w, policy, cluster)
    rows = []
    for record in sorted(first.records, key=lambda record: record.job.index):
        job = record.job
        seconds = w.truth.seconds(job, job.choices[0].implementation, job.choices[0].request) or 0.0
        if job.submit_time > 500.0:
            rows.append((job.submit_time + 7.0, 1, 3.0, 5.0))
        else:
            ended = record.end is not None and record.end <= 500.0
            rows.append((job.submit_time, job.nodes, seconds if ended else job.walltime or 0.0, job.walltime))
    second = run(rigid(rows), policy, cluster)

    def before(result: Result) -> dict[str, float]:
        return {r.job.id: r.start for r in result.records if r.start is not None and r.start < 500.0}

    assert before(first) == before(second)


def test_a_deep_queue_is_worked_off_by_area(monkeypatch: pytest.MonkeyPatch) -> None:
    w, cluster = crowd(3, count=200)
    w = replace(w, jobs=[replace(job, submit_time=0.0) for job in w.jobs])  # more than 100 machines full
    monkeypatch.setattr(lookahead_order, "_best_rank", lambda *_: pytest.fail("rolled out a deep queue"))
    engine = Engine(cluster, load_policy("lookahead?objective=slowdown").policy, TrueTimesModel(w.truth))  # type: ignore[arg-type]
    engine.handle_events(0.0, [Submitted(job) for job in w.jobs])
    areas = sorted(w.jobs, key=lambda job: (max(10.0, job.walltime or 0.0) * job.nodes, job.index))
    assert set(engine.running) >= {job.id for job in areas[:2]}


@pytest.mark.skipif(not KTH.exists(), reason="the sample traces are not here")
def test_on_a_real_trace_it_is_near_the_best_order_chosen_afterwards() -> None:
    cluster = Cluster.parse("100x1cpu")
    w = load_workload(str(KTH), cluster)
    w = replace(w, jobs=w.jobs[: full(8000, 4000)])  # the first thousands alone are few waits

    def slowdown(policy: str) -> float:
        return float(
            dovetail.simulate(w, cluster=cluster, policy=policy).metrics["mean_bounded_slowdown"] or 0.0
        )

    fixed = {order: slowdown(f"easy?order={order}") for order in ("fcfs", "sjf", "f1", "saf", "sqrtsaf")}
    assert slowdown("lookahead?objective=slowdown") <= 1.05 * min(fixed.values())


def test_roll_outs_are_summed_over_futures() -> None:
    none, no_time = np.empty(0, np.int64), np.empty(0)
    line: Any = SimpleNamespace(
        free=1, running_width=none, running_long=np.empty((2, 0)), running_bound=no_time,
        width=np.array([1, 1]), wall=np.array([30.0, 30.0]), long=np.array([[10.0, 10.0], [30.0, 10.0]]),
        submit=np.zeros(2), jobs=[None, None], head=-1,
    )  # fmt: skip

    def scores(ranks: np.ndarray, enough: float) -> np.ndarray:
        return lookahead_order._Line.score_orders(line, ranks, WAIT, enough)

    def total(enough: float) -> float:
        return float(scores(np.arange(2)[None], enough)[0])

    assert total(np.inf) == pytest.approx(10.0 + 30.0)
    assert total(39.0) == np.inf
    assert scores(np.array([[1, 0], [0, 1], [1, 0]]), np.inf).tolist() == [20.0, np.inf, 20.0]
