"""Virtual time: instants, walltimes, rates and stalls, incidents, learning, planners."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import PolicyError, UnsupportedWorkload
from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import View
from dovetail.model import (
    App,
    Cancelled,
    Choice,
    Cluster,
    Decision,
    Device,
    Event,
    Implementation,
    Job,
    JobId,
    Migrate,
    Node,
    NodeJoined,
    NodeLost,
    Part,
    Placed,
    Plan,
    PlanItem,
    Request,
    Result,
    Seconds,
    Start,
    State,
    TableTruth,
    Wait,
    Workload,
)
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, rigid, rigid_workload, workload
from dovetail.testing.invariants import check_schedule


def starts(result: Result) -> list[float | None]:
    return [record.start for record in result.records]


def states(result: Result) -> list[State]:
    return [record.state for record in result.records]


def run(work: Workload, cluster: Cluster, **options: object) -> Result:
    chosen = SimulationOptions(**options)  # type: ignore[arg-type]
    result = simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth), options=chosen)
    check_schedule(result, work)
    return result


# ------------------------------------------------------------------ instants and lengths


def test_jobs_of_no_length_start_and_end_at_one_instant() -> None:
    work, cluster = rigid_workload([(0, 1, 0, 5), (0, 1, 0, 5), (0, 1, 3, 5), (0, 1, 1, 5)], 1)
    result = run(work, cluster)
    assert [(record.start, record.end) for record in result.records] == [(0, 0), (0, 0), (0, 3), (3, 4)]


def test_file_order_breaks_ties_of_submission() -> None:
    work, cluster = rigid_workload([(5, 1, 1, 9), (0, 1, 10, 10), (5, 1, 1, 9)], 1)
    result = run(work, cluster)
    assert starts(result) == [10, 0, 11]
    assert [record.job.id for record in result.records] == ["0", "1", "2"]


def test_an_empty_workload() -> None:
    result = run(Workload("none", [], TableTruth()), Cluster.uniform(1, 1))
    assert result.records == []
    assert result.makespan == 0


# ------------------------------------------------------------------ walltimes


def test_walltimes_end_jobs_or_do_not() -> None:
    rows = [(0.0, 1, 10.0, 4.0), (0.0, 1, 4.0, 4.0), (0.0, 1, 2.0, None)]
    work, cluster = rigid_workload(rows, 3)
    killed = run(work, cluster)
    assert states(killed) == [State.TIMEOUT, State.COMPLETED, State.COMPLETED]
    assert [record.exit_code for record in killed.records] == [None, 0, 0]
    assert [record.end for record in killed.records] == [4, 4, 2]
    over = run(work, cluster, overrun="run")
    assert [record.end for record in over.records] == [10, 4, 2]
    assert killed.default_walltime == "actual"
    short = run(work, cluster, default_walltime=1.0)
    assert states(short)[2] is State.TIMEOUT
    assert short.records[2].end == 1


# ------------------------------------------------------------------ what fits, and what does not


def test_impossible_jobs_are_rejected_and_named() -> None:
    work, cluster = rigid_workload([(0, 3, 1, 1), (0, 2, 1, 1)], 2)
    result = run(work, cluster)
    assert [(r.id, r.reason) for r in result.rejected] == [("0", "needs 3 nodes, and there are 2")]
    unknown = Workload("unknown", work.jobs, TableTruth(fixed={"0": 1.0}))
    result = run(unknown, Cluster.uniform(3, 1))
    assert [(r.id, r.reason) for r in result.rejected] == [("1", "its run time is unknown")]


def test_a_policy_can_refuse_a_workload() -> None:
    @dataclass(frozen=True)
    class Picky(Fcfs):
        def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
            return f"places nothing, and job {jobs[0].id} is something"

    work, cluster = rigid_workload([(0, 1, 1, 1)], 2)
    with pytest.raises(UnsupportedWorkload, match="policy Picky places nothing, and job 0"):
        simulate(work, cluster, Picky(), TrueTimesModel(work.truth))


def test_the_fastest_implementation_is_taken_and_waited_for() -> None:
    work = workload([("a", {"cpu": 9, "gpu": 2}), ("b", {"cpu": 9, "gpu": 2}), ("c", {"cpu": 1, "gpu": 4})])
    cluster = Cluster.uniform(1, 2, 1)
    result = run(work, cluster)
    assert [record.implementation.name for record in result.records if record.implementation] == [
        "gpu",
        "gpu",
        "cpu",
    ]
    assert starts(result) == [0, 2, 2]


def test_fractions_memory_and_device_models() -> None:
    nodes = (
        Node("n0", (0, 1), (Device("gpu", "T4", 0),), 8),
        Node("n1", (0, 1), (Device("gpu", "A100", 0), Device("gpu", "A100", 1)), 8),
    )
    asked = [
        Request(1, 1, (("gpu", 0.5),), 3),
        Request(1, 1, (("gpu", 0.5),), 3),
        Request(1, 0, (("gpu", 1),), 0, ("A100",)),
        Request(1, 1, (), 3),
        Request(1, 0, (("gpu", 1),), 0, ("T4",)),
    ]
    jobs = []
    for i, request in enumerate(asked):
        implementation = Implementation("i", "gpu" if request.devices else "cpu", request)
        app = App("app", (implementation,))
        jobs.append(Job(str(i), app, (Choice(implementation, request),), i))
    work = Workload("mixed", jobs, TableTruth(fixed={str(i): 5.0 for i in range(len(jobs))}))
    result = run(work, Cluster(nodes))
    held = [record.allocation.device_names(result.cluster) for record in result.records if record.allocation]
    assert held == [["n0/gpu0"], ["n0/gpu0"], ["n1/gpu0"], [], ["n0/gpu0"]]
    assert starts(result) == [0, 0, 0, 0, 5], "the last waits for its model"
    assert result.records[3].allocation is not None
    assert result.records[3].allocation.nodes == [1], "memory of n0 is used up"


def test_the_policy_chooses_the_placement() -> None:
    work, _ = rigid_workload([(0, 1, 1, 1)], 1)
    work = rigid([(0, 1, 1, 1)], Request(1, 0, (("gpu", 1),)))
    cluster = Cluster(
        (Node("n0", (0,), (Device("gpu"),)), Node("n1", (0,), (Device("gpu"), Device("gpu", "", 1))))
    )
    chosen = {}
    for placement in ("pack", "spread", "first"):
        result = simulate(work, cluster, Fcfs(placement=placement), TrueTimesModel(work.truth))  # type: ignore[arg-type]
        assert result.records[0].allocation is not None
        chosen[placement] = result.records[0].allocation.nodes
    assert chosen == {"pack": [0], "spread": [1], "first": [0]}


# ------------------------------------------------------------------ rates and stalls


@dataclass
class Halving:
    """While two or more jobs run, all run at half speed; a migration stalls for a second."""

    running: dict[JobId, Placed] = field(default_factory=dict)

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        for placed in ended:
            del self.running[placed.job.id]
        self.running |= {placed.job.id: placed for placed in started}
        rate = 0.5 if len(self.running) > 1 else 1.0
        return dict.fromkeys(self.running, rate), {placed.job.id: 1.0 for placed in migrated}


def test_rates_are_piecewise_constant() -> None:
    """a alone for 2 s, then both at half speed: b (3 s) ends at 8, a has 10 - 2 - 3 left and ends at 13."""
    work, cluster = rigid_workload([(0, 1, 10, 99), (2, 1, 3, 99)], 2)
    result = simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth), rates=Halving())
    check_schedule(result, work, work=False)
    assert [record.end for record in result.records] == [13, 8]


def test_walltimes_hold_under_rates() -> None:
    work, cluster = rigid_workload([(0, 1, 10, 12), (2, 1, 3, 5)], 2)
    result = simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth), rates=Halving())
    assert [(record.end, record.state) for record in result.records] == [
        (12, State.TIMEOUT),
        (7, State.TIMEOUT),
    ]


def test_a_migration_stalls() -> None:
    @dataclass(frozen=True)
    class Mover:
        def decide(self, view: View) -> Iterable[Decision]:
            if view.queue:
                job = next(iter(view.queue))
                found = view.free().fit(job.choices[0].request)
                assert found is not None
                return [Start(job.id, "cpu", found), Wait(job.id, "to be moved", 4.0)]
            placed = next(iter(view.running.values()), None)
            if view.now == 4.0 and placed is not None and placed.allocation.nodes == [0]:
                return [Migrate(placed.job.id, replace(placed.allocation, parts=(Part(0b10, 1),)))]
            return []

    work, cluster = rigid_workload([(0, 1, 10, 99)], 2)
    result = simulate(work, cluster, Mover(), TrueTimesModel(work.truth), rates=Halving())
    assert result.records[0].end == 11
    assert result.records[0].allocation is not None
    assert result.records[0].allocation.nodes == [1]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 3), st.integers(0, 9), st.integers(1, 30)), max_size=12
    )
)
def test_work_is_conserved_under_rates(rows: list[tuple[int, int, int, int]]) -> None:
    """Of every job, the integral of its rate is the work it asked for, or it was killed."""
    work, cluster = rigid_workload([(float(s), n, float(r), float(w)) for s, n, r, w in rows], 3)
    result = simulate(work, cluster, Easy(), TrueTimesModel(work.truth), rates=Halving())
    check_schedule(result, work, work=False, promises=False)
    edges = sorted({t for r in result.records for t in (r.start, r.end) if t is not None})
    for record in result.records:
        done = 0.0
        for begin, end in pairwise(edges):
            active = [r for r in result.records if (r.start or 0) <= begin and end <= (r.end or 0)]
            if record in active:
                done += (end - begin) * (0.5 if len(active) > 1 else 1.0)
        asked = work.truth.seconds(record.job, record.job.choices[0].implementation, Request(1, 1))
        assert asked is not None
        if record.state is State.COMPLETED:
            assert done == pytest.approx(asked)
        else:
            assert done <= asked


# ------------------------------------------------------------------ incidents, journals, learning, plans


def test_incidents() -> None:
    work, cluster = rigid_workload([(0, 2, 10, 10), (1, 1, 4, 4), (1, 1, 4, 4), (1, 1, 4, 4)], 2)
    incidents: list[tuple[Seconds, Event]] = [
        (2.0, Cancelled("3")),
        (3.0, NodeLost(1)),
        (5.0, Cancelled("1")),
        (6.0, NodeJoined(1)),
    ]
    for policy in (Fcfs(), Easy()):
        result = simulate(work, cluster, policy, TrueTimesModel(work.truth), incidents=incidents)
        assert states(result) == [State.NODE_FAIL, State.CANCELLED, State.COMPLETED, State.CANCELLED]
        assert [record.end for record in result.records] == [3, 5, 9, 2]


def test_every_instant_is_told_to_the_journal() -> None:
    told: list[tuple[float, list[str], list[str], bool]] = []

    class Sink:
        def write_batch(
            self,
            now: float,
            events: Sequence[Event],
            engine: object,
            decisions: Sequence[Decision],
            **more: bool,
        ) -> None:
            kinds = [type(event).__name__ for event in events]
            told.append((now, kinds, [type(d).__name__ for d in decisions], more.get("ask", True)))

    work, cluster = rigid_workload([(0, 1, 5, 5), (0, 1, 5, 5)], 1)
    simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth), journal=Sink())
    assert told == [
        (0, ["Submitted", "Submitted"], ["Start"], True),
        (5, ["Ended"], ["Start"], True),
        (10, ["Ended"], [], True),
    ]


def test_finished_runs_are_recorded_before_the_policy_is_asked() -> None:
    history = MemoryHistory()
    work, cluster = rigid_workload([(0, 1, 5, 5), (0, 1, 6, 6)], 1)
    simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth), observe=history)
    assert [run.seconds for run in history.runs("rigid")] == [5, 6]


def test_a_planner_plans_and_a_policy_follows() -> None:
    @dataclass(frozen=True)
    class Backwards:
        def plan(self, view: View) -> Plan:
            jobs = list(view.queue)[::-1]
            request = jobs[0].choices[0].request
            items = tuple(PlanItem(job.id, "cpu", request, float(i), 1.0) for i, job in enumerate(jobs))
            return Plan(items, 1.0, "feasible", 0.5)

    @dataclass(frozen=True)
    class Follow:
        def decide(self, view: View) -> Iterable[Decision]:
            assert view.plan is not None
            free = view.free()
            for item in view.plan.items:
                found = free.fit(item.request)
                if view.job(item.job) in list(view.queue) and found is not None:
                    free.take(found)
                    yield Start(item.job, item.implementation, found)

    work, cluster = rigid_workload([(0, 1, 5, 5), (0, 1, 5, 5), (0, 1, 5, 5)], 1)
    result = simulate(work, cluster, Backwards(), TrueTimesModel(work.truth), follow=Follow())
    assert starts(result) == [10, 5, 0]
    assert result.plan is not None
    assert result.plan.gap == 1.0


def test_progress_and_decision_times() -> None:
    seen: list[tuple[int, int]] = []
    ticks = iter(range(1000))
    options = SimulationOptions(
        progress=lambda done, total: seen.append((done, total)), timer=lambda: next(ticks)
    )
    work, cluster = rigid_workload([(0, 1, 5, 5), (0, 1, 5, 5)], 2)
    result = simulate(work, cluster, Fcfs(), TrueTimesModel(work.truth), options=options)
    assert seen == [(2, 2)]
    assert list(result.decision_seconds) == [1, 1]


def test_a_wrong_policy_is_named() -> None:
    @dataclass(frozen=True)
    class Wrong:
        def decide(self, view: View) -> Iterable[Decision]:
            allocation = view.free().fit(Request(1, 1))
            return [Start(job.id, "cpu", allocation) for job in view.queue if allocation]

    work, cluster = rigid_workload([(0, 1, 5, 5), (0, 1, 5, 5)], 2)
    with pytest.raises(PolicyError, match="policy Wrong, job 1: cannot be started: not free"):
        simulate(work, cluster, Wrong(), TrueTimesModel(work.truth))


def test_a_job_that_never_starts_stays_pending() -> None:
    """The engine ends when nothing more can happen; the checker then says so."""

    @dataclass(frozen=True)
    class Idle:
        def decide(self, view: View) -> Iterable[Decision]:
            return []

    work, cluster = rigid_workload([(0, 1, 5, 5)], 2)
    result = simulate(work, cluster, Idle(), TrueTimesModel(work.truth))
    assert states(result) == [State.PENDING]
