"""The engine: every event, every decision, and every decision that it must refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import pytest

from dovetail.engine.state.core import Engine
from dovetail.errors import PolicyError
from dovetail.interfaces import Traits, View
from dovetail.model import (
    Allocation,
    Cancelled,
    Cluster,
    Decision,
    Dequeue,
    Device,
    Donor,
    Ended,
    Enqueue,
    Estimated,
    Job,
    Migrate,
    Node,
    NodeJoined,
    NodeLost,
    Part,
    Plan,
    Planned,
    Request,
    Reserve,
    Start,
    Started,
    State,
    Submit,
    Submitted,
    TableTruth,
    Wait,
    Woken,
)
from dovetail.testing.builders import TrueTimesModel, rigid, timed

Rule = Callable[[View], Iterable[Decision]]
NOWHERE = Allocation(Request(1, 1), ())


@dataclass(frozen=True)
class Scripted:
    """Asks a function."""

    rule: Rule

    def decide(self, view: View) -> Iterable[Decision]:
        return self.rule(view)


def nothing(view: View) -> Iterable[Decision]:
    return []


def once(*decisions: Decision) -> Rule:
    """These decisions when first asked, nothing after that."""
    left = list(decisions)

    def rule(view: View) -> Iterable[Decision]:
        given, left[:] = list(left), []
        return given

    return rule


def greedy(view: View) -> Iterable[Decision]:
    free = view.free()
    for job in view.queue:
        allocation = free.fit(job.choices[0].request)
        if allocation is not None:
            free.take(allocation)
            yield Start(job.id, job.choices[0].implementation.name, allocation)


def engine_of(rule: Rule, cluster: Cluster, jobs: Iterable[Job] = (), **options: object) -> Engine:
    """An engine to which these jobs have been submitted at time 0, and which then follows the rule."""
    engine = Engine(cluster, Scripted(rule), TrueTimesModel(TableTruth()), policy_name="scripted", **options)  # type: ignore[arg-type]
    engine.handle_events(0.0, [Submitted(job) for job in jobs])
    return engine


def cpu_jobs(*sizes: int) -> list[Job]:
    return list(rigid([(0.0, size, 5.0, 10.0) for size in sizes]).jobs)


def on(nodes: int, *, size: int = 1, cpus: int = 1) -> Allocation:
    return Allocation(Request(size, 1), (Part(nodes, cpus),))


# ------------------------------------------------------------------ decisions that are right


def test_start_and_end() -> None:
    engine = engine_of(greedy, Cluster.uniform(3, 1), cpu_jobs(2, 1, 1))
    assert list(engine.running) == ["0", "1"]
    assert [when for when, _ in engine.view.releases()] == [10.0, 10.0]
    decisions = engine.handle_events(4.0, [Ended("1")])
    assert [type(decision) for decision in decisions] == [Start]
    record = engine.records["2"]
    assert (record.state, record.start) == (State.RUNNING, 4.0)
    assert record.allocation is not None
    assert record.allocation.nodes == [2]
    engine.handle_events(9.0, [Ended("0"), Ended("2", State.FAILED, 3, "it broke")])
    assert (engine.records["2"].state, engine.records["2"].exit_code) == (State.FAILED, 3)
    assert engine.free.count(Request(1, 1)) == 3
    assert engine.view.releases() == []


def test_ends_come_before_submissions_of_one_instant() -> None:
    engine = engine_of(greedy, Cluster.uniform(1, 1), cpu_jobs(1))
    later = replace(cpu_jobs(1)[0], id="later")
    engine.handle_events(5.0, [Submitted(later), Ended("0")])
    assert list(engine.running) == ["later"]


def test_changes_tell_what_happened_since_the_last_question() -> None:
    seen: list[tuple[list[str], list[str], bool]] = []

    def look(view: View) -> Iterable[Decision]:
        changes = view.changes
        seen.append(([j.id for j in changes.submitted], [p.job.id for p in changes.ended], changes.otherwise))
        return greedy(view)

    engine = engine_of(look, Cluster.uniform(1, 1), cpu_jobs(1, 1))
    seen.clear()
    engine.handle_events(5.0, [Ended("0")])
    assert seen[0] == ([], ["0"], False)
    seen.clear()
    engine.handle_events(5.0, [Ended("1")])
    assert seen[0] == ([], ["1"], False), "another batch at the same instant"
    seen.clear()
    engine.handle_events(6.0, [Estimated()])
    assert seen[0] == ([], [], True)
    seen.clear()
    engine.handle_events(7.0, [Submitted(replace(cpu_jobs(1)[0], id="x"))], ask=False)
    engine.handle_events(7.0, [Woken()])
    assert seen[0] == (["x"], [], False), "nobody was asked in between"


def test_a_policy_that_settles_is_asked_once() -> None:
    calls: list[float] = []

    @dataclass(frozen=True)
    class Settling(Scripted):
        traits = Traits(settles=True)

    def rule(view: View) -> Iterable[Decision]:
        calls.append(view.now)
        return greedy(view)

    engine = Engine(Cluster.uniform(2, 1), Settling(rule), TrueTimesModel(TableTruth()))
    engine.handle_events(0.0, [Submitted(job) for job in cpu_jobs(1, 1)])
    assert calls == [0.0]
    assert len(engine.running) == 2


def test_enqueue_dequeue_and_the_fifo() -> None:
    jobs = [timed(name, {"cpu": 5.0, "gpu": 1.0}, index=i)[0] for i, name in enumerate("abc")]
    engine = engine_of(nothing, Cluster.uniform(1, 2, 1), jobs)

    def say(*decisions: Decision) -> None:
        engine.policy = Scripted(once(*decisions))
        engine.handle_events(engine.view.now + 1, [Woken()])

    say(Enqueue("a", "gpu", 1), Enqueue("b", "gpu", 1), Enqueue("c", "cpu", 0))
    assert {unit: [job.id for job, _ in fifo] for unit, fifo in engine.view.device_queues.items()} == {
        1: ["a", "b"],
        0: ["c"],
    }
    assert engine.view.enqueued == 0
    assert len(engine.queue) == 0
    say(Dequeue("a"))
    assert [job.id for job in engine.queue] == ["a"]
    say(Dequeue("c"), Dequeue("b"))
    assert [job.id for job in engine.queue] == ["a", "b", "c"], "back at the old places"
    assert engine.view.device_queues == {}
    say(Enqueue("b", "gpu", 1))
    gpu = engine.view.free().fit_unit(jobs[1].choices[1].request, engine.cluster.units[1])
    assert gpu is not None
    say(Start("b", "gpu", gpu))
    occupant = engine.view.occupant(engine.cluster.units[1])
    assert occupant is not None
    assert occupant.job.id == "b"
    with pytest.raises(PolicyError, match=r"job c.*no device's FIFO"):
        say(Dequeue("c"))
    with pytest.raises(PolicyError, match=r"job b.*not in the queue"):
        say(Enqueue("b", "cpu", 0))
    with pytest.raises(PolicyError, match="unit 7, which does not exist"):
        say(Enqueue("a", "cpu", 7))
    with pytest.raises(PolicyError, match="cannot run on n0/gpu0"):
        say(Enqueue("a", "cpu", 1))
    say(Enqueue("a", "cpu", 0), Enqueue("c", "cpu", 0))
    whole = engine.view.free().fit(jobs[2].choices[0].request)
    assert whole is not None
    with pytest.raises(PolicyError, match=r"job c.*before others in its device's FIFO"):
        say(Start("c", "cpu", whole))


def test_reserve_is_held_and_settled() -> None:
    engine = engine_of(greedy, Cluster.uniform(1, 1), cpu_jobs(1, 1))
    engine.policy = Scripted(once(Reserve("1", "cpu", on(1), 10.0)))
    engine.handle_events(1.0, [Woken()])
    assert engine.view.reservations["1"].start == 10.0
    engine.policy = Scripted(once(Reserve("1", "cpu", on(1), 11.0)))
    with pytest.raises(PolicyError, match=r"policy scripted, job 1: .*later"):
        engine.handle_events(2.0, [Woken()])
    engine.policy = Scripted(greedy)
    engine.handle_events(5.0, [Ended("0")])
    assert engine.records["1"].promised == 10.0
    assert engine.view.reservations == {}
    assert engine.promises.broken == 0
    engine.policy = Scripted(once(Reserve("1", "cpu", on(1), 20.0)))
    with pytest.raises(PolicyError, match="gets a promise while RUNNING"):
        engine.handle_events(6.0, [Woken()])


def test_wait_gives_a_reason_and_wakes() -> None:
    engine = engine_of(
        once(
            Wait("0", "because", 7.0), Wait("0", "still", 3.0), Wait("0", "yes", 7.0), Wait("0", "no", None)
        ),
        Cluster.uniform(1, 1),
        cpu_jobs(1),
    )
    assert engine.wake_times == [3.0, 7.0]
    assert engine.records["0"].wait_reason == "no"


def test_submit_hands_over_and_started_tells_where() -> None:
    engine = engine_of(
        once(Submit("0", "cpu", Request(2, 1), "slurm")), Cluster.uniform(3, 1), cpu_jobs(2, 1)
    )
    assert "0" in engine.handed_over
    assert [job.id for job in engine.queue] == ["1"]
    engine.handle_events(3.0, [Started("0", on(0b110, size=2))])
    assert engine.records["0"].start == 3.0
    assert engine.free.count(Request(1, 1)) == 1
    assert engine.handle_events(3.5, [Started("0")]) == (), "a start of our own, confirmed"
    engine.handle_events(4.0, [Ended("0")])
    assert engine.records["0"].state is State.COMPLETED
    engine.policy = Scripted(once(Submit("1", "cpu", Request(1, 1), "slurm")))
    engine.handle_events(5.0, [Woken()])
    engine.handle_events(6.0, [Started("1")])
    assert engine.records["1"].state is State.RUNNING
    engine.handle_events(7.0, [Ended("1")])
    engine.policy = Scripted(once(Submit("1", "cpu", Request(1, 1), "slurm")))
    with pytest.raises(PolicyError, match="submitted to slurm while COMPLETED"):
        engine.handle_events(8.0, [Woken()])


def test_migrate_moves_a_running_job() -> None:
    cluster = Cluster.uniform(2, 2, 1)
    request = Request(1, 1, (("gpu", 1),))
    job, _ = timed("a", {"gpu": 5.0})
    implementation = replace(job.app.implementations[0], request=request)
    job = replace(
        job,
        app=replace(job.app, implementations=(implementation,)),
        choices=(replace(job.choices[0], implementation=implementation, request=request),),
    )
    remote = Allocation(request, (Part(0b01, 1),), donors=(Donor(0, 1, 0),))
    engine = engine_of(once(Start("a", "gpu", remote)), cluster, [job])
    assert engine.free.count(Request(1, 0, (("gpu", 1),))) == 1
    assert engine.running["a"].allocation.device_names(cluster) == ["n1/gpu0"]
    occupant = engine.view.occupant(cluster.units[3])
    assert occupant is not None
    assert occupant.job.id == "a"
    local = Allocation(request, (Part(0b01, 1, (0,)),))
    engine.policy = Scripted(once(Migrate("a", local)))
    engine.handle_events(1.0, [Woken()])
    assert engine.running["a"].allocation.device_names(cluster) == ["n0/gpu0"]
    assert engine.view.occupant(cluster.units[3]) is None
    engine.policy = Scripted(once(Migrate("a", Allocation(Request(1, 2), (Part(0b01, 2),)))))
    with pytest.raises(PolicyError, match="migrated to another request"):
        engine.handle_events(2.0, [Woken()])
    engine.policy = Scripted(once(Migrate("nobody", local)))
    with pytest.raises(PolicyError, match="job nobody: is migrated while it does not run"):
        engine.handle_events(2.0, [Woken()])
    engine.handle_events(3.0, [Ended("a")])
    assert engine.free.count(request) == 2


def test_cancelling() -> None:
    engine = engine_of(greedy, Cluster.uniform(1, 1), cpu_jobs(1, 1, 1))
    engine.handle_events(1.0, [Cancelled("1")])
    assert engine.records["1"].state is State.CANCELLED
    assert [job.id for job in engine.queue] == ["2"]
    assert engine.handle_events(2.0, [Cancelled("0")]) == (), "its driver stops it and reports the end"
    assert engine.handle_events(2.0, [Cancelled("nobody")]) == ()
    engine.handle_events(3.0, [Ended("0", State.CANCELLED)])
    assert list(engine.running) == ["2"]


def test_nodes_are_lost_and_join() -> None:
    engine = engine_of(greedy, Cluster.uniform(2, 1), cpu_jobs(2, 1, 1))
    engine.policy = Scripted(once(Reserve("1", "cpu", on(1), 10.0)))
    engine.handle_events(1.0, [Woken()])
    engine.policy = Scripted(greedy)
    engine.handle_events(2.0, [NodeLost(0), NodeLost(0)])
    assert engine.records["0"].state is State.NODE_FAIL
    assert engine.view.reservations == {}, "nothing that was promised holds"
    assert list(engine.running) == ["1"]
    assert engine.running["1"].allocation.nodes == [1]
    engine.handle_events(3.0, [NodeJoined(0), NodeJoined(0)])
    assert engine.running["2"].allocation.nodes == [0]


def test_a_plan_is_shown() -> None:
    engine = engine_of(nothing, Cluster.uniform(1, 1))
    plan = Plan((), 0.0, "optimal")
    engine.handle_events(0.0, [Planned(plan)])
    assert engine.view.plan is plan


def test_shared_pools_get_the_lowest_free_cores() -> None:
    job = cpu_jobs(1)[0]
    jobs = [replace(job, id=name) for name in "abc"]
    engine = engine_of(greedy, Cluster.uniform(1, 3), jobs)
    assert [engine.running[name].allocation.cores[0] for name in "abc"] == [(0,), (1,), (2,)]
    engine.handle_events(1.0, [Ended("b")])
    engine.handle_events(2.0, [Submitted(replace(job, id="d"))])
    assert engine.running["d"].allocation.cores[0] == (1,)


def test_device_classes_of_unlike_nodes() -> None:
    nodes = (
        Node("n0", (0,), (Device("gpu", "T4"),), None, 0, "old"),
        Node("n1", (0,), (Device("gpu", "A100"),), None, 0, "new"),
    )
    job, _ = timed("a", {"gpu": 1.0})
    engine = engine_of(nothing, Cluster(nodes), [job])
    gpu, request = job.choices[0].implementation, job.choices[0].request
    there = Allocation(request, (Part(0b10, 0, (0,)),))
    assert str(engine.class_of(gpu, there)) == "gpu:A100"
    lent = Allocation(request, (Part(0b10, 0),), donors=(Donor(1, 0, 0),))
    assert str(engine.class_of(gpu, lent)) == "gpu:T4"
    cpu = timed("b", {"cpu": 1.0})[0].choices[0].implementation
    assert str(engine.class_of(cpu, Allocation(Request(), (Part(0b10, 1),)))) == "cpu:new"


def test_interchangeable_until_somebody_shares_a_node() -> None:
    whole = cpu_jobs(1, 2)
    engine = engine_of(nothing, Cluster.uniform(2, 1), whole)
    assert engine.view.interchangeable
    assert not engine_of(nothing, Cluster.uniform(2, 2), whole).view.interchangeable
    assert not engine_of(nothing, Cluster.parse("1x1cpu+1gpu"), whole).view.interchangeable
    idle = replace(whole[0], id="gpu", choices=(replace(whole[0].choices[0], request=Request(1, 0)),))
    engine.handle_events(1.0, [Submitted(idle)])
    assert not engine.view.interchangeable


# ------------------------------------------------------------------ decisions that are wrong


WRONG = {
    "was never submitted": Start("nobody", "cpu", on(1)),
    "cannot run as gpu": Start("0", "gpu", on(1)),
    "cannot run as cpu with Request\\(nodes=1, cpus=2": Start(
        "0", "cpu", Allocation(Request(1, 2), (Part(1, 2),))
    ),
    "is given 2 nodes and needs 1": Start("0", "cpu", on(0b11)),
    "is given 0 nodes and needs 1": Start("0", "cpu", NOWHERE),
    "is given 2 CPUs and needs 1": Start("0", "cpu", on(1, cpus=2)),
    "is given 0 CPUs and needs 1": Start("0", "cpu", on(1, cpus=0)),
    "is given 5 bytes and needs 0": Start("0", "cpu", Allocation(Request(1, 1), (Part(1, 1, memory=5),))),
    "is given 1 devices and needs 0": Start("0", "cpu", Allocation(Request(1, 1), (Part(1, 1, (0,)),))),
    "cannot be started: a node is lost or unknown": Start("0", "cpu", on(1 << 9)),
    "cannot be started: not free": Start("0", "cpu", on(0b100)),
    "start at 5 was promised at 7": Reserve("0", "cpu", on(1), 5.0),
    "is started while RUNNING": Start("busy", "cpu", on(1)),
    "core 9 is not one of n0": Start("0", "cpu", Allocation(Request(1, 1), (Part(1, 1),), cores={0: (9,)})),
}


@pytest.mark.parametrize("message", WRONG)
def test_refuses_what_cannot_be(message: str) -> None:
    """The error names the policy and the job; the job is not started."""
    busy, job = (replace(job, id=name) for job, name in zip(cpu_jobs(1, 1), ("busy", "0"), strict=True))
    engine = engine_of(once(Start("busy", "cpu", on(0b100))), Cluster.uniform(3, 1), [busy, job])
    decision = WRONG[message]
    engine.policy = Scripted(once(decision))
    with pytest.raises(PolicyError, match=message) as caught:
        engine.handle_events(7.0, [Woken()])
    assert caught.value.policy == "scripted"
    assert caught.value.job == decision.job
    assert list(engine.running) == ["busy"]


def test_refuses_an_overlapping_gang_and_a_wrong_pool() -> None:
    gang = cpu_jobs(2)
    twice = Allocation(Request(2, 1), (Part(0b01, 1), Part(0b01, 1)))
    with pytest.raises(PolicyError, match="needs 2"):
        engine_of(once(Start("0", "cpu", twice)), Cluster.uniform(2, 2), gang)
    job, _ = timed("a", {"cpu": 1.0})
    some = Allocation(job.choices[0].request, (Part(0b01, 3),))
    with pytest.raises(PolicyError, match="is given 3 CPUs and needs 4"):
        engine_of(once(Start("a", "cpu", some)), Cluster.uniform(1, 4), [job])


def test_refuses_a_job_twice_and_an_end_without_a_start() -> None:
    job = cpu_jobs(1)[0]
    engine = engine_of(nothing, Cluster.uniform(1, 1), [job])
    with pytest.raises(ValueError, match="submitted twice"):
        engine.handle_events(1.0, [Submitted(job)])
    with pytest.raises(ValueError, match="was not running"):
        engine.handle_events(1.0, [Ended("0")])


def test_a_policy_without_end_is_stopped() -> None:
    def restless(view: View) -> Iterable[Decision]:
        if "0" in [job.id for job in view.queue]:
            return [Enqueue("0", "cpu", 0)]
        return [Dequeue("0")]

    with pytest.raises(PolicyError, match="without end"):
        engine_of(restless, Cluster.uniform(1, 1), cpu_jobs(1))
