"""The compiled simulation of gangs on borrowed GPUs gives what the engine gives: records, metrics, files."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from gangs_on_gpus import random_cluster, random_gangs
from twins_compared import check_same, check_same_reports

from dovetail.engine.state.recent import Durations
from dovetail.interfaces import Policy
from dovetail.model import Cluster, Job, Result, Workload
from dovetail.native.library import load_library
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.rates.communication import with_communication
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail_lab.published.markthub import markthub, markthub_machine
from dovetail_remote.policies.mrq import Mrq
from dovetail_remote.policies.rq import Rq
from dovetail_remote.rates import RemoteGpu

pytestmark = pytest.mark.skipif(
    load_library() is None, reason="no C compiler was here when the package was built"
)
POLICIES: list[Policy] = [Fcfs(), Fcfs(skip=2), Rq(), Rq(local=1), Rq(skip=1), Mrq(), Mrq(local=1, skip=3)]
Processes = Literal["node", "gpu"]


def simulated(
    work: Workload, cluster: Cluster, policy: Policy, processes: Processes, compiled: Literal["auto", "off"]
) -> Result:
    """One simulation, by the engine or by what takes its place."""
    work, cluster, rates = with_communication(work, cluster, policy, RemoteGpu(processes=processes))
    options = SimulationOptions(compiled=compiled)
    return simulate(work, cluster, policy, PerfectModel(work.truth), rates=rates, options=options)


def both(
    work: Workload, cluster: Cluster, policy: Policy, processes: Processes = "node"
) -> tuple[Result, Result]:
    """The compiled result, which must be one, and the engine's."""
    twin, engine = (simulated(work, cluster, policy, processes, how) for how in ("auto", "off"))
    assert not twin.interpreted
    assert not isinstance(twin.decision_seconds, Durations)
    assert isinstance(engine.decision_seconds, Durations)
    return twin, engine


@pytest.mark.parametrize("block", range(3))
def test_random_instances(block: int) -> None:
    borrowed = moved = shared = 0
    for seed in range(block, full(9_000, 150), 3):
        rng = np.random.Generator(np.random.PCG64([seed, 50]))
        cluster = random_cluster(rng)
        work = random_gangs(rng, cluster)
        processes: Processes = "gpu" if rng.random() < 0.3 else "node"
        twin, engine = both(work, cluster, POLICIES[seed // 3 % len(POLICIES)], processes)
        check_same(twin, engine)
        check_schedule(twin, work, work=False)
        if seed % 9 < 3:
            check_same_reports(twin, engine)
        borrowed += sum(record.remote_gpus for record in twin.records)
        moved += sum(record.migrations for record in twin.records)
        shared += sum(bool(record.allocation and record.allocation.cores) for record in twin.records)
    assert min(borrowed, moved, shared) > 0


@pytest.mark.parametrize("policy", [Fcfs(), Rq(), Mrq()], ids=["fcfs", "rq", "mrq"])
def test_the_papers_workload(policy: Policy) -> None:
    work = markthub(jobs=full(10_000, 250), seed=5)
    twin, engine = both(work, markthub_machine(), policy)
    check_same(twin, engine)
    check_same_reports(twin, engine)


@pytest.mark.parametrize(
    ("policy", "change", "reason"),
    [
        (Easy(), {}, "only fcfs, rq and mrq"),
        (Mrq(held=True), {}, "without held"),
        (Fcfs(placement="spread"), {}, "placement=spread"),
        (Rq(), {"walltime": 1e6}, "job j1 has a walltime"),
        (Rq(), {"priority": 2}, "job j1 has a priority"),
    ],
)
def test_what_is_not_compiled_is_named(policy: Policy, change: dict[str, float], reason: str) -> None:
    work = markthub(jobs=20, seed=5)
    jobs = [change_job(job, change) if job.id == "j1" else job for job in work.jobs]
    found = simulated(replace(work, jobs=jobs), markthub_machine(), policy, "node", "auto")
    assert reason in found.interpreted


def change_job(job: Job, change: dict[str, float]) -> Job:
    """The job with other fields."""
    return replace(job, **change)  # type: ignore[arg-type]
