"""EASY and conservative on rigid single-CPU jobs, written apart: slow, by definition, no shared code.

A job is (submit, size, run time, walltime). Time goes from instant to instant; at each, every question
is answered from the definition by looking at all jobs again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dovetail.interfaces import Policy
from dovetail.model import Cluster, TableTruth, Workload
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.sjf import Sjf
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, full, rigid_workload
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.swf import read_swf

Row = tuple[float, int, float, float]
Key = Callable[[int], object]
TRACES = Path(__file__).parents[3] / "shared" / "traces"


class Machine:
    """What has happened so far: starts, by job number. A job is killed at its walltime."""

    def __init__(self, rows: Sequence[Row], nodes: int) -> None:
        self.rows = rows
        self.nodes = nodes
        self.now = 0.0
        self.start: dict[int, float] = {}
        self.gone: set[int] = set()  # ended; a job of no length holds its nodes until the next round
        self.waiting: list[int] = []

    def end(self, j: int) -> float:
        return self.start[j] + min(self.rows[j][2], self.rows[j][3])

    def limit(self, j: int) -> float:
        return self.start[j] + self.rows[j][3]

    def size(self, j: int) -> int:
        return self.rows[j][1]

    def running(self) -> list[int]:
        return [j for j in self.start if j not in self.gone]

    def free(self) -> int:
        return self.nodes - sum(self.size(j) for j in self.running())

    def free_at(self, time: float) -> int:
        """Free nodes at a time to come if everybody runs to the walltime and ends before it counts."""
        return self.nodes - sum(self.size(j) for j in self.running() if self.limit(j) > time)

    def begin_instant(self, j: int) -> None:
        assert self.size(j) <= self.free()
        self.start[j] = self.now
        self.waiting.remove(j)


def run(
    rows: Sequence[Row],
    nodes: int,
    decide: Callable[[Machine, bool, list[int]], None],
    timers: Callable[[], list[float]] = list,
) -> list[float]:
    """Starts by job; ``decide(machine, early, new)`` starts jobs, ``early`` if one ended before its limit."""
    m = Machine(rows, nodes)
    order = sorted(range(len(rows)), key=lambda j: (rows[j][0], j))
    while True:
        times = [rows[j][0] for j in order if j not in m.start and j not in m.waiting]
        times += [m.end(j) for j in m.running()]
        times += [t for t in timers() if t > m.now]
        if not times:
            return [m.start[j] for j in range(len(rows))]
        m.now = min(times)
        while True:
            ended = [j for j in m.running() if m.end(j) <= m.now]
            new = [j for j in order if rows[j][0] <= m.now and j not in m.start and j not in m.waiting]
            if not ended and not new and m.now not in timers():
                break
            m.gone.update(ended)
            m.waiting += new
            decide(m, any(m.limit(j) > m.now for j in ended), new)
            if not [j for j in m.running() if m.end(j) <= m.now]:
                break


def easy_starts(rows: Sequence[Row], nodes: int, key: Key | None = None) -> list[float]:
    key = key or (lambda j: j)
    promised: list[int] = []
    promise: dict[int, float] = {}

    def decide(m: Machine, early: bool, new: list[int]) -> None:
        while True:
            line = sorted(m.waiting, key=lambda j: (j not in promised, key(j)))  # type: ignore[no-any-return]
            if not line:
                return
            head = line[0]
            if m.size(head) > m.free():
                break
            m.begin_instant(head)
            if head in promised:
                promised.remove(head)
        shadow = min(t for j in m.running() if m.free_at(t := m.limit(j)) >= m.size(head))
        assert shadow <= promise.get(head, math.inf), "the promise moved later"
        promise[head] = shadow
        if head not in promised:
            promised.append(head)
        for j in line[1:]:
            if m.size(j) <= m.free():
                m.begin_instant(j)
                if m.limit(j) > shadow and m.free_at(shadow) < m.size(head):
                    del m.start[j]  # it would delay the head
                    m.waiting.append(j)

    starts = run(rows, nodes, decide)
    assert all(starts[j] <= promise[j] for j in promise)
    return starts


def conservative_starts(rows: Sequence[Row], nodes: int, key: Key | None = None) -> list[float]:
    promise: dict[int, float] = {}
    order: Key = key or (lambda j: j)

    def decide(m: Machine, early: bool, new: list[int]) -> None:
        def busy(time: float, without: int) -> int:
            used = sum(m.size(j) for j in m.running() if m.limit(j) > time)
            return used + sum(
                m.size(j)
                for j in m.waiting
                if j != without and j in promise and promise[j] <= time < promise[j] + rows[j][3]
            )

        def earliest(j: int) -> float:
            others = [i for i in m.waiting if i in promise and i != j]
            candidates = [m.now, *(m.limit(i) for i in m.running())]
            candidates += [promise[i] + rows[i][3] for i in others]
            for t in sorted(c for c in candidates if c >= m.now):
                checks = [t, *(promise[i] for i in others if t < promise[i] < t + rows[j][3])]
                if all(busy(c, j) + m.size(j) <= nodes for c in checks):
                    return t
            raise AssertionError

        if early:
            for j in sorted(m.waiting, key=order):
                if j in promise:
                    moved = earliest(j)
                    assert moved <= promise[j]
                    promise[j] = moved
        for j in sorted(m.waiting, key=order):
            if j not in promise:
                promise[j] = earliest(j)
        for j in sorted(m.waiting, key=order):
            if promise[j] <= m.now and m.size(j) <= m.free():
                m.begin_instant(j)

    starts = run(rows, nodes, decide, lambda: list(promise.values()))
    assert all(starts[j] <= promise[j] for j in promise)
    return starts


def blocking_starts(rows: Sequence[Row], nodes: int, key: Key) -> list[float]:
    def decide(m: Machine, early: bool, new: list[int]) -> None:
        while m.waiting:
            head = min(m.waiting, key=key)  # type: ignore[arg-type]
            if m.size(head) > m.free():
                return
            m.begin_instant(head)

    return run(rows, nodes, decide)


def dovetail_starts(rows: Sequence[Row], nodes: int, policy: Policy) -> list[float]:
    workload, cluster = rigid_workload(rows, nodes)
    result = simulate(workload, cluster, policy, TrueTimesModel(workload.truth))
    check_schedule(result, workload)
    assert result.promises_broken == 0
    starts = [record.start for record in result.records]
    return [start for start in starts if start is not None]


def instance(seed: int) -> tuple[list[Row], int]:
    """A small instance with many ties: equal times, full-size jobs, jobs of no length, exact walltimes."""
    rng = random.Random(seed)
    nodes = rng.choice([1, 2, 3, 4, 8, 13])
    spread = rng.choice([0, 5, 20, 60])
    rows: list[Row] = []
    for _ in range(rng.randint(1, 24)):
        run_time = rng.choice([0, 1, 2, 3, 5, 8, 13, 20, 2.5])
        wall = max(0.5, run_time * rng.choice([1, 1, 1.5, 2, 4]) + rng.choice([0, 0, 1]))
        if rng.random() < 0.1:
            run_time = wall + rng.randint(0, 9)  # killed at its walltime
        rows.append((float(rng.randint(0, spread)), rng.randint(1, nodes), float(run_time), float(wall)))
    return rows, nodes


def shorter(rows: Sequence[Row]) -> Key:
    return lambda j: (rows[j][3], rows[j][0], j)


def larger(rows: Sequence[Row]) -> Key:
    return lambda j: (-rows[j][1], rows[j][0], j)


def f1(rows: Sequence[Row]) -> Key:
    def key(j: int) -> object:
        submit, size, _, wall = rows[j]
        return math.log10(max(1, wall)) * size + 870 * math.log10(max(1, submit)), submit, j

    return key


def arrival(rows: Sequence[Row]) -> Key:
    return lambda j: (rows[j][0], j)


def numbered_by_arrival(rows: Sequence[Row]) -> list[Row]:
    """Rows in order of submission, so that a job's number is its place in the queue."""
    return sorted(rows, key=lambda row: row[0])


SEEDS = full(5000, 80)


@pytest.mark.parametrize("block", range(4))
def test_easy_agrees_job_by_job(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        rows, nodes = instance(seed)
        rows = numbered_by_arrival(rows)
        assert dovetail_starts(rows, nodes, Easy()) == easy_starts(rows, nodes), (seed, nodes, rows)


def smaller_area(rows: Sequence[Row]) -> Key:
    return lambda j: (rows[j][3] * rows[j][1], rows[j][0], j)


def smaller_root_area(rows: Sequence[Row]) -> Key:
    return lambda j: (rows[j][3] * math.sqrt(rows[j][1]), rows[j][0], j)


ORDERS = {"sjf": shorter, "largest": larger, "f1": f1, "saf": smaller_area, "sqrtsaf": smaller_root_area}


@pytest.mark.parametrize("order", ORDERS)
def test_easy_agrees_in_other_orders(order: str) -> None:
    for seed in range(SEEDS // 2):
        rows, nodes = instance(10_000 + seed)
        got = dovetail_starts(rows, nodes, Easy(order=order))  # type: ignore[arg-type]
        assert got == easy_starts(rows, nodes, ORDERS[order](rows)), (seed, nodes, rows)


@pytest.mark.parametrize("order", ORDERS)
def test_conservative_agrees_in_other_orders(order: str) -> None:
    for seed in range(SEEDS // 4):
        rows, nodes = instance(40_000 + seed)
        got = dovetail_starts(rows, nodes, Conservative(order=order))  # type: ignore[arg-type]
        assert got == conservative_starts(rows, nodes, ORDERS[order](rows)), (seed, nodes, rows)


@pytest.mark.parametrize("block", range(4))
def test_conservative_agrees_job_by_job(block: int) -> None:
    for seed in range(block, SEEDS, 4):
        rows, nodes = instance(20_000 + seed)
        rows = numbered_by_arrival(rows)
        got = dovetail_starts(rows, nodes, Conservative())
        assert got == conservative_starts(rows, nodes), (seed, nodes, rows)


def test_fcfs_and_sjf_agree_job_by_job() -> None:
    for seed in range(SEEDS // 2):
        rows, nodes = instance(30_000 + seed)
        assert dovetail_starts(rows, nodes, Fcfs()) == blocking_starts(rows, nodes, arrival(rows))
        assert dovetail_starts(rows, nodes, Sjf()) == blocking_starts(rows, nodes, shorter(rows))


def test_priorities_go_first_but_promises_stay() -> None:
    rows = [(0.0, 2, 10.0, 10.0), (1.0, 2, 10.0, 10.0), (2.0, 2, 10.0, 10.0)]
    workload, cluster = rigid_workload(rows, 2)
    from dataclasses import replace

    jobs = [*workload.jobs[:2], replace(workload.jobs[2], priority=5)]
    ranked = Workload("ranked", jobs, workload.truth)
    starts = {}
    for policy in (Fcfs(), Easy(), Conservative()):
        result = simulate(ranked, cluster, policy, TrueTimesModel(ranked.truth))
        check_schedule(result, ranked)
        starts[type(policy)] = [record.start for record in result.records]
    assert starts == {Fcfs: [0, 20, 10], Easy: [0, 10, 20], Conservative: [0, 10, 20]}


@pytest.mark.parametrize(
    ("name", "nodes", "first"),
    [
        ("kth-sp2-1996-2.1-cln.first8000.swf.gz", 100, full(600, 150)),
        ("hpc2n-2002-2.1.first3170.swf.gz", 240, full(600, 150)),
    ],
)
@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces beside the repository")
def test_real_jobs_agree_job_by_job(name: str, nodes: int, first: int) -> None:
    """The first jobs of real traces, squeezed to a third of their span so that a queue builds up."""
    read = read_swf(TRACES / name, Cluster.uniform(nodes, 1))
    assert isinstance(read.truth, TableTruth)
    rows = [
        (job.submit_time / 3, job.nodes, read.truth.fixed[job.id], job.walltime or read.truth.fixed[job.id])
        for job in read.jobs[:first]
    ]
    assert dovetail_starts(rows, nodes, Easy()) == easy_starts(rows, nodes)
    assert dovetail_starts(rows, nodes, Conservative()) == conservative_starts(rows, nodes)


def test_overrunning_jobs_break_promises_that_are_counted_apart() -> None:
    rows = [(0.0, 2, 50.0, 10.0), (1.0, 2, 5.0, 5.0), (2.0, 1, 5.0, 5.0), (3.0, 1, 3.0, 3.0)]
    workload, cluster = rigid_workload(rows, 2)
    for policy in (Easy(), Conservative()):
        options = SimulationOptions(overrun="run")
        result = simulate(workload, cluster, policy, TrueTimesModel(workload.truth), options=options)
        check_schedule(result, workload)
        assert result.promises_broken == result.broken_by_overrun >= 1
        assert [record.start for record in result.records][:2] == [0, 50]
