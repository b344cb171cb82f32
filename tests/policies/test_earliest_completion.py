"""Guest of another scheduler: which way a job goes, by foreseen starts and predicted run times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np
import pytest

from dovetail.engine.state.core import Engine, no_bound
from dovetail.model import (
    Cluster,
    Decision,
    Delayed,
    DeviceClass,
    Ended,
    Foreseen,
    Implementation,
    Inquire,
    Job,
    Node,
    Prediction,
    Preempt,
    Request,
    Shape,
    Started,
    State,
    Submit,
    Submitted,
    TableTruth,
    TimeUsed,
    Withdrawn,
    Woken,
    Workload,
)
from dovetail.policies.earliest_completion import EarliestCompletion, partition_of
from dovetail.policies.parts.outside_waits import Delay
from dovetail.policies.parts.partitions import partitions_for
from dovetail.testing.builders import TrueTimesModel, timed, workload


def cluster() -> Cluster:
    """Two nodes of four CPUs in ``cpu``, two with two GPUs each in ``gpu``."""
    with_gpus = Cluster.uniform(4, 4, 2).nodes
    return Cluster(
        tuple(
            replace(node, devices=() if i < 2 else node.devices, partitions=("cpu" if i < 2 else "gpu",))
            for i, node in enumerate(with_gpus)
        )
    )


class Told(TrueTimesModel):
    """Knows the true times, from 25 runs, but of some implementations nothing."""

    def __init__(self, jobs: Workload, unknown: Sequence[str] = ()) -> None:
        super().__init__(jobs.truth)
        self.unknown = unknown

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        found = super().predict(job, implementation, request, device)
        if found is None or implementation.name in self.unknown:
            return None
        return Prediction(found.expected, 1.5 * found.expected, 25, "told")

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        return 0 if implementation in self.unknown else 1


class World:
    """An engine, and an outside scheduler that foresees what it is told to."""

    def __init__(
        self,
        jobs: Workload,
        waits: Mapping[str, float | None],
        *,
        room: int = 1000,
        used: TimeUsed | None = None,
        unknown: Sequence[str] = (),
        machine: Cluster | None = None,
        **options: Any,
    ) -> None:
        self.waits, self.room, self.used = waits, room, used
        policy = EarliestCompletion(**options)
        self.engine = Engine(machine or cluster(), policy, Told(jobs, unknown), bound=no_bound)
        self.jobs = jobs.jobs
        self.asked: list[Shape] = []

    def answers(self, decisions: Sequence[Decision]) -> list[Foreseen]:
        asked = [decision.shape for decision in decisions if isinstance(decision, Inquire)]
        self.asked += asked
        return [self.answer(shape) for shape in asked]

    def answer(self, shape: Shape) -> Foreseen:
        """Of several partitions the first that would start it, and the room of all."""
        known = [wait for name in shape.target.split(",") if (wait := self.waits[name]) is not None]
        wait = min(known, default=None)
        return Foreseen(shape, wait, self.room * known.count(0.0), "why not", self.used)

    def go(self, now: float = 0.0, jobs: Sequence[Job] | None = None) -> list[Submit]:
        """Submit the jobs, answer what is asked, and see what is handed over."""
        decided, heard = (
            list(self.engine.handle_events(now, [Submitted(job) for job in jobs or self.jobs])),
            0,
        )
        while answers := self.answers(decided[heard:]):
            heard = len(decided)
            decided += self.engine.handle_events(now, answers)
        self.engine.validate_books()
        return [decision for decision in decided if isinstance(decision, Submit)]


def one(times: Mapping[str, float], **fields: Any) -> Workload:
    found = workload([("a", times)])
    return Workload(found.name, [replace(found.jobs[0], **fields)], found.truth)


def many(count: int, times: Mapping[str, float]) -> Workload:
    """So many jobs of one app."""
    first, truth = timed("j0", times)
    jobs = [first]
    for i in range(1, count):
        job, its = timed(f"j{i}", times, index=i, app=first.app)
        jobs.append(job)
        truth |= its
    return Workload("made", jobs, TableTruth(truth))


@pytest.mark.parametrize(
    ("gpu_wait", "expected"), [(0.0, ("gpu", "gpu")), (24.0, ("gpu", "gpu")), (26.0, ("cpu", "cpu,gpu"))]
)
def test_the_earlier_end_decides(gpu_wait: float, expected: tuple[str, str]) -> None:
    """12 s on a free CPU; 2 s on a GPU that is free in a while: two fifths of what is foreseen."""
    (sent,) = World(one({"cpu": 12.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": gpu_wait}).go()
    assert (sent.implementation, sent.target) == expected


def test_the_reason_has_both_numbers() -> None:
    (sent,) = World(one({"cpu": 12.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 27.5}).go()
    assert sent.reason.startswith(
        "ends first: cpu in cpu,gpu: starts in 0 s, takes 12 s, ends in 12 s; against "
    )
    assert "gpu in gpu: starts in 11 s, takes 2 s, ends in 13 s" in sent.reason


def test_each_shape_is_asked_about_once_until_the_answer_is_old() -> None:
    world = World(many(50, {"cpu": 12.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 0.0}, fresh=60.0)
    assert len(world.go(jobs=world.jobs[:49])) == 49
    assert len(world.asked) == len(set(world.asked)) == 2  # about CPUs of both partitions together
    world.asked.clear()
    late = world.engine.handle_events(61.0, [Submitted(world.jobs[49])])
    assert len(world.answers(late)) == 2


def test_what_was_handed_over_counts_for_those_behind() -> None:
    """Four GPUs take turns of 2 s: four turns end before the 9 s of a CPU, a fifth would not."""
    world = World(many(24, {"cpu": 9.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 0.0}, room=4, passive=True)
    assert Counter(decision.implementation for decision in world.go()) == {"gpu": 16, "cpu": 8}


def test_most_of_a_queue_is_kept_back_and_few_a_kind_wait_outside() -> None:
    world = World(many(40, {"cpu": 50.0, "gpu": 40.0}), {"cpu": 300.0, "gpu": 310.0}, few=2)
    lines = Counter((decision.target, decision.implementation) for decision in world.go())
    assert lines == {("gpu", "gpu"): 2}
    assert "kept back, best now as" in world.engine.records["j30"].wait_reason


def test_where_all_have_to_wait_a_job_goes_where_it_runs_fastest_unless_the_bounds_say_otherwise() -> None:
    """What is foreseen of GPUs may be ten times too late, and is not compared with what is of CPUs."""
    times = {"cpu": 20.0, "gpu": 2.0}
    (sent,) = World(one(times), {"cpu": 30.0, "gpu": 300.0}).go()
    assert sent.implementation == "gpu"
    assert sent.reason.startswith("runs fastest, and no other way surely ends sooner: gpu in gpu")
    (sent,) = World(one(times), {"cpu": 30.0, "gpu": 3000.0}).go()  # a tenth of that is too late
    assert sent.implementation == "cpu"


def test_free_places_go_first_to_jobs_that_run_fastest_there() -> None:
    """Four places for CPUs are free, none for GPUs: those that run fastest there have them, though longer."""
    fast, truth = timed("f", {"cpu": 3.0, "gpu": 1.0})
    jobs = [fast]
    for i in range(1, 5):
        job, its = timed(f"s{i}", {"cpu": 6.0, "gpu": 12.0}, index=i)
        jobs.append(job)
        truth |= its
    found = World(Workload("made", jobs, TableTruth(truth)), {"cpu": 0.0, "gpu": 14.0}, room=2).go()
    slow = {f"s{i}": "cpu" for i in range(1, 5)}
    assert {sent.job: sent.implementation for sent in found} == {"f": "gpu", **slow}
    assert found[0].job == "f"  # of those that came together the shorter one is still the first
    alone = World(Workload("made", jobs[:1], TableTruth(truth)), {"cpu": 0.0, "gpu": 14.0}, room=2).go()
    assert [sent.implementation for sent in alone] == ["cpu"]


def test_what_waits_is_taken_back_where_it_would_start_at_once_another_way() -> None:
    """Jobs wait for GPUs; then a place for CPUs comes free: one of them is run as that."""
    world = World(many(6, {"cpu": 8.0, "gpu": 2.0}), {"cpu": 200.0, "gpu": 200.0}, room=1)
    sent = world.go()
    assert Counter(decision.implementation for decision in sent) == {"gpu": 6}
    world.waits = {"cpu": 0.0, "gpu": 200.0}
    decided = list(world.engine.handle_events(6.0, [Started(sent[0].job)]))
    decided = list(world.engine.handle_events(6.0, world.answers(decided)))
    taken = {decision.job for decision in decided if isinstance(decision, Preempt)}
    assert len(taken) == 1
    again = world.engine.handle_events(9.0, [Withdrawn(job) for job in taken])
    world.engine.validate_books()
    assert {d.implementation for d in again if isinstance(d, Submit)} == {"cpu"}


def test_a_place_that_comes_free_is_seen_although_nothing_else_happens() -> None:
    """Places stood empty for half a minute: all jobs waited outside, and nobody looked again."""
    world = World(many(6, {"cpu": 8.0, "gpu": 2.0}), {"cpu": 200.0, "gpu": 200.0}, room=1)
    sent = world.go()
    engine = world.engine
    engine.handle_events(3.0, [Delayed(sent[1].job, "Resources")])
    assert engine.wake_times == [5.0]
    assert engine.records[sent[1].job].wait_reason == "Resources"  # not taken away by who looks again
    engine.wake_times.clear()
    world.waits = {"cpu": 0.0, "gpu": 200.0}
    decided = list(engine.handle_events(5.0, [Woken()]))
    assert any(isinstance(decision, Inquire) for decision in decided)
    decided = list(engine.handle_events(5.0, world.answers(decided)))
    assert len({decision.job for decision in decided if isinstance(decision, Preempt)}) == 1
    # An hour later it is asked about again after three minutes.
    world.waits = {"cpu": 200.0, "gpu": 200.0}
    decided = list(engine.handle_events(3600.0, [Woken()]))
    engine.handle_events(3600.0, world.answers(decided))
    assert engine.wake_times[-1] == 3780.0


def test_lines_are_handed_over_side_by_side() -> None:
    """Jobs for GPUs do not stand before all those for CPUs: in one partition they wait for each other."""
    world = World(many(6, {"cpu": 20.0, "gpu": 19.0}), {"cpu": 0.0, "gpu": 0.0}, room=1)
    lines = [sent.implementation for sent in world.go()]
    assert Counter(lines)["gpu"] >= 2
    assert len(set(lines[:2])) == 2


def test_of_jobs_that_came_together_the_shorter_go_first() -> None:
    long, truth = timed("long", {"cpu": 30.0})
    short, its = timed("short", {"cpu": 3.0}, index=1)
    late, own = timed("late", {"cpu": 1.0}, index=2)
    jobs = [long, short, replace(late, submit_time=1.0)]
    world = World(Workload("made", jobs, TableTruth({**truth, **its, **own})), {"cpu": 9.0, "gpu": None})
    assert [decision.job for decision in world.go(1.0)] == ["short", "long", "late"]


def test_what_jobs_use_of_their_walltimes_counts_before_any_has_started() -> None:
    """A GPU foreseen in 50 s comes in 10 s where jobs use a fifth: 12 s, against 20 s on a CPU."""
    used = TimeUsed(0.2, 0.1, 40)
    (sent,) = World(one({"cpu": 20.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 50.0}, used=used).go()
    assert sent.implementation == "gpu"
    assert "gpu in gpu: starts in 10 s (8.34 to 12), takes 2 s" in sent.reason
    (sent,) = World(
        one({"cpu": 20.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 50.0}, used=used._replace(jobs=9)
    ).go()
    assert sent.implementation == "cpu"


def test_bounds_of_waits_hold_four_of_five_and_narrow_as_starts_are_seen() -> None:
    unknown = Delay.learn_delay([], None)
    assert (unknown.expected, unknown.seen) == (pytest.approx(0.4), 0)
    assert unknown.low == pytest.approx(0.08, rel=1e-2)
    seen = Delay.learn_delay([log(0.3), log(0.35), log(0.25)] * 5, None)
    assert 0.25 < seen.expected < 0.4
    assert unknown.high / unknown.low > seen.high / seen.low
    drawn = np.random.default_rng(5).normal(-1.0, 0.7, (400, 17))
    held = [
        found.low <= exp(x[-1]) <= found.high
        for x in drawn
        if (found := Delay.learn_delay(list(x[:-1]), None))
    ]
    assert 0.72 < sum(held) / len(held) < 0.9


def test_without_gain_a_job_keeps_its_place() -> None:
    world = World(many(4, {"cpu": 30.0, "gpu": 29.0}), {"cpu": 30.0, "gpu": 30.0}, fresh=1e9)
    sent = world.go()
    decided = world.engine.handle_events(20.0, [Started(sent[0].job)])
    assert not [decision for decision in decided if isinstance(decision, Preempt)]


def test_what_was_never_tried_is_tried_once() -> None:
    world = World(many(6, {"cpu": 3.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 0.0}, unknown=["cpu"])
    sent = world.go()
    assert [decision.implementation for decision in sent] == ["cpu", *["gpu"] * 5]
    assert sent[0].reason.startswith("tried for the first time: ")


def test_where_nothing_is_known_devices_are_taken_first_and_the_rest_is_spread() -> None:
    world = World(many(8, {"cpu": 3.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 0.0}, unknown=["cpu", "gpu"], room=2)
    found = Counter(decision.implementation for decision in world.go())
    assert found["gpu"] >= 3
    assert found["cpu"] >= 3


def test_a_job_that_is_refused_everywhere_is_handed_over_once_to_end_with_the_reason() -> None:
    world = World(one({"cpu": 3.0}), {"cpu": None, "gpu": None})
    (sent,) = world.go()
    assert sent.reason == "refused by the cluster's scheduler: why not"
    asked = len(world.asked)
    assert not world.engine.handle_events(100.0, [])
    assert len(world.asked) == asked, "it polls no more"


def test_a_job_that_fits_nowhere_is_handed_over_to_end_with_the_reason() -> None:
    world = World(one({"cpu": 3.0}, batch_options=("-p", "nosuch")), {"cpu": 0.0, "gpu": 0.0})
    (sent,) = world.go()
    assert sent.target == "nosuch"


def test_a_closed_partition_takes_only_jobs_that_name_it() -> None:
    closed = replace(cluster(), closed=frozenset({"gpu"}))
    usual = World(one({"cpu": 12.0, "gpu": 2.0}), {"cpu": 50.0, "gpu": 0.0}, machine=closed)
    assert [sent.target for sent in usual.go()] == ["cpu"]
    named = World(one({"cpu": 12.0}, batch_options=("-p", "gpu")), {"cpu": 0.0, "gpu": 0.0}, machine=closed)
    assert [sent.target for sent in named.go()] == ["gpu"]


def test_a_partition_that_the_user_names_is_kept_to() -> None:
    job = one({"cpu": 12.0, "gpu": 2.0}, batch_options=("-p", "cpu"))
    (sent,) = World(job, {"cpu": 50.0, "gpu": 0.0}).go()
    assert (sent.implementation, sent.target) == ("cpu", "cpu")
    assert partition_of(["--account=x", "--partition=a"]) == "a"
    assert partition_of(["-pa"]) == "a"
    assert partition_of(["--parsable"]) == ""


def restartable(walltime: float | None) -> Workload:
    found = one({"cpu": 100.0}, walltime=walltime)
    job = found.jobs[0]
    app = replace(job.app, restartable=True)
    return Workload(found.name, [replace(job, app=app)], found.truth)


def test_a_walltime_is_cut_to_the_upper_end_in_whole_minutes_only_where_that_is_asked_for() -> None:
    waits = {"cpu": 0.0, "gpu": 9.0}
    assert World(restartable(3600.0), waits).go()[0].walltime == 3600.0
    assert World(restartable(3600.0), waits, cut=True).go()[0].walltime == 180.0
    assert World(restartable(None), waits, cut=True).go()[0].walltime == 180.0
    assert World(restartable(120.0), waits, cut=True).go()[0].walltime == 120.0
    assert World(restartable(3600.0), waits, cut=True, samples=26).go()[0].walltime == 3600.0
    assert World(one({"cpu": 100.0}, walltime=3600.0), waits, cut=True).go()[0].walltime == 3600.0


def test_ended_by_a_cut_walltime_it_asks_for_its_own() -> None:
    world = World(restartable(3600.0), {"cpu": 0.0, "gpu": 9.0}, cut=True)
    world.go()
    engine = world.engine
    engine.handle_events(1.0, [Started("a")])
    engine.handle_events(181.0, [Ended("a", State.TIMEOUT, None)])
    assert engine.outside.was_cut_short("a")


def test_places_count_what_fits_at_once() -> None:
    machine = cluster()
    assert dict(partitions_for(machine, Request(cpus=-1))) == {"cpu": 2, "gpu": 2}
    assert dict(partitions_for(machine, Request(cpus=1))) == {"cpu": 8, "gpu": 8}
    assert dict(partitions_for(machine, Request(cpus=1, devices=(("gpu", 1),)))) == {"gpu": 4}
    assert dict(partitions_for(machine, Request(nodes=2, cpus=2))) == {"cpu": 2, "gpu": 2}
    assert dict(partitions_for(machine, Request(nodes=3, cpus=2))) == {}
    alone = Node("n", (0, 1), partitions=("p",))
    assert dict(partitions_for(Cluster((alone,)), Request(cpus=3))) == {}
