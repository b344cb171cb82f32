"""Gregg 2011's scheduler: the paper's figures, and an independent event loop of its rules, job by job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.history.memory import MemoryHistory
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Node,
    Request,
    Result,
    TableTruth,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.policies.follow_plan import FollowPlan
from dovetail.policies.history import History
from dovetail.policies.optimal import least_makespan
from dovetail.runtimes.perfect import PerfectModel
from dovetail.runtimes.registry import make_model
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full, workload
from dovetail.testing.examples import one_node
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload

TWO = Cluster.parse("1x1cpu+1gpu")


def scheduled(
    w: Workload, policy: str, cluster: Cluster = TWO, history: MemoryHistory | None = None
) -> Result:
    loaded = load_policy(policy)
    runtimes: Any = PerfectModel(w.truth) if history is None else make_model("least-squares", history)
    result = simulate(
        w,
        cluster,
        loaded.policy,
        runtimes,
        observe=history,
        follow=FollowPlan(),
        options=SimulationOptions(policy_name=policy),
    )
    check_schedule(result, w)
    return result


# Method notes, "Reference values": milliseconds of GPU only, CPU only, static, dynamic, optimum.
GOLDEN = [
    ("published:gregg-table2", (4227.6, 22407.2, 4054.0, 3018.6, 2492.0)),
    ("published:gregg-table2?only=gpu-faster", (4054.0, 22400.0, 4054.0, 3017.0, 2492.0)),
    ("published:gregg-table2?gpu_cost=0.46&cpu_cost=0.46", (11587.6, 29767.2, 10034.0, 6286.0, 6286.0)),
    (
        "published:gregg-table2?only=gpu-faster&gpu_cost=0.46&cpu_cost=0.46",
        (10034.0, 28380.0, 10034.0, 6209.0, 5790.0),
    ),
]


@pytest.mark.parametrize(("spec", "expected"), GOLDEN)
def test_the_papers_table(spec: str, expected: tuple[float, ...]) -> None:
    w = load_workload(spec, TWO)
    policies = ("gpu-only", "cpu-only", "best-device", "history", "optimal")
    found = [scheduled(w, policy).makespan * 1000 for policy in policies]
    assert found == pytest.approx(expected, abs=1e-6)


def test_the_optimum_is_proven() -> None:
    plan = scheduled(load_workload("published:gregg-table2", TWO), "optimal").plan
    assert plan is not None
    assert plan.status == "optimal"
    assert plan.gap == 0
    assert plan.objective == pytest.approx(2.492)


def test_who_runs_on_the_cpu_in_table_order() -> None:
    result = scheduled(load_workload("published:gregg-table2", TWO), "history")
    cpu = {
        r.job.id for r in result.records if r.implementation is not None and r.implementation.name == "cpu"
    }
    # Method notes: "Raw 16, CPU set"; DCT and the others run there although the GPU is faster.
    assert cpu == {
        "BinarySearch", "FastWalshTrans", "DCT", "DwtHaar1D", "PrefixSum", "QuasiRandSeq", "Reduction",
        "ScanLargeArrays", "SobelFilter",
    }  # fmt: skip


def paper_rules(times: Sequence[tuple[float, float]]) -> list[tuple[float, str]]:
    """Section 4.1 for one CPU and one GPU with perfect predictions; gives (start, device) by job."""
    queue = list(range(len(times)))
    fifo: dict[str, list[int]] = {"gpu": [], "cpu": []}
    busy: dict[str, tuple[float, int] | None] = {"gpu": None, "cpu": None}
    out: list[tuple[float, str]] = [(0.0, "")] * len(times)
    now = 0.0

    def pred(job: int, device: str) -> float:
        return times[job][0 if device == "cpu" else 1]

    def begin(job: int, device: str) -> None:
        busy[device] = (now + pred(job, device), job)
        out[job] = (now, device)

    while True:
        for device in ("gpu", "cpu"):
            if busy[device] is None and fifo[device]:
                begin(fifo[device].pop(0), device)
        while queue and (busy["gpu"] is None or busy["cpu"] is None):
            job = queue.pop(0)
            ends = {}
            for device in ("gpu", "cpu"):
                running = busy[device]
                wait = 0.0 if running is None else max(0.0, running[0] - now)
                ends[device] = wait + sum(pred(j, device) for j in fifo[device]) + pred(job, device)
            # Earliest end; ties: the faster class, then the CPU first (device order).
            best = min(("cpu", "gpu"), key=lambda d: (ends[d], pred(job, d)))
            if busy[best] is None:
                begin(job, best)
            else:
                fifo[best].append(job)
        running_ends = [b[0] for b in busy.values() if b is not None]
        if not running_ends:
            return out
        now = min(running_ends)
        for device, b in busy.items():
            if b is not None and b[0] == now:
                busy[device] = None


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=15))
@settings(max_examples=full(2000, 100), deadline=None)
def test_history_follows_the_papers_rules_job_by_job(times: list[tuple[int, int]]) -> None:
    w = workload([(f"j{i}", {"cpu": float(c), "gpu": float(g)}) for i, (c, g) in enumerate(times)])
    result = scheduled(w, "history")
    expected = paper_rules([(float(c), float(g)) for c, g in times])
    found = [
        (r.start, "cpu" if r.implementation and r.implementation.name == "cpu" else "gpu")
        for r in result.records
    ]
    assert found == expected


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=6),
    st.sampled_from(["1x1cpu+1gpu", "1x1cpu+2gpu", "2x1cpu+1gpu"]),
)
@settings(max_examples=full(300, 30), deadline=None)
def test_optimal_equals_brute_force_and_bounds_every_policy(times: list[tuple[int, int]], shape: str) -> None:
    cluster = Cluster.parse(shape)
    w = workload([(f"j{i}", {"cpu": float(c), "gpu": float(g)}) for i, (c, g) in enumerate(times)])
    kinds = [unit.kind for unit in cluster.units]

    def least(job: int, loads: tuple[int, ...]) -> int:
        if job == len(times):
            return max(loads)
        best = 10**9
        for u, kind in enumerate(kinds):
            more = times[job][0 if kind == "cpu" else 1]
            best = min(best, least(job + 1, (*loads[:u], loads[u] + more, *loads[u + 1 :])))
        return best

    optimum = least(0, (0,) * len(kinds))
    plan = scheduled(w, "optimal", cluster).plan
    assert plan is not None
    assert plan.objective == pytest.approx(optimum, abs=1e-6)
    for policy in ("history", "history-guarded", "best-device", "cpu-only", "gpu-only"):
        assert scheduled(w, policy, cluster).makespan >= optimum - 1e-6


def test_from_an_empty_history_the_first_job_goes_to_the_gpu_and_the_next_explores_the_cpu() -> None:
    w = workload(
        [("a", {"cpu": 5.0, "gpu": 1.0}), ("b", {"cpu": 7.0, "gpu": 2.0}), ("c", {"cpu": 9.0, "gpu": 3.0})]
    )
    result = scheduled(w, "history", history=MemoryHistory())
    assert [(r.implementation.name, r.start) for r in result.records if r.implementation] == [
        ("gpu", 0.0), ("cpu", 0.0), ("gpu", 1.0),
    ]  # fmt: skip


def test_the_plain_rules_can_stick_and_the_guarded_do_not() -> None:
    """Method notes, "A trap in the rules": BitonicSort is never tried on the GPU in table order."""
    w = load_workload("published:gregg-table2", TWO)
    plain, guarded = MemoryHistory(), MemoryHistory()
    plain_spans = [scheduled(w, "history", history=plain).makespan for _ in range(10)]
    guarded_spans = [scheduled(w, "history-guarded", history=guarded).makespan for _ in range(10)]
    assert plain_spans[-1] > 9.1
    assert guarded_spans[0] == pytest.approx(4.2276)  # nothing is known: the GPU, as most apps like it
    assert guarded_spans[-1] < 3.4


def test_the_solver_is_right_where_finer_time_steps_made_it_wrong() -> None:
    table = [{(0, 0): 1.0, (1, 1): 13.0, (2, 2): 13.0}, {(0, 0): 30.0, (1, 1): 1.0, (2, 2): 1.0}]
    _, status, bound, _ = least_makespan(table, [0, 0, 0], [[1, 2]])
    assert status == "optimal"
    assert bound == pytest.approx(1.0)


@pytest.mark.parametrize("policy", ["history", "history-guarded", "best-device", "cpu-only", "gpu-only"])
def test_a_job_without_the_wanted_kind_uses_what_it_has(policy: str) -> None:
    w = workload([("c", {"cpu": 5.0}), ("g", {"gpu": 1.0}), ("both", {"cpu": 2.0, "gpu": 2.0})])
    result = scheduled(w, policy)
    used = {r.job.id: r.implementation.name for r in result.records if r.implementation}
    assert used["c"] == "cpu"
    assert used["g"] == "gpu"


def test_many_devices_fill_by_earliest_end() -> None:
    """Two CPU pools and two GPUs: six equal jobs twice as fast on GPUs, by hand."""
    w = workload([(f"j{i}", {"cpu": 4.0, "gpu": 2.0}) for i in range(6)])
    result = scheduled(w, "history", Cluster.parse("2x1cpu+1gpu"))
    where = [
        (r.start, r.allocation.first_node, r.implementation.name)
        for r in result.records
        if r.allocation and r.implementation
    ]
    # j0, j1 on the GPUs; j2, j3: 2 + 2 on a GPU = 4 on a CPU, the faster class wins the tie: into the
    # FIFOs; j4, j5: 6 on a GPU, 4 on a CPU at once.
    assert where == [
        (0.0, 0, "gpu"), (0.0, 1, "gpu"), (2.0, 0, "gpu"), (2.0, 1, "gpu"), (0.0, 0, "cpu"), (0.0, 1, "cpu"),
    ]  # fmt: skip


def unlike_gpus() -> Cluster:
    """A CPU with two GPUs of different models."""
    devices = (Device("gpu", "A", 0), Device("gpu", "B", 1))
    return Cluster((Node("n0", (0,), devices),))


def test_gpu_only_is_bound_to_the_kind_whatever_the_model() -> None:
    w = workload([(name, {"cpu": 1.0, "gpu": 4.0}) for name in "abc"])
    used = [
        r.allocation.device_names(unlike_gpus())
        for r in scheduled(w, "gpu-only", unlike_gpus()).records
        if r.allocation
    ]
    assert used == [["n0/gpu0"], ["n0/gpu1"], ["n0/gpu0"]]


def test_best_device_is_bound_to_the_class() -> None:
    w = workload([(name, {"cpu": 4.0, "gpu": 4.0}) for name in "ab"])
    used = [
        r.allocation.device_names(unlike_gpus())
        for r in scheduled(w, "best-device", unlike_gpus()).records
        if r.allocation
    ]
    assert used == [["n0/gpu0"], ["n0/gpu0"]]


def test_exploration_takes_devices_in_their_order_not_in_that_of_the_file() -> None:
    """n0/cpu is busy; of the idle classes without history n0/gpu0 comes before n1/cpu."""
    w = workload([("a", {"cpu": 9.0}), ("b", {"cpu": 9.0, "gpu": 9.0})])
    two = Cluster.parse("2x1cpu+1gpu")
    result = scheduled(w, "history", two, MemoryHistory())
    assert [r.allocation.device_names(two) for r in result.records if r.allocation] == [[], ["n0/gpu0"]]


def test_a_moldable_job_runs_on_as_many_nodes_as_it_asks_for(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        """
        [[app]]
        name = "a"
        [[app.implementation]]
        name = "cpu"
        times = { 1 = 8.0, 2 = 5.0 }
        [[job]]
        app = "a"
        nodes = 2
        """
    )
    w = load_workload(path)
    (record,) = scheduled(w, "history", Cluster.parse("2x1cpu")).records
    assert record.allocation is not None
    assert record.allocation.request.nodes == 2
    assert record.end == 5.0


Row = tuple[str, float, float, float, float | str]


def learned(
    rows: Sequence[Row], cluster: Cluster, model: str = "least-squares", walltime: float | None = None
) -> Result:
    """Jobs (app, CPU seconds, GPU seconds, submit time, input n), from an empty history."""
    base = workload([(app, {"cpu": 1.0, "gpu": 1.0}) for app in dict.fromkeys(row[0] for row in rows)])
    apps = {job.app.name: job for job in base.jobs}
    table = {}
    jobs = []
    for i, (app, cpu, gpu, submit, n) in enumerate(rows):
        job = replace(apps[app], id=f"{app}{i + 1}", index=i, submit_time=submit, inputs={"n": n})
        jobs.append(replace(job, walltime=walltime))
        table |= {(jobs[-1].id, "cpu", 1): cpu, (jobs[-1].id, "gpu", 1): gpu}
    w = Workload("learned", jobs, TableTruth(table))
    history = MemoryHistory()
    result = simulate(w, cluster, History(), make_model(model, history), observe=history)
    check_schedule(result, w)
    return result


def ran(result: Result) -> list[tuple[str, float | None]]:
    return [(r.implementation.name, r.start) for r in result.records if r.implementation]


UNKNOWN_SIZES: list[Row] = [("a", 10.0, 1.0, 0.0, 1.0)] * 2 + [
    ("a", 10.0, 1.0, 20.0, float(n)) for n in range(2, 8)
]


@pytest.mark.parametrize("model", ["mean", "words"])
def test_where_nothing_is_predicted_the_idle_gpu_goes_before_the_idle_cpu(model: str) -> None:
    """Section 5.2: with limited information the GPU if it is free, else the CPU; nobody waits in a FIFO."""
    rows: list[Row] = UNKNOWN_SIZES
    if model == "words":  # words are categories: of another word nothing is known
        rows = [(*row[:4], f"word {row[4]:g}") for row in rows]
    result = learned(rows, TWO, "mean" if model == "mean" else "least-squares")
    expected = [("gpu", 0.0), ("cpu", 0.0), ("gpu", 20.0), ("cpu", 20.0)]
    assert ran(result) == [*expected, *(("gpu", float(start)) for start in (21, 22, 23, 24))]
    assert result.makespan == 30.0


def test_nobody_queues_behind_a_job_of_unknown_length_beside_an_idle_device() -> None:
    seconds = {"a": 3.0, "b": 5.0}
    result = learned([(app, seconds[app], seconds[app], 0.0, 1.0) for app in "aaabbaba"], TWO)
    assert ran(result)[5] == ("gpu", 8.0)
    assert result.makespan == 16.0


def test_a_class_is_explored_once_while_its_first_run_is_on() -> None:
    """Rule 2 speaks of programs that were not assigned yet: the other idle CPUs do not try it as well."""
    pools = Cluster((Node("n0", (0,), (Device("gpu"),)), *(Node(f"n{n}", (0,)) for n in range(1, 12))))
    rows: list[Row] = [("a", 100.0, 1.0, 0.0, 1.0), *[("a", 100.0, 1.0, 2.0, 1.0)] * 11]
    found = ran(learned(rows, pools))
    expected = [("gpu", 0.0), ("gpu", 2.0), ("cpu", 2.0), *(("gpu", float(3 + i)) for i in range(9))]
    assert found == expected


def test_a_run_that_fails_is_no_exploration() -> None:
    """The second job is killed at its walltime: nothing is known of the CPU yet, so the fourth tries it."""
    rows: list[Row] = [("a", 100.0, 1.0, submit, 1.0) for submit in (0.0, 0.0, 10.0, 10.0)]
    assert ran(learned(rows, TWO, walltime=5.0)) == [("gpu", 0.0), ("cpu", 0.0), ("gpu", 10.0), ("cpu", 10.0)]


def test_a_job_is_never_assigned_to_a_unit_that_is_too_small() -> None:
    """The CPUs of n0 can never run it: it goes to n1, behind another job."""
    nodes = Cluster((Node("n0", (0, 1)), Node("n1", tuple(range(8)))))
    w = workload([(name, {"cpu": 5.0}) for name in "ab"])
    implementation = Implementation("cpu", "cpu", Request(1, 8))
    app = App("wide", (implementation,))
    choices = (Choice(implementation, implementation.request),)
    w = Workload("wide", [replace(job, app=app, choices=choices) for job in w.jobs], w.truth)
    for policy in ("history", "history-guarded", "cpu-only", "gpu-only", "best-device", "brr"):
        result = scheduled(w, policy, nodes)
        assert [(r.allocation.nodes, r.start) for r in result.records if r.allocation] == [([1], 0), ([1], 5)]


def test_the_planner_has_a_plan_however_little_time_it_is_given() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    times = [(float(rng.integers(1, 100)), float(rng.integers(1, 100))) for _ in range(40)]
    table = [{(u, u): pair[u // 2] for u in range(4)} for pair in times]
    picks, status, bound, _ = least_makespan(table, [0.0] * 4, [[0, 1], [2, 3]], time_limit=1e-6)
    load = [0.0] * 4
    for row, pick in zip(table, picks, strict=True):
        load[pick] += row[pick, pick]
    assert status == "feasible"
    assert bound <= max(load) * (1 + 1e-9)
    assert max(load) <= 1.05 * bound


def placed_at(text: str) -> dict[str, tuple[float, float]]:
    """Start and end of each job, of what `one_node` prints."""
    found = (part.split() for part in text.split(", "))
    return {words[0]: (float(words[-3]), float(words[-1])) for words in found}


def test_the_first_to_end_does_not_draw_all_that_waits() -> None:
    """Three devices of a class: when the first run has ended, the other two are known to end soon as well."""
    jobs = [("a", {"gpu": 1.0 + n / 100}) for n in range(12)]
    found = placed_at(str(one_node(History(), "1x1cpu+3gpu", jobs, model="mean")))
    assert max(end for _, end in found.values()) < 4.5  # 10.63 one after the other


def test_an_idle_device_comes_before_one_whose_job_began_without_a_prediction() -> None:
    """The first device's job is past what the app is now known to take: it is due, and not free."""
    jobs = [("a", {"gpu": 10.0}), ("a", {"gpu": 1.0}), ("a", {"gpu": 1.0}, 5.0)]
    found = placed_at(str(one_node(History(), "1x1cpu+2gpu", jobs, model="mean")))
    assert found["a-3"] == (5.0, 6.0)
