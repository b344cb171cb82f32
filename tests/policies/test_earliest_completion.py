"""Guest of another scheduler: which way a job goes, by foreseen starts and predicted run times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dovetail.engine.core import Engine, no_bound
from dovetail.model import (
    Cluster,
    Decision,
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
    Withdrawn,
    Workload,
)
from dovetail.policies.earliest_completion import EarliestCompletion, partition_of, places_for
from dovetail.testing.builders import Knowing, timed, workload


def cluster() -> Cluster:
    """Two nodes of four CPUs in ``cpu``, two with two GPUs each in ``gpu``."""
    with_gpus = Cluster.uniform(4, 4, 2).nodes
    return Cluster(
        tuple(
            replace(node, devices=() if i < 2 else node.devices, partitions=("cpu" if i < 2 else "gpu",))
            for i, node in enumerate(with_gpus)
        )
    )


class Told(Knowing):
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
        unknown: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.waits, self.room = waits, room
        policy = EarliestCompletion(**options)
        self.engine = Engine(cluster(), policy, Told(jobs, unknown), bound=no_bound)
        self.jobs = jobs.jobs
        self.asked: list[Shape] = []

    def answers(self, decisions: Sequence[Decision]) -> list[Foreseen]:
        asked = [decision.shape for decision in decisions if isinstance(decision, Inquire)]
        self.asked += asked
        return [
            Foreseen(s, self.waits[s.target], self.room if self.waits[s.target] == 0 else 0, "why not")
            for s in asked
        ]

    def go(self, now: float = 0.0, jobs: Sequence[Job] | None = None) -> list[Submit]:
        """Submit the jobs, answer what is asked, and see what is handed over."""
        decided = list(self.engine.handle(now, [Submitted(job) for job in jobs or self.jobs]))
        decided += self.engine.handle(now, self.answers(decided))
        self.engine.validate()
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
    ("gpu_wait", "expected"), [(0.0, ("gpu", "gpu")), (9.0, ("gpu", "gpu")), (11.0, ("cpu", "cpu"))]
)
def test_the_earlier_end_decides(gpu_wait: float, expected: tuple[str, str]) -> None:
    """12 s on a free CPU; 2 s on a GPU that is free in a while."""
    (sent,) = World(one({"cpu": 12.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": gpu_wait}).go()
    assert (sent.implementation, sent.target) == expected


def test_the_reason_has_both_numbers() -> None:
    (sent,) = World(one({"cpu": 12.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 11.0}).go()
    assert sent.reason.startswith("ends first: cpu in cpu: starts in 0 s, takes 12 s, ends in 12 s; against ")
    assert "gpu in gpu: starts in 11 s, takes 2 s, ends in 13 s" in sent.reason


def test_each_shape_is_asked_about_once_until_the_answer_is_old() -> None:
    world = World(many(50, {"cpu": 12.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 0.0}, fresh=60.0)
    assert len(world.go(jobs=world.jobs[:49])) == 49
    assert len(world.asked) == len(set(world.asked)) == 3  # CPUs are in both partitions
    world.asked.clear()
    late = world.engine.handle(61.0, [Submitted(world.jobs[49])])
    assert len(world.answers(late)) == 3


def test_what_was_handed_over_counts_for_those_behind() -> None:
    """Four GPUs take turns of 2 s: four turns end before the 9 s of a CPU, a fifth would not."""
    world = World(many(24, {"cpu": 9.0, "gpu": 2.0}), {"cpu": 0.0, "gpu": 0.0}, room=4, passive=True)
    assert Counter(decision.implementation for decision in world.go()) == {"gpu": 16, "cpu": 8}


def test_most_of_a_queue_is_kept_back_and_two_a_kind_wait_outside() -> None:
    world = World(many(40, {"cpu": 50.0, "gpu": 40.0}), {"cpu": 300.0, "gpu": 310.0})
    lines = Counter((decision.target, decision.implementation) for decision in world.go())
    assert lines == {("cpu", "cpu"): 2, ("gpu", "cpu"): 2, ("gpu", "gpu"): 2}
    assert "kept back, best now as" in world.engine.records["j30"].wait_reason


def test_how_long_jobs_wait_in_truth_is_learned_and_what_waits_in_vain_is_taken_back() -> None:
    """GPUs foreseen in 55 s come in 6 s; a job that was sent to the CPU for that is sent there instead."""
    world = World(many(6, {"cpu": 20.0, "gpu": 2.0}), {"cpu": 30.0, "gpu": 55.0}, fresh=1e9)
    sent = world.go()
    gpu = [decision for decision in sent if decision.implementation == "gpu"]
    cpu = [decision for decision in sent if decision.implementation == "cpu"]
    assert gpu
    assert cpu
    decided: list[Decision] = []
    for number, decision in enumerate(gpu):
        decided += world.engine.handle(6.0 + number, [Started(decision.job)])
    taken = {decision.job for decision in decided if isinstance(decision, Preempt)}
    assert taken
    assert taken <= {decision.job for decision in cpu}
    again = world.engine.handle(9.0, [Withdrawn(job) for job in taken])
    world.engine.validate()
    assert {d.implementation for d in again if isinstance(d, Submit)} == {"gpu"}


def test_without_gain_a_job_keeps_its_place() -> None:
    world = World(many(4, {"cpu": 30.0, "gpu": 29.0}), {"cpu": 30.0, "gpu": 30.0}, fresh=1e9)
    sent = world.go()
    decided = world.engine.handle(20.0, [Started(sent[0].job)])
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


def test_a_job_that_is_refused_everywhere_waits_and_says_why() -> None:
    world = World(one({"cpu": 3.0}), {"cpu": None, "gpu": None})
    assert not world.go()
    assert "why not" in world.engine.records["a"].wait_reason


def test_a_partition_that_the_user_names_is_kept_to() -> None:
    job = one({"cpu": 12.0, "gpu": 2.0}, slurm=("-p", "cpu"))
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
    engine.handle(1.0, [Started("a")])
    engine.handle(181.0, [Ended("a", State.TIMEOUT, None)])
    assert engine.outside.was_cut_short("a")


def test_places_count_what_fits_at_once() -> None:
    machine = cluster()
    assert dict(places_for(machine, Request(cpus=-1))) == {"cpu": 2, "gpu": 2}
    assert dict(places_for(machine, Request(cpus=1))) == {"cpu": 8, "gpu": 8}
    assert dict(places_for(machine, Request(cpus=1, devices=(("gpu", 1),)))) == {"gpu": 4}
    assert dict(places_for(machine, Request(nodes=2, cpus=2))) == {"cpu": 2, "gpu": 2}
    assert dict(places_for(machine, Request(nodes=3, cpus=2))) == {}
    alone = Node("n", (0, 1), partitions=("p",))
    assert dict(places_for(Cluster((alone,)), Request(cpus=3))) == {}
