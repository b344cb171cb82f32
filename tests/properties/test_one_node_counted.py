"""The CPUs of an only node, counted, against its timeline; gaps in many blocks against a plain search."""

from __future__ import annotations

import random
from bisect import bisect_right
from math import inf

import numpy as np
import pytest

from dovetail.engine.profile.counts import CountProfile
from dovetail.engine.state.profiles import ProfileBook
from dovetail.model import App, Choice, Cluster, Implementation, Job, Request, Result, TableTruth, Workload
from dovetail.native.library import load_library
from dovetail.native.steps import FreeSteps
from dovetail.policies.conservative import Conservative
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule

pytestmark = pytest.mark.skipif(load_library() is None, reason="no C compiler was at hand")


def random_jobs(rng: random.Random, count: int) -> Workload:
    """Jobs of one to four CPUs, a few of no length, with a priority or a device; walltimes of all kinds."""
    jobs, times, when = [], {}, 0.0
    for n in range(count):
        when += rng.choice([0, 0, 0, 1, 2])
        devices = (("gpu", 1),) if rng.random() < 0.02 else ()
        request = Request(1, rng.choice([1, 1, 2, 4]), devices)
        way = Implementation("gpu" if devices else "cpu", "gpu" if devices else "cpu", request)
        limit = 0.0 if rng.random() < 0.01 else rng.choice([rng.uniform(1, 40), float(rng.randint(1, 9))])
        app = App(f"app{n}", (way,))
        choices = (Choice(way, request),)
        jobs.append(Job(str(n), app, choices, n, when, walltime=limit, priority=float(rng.random() < 0.05)))
        times[str(n)] = limit * rng.choice([0.1, 0.5, 1.0, 1.0, 1.2])
    return Workload("random", jobs, TableTruth(fixed=times))


def scheduled(work: Workload, cluster: Cluster, order: str, overrun: str) -> Result:
    options = SimulationOptions(overrun=overrun, validate=True)  # type: ignore[arg-type]
    policy = Conservative(order=order)  # type: ignore[arg-type]
    result = simulate(work, cluster, policy, PerfectModel(work.truth), options=options)
    check_schedule(result, work)
    return result


@pytest.mark.parametrize("overrun", ["kill", "run"])
def test_counted_cpus_give_the_schedule_of_the_node(overrun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    make = CountProfile.__init__

    def count_it(self: CountProfile, *arguments: object) -> None:
        nonlocal counted
        counted += 1
        make(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(CountProfile, "__init__", count_it)
    for seed in range(full(400, 12)):
        rng = random.Random(seed)
        work = random_jobs(rng, rng.choice([20, 60, 150]))
        cluster, order = Cluster.parse(rng.choice(["1x4cpu", "1x8cpu+1gpu"])), rng.choice(["fcfs", "sjf"])
        by_count = scheduled(work, cluster, order, overrun)
        with monkeypatch.context() as patched:
            patched.setattr(ProfileBook, "_units", lambda book: None)
            by_node = scheduled(work, cluster, order, overrun)
        for one, other in zip(by_count.records, by_node.records, strict=True):
            found = [(record.start, record.promised, record.allocation) for record in (one, other)]
            assert found[0] == found[1], (seed, one.job.id)
    assert counted > 0


def first_gap(steps: list[tuple[float, int]], nodes: int, duration: float) -> float:
    """The first time from which so many nodes are free for so long, looked for step by step."""
    begin = inf
    for when, free in steps:
        if free < nodes:
            if when >= begin + duration:
                return begin
            begin = inf
        elif begin == inf:
            begin = when
    return begin


def changed(steps: list[tuple[float, int]], start: float, end: float, by: int) -> list[tuple[float, int]]:
    """The steps with so many nodes more between two times."""
    times = sorted({*(when for when, _ in steps), start, end})
    before = [when for when, _ in steps]
    found: list[tuple[float, int]] = []
    for when in times:
        free = steps[bisect_right(before, when) - 1][1] + (by if start <= when < end else 0)
        if not found or found[-1][1] != free:
            found.append((when, free))
    return found


def test_gaps_in_many_blocks_are_those_of_a_plain_search() -> None:
    """Hundreds of steps: more than a block holds, so that blocks are passed over."""
    for seed in range(full(200, 12)):
        rng = random.Random(seed)
        most = rng.choice([5, 20, 300])
        steps, plain = FreeSteps(np.array([0.0]), np.array([most]), most), [(0.0, most)]
        slots: list[tuple[float, float, int]] = []
        for _ in range(400):
            nodes = rng.randint(1, most if rng.random() < 0.5 else max(1, most // 10))
            duration = rng.choice([rng.uniform(0, 30), float(rng.randint(1, 30)), rng.uniform(0, 3)])
            found = steps.gap(nodes, duration, 0.0)
            assert found == first_gap(plain, nodes, duration), (seed, nodes, duration)
            if rng.random() < 0.8 or not slots:
                steps.take(found, found + duration, nodes)
                plain = changed(plain, found, found + duration, -nodes)
                slots.append((found, found + duration, nodes))
            else:
                start, end, nodes = slots.pop(rng.randrange(len(slots)))
                steps.give(start, end, nodes)
                plain = changed(plain, start, end, nodes)
        assert len(plain) > 100
