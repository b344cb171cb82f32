"""The compiled stand-in gives what the engine gives where jobs share nodes, core ids and devices included."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from twins_compared import check_same, check_same_reports

from dovetail.engine.state.recent import Durations
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
from dovetail.native.library import load_library
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail.workloads.load import load_workload
from dovetail.workloads.tables import read_aaic, read_philly

pytestmark = pytest.mark.skipif(
    load_library() is None, reason="no C compiler was here when the package was built"
)
TRACES = Path(__file__).parents[3] / "shared" / "traces"
POLICIES: list[Policy] = [
    Conservative(),
    Conservative(placement="spread"),
    Conservative(placement="first"),
    Conservative(order="largest"),
    Conservative(order="saf", placement="spread"),
    Conservative(order="sjf"),
    Easy(),
    Easy(placement="spread"),
    Easy(order="saf", placement="first"),
    Easy(order="sjf"),
    Fcfs(),
    Fcfs(placement="spread", skip=3),
]
LATE: list[Policy] = [Easy(), Easy(order="largest", placement="spread"), Fcfs(placement="first", skip=1)]
"""Policies under which jobs may run past their bounds, or have none."""


def random_machine(rng: np.random.Generator) -> Cluster:
    """Like nodes with few or many CPUs, none to eight GPUs, memory counted or not."""
    gpus = int(rng.choice([0, 1, 2, 4, 8]))
    memory = None if rng.random() < 0.5 else 64
    cpus = int(rng.integers(2, 17))
    count = int(rng.integers(1, 10))
    nodes = [
        Node(
            f"n{i}",
            cores=tuple(range(3, 3 + cpus)),
            devices=tuple(Device("gpu", "a100", local) for local in range(gpus)),
            memory=memory,
        )
        for i in range(count)
    ]
    return Cluster(tuple(nodes))


def random_jobs(rng: np.random.Generator, cluster: Cluster, shortest: float = 1.0) -> Workload:
    """Gangs and single jobs of CPUs, of GPUs, of whole nodes; with ties, priorities, killed ones.

    The first job leaves something of a node to others. Jobs without a walltime last ``shortest`` at least.
    """
    node, count = cluster.nodes[0], int(rng.integers(1, 90))
    span, hurry = int(rng.integers(1, 400)), rng.random() < 0.3
    ranked = rng.random() < 0.3
    jobs, fixed = [], {}
    for i in range(count):
        gpus = int(rng.integers(0, len(node.devices) + 1))
        cpus = -1 if i and rng.random() < 0.1 else int(rng.integers(0 if gpus else 1, node.cpus + (i > 0)))
        width = int(rng.integers(1, len(cluster) + 1)) if rng.random() < 0.3 else 1
        memory = int(rng.integers(0, 65)) if rng.random() < 0.5 else 0
        request = Request(width, cpus, (("gpu", float(gpus)),) if gpus else (), memory=memory)
        implementation = Implementation("it", "gpu" if gpus else "cpu", request)
        run = float(rng.integers(0, 60))
        walltime = 60.0 if hurry else max(1.0, float(np.ceil(run * rng.uniform(0.5, 4))))
        timeless = rng.random() < 0.2
        fixed[f"j{i}"] = max(shortest, run) if timeless else run
        jobs.append(
            Job(
                f"j{i}",
                App("app", (implementation,)),
                (Choice(implementation, request),),
                i,
                float(rng.integers(0, span)) if i else 0.0,
                nodes=width,
                walltime=None if timeless else walltime,
                priority=int(rng.integers(0, 3)) if ranked else 0,
            )
        )
    jobs.sort(key=lambda job: (job.submit_time, job.index))
    return Workload("random", jobs, TableTruth(fixed=fixed))


def both(workload: Workload, cluster: Cluster, policy: Policy, **options: Any) -> tuple[Result, Result]:
    """The result of the stand-in, which must model it, and of the engine."""
    runtimes = PerfectModel(workload.truth)
    asked = SimulationOptions(**options)
    found = simulate(workload, cluster, policy, runtimes, options=replace(asked, compiled="auto"))
    engine = simulate(workload, cluster, policy, runtimes, options=asked)
    assert isinstance(engine.decision_seconds, Durations)
    assert not isinstance(found.decision_seconds, Durations)
    return found, engine


@pytest.mark.parametrize("block", range(4))
def test_random_instances(block: int) -> None:
    for seed in range(block, full(6_000, 48), 4):
        rng = np.random.Generator(np.random.PCG64([seed, 2]))
        cluster = random_machine(rng)
        workload = random_jobs(rng, cluster)
        options: dict[str, Any] = {"default_walltime": 30.0} if rng.random() < 0.3 else {}
        policy = POLICIES[seed // 4 % len(POLICIES)]
        twin, engine = both(workload, cluster, policy, **options)
        check_same(twin, engine)
        check_schedule(twin, workload)
        if seed % 8 < 2:
            check_same_reports(twin, engine)


@pytest.mark.parametrize("block", range(4))
def test_random_instances_with_late_jobs(block: int) -> None:
    """Jobs run past their walltimes, promises are broken, some jobs take no time or nobody knows how long."""
    broken = 0
    for seed in range(block, full(4_000, 48), 4):
        rng = np.random.Generator(np.random.PCG64([seed, 5]))
        cluster = random_machine(rng)
        workload = random_jobs(rng, cluster, 0.0)
        options: dict[str, Any] = {"overrun": "run"} if rng.random() < 0.7 else {}
        options["default_walltime"] = (math.inf, 20.0, "actual")[int(rng.integers(3))]
        twin, engine = both(workload, cluster, LATE[seed // 4 % len(LATE)], **options)
        check_same(twin, engine)
        broken += twin.promises_broken
    assert broken


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_long_queue(policy: Policy) -> None:
    """More promises on a node than its arrays have room for at first."""
    cluster = Cluster.uniform(8, 20, 4)
    workload = load_workload(f"synthetic:lublin?jobs={full(1500, 800)}&gpus=0.7&load=1.3", cluster)
    check_same(*both(workload, cluster, policy))


@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces")
@pytest.mark.parametrize(
    ("read", "name", "nodes"),
    [(read_philly, "philly_jobs_2017-10-02_2017-10-08", 80), (read_aaic, "aaicwl-2017Q3", 40)],
    ids=["philly", "aaic"],
)
def test_sample_trace(read: Any, name: str, nodes: int) -> None:
    cluster = Cluster.uniform(nodes, 20, 8)
    workload = read(TRACES / f"{name}.csv.gz", cluster)
    jobs = workload.jobs[: full(len(workload.jobs), 1500)]
    assert isinstance(workload.truth, TableTruth)
    truth = TableTruth(fixed={job.id: workload.truth.fixed[job.id] for job in jobs})
    workload = replace(workload, jobs=jobs, truth=truth)
    for policy in (Conservative(), Easy(), Easy(order="sqrtsaf", placement="spread"), Fcfs(skip=8)):
        check_same(*both(workload, cluster, policy))


def test_what_is_not_modelled_is_the_engines() -> None:
    rng = np.random.Generator(np.random.PCG64(3))
    cluster = Cluster.uniform(4, 8, 2)
    workload = random_jobs(rng, cluster)
    unlike = Cluster((*cluster.nodes, Node("other", cores=(0, 1))))
    assert isinstance(workload.truth, TableTruth)
    first = workload.jobs[0]
    request = Request(1, 1, (("gpu", 0.5),))
    part = Implementation("part", "gpu", request)
    late = TableTruth(fixed={**workload.truth.fixed, first.id: 1e3})
    overrun = replace(workload, jobs=[replace(first, walltime=1.0), *workload.jobs[1:]], truth=late)
    shared = replace(first, app=App("part", (part,)), choices=(Choice(part, request),))
    whole = Implementation("whole", "cpu", Request(1, -1))
    of_all = replace(first, app=App("whole", (whole,)), choices=(Choice(whole, whole.request),))
    single = Implementation("single", "cpu", Request(1, 1))
    of_some = replace(first, id="some", index=1, submit_time=1.0, app=App("single", (single,)))
    of_some = replace(of_some, choices=(Choice(single, single.request),))
    counted = Workload("counted", [of_all, of_some], TableTruth(fixed={first.id: 9.0, "some": 9.0}))
    chosen = [
        (counted, Cluster.uniform(4, 8), Conservative(), {}),
        (counted, Cluster.uniform(4, 8), Easy(), {}),
        (workload, cluster, Easy(walltime="learned"), {}),
        (workload, cluster, Conservative(walltime="learned"), {}),
        (workload, unlike, Conservative(), {}),
        (replace(workload, jobs=[shared, *workload.jobs[1:]]), cluster, Conservative(), {}),
        (overrun, cluster, Conservative(), {"overrun": "run"}),
        (workload, cluster, Conservative(), {"keep_considered": True}),
    ]
    for work, machine, policy, options in chosen:
        asked = SimulationOptions(compiled="auto", **options)
        found = simulate(work, machine, policy, PerfectModel(work.truth), options=asked)
        assert isinstance(found.decision_seconds, Durations)
