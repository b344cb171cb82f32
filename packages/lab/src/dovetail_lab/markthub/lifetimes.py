"""When jobs on borrowed GPUs start and end under several policies: columns, no records.

For sweeps of thousands of simulations, of which only a few numbers are kept: jobs and machine are made into
arrays once, and the compiled simulation runs on them under one policy after the other. Its outcome is that of
the engine, job by job, to the last bit; what it does not model the engine simulates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail import api
from dovetail.driver.prepare import prepare_workload
from dovetail.model import Cluster, Job, Truth, Workload
from dovetail.model import remote_times as times
from dovetail.plugins import load_policy, load_rates
from dovetail.policies.fcfs import Fcfs
from dovetail.rates.communication import with_communication
from dovetail_lab.markthub.borrowing import simulate_borrowing
from dovetail_lab.markthub.borrowing_arrays import (
    MOST_DEVICES,
    Borrowing,
    Columns,
    Floats,
    Ints,
    Machine,
    Row,
    costs_of,
    machine_of,
    row_of,
    rows_to_columns,
)
from dovetail_lab.markthub.mrq_aware import MrqAware
from dovetail_remote.policies.mrq import Mrq
from dovetail_remote.policies.rq import Rq
from dovetail_remote.rates import RemoteGpu


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """One policy's schedule, in order of the jobs, in seconds.

    ``gpus`` are those that a job requests in all, ``borrowed`` those of other nodes when it starts,
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
    def lifetime_seconds(self) -> Floats:
        """From submission to end, by job."""
        return self.end - self.submit

    @property
    def held_share(self) -> float:
        """The share of all GPU seconds from the first submission to the last end that jobs held."""
        span = float(self.end.max() - self.submit.min())
        return float((self.gpus * (self.end - self.start)).sum()) / (self.offered * span)


def simulate_lifetimes(
    workload: Workload, policies: Sequence[str], *, cluster: Cluster | None = None, rates: str = "remote_gpu"
) -> Iterator[Lifetimes]:
    """Simulate jobs that communicate under each policy, on the cluster or the machine that they name.

    Raises `InputError`, as `api.simulate` does.
    """
    # Made once for all policies, since the jobs are the same.
    machine = cluster or workload.machine
    arrays: tuple[Columns, Machine] | None = None
    for policy in policies:
        how, costs = None, None
        if machine is not None:
            chosen = load_policy(policy).policy
            work, nodes, model = with_communication(workload, machine, chosen, load_rates(rates))
            if isinstance(model, RemoteGpu):
                how, costs = options_of(chosen, model), model.constants
                if how is not None and arrays is None:
                    arrays = arrays_of(prepare_workload(work, nodes, need_truth=True), nodes, model)
        # Policies and jobs that the kernel does not model go through the simulator itself.
        if how is None or costs is None or arrays is None:
            yield _in_full(workload, policy, cluster, rates)
            continue
        jobs, gpus = arrays
        found = simulate_borrowing(jobs, gpus, costs_of(costs), how)
        yield Lifetimes(
            policy,
            jobs.submit,
            found.starts,
            found.ends,
            jobs.nodes * jobs.gpus,
            found.borrowed,
            int(found.moves.sum()),
            sum(int(mask).bit_count() for mask in gpus.gpus),
        )


def _in_full(workload: Workload, policy: str, cluster: Cluster | None, rates: str) -> Lifetimes:
    result = api.simulate_result(workload, policy=policy, cluster=cluster, rates=rates, compiled="off")
    requests = [record.job.choices[0].request for record in result.records]
    return Lifetimes(
        policy,
        np.array([record.job.submit_time for record in result.records]),
        np.array([record.start for record in result.records], np.float64),
        np.array([record.end for record in result.records], np.float64),
        np.array([request.nodes * int(request.gpus) for request in requests]),
        np.array([record.remote_gpus for record in result.records]),
        sum(record.migrations for record in result.records),
        sum(len(node.devices) for node in result.cluster.nodes),
    )


def options_of(policy: object, rates: RemoteGpu) -> Borrowing | None:
    """The policy's options as the kernel takes them; a class of a user's own is nothing it knows."""
    recorded, per_gpu = rates.recorded == "yes", rates.processes == "gpu"
    # By exact type: a subclass may decide anything.
    if type(policy) is Fcfs and policy.placement == "pack":
        return Borrowing(False, False, 0, policy.skip, recorded, per_gpu, 0)
    if type(policy) is Rq:
        return Borrowing(True, False, policy.local, policy.skip, recorded, per_gpu, 0)
    if type(policy) in (Mrq, MrqAware) and not policy.held:  # type: ignore[attr-defined]
        looks = policy.looks if isinstance(policy, MrqAware) else 0
        return Borrowing(True, True, policy.local, policy.skip, recorded, per_gpu, looks)  # type: ignore[attr-defined]
    return None


def arrays_of(workload: Workload, cluster: Cluster, rates: RemoteGpu) -> tuple[Columns, Machine] | None:
    """Jobs and nodes of a prepared workload; ``None`` where the kernel does not model something. O(jobs)."""
    # A node's cores and devices have to fit into masks; and all have to be there.
    if cluster.gone or any(max(len(n.devices), n.cpus) > MOST_DEVICES for n in cluster.nodes):
        return None
    kind = _kind_of_all(workload.jobs, cluster)
    rows = None if kind is None else _job_rows(workload.jobs, workload.truth, rates)
    if kind is None or rows is None:
        return None
    return rows_to_columns(rows), machine_of(cluster, rates.constants, kind)


def _kind_of_all(jobs: Sequence[Job], cluster: Cluster) -> str | None:
    """The kind of which all jobs want whole devices, all of one class.

    ``None`` too where a job can run in several ways, or requests anything special.
    """
    kinds: set[str] = set()
    for job in jobs:
        if len(job.choices) != 1 or job.communication is None or job.walltime is not None:
            return None
        if job.priority or job.depends or job.retries or job.throttles or job.foreign:
            return None
        choice = job.choices[0]
        request = choice.request
        if request.cpus < 0 or request.partition or request.models or len(request.devices) != 1:
            return None
        kind, count = request.devices[0]
        if count < 1 or count != int(count) or choice.implementation.kind != kind:
            return None
        kinds.add(kind)
    # Devices of several classes would need the simulator's matching of models.
    found = kinds.pop() if len(kinds) == 1 else None
    return found if found is not None and len(cluster.device_classes(found)) == 1 else None


def _job_rows(jobs: Sequence[Job], truth: Truth, rates: RemoteGpu) -> list[Row] | None:
    """The jobs; ``None`` where one takes another time alone than its communication does."""
    rows = []
    for job in jobs:
        assert job.communication is not None
        choice = job.choices[0]
        base = times.seconds_alone(rates.constants, job.communication)
        if base <= 0 or truth.seconds(job, choice.implementation, choice.request) != base:
            return None
        rows.append(row_of(job, choice.request, job.communication, base, choice.request.cpus))
    return rows
