"""When jobs on borrowed GPUs start and end under several policies: columns, no records.

For sweeps of thousands of simulations, of which only a few numbers are kept: jobs and machine are made into
arrays once, and the compiled simulation runs on them under one policy after the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dovetail import api
from dovetail.engine.driver.prepare import prepare
from dovetail.engine.simulation.request import SimulationOptions
from dovetail.model import Cluster, Workload
from dovetail.plugins import load_policy, load_rates
from dovetail.rates.remote_gpu import with_communication
from dovetail_lab.markthub.arrays import Arrays, arrays_of, under
from dovetail_lab.markthub.borrowing import simulate_borrowing

__all__ = ["Lifetimes", "lifetimes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """One policy's schedule, in order of the jobs, in seconds.

    ``gpus`` are those that a job asks for in all, ``borrowed`` those of other nodes when it starts,
    ``migrations`` the GPUs of all jobs that moved home, ``offered`` the machine's.
    """

    policy: str
    submit: Floats
    start: Floats
    end: Floats
    gpus: Ints
    borrowed: Ints
    migrations: int
    offered: int

    @property
    def lifetime(self) -> Floats:
        """From submission to end, by job."""
        return self.end - self.submit

    @property
    def utilisation(self) -> float:
        """The share of all GPU seconds from the first submission to the last end that jobs held."""
        span = float(self.end.max() - self.submit.min())
        return float((self.gpus * (self.end - self.start)).sum()) / (self.offered * span)


def lifetimes(
    workload: Workload, policies: Sequence[str], *, cluster: Cluster | None = None, rates: str = "remote_gpu"
) -> Iterator[Lifetimes]:
    """Simulate jobs that communicate under each policy, on the cluster or the machine that they name.

    What the compiled simulation does not model takes the ordinary path, with the same outcome. Raises
    `InputError`, as `api.simulate` does.
    """
    machine = cluster or workload.machine
    arrays: Arrays | None = None
    for policy in policies:
        found = None if machine is None else _arrays(workload, machine, policy, rates, arrays)
        if found is None:
            yield _in_full(workload, policy, cluster, rates)
            continue
        arrays = found
        outcome = simulate_borrowing(arrays.jobs, arrays.machine, arrays.costs, arrays.how)
        yield Lifetimes(
            policy,
            arrays.jobs.submit,
            outcome.start,
            outcome.end,
            arrays.jobs.nodes * arrays.jobs.gpus,
            outcome.borrowed,
            int(outcome.moves.made[0]),
            sum(int(mask).bit_count() for mask in arrays.machine.gpus),
        )


def _arrays(
    workload: Workload, machine: Cluster, policy: str, rates: str, known: Arrays | None
) -> Arrays | None:
    """What the compiled simulation takes; ``known`` is the same for another policy."""
    chosen = load_policy(policy).policy
    work, cluster, model = with_communication(workload, machine, chosen, load_rates(rates))
    if known is None:
        return arrays_of(prepare(work, cluster, need_truth=True), cluster, chosen, model, SimulationOptions())
    return under(known, chosen, model)


def _in_full(workload: Workload, policy: str, cluster: Cluster | None, rates: str) -> Lifetimes:
    result = api.simulate_result(workload, policy=policy, cluster=cluster, rates=rates, compiled="off")
    asked = [record.job.choices[0].request for record in result.records]
    return Lifetimes(
        policy,
        np.array([record.job.submit_time for record in result.records]),
        np.array([record.start for record in result.records], np.float64),
        np.array([record.end for record in result.records], np.float64),
        np.array([request.nodes * int(request.gpus) for request in asked]),
        np.array([record.remote_gpus for record in result.records]),
        sum(record.migrations for record in result.records),
        sum(len(node.devices) for node in result.cluster.nodes),
    )
