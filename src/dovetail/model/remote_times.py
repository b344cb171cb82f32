"""How long communication takes, on local and borrowed GPUs: Equations 1 to 12 of Markthub 2015.

Pure functions of a job's `Communication` and the constants (`RemoteCosts`). Seconds and bytes a second. The
compiled kernel of the study does the same operations in the same order, so that its floats are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from dovetail.model.cluster import Cluster
from dovetail.model.job import Communication, Implementation, Job, Request, Seconds
from dovetail.model.remote_costs import RemoteCosts
from dovetail.model.workload import Truth, Workload

__all__ = [
    "MEMORY",
    "after_helper",
    "any_communicates",
    "local_gpu",
    "network_seconds",
    "recording_seconds",
    "remote_gpu",
    "seconds_alone",
    "stall_seconds",
    "with_communication_times",
    "with_table_3",
]

MEMORY = 22 * 10**9
"""Bytes of memory of a node, where a cluster gives none and jobs have communication (Table 3)."""


def network_seconds(costs: RemoteCosts, job: Communication, bandwidth: float) -> Seconds:
    """Equation 10: between the job's nodes, at the bandwidth of its slowest process."""
    # Calls wait for the latency each, bytes for the bandwidth: neither hides the other (a synchronous model).
    return costs.network_latency * job.net_calls + job.net_bytes / bandwidth


def local_gpu(costs: RemoteCosts, job: Communication, bandwidth: float) -> Seconds:
    """Equation 12: with a GPU of the node."""
    return job.gpu_calls * costs.gpu_latency + job.gpu_bytes / bandwidth


def remote_gpu(costs: RemoteCosts, job: Communication, bandwidth: float) -> Seconds:
    """Equation 1: with a GPU of another node."""
    latency = costs.remote_latency + costs.network_latency
    return job.gpu_calls * latency + costs.remote_overhead * job.gpu_bytes / bandwidth


def recording_seconds(costs: RemoteCosts, job: Communication) -> Seconds:
    """Equation 3: what a remote GPU costs more where it may be moved later; all calls are recorded."""
    return costs.record_per_call * job.gpu_calls + costs.record_constant


def after_helper(costs: RemoteCosts, job: Communication) -> Seconds:
    """Equation 4: what a process's second and further GPUs cost more, once they have moved home."""
    return (
        costs.helper_per_byte * job.gpu_bytes + costs.helper_per_call * job.gpu_calls + costs.helper_constant
    )


def stall_seconds(costs: RemoteCosts, job: Communication, done: float, bandwidth: float) -> Seconds:
    """Equations 5 to 7: how long a GPU's move stops its job, of which the fraction ``done`` is behind it.

    ``bandwidth`` is that between client and donor. The memory in use is one region of at most
    ``active_memory`` bytes.
    """
    replay = costs.replay_per_call * (job.gpu_calls * done) + costs.replay_constant
    # Only what is active is copied: a program's whole traffic passes through the device, but does not stay
    # there.
    size = min(job.gpu_bytes, costs.active_memory)
    copy = 0.0
    if size > 0:
        # Small copies do not reach the full bandwidth: it grows with the size up to that of the bus.
        copy = size / min(size * costs.copy_bandwidth_per_byte, costs.copy_bandwidth)
    sync = copy + costs.sync_per_byte * size + costs.sync_constant
    fetch = (costs.remote_latency + costs.network_latency) + costs.remote_overhead * size / bandwidth
    return replay + sync + fetch


def seconds_alone(costs: RemoteCosts, job: Communication) -> Seconds:
    """Equation 9 for a job that has its nodes to itself and its GPUs at home, by Table 3's bandwidths."""
    gpu = local_gpu(costs, job, costs.gpu_bandwidth)
    return network_seconds(costs, job, costs.network_bandwidth) + gpu + job.other


def any_communicates(jobs: Sequence[Job]) -> bool:
    """Whether any job declares its communication."""
    # Not by type: an import of `tables` would close a circle.
    if hasattr(jobs, "forms"):
        # A `JobTable` holds rigid jobs alone.
        return False
    return any(job.communication is not None for job in jobs)


class _WithCommunication:
    """True times of a workload, with those of jobs whose communication determines how long they take."""

    def __init__(self, truth: Truth, costs: RemoteCosts) -> None:
        self._truth = truth
        self._costs = costs
        self._alone: dict[int, tuple[Communication, Seconds]] = {}  # by identity: they are read often

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds | None:
        """As given, else the time alone. O(1)."""
        found = self._truth.seconds(job, implementation, request)
        if found is None and job.communication is not None:
            known = self._alone.get(id(job.communication))
            if known is None:
                known = job.communication, seconds_alone(self._costs, job.communication)
                self._alone[id(job.communication)] = known
            return known[1]
        return found


_TIMED: WeakKeyDictionary[Workload, dict[RemoteCosts, Workload]] = WeakKeyDictionary()


def with_communication_times(workload: Workload, costs: RemoteCosts) -> Workload:
    """The workload, its jobs' times made of their communication where they give none."""
    if not any_communicates(workload.jobs):
        return workload
    # The same workload each time, so that what is worked out of its jobs is worked out once for all policies.
    known = _TIMED.setdefault(workload, {})
    if costs not in known:
        known[costs] = replace(workload, truth=_WithCommunication(workload.truth, costs))
    return known[costs]


_FILLED: WeakKeyDictionary[Cluster, Cluster] = WeakKeyDictionary()


def with_table_3(cluster: Cluster) -> Cluster:
    """The cluster, with Table 3's memory where it gives none."""
    if all(node.memory is not None for node in cluster.nodes):
        return cluster
    known = _FILLED.get(cluster)
    if known is None:
        nodes = tuple(replace(n, memory=MEMORY) if n.memory is None else n for n in cluster.nodes)
        known = _FILLED[cluster] = Cluster(nodes, cluster.label)
    return known
