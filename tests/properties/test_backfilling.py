"""Backfilling keeps its promises: on random instances of every kind, and on the sample traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_instances import cluster_of, workload_of

from dovetail.interfaces import Policy
from dovetail.model import Cluster, Result, Workload
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.sjf import Sjf
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload
from dovetail.workloads.tables import read_openb_nodes

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
    for seed in range(block, full(10_000, 60), 4):
        rng = np.random.Generator(np.random.PCG64(seed))
        cluster = cluster_of(rng)
        workload = workload_of(rng, cluster)
        policy = POLICIES[seed // 4 % len(POLICIES)]
        check(simulate(workload, cluster, policy, PerfectModel(workload.truth)), workload)


def test_overruns_break_promises_only_with_an_excuse() -> None:
    """Jobs run on past their walltimes: what is broken then is counted apart, and nothing else is."""
    broken = 0
    for seed in range(full(2000, 40)):
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
        for seed in range(full(500, 20)):
            rng = np.random.Generator(np.random.PCG64(60_000 + seed))
            cluster = cluster_of(rng)
            workload = workload_of(rng, cluster)
            options = SimulationOptions(default_walltime=float("inf"))
            result = simulate(workload, cluster, policy, PerfectModel(workload.truth), options=options)
            check(result, workload)


TRACE_FILES = {
    "kth-sp2-1996-2.1-cln.first8000.swf.gz": "100x1cpu",
    "hpc2n-2002-2.1.first3170.swf.gz": "240x1cpu",
    "theta-2022.first8000.swf.gz": "4360x1cpu",
    "nasa-ipsc-1993-3.1-cln.first6000.swf.gz": "128x1cpu",
    "lublin-256.swf.gz": "256x1cpu",
    "aaicwl-2017Q3.csv.gz": "40x20cpu+8gpu",
    "philly_jobs_2017-10-02_2017-10-08.csv.gz": "80x20cpu+8gpu",
    "eagle_jobs_sample1000.csv.gz": "60x36cpu",
    "openb_pod_list_gpuspec33.first5000.csv.gz": "openb_node_list_all_node.csv",
}


@pytest.mark.parametrize("policy", [Easy(), Conservative()], ids=["easy", "conservative"])
@pytest.mark.parametrize("name", TRACE_FILES, ids=[name[:6] for name in TRACE_FILES])
@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces beside the repository")
def test_no_promise_is_broken_on_a_trace(name: str, policy: Policy) -> None:
    machine = TRACE_FILES[name]
    nodes = read_openb_nodes(TRACES / machine) if machine.endswith(".csv") else Cluster.parse(machine)
    workload = load_workload(TRACES / name, nodes)
    jobs = workload.jobs[: full(len(workload.jobs), 400)]
    workload = Workload(workload.name, jobs, workload.truth)
    check(simulate(workload, nodes, policy, PerfectModel(workload.truth)), workload)
