"""Backfilling keeps its promises: on random instances of every kind, and on the sample traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dovetail.engine.simulate import SimulationOptions, simulate
from dovetail.interfaces import Policy
from dovetail.model import (
    App,
    Choice,
    Cluster,
    Device,
    Implementation,
    Job,
    Node,
    Request,
    Result,
    TableTruth,
    Workload,
)
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.sjf import Sjf
from dovetail.runtimes.perfect import PerfectModel
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.swf import read_swf

TRACES = Path(__file__).parents[3] / "shared" / "traces"
POLICIES: list[Policy] = [
    Fcfs(),
    Sjf(),
    Easy(),
    Easy(order="sjf"),
    Easy(order="largest"),
    Easy(order="f1"),
    Easy(placement="spread"),
    Conservative(),
    Conservative(placement="first"),
]


def cluster_of(rng: np.random.Generator) -> Cluster:
    """Single-CPU nodes, whole nodes, or unlike nodes with GPUs of two models and memory."""
    count = int(rng.integers(1, 9))
    shape = rng.integers(3)
    if shape < 2:
        return Cluster.uniform(count, 1 if shape == 0 else 4)
    nodes = []
    for n in range(min(count, 4)):
        models = [str(rng.choice(["T4", "A100"]))] * int(rng.integers(0, 4))
        devices = tuple(Device("gpu", model, local) for local, model in enumerate(models))
        memory = None if rng.random() < 0.5 else int(rng.integers(4, 17))
        nodes.append(Node(f"n{n}", tuple(range(int(rng.integers(1, 9)))), devices, memory))
    return Cluster(tuple(nodes))


def workload_of(rng: np.random.Generator, cluster: Cluster) -> Workload:
    """Jobs with one or two implementations; some larger than the machine; many ties."""
    jobs: list[Job] = []
    table: dict[tuple[str, str, int], float] = {}
    for i in range(int(rng.integers(1, 30))):
        nodes = int(rng.integers(1, len(cluster) + 1))
        memory = int(rng.choice([0, 0, 2, 5]))
        requests = {"cpu": Request(nodes, int(rng.choice([-1, 1, 1, 2])), (), memory)}
        if rng.random() < 0.5:
            count = float(rng.choice([0.2, 0.5, 1, 2]))
            models = ("A100",) if rng.random() < 0.2 else ()
            requests["gpu"] = Request(nodes, int(rng.integers(0, 2)), (("gpu", count),), memory, models)
            if rng.random() < 0.5:
                del requests["cpu"]
        implementations = tuple(Implementation(kind, kind, r) for kind, r in requests.items())
        length = 0.0
        for implementation in implementations:
            seconds = float(rng.choice([0, 1, 2, 5, 9, 20, 0.3]))
            length = max(length, seconds)
            table[str(i), implementation.name, nodes] = seconds
        walltime = None if rng.random() < 0.1 else max(0.1, length * float(rng.choice([0.5, 1, 1, 2, 5])))
        app = App(f"app{i}", implementations)
        choices = tuple(Choice(implementation, implementation.request) for implementation in implementations)
        submit = float(rng.integers(0, 40))
        priority = float(rng.integers(0, 3)) if rng.random() < 0.1 else 0
        jobs.append(Job(str(i), app, choices, i, submit, nodes=nodes, walltime=walltime, priority=priority))
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return Workload("random", jobs, TableTruth(table))


def check(result: Result, workload: Workload) -> None:
    check_schedule(result, workload)
    assert result.promises_broken == 0
    for record in result.records:
        if record.promised is not None:
            assert record.start is not None
            assert record.start <= record.promised


@pytest.mark.parametrize("block", range(4))
def test_no_promise_is_broken_on_random_instances(block: int) -> None:
    """Capacity, gangs, work and promises of every policy on every kind of cluster."""
    for seed in range(block, full(10_000, 600), 4):
        rng = np.random.Generator(np.random.PCG64(seed))
        cluster = cluster_of(rng)
        workload = workload_of(rng, cluster)
        policy = POLICIES[seed // 4 % len(POLICIES)]
        check(simulate(workload, cluster, policy, PerfectModel(workload.truth)), workload)


def test_overruns_break_promises_only_with_an_excuse() -> None:
    """Jobs run on past their walltimes: what is broken then is counted apart, and nothing else is."""
    broken = 0
    for seed in range(full(2000, 200)):
        rng = np.random.Generator(np.random.PCG64(50_000 + seed))
        cluster = cluster_of(rng)
        workload = workload_of(rng, cluster)
        for policy in (Easy(), Conservative()):
            result = simulate(
                workload,
                cluster,
                policy,
                PerfectModel(workload.truth),
                options=SimulationOptions(overrun="run"),
            )
            check_schedule(result, workload)
            assert result.promises_broken == result.broken_by_overrun
            broken += result.promises_broken
    assert broken > 0


def test_jobs_without_any_bound_get_no_promise_and_delay_no_head() -> None:
    """Behind jobs of unknown length the head waits; only what it can never need is backfilled."""
    for policy in (Easy(), Conservative()):
        for seed in range(full(500, 60)):
            rng = np.random.Generator(np.random.PCG64(60_000 + seed))
            cluster = cluster_of(rng)
            workload = workload_of(rng, cluster)
            options = SimulationOptions(default_walltime=float("inf"))
            result = simulate(workload, cluster, policy, PerfectModel(workload.truth), options=options)
            check(result, workload)


TRACE_FILES = [
    ("kth-sp2-1996-2.1-cln.first8000.swf.gz", 100),
    ("hpc2n-2002-2.1.first3170.swf.gz", 240),
    ("theta-2022.first8000.swf.gz", 4360),
    ("nasa-ipsc-1993-3.1-cln.first6000.swf.gz", 128),
    ("lublin-256.swf.gz", 256),
]


@pytest.mark.parametrize("policy", [Easy(), Conservative()], ids=["easy", "conservative"])
@pytest.mark.parametrize(("name", "nodes"), TRACE_FILES, ids=[name[:6] for name, _ in TRACE_FILES])
@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces beside the repository")
def test_no_promise_is_broken_on_a_trace(name: str, nodes: int, policy: Policy) -> None:
    cluster = Cluster.uniform(nodes, 1)
    workload = read_swf(TRACES / name, cluster)
    jobs = workload.jobs[: full(len(workload.jobs), 1500)]
    workload = Workload(workload.name, jobs, workload.truth)
    check(simulate(workload, cluster, policy, PerfectModel(workload.truth)), workload)
