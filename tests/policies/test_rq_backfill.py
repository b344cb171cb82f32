"""Borrowed GPUs with EASY: promises rest on walltimes and are kept, whoever borrows or moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gangs_on_gpus import gang, random_cluster, random_gangs

from dovetail import simulate
from dovetail.interfaces import Policy
from dovetail.model import Communication, TableTruth, Workload
from dovetail.rates.communication import with_communication
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions
from dovetail.simulation.simulate import simulate as in_virtual_time
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail_remote.policies.mrq_backfill import MrqBackfill
from dovetail_remote.policies.rq_backfill import RqBackfill


def with_walltimes(work: Workload, rng: np.random.Generator) -> Workload:
    """Some tight, so that who borrows is ended at them; most generous."""
    jobs = []
    for job in work.jobs:
        assert job.communication is not None
        alone = job.communication.other + 60 * job.communication.gpu_calls / 1e6
        jobs.append(replace(job, walltime=float(alone * rng.choice([0.8, 1.5, 10.0, 100.0]))))
    return replace(work, jobs=jobs)


@pytest.mark.parametrize("policy", [RqBackfill(), RqBackfill(local=1), MrqBackfill(), MrqBackfill(held=True)])
def test_no_promise_is_broken(policy: Policy) -> None:
    promised = borrowed = moved = 0
    for seed in range(full(3000, 40)):
        rng = np.random.Generator(np.random.PCG64(seed))
        cluster = random_cluster(rng)
        work = with_walltimes(random_gangs(rng, cluster), rng)
        work, cluster, rates = with_communication(work, cluster, policy, None)
        options = SimulationOptions(validate=True)
        result = in_virtual_time(
            work, cluster, policy, PerfectModel(work.truth), rates=rates, options=options
        )
        check_schedule(result, work, work=False)
        assert result.promises_broken == 0, seed
        promised += sum(record.promised is not None for record in result.records)
        borrowed += sum(record.remote_gpus for record in result.records)
        moved += sum(record.migrations for record in result.records)
    assert promised > 0
    assert borrowed > 0
    assert bool(moved) == isinstance(policy, MrqBackfill)


def _line(*, walltimes: bool) -> Workload:
    """A job on most GPUs; a head that wants all of them; one behind it that can only start by borrowing."""
    rows = [(100.0, 2, 2, 120.0), (10.0, 2, 3, 20.0), (30.0, 1, 2, 60.0)]
    jobs = [
        gang(name, float(i), nodes, gpus, Communication(other), index=i)
        for i, (name, (other, nodes, gpus, _)) in enumerate(zip("abc", rows, strict=True))
    ]
    if walltimes:
        jobs = [replace(job, walltime=row[3]) for job, row in zip(jobs, rows, strict=True)]
    return Workload("line", jobs, TableTruth())


@pytest.mark.parametrize("policy", ["rq-backfill", "mrq-backfill"])
def test_a_job_borrows_past_the_head_that_it_does_not_delay(policy: str) -> None:
    result = simulate(_line(walltimes=True), cluster="2x8cpu+3gpu", policy=policy).result
    assert [record.start for record in result.records] == [0.0, 100.0, 2.0]
    assert [record.remote_gpus for record in result.records] == [0, 0, 1]
    assert result.records[1].promised == 120.0
    assert not any("best effort" in note for note in result.notes)


def test_without_walltimes_it_says_that_promises_are_best_effort() -> None:
    result = simulate(_line(walltimes=False), cluster="2x8cpu+3gpu", policy="rq-backfill").result
    assert any("3 jobs without a walltime" in note and "best effort" in note for note in result.notes)
