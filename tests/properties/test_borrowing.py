"""Borrowed GPUs on random instances: capacity is kept, and the compiled simulation is the engine's."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
from gangs_on_gpus import random_cluster, random_gangs

from dovetail.driver.prepare import prepare_workload
from dovetail.engine.state.progress import Expectations
from dovetail.interfaces import Policy
from dovetail.model import Cluster, Result, Workload
from dovetail.policies.fcfs import Fcfs
from dovetail.rates.communication import with_communication
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail_lab.markthub.borrowing import simulate_borrowing
from dovetail_lab.markthub.borrowing_arrays import State, costs_of
from dovetail_lab.markthub.lifetimes import arrays_of, options_of
from dovetail_lab.markthub.mrq_aware import MrqAware
from dovetail_lab.published.markthub import markthub, markthub_machine
from dovetail_remote.policies.mrq import Mrq
from dovetail_remote.policies.rq import Rq
from dovetail_remote.rates import RemoteGpu

POLICIES: list[Policy] = [
    Fcfs(),
    Fcfs(skip=2),
    Rq(),
    Rq(local=1),
    Rq(skip=1),
    Mrq(),
    Mrq(local=1, skip=3),
    MrqAware(),
    MrqAware(looks=2),
]


class Pair:
    """One instance, by the engine and by the kernel."""

    def __init__(
        self, work: Workload, cluster: Cluster, policy: Policy, processes: Literal["node", "gpu"] = "node"
    ) -> None:
        work, cluster, rates = with_communication(work, cluster, policy, RemoteGpu(processes=processes))
        assert isinstance(rates, RemoteGpu)
        self.work, self.cluster, self.policy, self.rates = work, cluster, policy, rates
        self.options = SimulationOptions(keep_considered=True)

    def engine(self, **more: Any) -> Result:
        """The ordinary path."""
        forecast = Expectations(self.rates.fresh(self.cluster))
        return simulate(
            self.work,
            self.cluster,
            self.policy,
            PerfectModel(self.work.truth),
            rates=self.rates.fresh(self.cluster),
            forecast=forecast,
            options=self.options,
            **more,
        )

    def kernel(self) -> State:
        """The compiled one; one entry a job in file order."""
        work = prepare_workload(self.work, self.cluster, need_truth=True)
        arrays, how = arrays_of(work, self.cluster, self.rates), options_of(self.policy, self.rates)
        assert arrays is not None
        assert how is not None
        return simulate_borrowing(*arrays, costs_of(self.rates.constants), how)


def assert_same(pair: Pair) -> Result:
    """The two results, job by job; returns the engine's."""
    slow, fast = pair.engine(), pair.kernel()
    prepared = prepare_workload(pair.work, pair.cluster, need_truth=True)
    records = {record.job.id: record for record in slow.records}
    ordered = [records[job.id] for job in prepared.jobs]
    for of_kernel, of_engine in (
        (fast.starts, [record.start for record in ordered]),
        (fast.ends, [record.end for record in ordered]),
        (fast.borrowed, [record.remote_gpus for record in ordered]),
        (fast.moves, [record.migrations for record in ordered]),
    ):
        assert of_kernel.tolist() == of_engine
    return slow


@pytest.mark.parametrize("block", range(3))
def test_the_kernel_does_what_the_engine_does(block: int) -> None:
    """Starts, ends, what is borrowed and how much moves are the same, to the last bit; all rules are kept."""
    borrowed = moved = 0
    for seed in range(block, full(9000, 120), 3):
        rng = np.random.Generator(np.random.PCG64(seed))
        cluster = random_cluster(rng)
        work = random_gangs(rng, cluster)
        pair = Pair(
            work, cluster, POLICIES[seed // 3 % len(POLICIES)], "gpu" if rng.random() < 0.3 else "node"
        )
        result = assert_same(pair)
        check_schedule(result, pair.work, work=False)
        borrowed += sum(record.remote_gpus for record in result.records)
        moved += sum(record.migrations for record in result.records)
    assert borrowed > 0
    assert moved > 0


@pytest.mark.parametrize(
    ("policy", "options"),
    list(product([Fcfs(), Rq(), Mrq(), MrqAware()], [{}, {"gpu_calls": "1e5|3e8", "spread": "wide"}])),
)
def test_the_kernel_does_what_the_engine_does_on_the_papers_workload(
    policy: Policy, options: dict[str, Any]
) -> None:
    work = markthub(jobs=full(10_000, 250), seed=3, **options)
    pair = Pair(work, markthub_machine(), policy)
    check_schedule(assert_same(pair), pair.work, work=False)


def test_the_books_agree_after_every_instant() -> None:
    """Also while a move holds both places."""
    held = 0
    for seed in range(full(600, 60)):
        rng = np.random.Generator(np.random.PCG64(70_000 + seed))
        cluster = random_cluster(rng)
        policy = (Mrq(held=True), MrqAware(held=True), Mrq())[seed % 3]
        pair = Pair(random_gangs(rng, cluster), cluster, policy)
        pair.options = SimulationOptions(validate=True)
        result = pair.engine()
        check_schedule(result, pair.work, work=False)
        held += sum(record.migrations for record in result.records)
    assert held > 0
