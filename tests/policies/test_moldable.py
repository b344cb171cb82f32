"""TORQUE, MCT and FMS against a scheduler written apart: one CPU pool and one GPU a node, gangs molded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.interfaces import Policy
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Implementation,
    Job,
    Result,
    TableTruth,
    Workload,
    request_for,
)
from dovetail.policies.fms import Fms, FmsNodes, FmsOrder, FmsType
from dovetail.policies.mct import Mct
from dovetail.policies.parts.asked_for import by_kind
from dovetail.policies.torque import Torque, TorquePlan
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.published import load_published

BOTH, GPU, CPU = "cpu+gpu", "gpu", "cpu"
KINDS = (BOTH, GPU, CPU)
Schedule = dict[int, tuple[float, str, tuple[int, ...]]]  # start, kind, nodes of each job


@dataclass(frozen=True)
class Ask:
    submit: float
    nodes: int
    times: tuple[tuple[str, int, float], ...]  # kind, nodes, seconds
    wanted: str | None = None

    def time(self, kind: str, nodes: int) -> float:
        return next(t for k, n, t in self.times if (k, n) == (kind, nodes))

    def sizes(self) -> list[int]:
        return [n for n in (self.nodes, self.nodes // 2, self.nodes // 4) if n]

    def fastest(self) -> str:
        return min(KINDS, key=lambda kind: self.time(kind, self.nodes))


class Machine:
    """``ready[node] = [CPU, GPU]``: when each is free. Times are events; ends come from ``ready``."""

    def __init__(self, asks: Sequence[Ask], nodes: int) -> None:
        self.asks = asks
        self.ready = [[0.0, 0.0] for _ in range(nodes)]
        self.found: Schedule = {}
        self.last = 0.0

    def at(self, state: list[list[float]], kind: str, now: float) -> list[float]:
        needed = {BOTH: max, GPU: lambda r: r[1], CPU: lambda r: r[0]}[kind]
        return [max(now, needed(r)) for r in state]  # type: ignore[operator]

    def hold(self, state: list[list[float]], kind: str, nodes: Sequence[int], end: float) -> None:
        for n in nodes:
            if kind != GPU:
                state[n][0] = end
            if kind != CPU:
                state[n][1] = end

    def commit(self, j: int, kind: str, nodes: Sequence[int], start: float, end: float) -> None:
        self.hold(self.ready, kind, nodes, end)
        self.last = max(self.last, end)
        self.found[j] = (start, kind, tuple(sorted(nodes)))

    def instants(self) -> list[float]:
        return sorted({ask.submit for ask in self.asks} | {t for r in self.ready for t in r})

    def run(self, decide: Callable[[Machine, list[int], float], None]) -> Schedule:
        order = sorted(range(len(self.asks)), key=lambda j: (self.asks[j].submit, j))
        now = -1.0
        while any(t > now for t in self.instants()):
            now = min(t for t in self.instants() if t > now)
            decide(self, [j for j in order if j not in self.found and self.asks[j].submit <= now], now)
        return self.found


def place(
    m: Machine, state: list[list[float]], kind: str, wanted: int, now: float, first_ready: bool
) -> tuple[float, list[int]]:
    """The earliest start; of the nodes that allow it those whose other device is busy longest."""
    at = m.at(state, kind, now)
    order = sorted(range(len(at)), key=lambda n: (at[n], n))
    start = at[order[wanted - 1]]
    if first_ready:
        return start, order[:wanted]
    able = [n for n in range(len(at)) if at[n] <= start]
    other = {
        BOTH: lambda n: at[n],
        GPU: lambda n: max(now, state[n][0]),
        CPU: lambda n: max(now, state[n][1]),
    }
    return start, sorted(able, key=lambda n: (-other[kind](n), n))[:wanted]


def torque(m: Machine, queue: list[int], now: float) -> None:
    for j in queue:
        ask = m.asks[j]
        kind = ask.wanted or ask.fastest()
        start, nodes = place(m, m.ready, kind, ask.nodes, now, False)
        if start > now:
            return
        m.commit(j, kind, nodes, now, now + ask.time(kind, ask.nodes))


def mct(m: Machine, queue: list[int], now: float) -> None:
    for j in queue:
        ask = m.asks[j]
        starts = {k: sorted(m.at(m.ready, k, now))[ask.nodes - 1] for k in KINDS}
        kind = min(KINDS, key=lambda k: starts[k] + ask.time(k, ask.nodes))
        if starts[kind] > now:
            return
        _, nodes = place(m, m.ready, kind, ask.nodes, now, False)
        m.commit(j, kind, nodes, now, now + ask.time(kind, ask.nodes))


def torque_plan(m: Machine, queue: list[int], now: float) -> None:
    for j in queue:
        ask = m.asks[j]
        kind = ask.wanted or ask.fastest()
        start, nodes = place(m, m.ready, kind, ask.nodes, now, False)
        m.commit(j, kind, nodes, start, start + ask.time(kind, ask.nodes))


def fms(options: Callable[[Ask], list[tuple[str, int]]], follows: Callable[[Ask], str], score: str):
    def judged(m: Machine, pair, ways, rest, now):
        state = [list(r) for r in m.ready]
        gangs, area = [], 0.0
        for j, (kind, n) in zip(pair, ways, strict=True):
            start, nodes = place(m, state, kind, n, now, False)
            seconds = m.asks[j].time(kind, n)
            m.hold(state, kind, nodes, start + seconds)
            gangs.append((j, kind, nodes, start, start + seconds))
            area += seconds * n * (2 if kind == BOTH else 1)
        last = max(m.last, now, *(end for *_, end in gangs))
        for j in rest if score == "rollout" else []:
            ask = m.asks[j]
            start, nodes = place(m, state, follows(ask), ask.nodes, now, True)
            end = start + ask.time(follows(ask), ask.nodes)
            m.hold(state, follows(ask), nodes, end)
            last = max(last, end)
        return tuple(round(x, 6) for x in (last, area, sum(end for *_, end in gangs))), gangs

    def decide(m: Machine, queue: list[int], now: float) -> None:
        queue = sorted(queue, key=lambda j: (m.asks[j].nodes, m.asks[j].time(BOTH, m.asks[j].nodes)))
        while queue and any(min(r) <= now for r in m.ready):
            pair, rest = queue[:2], queue[2:]
            tried = []
            for ways in itertools.product(*(options(m.asks[j]) for j in pair)):
                tried.append(judged(m, pair, ways, rest, now))
                if len(pair) == 2:
                    tried.append(judged(m, pair[::-1], ways[::-1], rest, now))
            _, gangs = min(tried, key=lambda entry: entry[0])
            if all(start > now for _, _, _, start, _ in gangs):
                return
            for gang in gangs:
                m.commit(*gang)
            queue = rest

    return decide


def both_ways(ask: Ask) -> list[tuple[str, int]]:
    return [(kind, n) for kind in KINDS for n in ask.sizes()]


def types(ask: Ask) -> list[tuple[str, int]]:
    return [(kind, ask.nodes) for kind in KINDS]


def counts(ask: Ask) -> list[tuple[str, int]]:
    return [(ask.wanted or ask.fastest(), n) for n in ask.sizes()]


def neither(ask: Ask) -> list[tuple[str, int]]:
    return [(ask.fastest(), ask.nodes)]


ORACLES: list[tuple[Policy, Callable[[Machine, list[int], float], None]]] = [
    (Torque(), torque),
    (TorquePlan(), torque_plan),
    (Mct(), mct),
    (Fms(), fms(both_ways, Ask.fastest, "rollout")),
    (FmsType(), fms(types, Ask.fastest, "rollout")),
    (FmsNodes(), fms(counts, lambda ask: ask.wanted or ask.fastest(), "rollout")),
    (FmsOrder(), fms(neither, Ask.fastest, "rollout")),
    (Fms("area"), fms(both_ways, Ask.fastest, "area")),
    (FmsType("area"), fms(types, Ask.fastest, "area")),
    (FmsNodes("area"), fms(counts, Ask.fastest, "area")),
    (FmsOrder("area"), fms(neither, Ask.fastest, "area")),
]


@st.composite
def asks(draw: st.DrawFn) -> Ask:
    nodes = draw(st.sampled_from([1, 2, 3, 4]))
    sizes = [n for n in (nodes, nodes // 2, nodes // 4) if n]
    times = tuple((kind, n, draw(st.integers(1, 400)) / 8) for kind in KINDS for n in dict.fromkeys(sizes))
    wanted = draw(st.sampled_from([None, None, *KINDS]))
    return Ask(draw(st.sampled_from([0.0, 0.0, 5.0, 30.5])), nodes, times, wanted)


def as_workload(rows: Sequence[Ask]) -> Workload:
    forms = {kind: Implementation(kind, kind, request_for(kind)) for kind in KINDS}
    app = App("app", tuple(forms.values()))
    jobs, table = [], {}
    for i, ask in enumerate(rows):
        choices = tuple(Choice(forms[k], forms[k].request.on(n)) for k, n, _ in ask.times)
        jobs.append(
            Job(
                str(i),
                app,
                choices,
                index=i,
                submit_time=ask.submit,
                nodes=ask.nodes,
                implementation=ask.wanted,
            )
        )
        table |= {(str(i), k, n): t for k, n, t in ask.times}
    return Workload("random", sorted(jobs, key=lambda j: (j.submit_time, j.index)), TableTruth(table))


def scheduled(result: Result) -> Schedule:
    found = {}
    for r in result.records:
        assert r.allocation is not None
        assert r.start is not None
        assert r.implementation is not None
        found[r.job.index] = (r.start, r.implementation.name, tuple(r.allocation.nodes))
    return found


@pytest.mark.parametrize(("policy", "decide"), ORACLES, ids=[str(policy) for policy, _ in ORACLES])
@settings(max_examples=full(200, 25), deadline=None, derandomize=True)
@given(rows=st.lists(asks(), min_size=1, max_size=8), nodes=st.integers(4, 6))
def test_agrees_with_the_scheduler_written_apart(
    policy: Policy, decide: Callable[[Machine, list[int], float], None], rows: list[Ask], nodes: int
) -> None:
    work = as_workload(rows)
    result = simulate(work, Cluster.uniform(nodes, 8, 1), policy, TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert result.promises_broken == 0
    assert scheduled(result) == Machine(rows, nodes).run(decide)


@pytest.mark.parametrize(("policy", "decide"), ORACLES, ids=[str(policy) for policy, _ in ORACLES])
@pytest.mark.parametrize("mix", ["25sj75lj", "50sr50lr"])
def test_every_policy_places_the_papers_gangs_by_the_one_rule(
    policy: Policy, decide: Callable[[Machine, list[int], float], None], mix: str
) -> None:
    """Node by node, on 16 nodes: of those that allow the start, those whose other device is busy longest."""
    for seed in range(1, full(40, 2) + 1):
        work = load_published(f"published:ravi-multi?mix={mix}&seed={seed}")
        truth = work.truth
        rows = [
            Ask(
                job.submit_time,
                job.nodes,
                tuple(
                    (c.implementation.kind, c.request.nodes, truth.seconds(job, c.implementation, c.request))
                    for c in by_kind(job.choices)
                ),
            )
            for job in sorted(work.jobs, key=lambda job: job.index)
        ]
        result = simulate(work, Cluster.uniform(16, 8, 1), policy, TrueTimesModel(truth))
        assert scheduled(result) == Machine(rows, 16).run(decide)


@pytest.mark.parametrize("policy", [policy for policy, _ in ORACLES], ids=str)
def test_a_gang_on_gpus_leaves_idle_nodes_whole(policy: Policy) -> None:
    """Two nodes compute on their CPUs, the two before them are idle: a GPU job goes beside the former."""
    first = Ask(0.0, 2, (("cpu+gpu", 2, 1.0),))
    busy = Ask(0.0, 2, (("cpu", 2, 50.0),))
    late = Ask(5.0, 2, (("gpu", 2, 10.0),))
    work = as_workload([first, busy, late])
    found = scheduled(simulate(work, Cluster.uniform(4, 8, 1), policy, TrueTimesModel(work.truth)))
    assert found[2] == (5.0, "gpu", found[1][2])


GOLDEN = {
    Torque(): 1203.0,
    TorquePlan(): 1203.0,
    Mct(): 1203.0,
    Fms(): 850.31,
    FmsType(): 951.0,
    FmsNodes(): 830.0,
    FmsOrder(): 959.5,
    Fms("area"): 951.0,
    FmsType("area"): 952.6,
    FmsNodes("area"): 899.4,
    FmsOrder("area"): 951.0,
}


@pytest.mark.parametrize("policy", GOLDEN, ids=str)
def test_golden_values(policy: Policy) -> None:
    """The 18 rows of Fig. 2 and their first 14 again, batches of 8 every 30 s, on 16 nodes."""
    work = load_published("published:ravi-multi-table?jobs=32&batch=8&interval=30")
    result = simulate(work, Cluster.parse("16x1cpu+1gpu"), policy, TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert result.promises_broken == 0
    assert result.makespan == pytest.approx(GOLDEN[policy], abs=0.006)


def test_with_each_device_planned_fms_uses_both_gpus_of_a_node(tmp_path: Path) -> None:
    """Jobs on a GPU take a CPU as well, which holds up no other: at most 1.3 times EASY's makespan."""
    text = ""
    for app, cpus in (("a", 1), ("whole", 4)):  # one of them needs a node without jobs of the others
        text += f'[[app]]\nname = "{app}"\n'
        for kind, own in (("cpu", cpus), ("gpu", 1)):
            text += f'[[app.implementation]]\nname = "{kind}"\ncpus = {own}\ncommand = ["true"]\n'
    for i in range(32):
        app = "whole" if i % 11 == 10 else "a"
        text += f'[[job]]\napp = "{app}"\ntimes = {{ cpu = {4.0 + i % 3}, gpu = {0.5 + (i % 4) / 8} }}\n'
    (tmp_path / "jobs.toml").write_text(text)
    took = {
        policy: dovetail.simulate(tmp_path / "jobs.toml", cluster="4x4cpu+2gpu", policy=policy).makespan
        for policy in ("easy", "fms", "fms?devices=each")
    }
    assert took["fms?devices=each"] <= 1.3 * took["easy"] < took["fms"]
