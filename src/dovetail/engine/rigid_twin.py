"""Rigid jobs on like nodes under FCFS or backfilling: the jobs as arrays, through a kernel, as a result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dovetail.engine.asked import Asked
from dovetail.engine.capacity import FreeCapacity, Layout
from dovetail.engine.twin_jobs import (
    Floats,
    Ints,
    JobColumns,
    bounds,
    by_rank,
    columns,
    lasting,
    modelled,
    plainly_asked,
    result_of,
)
from dovetail.model import CPU, Request, Result
from dovetail.model.tables import RecordTable
from dovetail.policies.conservative import Conservative
from dovetail.policies.fcfs import Fcfs

if TYPE_CHECKING:
    from dovetail.kernels.rigid_world import Schedule

__all__ = ["rigid_twin"]


def rigid_twin(asked: Asked) -> Result | None:
    """The result, or ``None`` where jobs, nodes, policy or options are others.

    Jobs have one choice, of whole nodes, known times, and depend on nothing; nodes are alike, of one CPU
    model, and have no devices; the policy is `Fcfs`, or `Easy` or `Conservative` with users' walltimes; times
    are perfectly known, at rate 1. Under `Conservative` every job has a bound above zero and none runs past
    it.
    """
    workload, cluster, policy = asked.workload, asked.cluster, asked.policy
    if not modelled(policy) or not plainly_asked(asked):
        return None
    whole = FreeCapacity(Layout(cluster))
    alike = whole.alike() and len(cluster.device_classes(CPU)) == 1
    jobs = columns(workload, lambda request: _is_whole(request, whole)) if alike else None
    if jobs is None:
        return None
    bound, limit = bounds(jobs, asked.options)
    if isinstance(policy, Conservative) and not lasting(jobs, bound, limit):
        return None
    found = _simulated(jobs, bound, limit, by_rank(workload, policy, bound), len(cluster), policy)
    records = RecordTable(
        workload.jobs,
        np.argsort(jobs.place, kind="stable"),
        jobs.seconds,
        found.start,
        found.end,
        found.promised,
        found.killed,
        found.first,
        found.runs,
        found.low,
        found.high,
        cluster.groups[0].node.cpus,
        cluster.device_classes(CPU)[0],
    )
    return result_of(asked, records, jobs, broken=int(found.broken), by_overrun=int(found.by_overrun))


def _is_whole(request: Request, whole: FreeCapacity) -> bool:
    return not request.devices and whole.takes_whole_nodes(request)


def _simulated(
    jobs: JobColumns, bound: Floats, limit: Floats, ranked: Ints, nodes: int, policy: object
) -> Schedule:
    """What the policy's kernel makes of the jobs."""
    from dovetail.kernels.rigid_world import Rigid  # numba takes its time: load it where it is used

    rigid = Rigid(jobs.submit, jobs.nodes, jobs.seconds, bound, limit, ranked)
    if isinstance(policy, Conservative):
        from dovetail.kernels.conservative import simulate_conservative

        return simulate_conservative(rigid, nodes)
    from dovetail.kernels.rigid import EASY, FCFS, simulate_rigid

    if isinstance(policy, Fcfs):
        return simulate_rigid(rigid, nodes, FCFS, policy.skip)
    return simulate_rigid(rigid, nodes, EASY, 0)
