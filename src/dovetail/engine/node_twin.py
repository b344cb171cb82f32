"""Jobs that share like nodes, with devices perhaps, under FCFS or backfilling: through a kernel."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from dovetail.engine.asked import Asked
from dovetail.engine.capacity import UNLIMITED, FreeCapacity, Layout, Share
from dovetail.engine.cores import CoreBook
from dovetail.engine.twin_jobs import (
    Floats,
    JobColumns,
    bounds,
    by_rank,
    columns,
    lasting,
    modelled,
    plainly_asked,
    result_of,
)
from dovetail.model import (
    CPU,
    EMPTY,
    FRACTION_UNITS,
    Allocation,
    DeviceClass,
    Part,
    Prediction,
    Record,
    Request,
    Result,
    State,
    Workload,
    bits,
)
from dovetail.policies.conservative import Conservative
from dovetail.policies.fcfs import Fcfs

if TYPE_CHECKING:
    from dovetail.kernels.like_nodes import Placed

__all__ = ["node_twin"]

MOST_DEVICES = 62  # of a node: bits of a signed word


def node_twin(asked: Asked) -> Result | None:
    """The result, or ``None`` where jobs, nodes, policy or options are others.

    Jobs have one choice, known times, and depend on nothing; they ask for CPUs or whole devices. Nodes are
    alike, of one CPU model, with devices of one class or none, and named from the beginning. The policy is
    `Fcfs`, or `Easy` or `Conservative` with users' walltimes; times are perfectly known, at rate 1. Under
    `Conservative` every job has a bound above zero and none runs past it.
    """
    workload, cluster, policy = asked.workload, asked.cluster, asked.policy
    if not modelled(policy) or not plainly_asked(asked):
        return None
    layout = Layout(cluster, policy.placement)
    if len(layout.full) != 1 or len(cluster.device_classes(CPU)) > 1:
        return None
    full = next(iter(layout.full))
    classes = {(device.kind, device.model) for device in cluster.groups[0].node.devices}
    if len(classes) > 1 or len(layout.states[full].devices) > MOST_DEVICES:
        return None
    jobs = columns(workload, lambda request: _share(layout, request, full) is not None)
    if jobs is None:
        return None
    bound, limit = bounds(jobs, asked.options)
    if _counted_first(workload, layout):
        return None
    if isinstance(policy, Conservative) and not lasting(jobs, bound, limit):
        return None
    found = _simulated(asked, jobs, layout, full, bound, limit)
    records = _records(asked, jobs, layout, full, found)
    return result_of(asked, records, jobs, broken=int(found.broken), by_overrun=int(found.by_overrun))


def _share(layout: Layout, request: Request, full: int) -> Share | None:
    """What an idle node gives, if that is CPUs or whole devices; else ``None``."""
    fits = layout.fits[request]
    fit = fits[full] if full in fits else layout.fit_state(request, full)
    if fit is None or fit.share.units != FRACTION_UNITS or not (fit.share.cpus or fit.share.devices):
        return None
    return fit.share


def _counted_first(workload: Workload, layout: Layout) -> bool:
    """Whether all jobs of the first instant take whole nodes without devices, which are not named then."""
    free = FreeCapacity(layout)
    first = takewhile(lambda job: job.submit_time <= workload.jobs[0].submit_time, workload.jobs)
    return free.alike() and all(free.takes_whole_nodes(job.choices[0].request) for job in first)


def _simulated(
    asked: Asked, jobs: JobColumns, layout: Layout, full: int, bound: Floats, limit: Floats
) -> Placed:
    """What the kernel makes of the jobs."""
    # numba takes its time: load it where it is used
    from dovetail.kernels.like_nodes import FIRST, PACK, SPREAD, LikeNodes, PerNode
    from dovetail.kernels.rigid_world import Rigid

    state = layout.states[full]
    counted = state.memory != UNLIMITED
    shares = [_share(layout, job.choices[0].request, full) for job in asked.workload.jobs]
    columns_of = [(s.cpus, len(s.devices), s.memory if counted else 0) for s in shares if s is not None]
    cpus, devices, memory = np.array(columns_of, np.int64).T.copy()
    placement = {"pack": PACK, "spread": SPREAD, "first": FIRST}[layout.placement]
    machine = LikeNodes(
        len(asked.cluster), state.cpus, len(state.devices), state.memory if counted else 0, placement
    )
    policy = asked.policy
    ranked = by_rank(asked.workload, policy, bound)
    rigid = Rigid(jobs.submit, jobs.nodes, jobs.seconds, bound, limit, ranked)
    per_node = PerNode(cpus, devices, memory)
    if isinstance(policy, Conservative):
        from dovetail.kernels.conservative_nodes import simulate_conservative_nodes

        return simulate_conservative_nodes(rigid, per_node, machine)
    from dovetail.kernels.easy_nodes import EASY, FCFS, simulate_nodes

    alike = np.unique(np.stack([jobs.nodes, *per_node]), axis=1, return_inverse=True)[1].ravel()
    if isinstance(policy, Fcfs):
        return simulate_nodes(rigid, per_node, alike, machine, FCFS, policy.skip)
    return simulate_nodes(rigid, per_node, alike, machine, EASY, 0)


def _records(asked: Asked, jobs: JobColumns, layout: Layout, full: int, found: Placed) -> list[Record]:
    """The records in file order."""
    devices: dict[str, DeviceClass] = {}
    allocations = _allocations(asked, layout, full, found)
    made = []
    for place in np.argsort(jobs.place, kind="stable").tolist():
        job = asked.workload.jobs[place]
        implementation = job.choices[0].implementation
        if implementation.kind not in devices:
            devices[implementation.kind] = asked.cluster.device_classes(implementation.kind)[0]
        killed, promised = bool(found.killed[place]), float(found.promised[place])
        seconds = float(jobs.seconds[place])
        made.append(
            Record(
                job,
                State.TIMEOUT if killed else State.COMPLETED,
                implementation,
                allocations[place],
                float(found.start[place]),
                float(found.end[place]),
                Prediction(seconds, seconds, 1, "true time", seconds),
                exit_code=None if killed else 0,
                promised=promised if promised == promised else None,
                device_class=devices[implementation.kind],
                attempts=1,
            )
        )
    return made


def _allocations(asked: Asked, layout: Layout, full: int, found: Placed) -> list[Allocation]:
    """What each job held, by submission; core ids are given out as jobs start and end."""
    jobs = asked.workload.jobs
    cores = CoreBook(asked.cluster)
    first, node, devices = found.first.tolist(), found.node.tolist(), found.devices.tolist()
    allocations: dict[int, Allocation] = {}
    for event in found.events.tolist():
        if event < 0:
            cores.release(allocations[~event])
            continue
        request = jobs[event].choices[0].request
        share = _share(layout, request, full)
        assert share is not None
        masks: dict[int, int] = {}  # the nodes that give the same devices
        for at in range(first[event], first[event + 1]):
            masks[devices[at]] = masks.get(devices[at], 0) | 1 << node[at]
        parts = (
            Part(mask, share.cpus, tuple(bits(d)), share.units, share.memory) for d, mask in masks.items()
        )
        allocation = Allocation(request, tuple(parts))
        named = cores.assign(allocation)
        allocations[event] = allocation if named is EMPTY else replace(allocation, cores=named)
    return [allocations[place] for place in range(len(jobs))]
