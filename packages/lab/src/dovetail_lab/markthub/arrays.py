"""What a compiled simulation of borrowed GPUs takes, where it models every option that is asked for.

`dovetail_lab.markthub.borrowing` runs gangs under ``fcfs``, ``rq``, ``mrq`` and ``mrq-aware`` with the rates
of borrowed GPUs; its outcome is that of the engine, job by job, to the last bit. Whatever it does not model
(`arrays_of` says so with ``None``) the engine simulates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dovetail.engine.simulation.request import SimulationOptions
from dovetail.interfaces import RateModel
from dovetail.model import Cluster, DeviceClass, Job, Truth, Workload
from dovetail.model import remote_times as times
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.mrq import Mrq
from dovetail.policies.rq import Rq
from dovetail.rates.remote_gpu import RemoteGpu
from dovetail_lab.markthub.borrowing_arrays import Borrowing, Columns, Machine, Row, columns
from dovetail_lab.markthub.mrq_aware import MrqAware
from dovetail_lab.markthub.remote_arrays import MOST_DEVICES, costs_array, machine_of, row_of

__all__ = ["Arrays", "arrays_of", "under"]


@dataclass(frozen=True, slots=True)
class Arrays:
    """Everything that a compiled simulation takes; the workload as it can run on the cluster."""

    workload: Workload
    cluster: Cluster
    jobs: Columns
    machine: Machine
    costs: npt.NDArray[np.float64]
    how: Borrowing
    device: DeviceClass


def arrays_of(
    workload: Workload,
    cluster: Cluster,
    policy: object,
    rates: RateModel | None,
    options: SimulationOptions,
) -> Arrays | None:
    """The arrays, of a prepared workload; ``None`` where the kernel does not model something. O(jobs)."""
    if type(rates) is not RemoteGpu or options.default_walltime != "actual" or options.validate:
        return None
    how = _how(policy, rates)
    if how is None or not _countable(cluster):
        return None
    device = _device_of_all(workload.jobs, cluster)
    rows = None if device is None else _rows(workload.jobs, workload.truth, rates)
    if device is None or rows is None:
        return None
    machine = machine_of(cluster, rates.constants, device.kind)
    return Arrays(workload, cluster, columns(rows), machine, costs_array(rates.constants), how, device)


def under(arrays: Arrays, policy: object, rates: RateModel | None) -> Arrays | None:
    """The same jobs and machine under another policy, with rates of the same constants. O(1)."""
    how = _how(policy, rates) if type(rates) is RemoteGpu else None
    return None if how is None else replace(arrays, how=how)


def _how(policy: object, rates: RemoteGpu) -> Borrowing | None:
    """The policy's options as the kernel takes them; a class of a user's own is nothing it knows."""
    recorded, per_gpu = rates.recorded == "yes", rates.processes == "gpu"
    if type(policy) is Fcfs and policy.placement == "pack":
        return Borrowing(False, False, 0, policy.skip, recorded, per_gpu, 0)
    if type(policy) is Rq:
        return Borrowing(True, False, policy.local, policy.skip, recorded, per_gpu, 0)
    if type(policy) is Mrq and not policy.held:
        return Borrowing(True, True, policy.local, policy.skip, recorded, per_gpu, 0)
    if type(policy) is MrqAware and not policy.held:
        return Borrowing(True, True, policy.local, policy.skip, recorded, per_gpu, policy.looks)
    return None


def _countable(cluster: Cluster) -> bool:
    """Whether a node's cores and devices fit into masks; and all are there."""
    return not cluster.gone and all(
        len(node.devices) <= MOST_DEVICES and node.cpus <= MOST_DEVICES for node in cluster.nodes
    )


def _device_of_all(jobs: Sequence[Job], cluster: Cluster) -> DeviceClass | None:
    """The class of which all jobs want whole devices, there being no other of its kind.

    ``None`` too where a job can run in several ways, or asks for anything special.
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
    classes = cluster.device_classes(kinds.pop()) if len(kinds) == 1 else ()
    return classes[0] if len(classes) == 1 else None


def _rows(jobs: Sequence[Job], truth: Truth, rates: RemoteGpu) -> list[Row] | None:
    """The jobs; ``None`` where one takes another time alone than its communication says."""
    rows = []
    for job in jobs:
        assert job.communication is not None
        choice = job.choices[0]
        base = times.alone(rates.constants, job.communication)
        if base <= 0 or truth.seconds(job, choice.implementation, choice.request) != base:
            return None
        rows.append(row_of(job, choice.request, job.communication, base, choice.request.cpus))
    return rows
