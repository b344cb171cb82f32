"""EASY and conservative on nodes with CPUs, GPUs and memory, written apart: slow, node by node.

A free node is a list: CPUs, memory, then units of each GPU (a hundredth of a GPU is one unit). A slot
names its nodes and, on each, its GPUs; the placement rule is spelt out in `place`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

import pytest

from dovetail.interfaces import Policy
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Record,
    Request,
    TableTruth,
    Workload,
    bit_indices,
)
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, full
from dovetail.testing.invariants import check_schedule

UNITS = 100
Free = list[list[int]]
Slot = tuple[tuple[int, tuple[int, ...]], ...]  # (node, GPUs held there), ascending


@dataclass(frozen=True)
class Ask:
    submit: float
    nodes: int
    cpus: int
    memory: int
    gpus: float
    run_time: float
    wall: float

    @property
    def units(self) -> int:
        return round(self.gpus * UNITS) if self.gpus < 1 else UNITS

    @property
    def end(self) -> float:
        return min(self.run_time, self.wall)


def place(free: Free, ask: Ask, allowed: Sequence[int]) -> Slot | None:
    """Nodes that fit, fewest free GPU units first, without GPUs fewest free CPUs first, then lowest index.

    GPUs by lowest index. A share goes to the GPU of all nodes of which least is free and suffices.
    """
    able = []
    for n in allowed:
        cpus, memory, *gpus = free[n]
        wanted = math.ceil(ask.gpus)
        usable = [g for g, units in enumerate(gpus) if units >= ask.units] if wanted else []
        if ask.gpus < 1:
            usable.sort(key=lambda g: gpus[g])
        if cpus >= ask.cpus and memory >= ask.memory and len(usable) >= wanted:
            key = (gpus[usable[0]], 0) if wanted and ask.gpus < 1 else (sum(gpus), 0 if gpus else cpus)
            able.append((*key, n, tuple(usable[:wanted])))
    able.sort()
    chosen = sorted((n, gpus) for _, _, n, gpus in able[: ask.nodes])
    return tuple(chosen) if len(chosen) == ask.nodes else None


def move(free: Free, ask: Ask, slot: Slot, sign: int) -> None:
    for n, gpus in slot:
        free[n][0] += sign * ask.cpus
        free[n][1] += sign * ask.memory
        for g in gpus:
            free[n][2 + g] += sign * ask.units
        assert min(free[n]) >= 0


def copied(free: Free) -> Free:
    return [list(node) for node in free]


class Machine:
    def __init__(self, asks: Sequence[Ask], whole: Free) -> None:
        self.asks = asks
        self.whole = whole
        self.now = 0.0
        self.start: dict[int, float] = {}
        self.slot: dict[int, Slot] = {}
        self.gone: set[int] = set()
        self.waiting: list[int] = []
        self.all = range(len(whole))

    def end(self, j: int) -> float:
        return self.start[j] + self.asks[j].end

    def limit(self, j: int) -> float:
        return self.start[j] + self.asks[j].wall

    def running(self) -> list[int]:
        return [j for j in self.start if j not in self.gone]

    def free(self, at: float | None = None) -> Free:
        """What is free now, or at a time to come by the walltimes."""
        free = copied(self.whole)
        for j in self.running():
            if at is None or self.limit(j) > at:
                move(free, self.asks[j], self.slot[j], -1)
        return free

    def begin_instant(self, j: int, slot: Slot) -> None:
        self.start[j], self.slot[j] = self.now, slot
        self.waiting.remove(j)
        self.free()  # raises if it is not there


def run(
    asks: Sequence[Ask],
    whole: Free,
    decide: Callable[[Machine, bool], None],
    timers: Callable[[], list[float]] = list,
) -> list[tuple[float, Slot]]:
    m = Machine(asks, whole)
    everybody = range(len(asks))
    while True:
        times = [asks[j].submit for j in everybody if j not in m.start and j not in m.waiting]
        times += [m.end(j) for j in m.running()] + [t for t in timers() if t > m.now]
        if not times:
            return [(m.start[j], m.slot[j]) for j in everybody]
        m.now = min(times)
        while True:
            ended = [j for j in m.running() if m.end(j) <= m.now]
            m.gone.update(ended)
            m.waiting += [
                j for j in everybody if asks[j].submit <= m.now and j not in m.start and j not in m.waiting
            ]
            decide(m, any(m.limit(j) > m.now for j in ended))
            if not [j for j in m.running() if m.end(j) <= m.now]:
                break


def fcfs(asks: Sequence[Ask], whole: Free) -> list[tuple[float, Slot]]:
    def decide(m: Machine, early: bool) -> None:
        for j in sorted(m.waiting):
            slot = place(m.free(), asks[j], m.all)
            if slot is None:
                return
            m.begin_instant(j, slot)

    return run(asks, whole, decide)


def easy(asks: Sequence[Ask], whole: Free) -> list[tuple[float, Slot]]:
    promise: dict[int, float] = {}

    def decide(m: Machine, early: bool) -> None:
        line = sorted(m.waiting)
        while line:
            slot = place(m.free(), asks[line[0]], m.all)
            if slot is None:
                break
            m.begin_instant(line.pop(0), slot)
        if not line:
            return
        head = line.pop(0)
        ends = sorted(m.limit(j) for j in m.running())
        shadow = next(t for t in ends if place(m.free(t), asks[head], m.all))
        assert shadow <= promise.get(head, math.inf)
        promise[head] = shadow
        for j in line:
            proposed = [place(m.free(), asks[j], m.all)]
            planned = place(m.free(shadow), asks[head], m.all)
            assert planned is not None
            reserved = {n for n, _ in planned}
            proposed.append(place(m.free(), asks[j], [n for n in m.all if n not in reserved]))
            for slot in proposed:
                if slot is None:
                    continue
                then = m.free(shadow)
                if m.now + asks[j].wall > shadow:
                    move(then, asks[j], slot, -1)
                if place(then, asks[head], m.all):
                    m.begin_instant(j, slot)
                    break

    starts = run(asks, whole, decide)
    assert all(starts[j][0] <= promise[j] for j in promise)
    return starts


def conservative(asks: Sequence[Ask], whole: Free) -> list[tuple[float, Slot]]:
    promise: dict[int, tuple[float, Slot]] = {}

    def decide(m: Machine, early: bool) -> None:
        def earliest(j: int) -> tuple[float, Slot]:
            others = [i for i in m.waiting if i in promise and i != j]

            def free_at(t: float) -> Free:
                free = m.free(t)
                for i in others:
                    if promise[i][0] <= t < promise[i][0] + asks[i].wall:
                        move(free, asks[i], promise[i][1], -1)
                return free

            edges = {m.now, *(m.limit(i) for i in m.running())}
            edges |= {promise[i][0] for i in others} | {promise[i][0] + asks[i].wall for i in others}
            edges = {t for t in edges if t >= m.now}
            for t in sorted(edges):
                least = free_at(t)
                for later in edges:
                    if t < later < t + asks[j].wall:
                        least = [
                            [min(pair) for pair in zip(a, b, strict=True)]
                            for a, b in zip(least, free_at(later), strict=True)
                        ]
                slot = place(least, asks[j], m.all)
                if slot is not None:
                    return t, slot
            raise AssertionError

        if early:
            for j in sorted(m.waiting):
                if j in promise:
                    moved = earliest(j)
                    assert moved[0] <= promise[j][0]
                    if moved[0] < promise[j][0]:
                        promise[j] = moved
        for j in sorted(m.waiting):
            if j not in promise:
                promise[j] = earliest(j)
        for j in sorted(m.waiting):
            if promise[j][0] <= m.now:
                m.begin_instant(j, promise[j][1])

    starts = run(asks, whole, decide, lambda: [start for start, _ in promise.values()])
    assert all(starts[j][0] == promise[j][0] for j in promise)
    return starts


def instance(seed: int) -> tuple[list[Ask], Free, Workload, Cluster]:
    """A few unlike nodes, and jobs that all fit on the empty machine."""
    rng = random.Random(seed)
    whole: Free = []
    nodes: list[Node] = []
    for n in range(rng.randint(1, 4)):
        cpus, memory, gpus = rng.randint(1, 4), rng.choice([4, 8, None]), rng.choice([0, 1, 2, 2])
        if not nodes:
            gpus = max(1, gpus)  # else nodes may be interchangeable, and slots name no nodes
        elif rng.random() < 0.5:
            cpus, memory, gpus = nodes[0].cpus, nodes[0].memory, len(nodes[0].devices)
        devices = tuple(Device("gpu", "", g) for g in range(gpus))
        nodes.append(Node(f"n{n}", tuple(range(cpus)), devices, memory))
        whole.append([cpus, 10**9 if memory is None else memory] + [UNITS] * gpus)
    asks: list[Ask] = []
    count = rng.randint(4, 24)
    while len(asks) < count:
        gpus = rng.choice([0, 0, 0.3, 0.5, 1, 1, 2])
        run_time = rng.choice([1, 2, 3, 5, 8, 13])
        ask = Ask(
            float(rng.randint(0, 20)),
            rng.choice([1, 1, 1, 2]),
            rng.randint(0 if gpus else 1, 3),
            rng.choice([0, 0, 1, 3]),
            gpus,
            float(run_time),
            float(run_time * rng.choice([1, 1, 1.5, 3])),
        )
        if place(copied(whole), ask, range(len(whole))):
            asks.append(ask)
        elif rng.random() < 0.05:
            count -= 1
    asks.sort(key=lambda ask: ask.submit)
    jobs = []
    for j, ask in enumerate(asks):
        devices_asked = (("gpu", ask.gpus),) if ask.gpus else ()
        request = Request(ask.nodes, ask.cpus, devices_asked, ask.memory)
        kind = "gpu" if ask.gpus else "cpu"
        implementation = Implementation(kind, kind, request)
        app = App("app", (implementation,))
        choices = (Choice(implementation, request),)
        jobs.append(Job(str(j), app, choices, j, ask.submit, nodes=ask.nodes, walltime=ask.wall))
    truth = TableTruth(fixed={str(j): ask.run_time for j, ask in enumerate(asks)})
    return asks, whole, Workload("nodes", jobs, truth), Cluster(tuple(nodes))


def like_nodes(seed: int) -> tuple[list[Ask], Free, Workload, Cluster]:
    """Like nodes of eight CPUs and nothing else, which jobs share: what is extra is decided CPU by CPU."""
    rng = random.Random(seed)
    count = rng.randint(2, 5)
    nodes = tuple(Node(f"n{n}", tuple(range(8))) for n in range(count))
    asks = [Ask(0.0, 1, 3, 0, 0, 20.0, 20.0)]  # leaves something of a node to others: so nodes have names
    for _ in range(rng.randint(8, 30)):
        run_time = float(rng.choice([1, 2, 3, 5, 8, 13]))
        wall = run_time * rng.choice([1, 1, 1.5, 3])
        cpus = rng.choice([1, 2, 3, 4, 5, 7, 8])
        asks.append(Ask(float(rng.randint(0, 20)), rng.randint(1, min(3, count)), cpus, 0, 0, run_time, wall))
    asks.sort(key=lambda ask: ask.submit)
    jobs = []
    for j, ask in enumerate(asks):
        request = Request(ask.nodes, ask.cpus)
        implementation = Implementation("cpu", "cpu", request)
        app, choices = App("app", (implementation,)), (Choice(implementation, request),)
        jobs.append(Job(str(j), app, choices, j, ask.submit, nodes=ask.nodes, walltime=ask.wall))
    truth = TableTruth(fixed={str(j): ask.run_time for j, ask in enumerate(asks)})
    whole: Free = [[8, 10**9] for _ in nodes]
    return asks, whole, Workload("like nodes", jobs, truth), Cluster(nodes)


def held(record: Record) -> Slot:
    assert record.allocation is not None
    slots = ((n, part.devices) for part in record.allocation.parts for n in bit_indices(part.nodes))
    return tuple(sorted(slots))


REFERENCES: list[tuple[Policy, Callable[[Sequence[Ask], Free], list[tuple[float, Slot]]]]] = [
    (Fcfs(), fcfs),
    (Easy(), easy),
    (Conservative(), conservative),
]


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize(("policy", "reference"), REFERENCES, ids=["fcfs", "easy", "conservative"])
def test_agrees_job_by_job(
    policy: Policy, reference: Callable[[Sequence[Ask], Free], list[tuple[float, Slot]]], block: int
) -> None:
    """Starts, nodes and GPUs of every job."""
    for seed in range(block, full(5000, 80), 2):
        asks, whole, workload, cluster = instance(seed)
        result = simulate(workload, cluster, policy, TrueTimesModel(workload.truth))
        check_schedule(result, workload)
        got = [(record.start, held(record)) for record in result.records]
        assert got == reference(asks, whole), seed


@pytest.mark.parametrize("block", range(2))
@pytest.mark.parametrize("compiled", ["off", "auto"])
def test_extra_nodes_of_several_cpus(compiled: Literal["off", "auto"], block: int) -> None:
    """EASY on shared like nodes: extra is what leaves the head its start, as the reference spells it out."""
    passed = 0
    for seed in range(block, full(5000, 60), 2):
        asks, whole, workload, cluster = like_nodes(seed)
        model = PerfectModel(workload.truth)
        result = simulate(workload, cluster, Easy(), model, options=SimulationOptions(compiled=compiled))
        check_schedule(result, workload)
        expected = easy(asks, whole)
        assert [(record.start, held(record)) for record in result.records] == expected, seed
        starts = [start for start, _ in expected]
        passed += sum(later < start for start, later in pairwise(starts))
    assert passed > 0  # later ones were backfilled


def test_instances_are_hard_enough() -> None:
    """Most instances have waiting jobs, several nodes, and a difference between the policies."""
    differ, seeds = 0, full(100, 30)
    for seed in range(seeds):
        _, _, workload, cluster = instance(seed)
        starts = [
            [r.start for r in simulate(workload, cluster, policy, TrueTimesModel(workload.truth)).records]
            for policy, _ in REFERENCES
        ]
        differ += len(list(groupby(sorted(map(tuple, starts)))))  # type: ignore[type-var]
    assert differ > 2 * seeds
