"""The compiled stand-in: FCFS and backfilling of rigid jobs on like nodes, in one call instead of the engine.

It takes what a simulation was asked and returns its result, or ``None`` where it does not model some of it:
then the engine simulates. What it returns is what the engine would have returned, job by job, but for the
times of decisions; property tests hold it to that. The algorithms are in `dovetail.native`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from math import inf, isfinite
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.engine.capacity.cores import CoreBook
from dovetail.engine.capacity.free import UNLIMITED, FreeCapacity, Layout, Share
from dovetail.engine.simulation.request import SimulationOptions, SimulationRequest
from dovetail.model import (
    CPU,
    EMPTY,
    FRACTION_UNITS,
    Allocation,
    DeviceClass,
    Job,
    JobId,
    Part,
    Prediction,
    Record,
    Request,
    Result,
    Seconds,
    State,
    Workload,
    bits,
)
from dovetail.model.tables import RecordTable
from dovetail.native import rigid
from dovetail.native.library import library
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.parts.orders import ORDERS
from dovetail.runtimes.perfect import PerfectModel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_DEVICES = 62  # of a node: bits of a signed word


class _Jobs(NamedTuple):
    """Jobs by submission as columns, shape (jobs,); ``place`` is that in the file."""

    submit: Floats
    nodes: Ints
    seconds: Floats
    walltime: Floats
    place: Ints
    best: Mapping[JobId, Seconds]


def stand_in(wanted: SimulationRequest) -> Result | None:
    """The result, or ``None`` where jobs, nodes, policy or options are others, or nothing is compiled here.

    Jobs have one choice, known times, and depend on nothing; they ask for CPUs or whole devices. Nodes are
    alike, of one CPU model, with devices of one class or none, and named from the beginning, unless all jobs
    take whole ones. The policy is `Fcfs`, or `Easy` or `Conservative` with users' walltimes; times are
    perfectly known, at rate 1. Under `Conservative` every job has a bound above zero and none runs past it.
    """
    workload, cluster, policy = wanted.workload, wanted.cluster, wanted.policy
    if wanted.options.validate or not _plainly_asked(wanted):
        return None
    assert isinstance(policy, Fcfs | Easy | Conservative)
    if library() is None:
        return None
    layout = Layout(cluster, policy.placement)
    if len(layout.full) != 1 or len(cluster.device_classes(CPU)) > 1:
        return None
    full = next(iter(layout.full))
    classes = {(device.kind, device.model, device.memory) for device in cluster.groups[0].node.devices}
    if len(classes) > 1 or len(layout.states[full].devices) > MOST_DEVICES:
        return None
    jobs = _columns(workload, lambda request: _share(layout, request, full) is not None)
    if jobs is None:
        return None
    bound, limit = _bounds(jobs, wanted.options)
    if isinstance(policy, Conservative) and not _lasting(jobs, bound, limit):
        return None
    counted = _takes_whole_nodes(workload, layout)
    if not counted and _counted_first(workload, layout):
        return None  # the engine names nodes later
    found = _simulated(wanted, jobs, layout, full, bound, limit, counted=counted)
    records = _whole_records(wanted, jobs, found) if counted else _records(wanted, jobs, layout, full, found)
    if wanted.options.progress is not None:
        wanted.options.progress(len(records), len(records))
    return _result(wanted, records, jobs, found)


# ------------------------------------------------------------------------------------------ what is modelled


def _plainly_asked(wanted: SimulationRequest) -> bool:
    """Whether the policy is modelled, times are perfectly known, at rate 1, and no node is gone."""
    policy = wanted.policy
    modelled = type(policy) is Fcfs or (
        type(policy) in (Easy, Conservative) and getattr(policy, "walltime", None) == "user"
    )
    perfect = type(wanted.runtimes) is PerfectModel and wanted.runtimes.truth is wanted.workload.truth
    shared = wanted.rates is not None or wanted.forecast is not None
    special = shared or wanted.options.keep_considered or bool(wanted.cluster.gone)
    special = special or bool(wanted.workload.follows)
    return modelled and perfect and not special and bool(wanted.workload.jobs)


def _requests(workload: Workload) -> set[Request]:
    table = workload.table
    if table is not None:
        return {choices[0].request for _, choices in table.forms}
    return {job.choices[0].request for job in workload.jobs}


def _takes_whole_nodes(workload: Workload, layout: Layout) -> bool:
    """Whether every job takes whole nodes without devices: then the engine counts nodes."""
    free = FreeCapacity(layout)
    whole = free.takes_whole_nodes
    return free.alike() and all(not asks.devices and whole(asks) for asks in _requests(workload))


def _counted_first(workload: Workload, layout: Layout) -> bool:
    """Whether all jobs of the first instant take whole nodes without devices, which are not named then."""
    free = FreeCapacity(layout)
    first = takewhile(lambda job: job.submit_time <= workload.jobs[0].submit_time, workload.jobs)
    return free.alike() and all(free.takes_whole_nodes(job.choices[0].request) for job in first)


def _share(layout: Layout, request: Request, full: int) -> Share | None:
    """What an idle node gives, if that is CPUs or whole devices; else ``None``."""
    fits = layout.fits[request]
    fit = fits[full] if full in fits else layout.fit_state(request, full)
    if fit is None or fit.share.units != FRACTION_UNITS or not (fit.share.cpus or fit.share.devices):
        return None
    return fit.share


# -------------------------------------------------------------------------------------------- jobs as columns


def _columns(workload: Workload, suits: Callable[[Request], bool]) -> _Jobs | None:
    """The jobs as columns, O(jobs).

    ``None`` where any depends on another, may be tried again, is throttled, has several choices, takes nobody
    knows how long, or asks for what does not suit.
    """
    table = workload.table
    if table is not None:
        if not all(suits(request) for request in _requests(workload)) or not np.isfinite(table.seconds).all():
            return None
        return _Jobs(table.submit, table.nodes, table.seconds, table.walltime, table.place, table.times)
    known: dict[Request, bool] = {}
    seconds: dict[JobId, Seconds] = {}
    for job in workload.jobs:
        found = _seconds(job, workload, suits, known)
        if found is None:
            return None
        seconds[job.id] = found
    if len(seconds) < len(workload.jobs):
        return None  # an id was used twice, which the engine refuses
    return _Jobs(
        np.array([job.submit_time for job in workload.jobs], float),
        np.array([job.choices[0].request.nodes for job in workload.jobs], np.int64),
        np.array(list(seconds.values()), float),
        np.array([job.walltime for job in workload.jobs], float),
        np.array([job.index for job in workload.jobs], np.int64),
        seconds,
    )


def _seconds(
    job: Job, workload: Workload, suits: Callable[[Request], bool], known: dict[Request, bool]
) -> Seconds | None:
    """The true seconds of a job of this kind; ``None`` of any other."""
    if len(job.choices) != 1 or job.depends or job.retries or job.throttles or job.sizing.auto:
        return None
    if job.begin is not None:
        return None
    choice = job.choices[0]
    if choice.request not in known:
        known[choice.request] = suits(choice.request)
    seconds = workload.truth.seconds(job, choice.implementation, choice.request)
    return seconds if known[choice.request] and seconds is not None and isfinite(seconds) else None


def _bounds(jobs: _Jobs, options: SimulationOptions) -> tuple[Floats, Floats]:
    """What is known beforehand of each run time, and after how long each job is ended."""
    walltime, default = jobs.walltime, options.default_walltime
    missing = np.isnan(walltime)
    bound = np.where(missing, jobs.seconds if isinstance(default, str) else default, walltime)
    if options.overrun != "kill":
        return bound, np.full(len(bound), inf)
    return bound, np.where(missing, inf if isinstance(default, str) else default, walltime)


def _lasting(jobs: _Jobs, bound: Floats, limit: Floats) -> bool:
    """Whether every promise can be kept: all bounds are above zero and finite, nobody runs past them."""
    ends = np.minimum(jobs.seconds, limit)
    return bool((bound > 0).all() and np.isfinite(bound).all() and (ends <= bound).all())


def _by_rank(workload: Workload, policy: object, bound: Floats) -> Ints:
    """The jobs in the order of the queue."""
    key, bounded = ORDERS[policy.order if isinstance(policy, (Easy, Conservative)) else "fcfs"]
    table = workload.table
    if table is not None and key is ORDERS["fcfs"].key:
        return np.arange(len(bound))  # jobs of a table have no priorities
    jobs = workload.jobs if table is None else table.fleeting()
    if bounded:
        keys = [key(job, limit) for job, limit in zip(jobs, bound.tolist(), strict=True)]
    else:
        keys = [key(job) for job in jobs]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _simulated(
    wanted: SimulationRequest,
    jobs: _Jobs,
    layout: Layout,
    full: int,
    bound: Floats,
    limit: Floats,
    *,
    counted: bool,
) -> rigid.Schedule:
    """What the compiled simulation makes of the jobs."""
    workload, state, policy = wanted.workload, layout.states[full], wanted.policy
    memory = 0 if counted or state.memory == UNLIMITED else state.memory
    if counted:
        cpus, devices, room = np.full(len(bound), state.cpus), np.zeros(len(bound), np.int64), None
    else:
        shares = [_share(layout, job.choices[0].request, full) for job in workload.jobs]
        asks = [(s.cpus, len(s.devices), s.memory if memory else 0) for s in shares if s is not None]
        cpus, devices, room = np.array(asks, np.int64).T
    sizes = np.zeros(len(bound), np.int64) if room is None else room
    line = np.zeros(len(bound), np.int64)
    for asked in (jobs.nodes, cpus, devices, sizes):  # rows at once take twenty times as long
        values, place = np.unique(asked, return_inverse=True)
        line = np.unique(line * len(values) + place, return_inverse=True)[1]
    ranked = _by_rank(workload, policy, bound)
    return rigid.simulate(
        rigid.Columns(
            jobs.submit, jobs.seconds, bound, limit, jobs.nodes, cpus, devices, sizes, ranked, line
        ),
        rigid.Machine(
            len(wanted.cluster),
            state.cpus,
            0 if counted else len(state.devices),
            memory,
            layout.placement,
            counted,
        ),
        {Fcfs: "fcfs", Easy: "easy", Conservative: "conservative"}[type(policy)],
        policy.skip if isinstance(policy, Fcfs) else 0,
    )


# ---------------------------------------------------------------------------------------------------- records


def _whole_records(wanted: SimulationRequest, jobs: _Jobs, found: rigid.Schedule) -> RecordTable:
    """Columns of jobs that took whole nodes: of each the runs of neighbours, lowest first."""
    node, first = found.node, found.first
    begins = np.ones(len(node), np.bool_)
    begins[1:] = node[1:] != node[:-1] + 1
    begins[first[:-1]] = True
    low = np.flatnonzero(begins)
    high = np.append(low[1:], len(node))  # the place after each run
    runs_before = np.searchsorted(low, first)
    cpus = wanted.cluster.device_classes(CPU)[0]
    return RecordTable(
        wanted.workload.jobs,
        np.argsort(jobs.place, kind="stable"),
        jobs.seconds,
        found.start,
        found.end,
        found.promised,
        found.killed,
        runs_before[:-1],
        np.diff(runs_before),
        node[low].astype(np.int32),
        (node[high - 1] + 1).astype(np.int32),
        wanted.cluster.groups[0].node.cpus,
        cpus,
    )


def _records(
    wanted: SimulationRequest, jobs: _Jobs, layout: Layout, full: int, found: rigid.Schedule
) -> list[Record]:
    """The records in file order."""
    devices: dict[str, DeviceClass] = {}
    allocations = _allocations(wanted, layout, full, found)
    made = []
    for place in np.argsort(jobs.place, kind="stable").tolist():
        job = wanted.workload.jobs[place]
        implementation = job.choices[0].implementation
        if implementation.kind not in devices:
            devices[implementation.kind] = wanted.cluster.device_classes(implementation.kind)[0]
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


def _allocations(
    wanted: SimulationRequest, layout: Layout, full: int, found: rigid.Schedule
) -> list[Allocation]:
    """What each job held, by submission; core ids are given out as jobs start and end."""
    jobs = wanted.workload.jobs
    cores = CoreBook(wanted.cluster)
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


def _result(
    wanted: SimulationRequest, records: Sequence[Record], jobs: _Jobs, found: rigid.Schedule
) -> Result:
    """The records with what was asked."""
    workload, options = wanted.workload, wanted.options
    return Result(
        policy=options.policy_name or type(wanted.policy).__name__,
        options=options.policy_options,
        workload=workload.name,
        cluster=wanted.cluster,
        records=records,
        seed=options.seed,
        knowledge=options.knowledge,
        rejected=workload.rejected,
        skipped=workload.skipped,
        best=jobs.best,
        promises_broken=found.broken,
        broken_by_overrun=found.by_overrun,
        overrun=options.overrun,
        default_walltime=options.default_walltime if np.isnan(jobs.walltime).any() else None,
    )
