"""The simulator's speed on fixed workloads, its memory, and a checksum of each schedule.

Run with ``make bench``, or as a program for the table alone: ``python benchmarks/test_simulator.py``.
"""

from __future__ import annotations

import heapq
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dovetail.interfaces import Policy
from dovetail.model import Cluster, Result, TableTruth, Workload
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.workloads.load import load_workload
from workloads import checksum, gpu_jobs, machine, rigid_jobs

JOBS = int(os.environ.get("DOVETAIL_BENCH_JOBS", "100000"))
CASES = [
    ("fcfs", Fcfs(), 256, 0.85),
    ("easy", Easy(), 256, 0.85),
    ("easy", Easy(), 256, 1.05),
    ("easy", Easy(), 1024, 0.85),
    ("easy", Easy(), 1024, 1.05),
]
# Schedules of 100,000 jobs, seed 1: a change that alters one start alters these.
CHECKSUMS = {
    ("fcfs", 256, 0.85): "828333f9ac864be6",
    ("easy", 256, 0.85): "7be4f4d1bee1132f",
}


def bare_easy(workload: Workload, nodes: int) -> float:
    """CPU seconds of EASY as a bare loop: counts for nodes, no checks, no policy, no records but starts."""
    assert isinstance(workload.truth, TableTruth)
    fixed = workload.truth.fixed
    rows = [(j.submit_time, j.nodes, fixed[j.id], j.walltime or fixed[j.id]) for j in workload.jobs]
    before = time.process_time()
    heap: list[tuple[float, int]] = []
    limits: dict[int, tuple[float, int]] = {}
    queue: list[int] = []
    starts = [0.0] * len(rows)
    free, at, count = nodes, 0, len(rows)
    while at < count or heap:
        now = heap[0][0] if heap else rows[at][0]
        if at < count and rows[at][0] < now:
            now = rows[at][0]
        while heap and heap[0][0] <= now:
            job = heapq.heappop(heap)[1]
            free += rows[job][1]
            del limits[job]
        while at < count and rows[at][0] <= now:
            queue.append(at)
            at += 1

        def start(job: int, now: float = now) -> None:
            _, size, run, wall = rows[job]
            starts[job] = now
            heapq.heappush(heap, (now + min(run, wall), job))
            limits[job] = (now + wall, size)

        while queue and rows[queue[0]][1] <= free:
            free -= rows[queue[0]][1]
            start(queue.pop(0))
        if len(queue) < 2 or not free:
            continue
        extra, shadow = free - rows[queue[0]][1], 0.0
        for limit, size in sorted(limits.values()):
            if extra >= 0 and limit > shadow:
                break
            extra += size
            if extra >= 0:
                shadow = limit
        for job in queue[1:]:
            size, wall = rows[job][1], rows[job][3]
            if size <= free and (now + wall <= shadow or size <= extra):
                if now + wall > shadow:
                    extra -= size
                free -= size
                queue.remove(job)
                start(job)
                if not free:
                    break
    return time.process_time() - before


def peak_memory() -> float:
    """MiB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(workload: Workload, nodes: int | Cluster, policy: Policy, **options: Any) -> tuple[Result, float]:
    """A result and the CPU seconds that it took, reading aside."""
    cluster = machine(nodes) if isinstance(nodes, int) else nodes
    before = time.process_time()
    result = simulate(
        workload, cluster, policy, PerfectModel(workload.truth), options=SimulationOptions(**options)
    )
    return result, time.process_time() - before


def report(name: str, nodes: int, load: float, seconds: float, result: Result, bare: float) -> str:
    """One line of the table."""
    speed, reference = len(result.records) / seconds, len(result.records) / bare
    return (
        f"{name:5s} {nodes:5d} nodes, load {load}: {speed:7,.0f} jobs per CPU-second; bare loop "
        f"{reference:8,.0f} (ratio {speed / reference:.2f}); peak {peak_memory():4.0f} MiB; "
        f"checksum {checksum(result)}"
    )


@pytest.mark.parametrize(("name", "policy", "nodes", "load"), CASES, ids=lambda v: str(v)[:8])
def test_jobs_per_second(
    benchmark: Callable[..., Any], capsys: Any, name: str, policy: Policy, nodes: int, load: float
) -> None:
    workload = rigid_jobs(JOBS, nodes, load)
    seen: list[tuple[Result, float]] = []
    benchmark.pedantic(lambda: seen.append(run(workload, nodes, policy)), rounds=3)  # type: ignore[attr-defined]
    result, seconds = seen[0][0], sorted(seconds for _, seconds in seen)[len(seen) // 2]
    assert result.promises_broken == 0
    if JOBS == 100_000 and (name, nodes, load) in CHECKSUMS:
        assert checksum(result) == CHECKSUMS[name, nodes, load]
    assert peak_memory() < 1000
    with capsys.disabled():
        print("\n" + report(name, nodes, load, seconds, result, bare_easy(workload, nodes)))


@pytest.mark.parametrize("policy", [Fcfs(), Easy()], ids=["fcfs", "easy"])
def test_decision_time_with_a_long_queue(benchmark: Callable[..., Any], capsys: Any, policy: Policy) -> None:
    """100,000 jobs that wait for 10,000 nodes: seconds of each call of ``decide``."""
    workload = rigid_jobs(JOBS, 10_000, 1.0, at_once=True)
    seen: list[tuple[Result, float]] = []
    benchmark.pedantic(  # type: ignore[attr-defined]
        lambda: seen.append(run(workload, 10_000, policy, timer=time.perf_counter)), rounds=1
    )
    result, seconds = seen[0]
    p50, p99 = (1e6 * float(np.percentile(result.decision_seconds, q)) for q in (50, 99))
    with capsys.disabled():
        print(
            f"\n{type(policy).__name__}: {len(result.records) / seconds:,.0f} jobs per CPU-second; "
            f"a decision takes {p50:.0f} us (p50), {p99:.0f} us (p99); peak {peak_memory():.0f} MiB"
        )
    assert result.promises_broken == 0


def test_conservative(benchmark: Callable[..., Any], capsys: Any) -> None:
    workload = rigid_jobs(JOBS // 10, 256, 0.85)
    seen: list[tuple[Result, float]] = []
    benchmark.pedantic(lambda: seen.append(run(workload, 256, Conservative())), rounds=1)  # type: ignore[attr-defined]
    assert seen[0][0].promises_broken == 0
    with capsys.disabled():
        print(f"\nconservative: {len(workload.jobs) / seen[0][1]:,.0f} jobs per CPU-second")


@pytest.mark.parametrize("load", [0.95, 1.05])
def test_conservative_on_a_wide_machine(benchmark: Callable[..., Any], capsys: Any, load: float) -> None:
    """Four and a half times as many jobs on 8,192 nodes, compiled."""
    count, cluster = JOBS * 448 // 100, machine(8192)
    workload = load_workload(f"synthetic:rigid?jobs={count}&nodes=8192&load={load}", cluster)
    run(load_workload("synthetic:rigid?jobs=100&nodes=8", machine(8)), 8, Conservative(), compiled="auto")
    seen: list[tuple[Result, float]] = []
    benchmark.pedantic(  # type: ignore[attr-defined]
        lambda: seen.append(run(workload, cluster, Conservative(), compiled="auto")), rounds=1
    )
    assert seen[0][0].promises_broken == 0
    assert seen[0][1] < 300 * JOBS / 100_000
    with capsys.disabled():
        print(f"\nconservative, 8,192 nodes, load {load}: {count:,d} jobs in {seen[0][1]:.1f} CPU-seconds")


@pytest.mark.parametrize("load", [0.85, 1.05])
def test_gpu_nodes(benchmark: Callable[..., Any], capsys: Any, load: float) -> None:
    """64 nodes of 8 GPUs, where slots name nodes and GPUs: conservative beside EASY, both also compiled."""
    shown = by_the_engine_and_compiled(
        benchmark, gpu_jobs(JOBS // 20, 64, load), Cluster.uniform(64, 20, 8), [Easy(), Conservative()]
    )
    with capsys.disabled():
        print(f"\n64 nodes of 8 GPUs, load {load}: {shown}")


@pytest.mark.parametrize("load", [0.85, 1.05])
@pytest.mark.parametrize("nodes", [32, 256])
def test_nodes_of_eight_cpus(benchmark: Callable[..., Any], capsys: Any, nodes: int, load: float) -> None:
    """Jobs of so many CPUs, on nodes of eight: FCFS and EASY, both also compiled."""
    cluster = Cluster.uniform(nodes, 8)
    workload = load_workload(f"synthetic:lublin?jobs={JOBS // 10}&load={load}", cluster)
    shown = by_the_engine_and_compiled(benchmark, workload, cluster, [Fcfs(), Easy()])
    with capsys.disabled():
        print(f"\n{nodes} nodes of 8 CPUs, load {load}: {shown}")


def by_the_engine_and_compiled(
    benchmark: Callable[..., Any], workload: Workload, cluster: Cluster, policies: Sequence[Policy]
) -> str:
    """Jobs per CPU-second, medians of three in turns, in words; the schedules are the same."""
    ways = [(policy, compiled) for policy in policies for compiled in ("off", "auto")]
    few = replace(workload, jobs=workload.jobs[:20])
    for policy in policies:
        run(few, cluster, policy, compiled="auto")  # loads what is compiled
    seen: list[tuple[Result, float]] = []

    def each() -> None:
        seen.extend(run(workload, cluster, policy, compiled=compiled) for policy, compiled in ways)

    benchmark.pedantic(each, rounds=3)  # type: ignore[attr-defined]
    words = []
    for i, (policy, compiled) in enumerate(ways):
        assert seen[i][0].promises_broken == 0
        assert checksum(seen[i][0]) == checksum(seen[i - i % 2][0])
        rate = len(workload.jobs) / sorted(seconds for _, seconds in seen[i :: len(ways)])[1]
        words.append(f"{type(policy).__name__.lower()}{' compiled' * (compiled == 'auto')} {rate:,.0f}")
    return "jobs per CPU-second of " + ", ".join(words)


def test_a_million_nodes(benchmark: Callable[..., Any], capsys: Any) -> None:
    """The same jobs on 1,000 times as many nodes: the ratio is what nodes cost that nobody uses."""
    workload = rigid_jobs(JOBS // 50, 1000, 0.85)
    small, large = Cluster.uniform(1000, 64, 8), Cluster.uniform(1_000_000, 64, 8)
    seen: list[float] = []

    def both() -> None:
        seen.extend(run(workload, cluster, Fcfs())[1] for cluster in (small, large))

    benchmark.pedantic(both, rounds=3)  # type: ignore[attr-defined]
    few, many = (sorted(seen[i::2])[1] for i in (0, 1))
    with capsys.disabled():
        print(f"\n1,000,000 nodes against 1,000: {many / few:.2f} times the CPU seconds")


if __name__ == "__main__":
    for name, policy, nodes, load in CASES:
        workload = rigid_jobs(JOBS, nodes, load)
        times = sorted(run(workload, nodes, policy)[1] for _ in range(2))
        result, seconds = run(workload, nodes, policy)
        median = sorted([*times, seconds])[1]
        print(report(name, nodes, load, median, result, bare_easy(workload, nodes)), flush=True)
