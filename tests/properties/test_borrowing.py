"""Borrowed GPUs on random instances: capacity is kept, and the compiled simulation is the engine's."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
from gangs_on_gpus import random_cluster, random_gangs

from dovetail.engine.driver.prepare import prepare
from dovetail.engine.simulation.simulate import SimulationOptions, simulate
from dovetail.engine.state.progress import Expectations
from dovetail.interfaces import Policy
from dovetail.model import Cluster, Record, Result, Workload, bits
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.mrq import Mrq
from dovetail.policies.rq import Rq
from dovetail.rates.remote_gpu import RemoteGpu, with_communication
from dovetail.runtimes.perfect import PerfectModel
from dovetail.testing.builders import full
from dovetail.testing.invariants import check_schedule
from dovetail_lab.markthub.arrays import arrays_of
from dovetail_lab.markthub.borrowing import simulate_borrowing
from dovetail_lab.markthub.borrowing_arrays import Outcome
from dovetail_lab.markthub.mrq_aware import MrqAware
from dovetail_lab.published.markthub import markthub, markthub_machine

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

    def kernel(self) -> Outcome:
        """The compiled one; one entry a job in file order."""
        arrays = arrays_of(
            prepare(self.work, self.cluster, need_truth=True),
            self.cluster,
            self.policy,
            self.rates,
            self.options,
        )
        assert arrays is not None
        return simulate_borrowing(arrays.jobs, arrays.machine, arrays.costs, arrays.how)


def of_record(record: Record) -> list[object]:
    """All that is compared of a job: exact floats, and the GPUs that it starts on, its own and borrowed."""
    first = record.earlier[0].allocation if record.earlier else record.allocation
    assert first is not None
    own = [(n, sum(1 << d for d in part.devices)) for part in first.parts for n in bits(part.nodes)]
    lent = [(donor.client, donor.donor, 1 << donor.device) for donor in first.donors]
    return [record.start, record.end, record.remote_gpus, record.migrations, sorted(own), sorted(lent)]


def of_outcome(outcome: Outcome, j: int, nodes: int) -> list[object]:
    """The same of what the kernel says of job ``j``, which runs on so many nodes."""
    at = slice(outcome.first_node[j], outcome.first_node[j] + nodes)
    lent = slice(outcome.first_lent[j], outcome.first_lent[j] + outcome.borrowed[j])
    columns = (outcome.client[lent], outcome.donor[lent], outcome.gpu[lent])
    own = zip(outcome.node[at].tolist(), outcome.mask[at].tolist(), strict=True)
    made = outcome.moves.job[: outcome.moves.made[0]]
    return [
        outcome.start[j],
        outcome.end[j],
        outcome.borrowed[j],
        int((made == j).sum()),
        sorted(own),
        sorted(zip(*(column.tolist() for column in columns), strict=True)),
    ]


def assert_same(pair: Pair) -> Result:
    """The two results, job by job; returns the engine's."""
    slow, fast = pair.engine(), pair.kernel()
    prepared = prepare(pair.work, pair.cluster, need_truth=True)
    places = {job.id: j for j, job in enumerate(prepared.jobs)}
    assert len(places) == len(slow.records) == len(fast.start)
    for record in slow.records:
        j, nodes = places[record.job.id], record.job.choices[0].request.nodes
        assert of_record(record) == of_outcome(fast, j, nodes), record.job.id
    return slow


@pytest.mark.parametrize("block", range(3))
def test_the_kernel_does_what_the_engine_does(block: int) -> None:
    """Starts, ends, places, core ids and every move are the same, to the last bit; all rules are kept."""
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
