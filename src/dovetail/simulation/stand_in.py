"""The compiled stand-in: FCFS and backfilling of rigid jobs on like nodes, in one call instead of the engine.

It takes the request of a simulation and returns its result, or why it does not model some of it: then the
engine simulates. What it returns is what the engine would have returned, job by job, but for the
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
from dovetail.files.arrays import distinct
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
    bit_indices,
)
from dovetail.model.tables import RecordTable
from dovetail.native import rigid
from dovetail.native.library import load_library
from dovetail.policies.conservative import Conservative
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.policies.parts.orders import ORDERS
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.request import NotModelled, SimulationOptions, SimulationRequest

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


def stand_in(wanted: SimulationRequest) -> Result | NotModelled:
    """The result; where jobs, nodes, policy or options are others, or nothing is compiled here, why not.

    Jobs have one choice, known times, and depend on nothing; they request CPUs or whole devices. Nodes are
    alike, of one CPU model, with devices of one class or none, and named from the beginning, unless all jobs
    take whole ones. The policy is `Fcfs`, or `Easy` or `Conservative` with users' walltimes; times are
    perfectly known, at rate 1. Under `Conservative` every job has a bound above zero and none runs past it.
    """
    workload, cluster, policy = wanted.workload, wanted.cluster, wanted.policy
    why = _find_unmodelled(wanted)
    if why:
        return NotModelled(why)
    assert isinstance(policy, Fcfs | Easy | Conservative)
    layout = Layout(cluster, policy.placement)
    if len(layout.full) != 1 or len(cluster.device_classes(CPU)) > 1:
        return NotModelled("nodes are not alike")
    full = next(iter(layout.full))
    classes = {(device.kind, device.model, device.memory) for device in cluster.groups[0].node.devices}
    if len(classes) > 1 or len(layout.states[full].devices) > MOST_DEVICES:
        return NotModelled(f"nodes have devices of several classes, or more than {MOST_DEVICES}")
    if any(device.links for device in cluster.groups[0].node.devices):
        return NotModelled("some devices are joined")
    jobs = _make_columns(workload, lambda request: _whole_share(layout, request, full) is not None)
    if isinstance(jobs, NotModelled):
        return jobs
    bound, limit = _compute_bounds(jobs, wanted.options)
    # Under conservative an overrun moves every promise, which the compiled one does not model.
    if isinstance(policy, Conservative) and not _are_promises_kept(jobs, bound, limit):
        return NotModelled("under conservative some job has a bound of zero or none, or runs past it")
    counted = _takes_whole_nodes(workload, layout)
    # Then the engine would begin by counting nodes and name them later: other nodes than the twin's.
    if not counted and _counted_first(workload, layout):
        return NotModelled(
            "only the jobs of the first instant take whole nodes"
        )  # the engine names nodes later
    found = _simulate_jobs(wanted, jobs, layout, full, bound, limit, counted=counted)
    records = (
        _whole_records(wanted, jobs, found) if counted else _make_records(wanted, jobs, layout, full, found)
    )
    if wanted.options.progress is not None:
        wanted.options.progress(len(records), len(records))
    return _make_result(wanted, records, jobs, found)


# ------------------------------------------------------------------------------------------ what is modelled


def _find_unmodelled(wanted: SimulationRequest) -> str:
    """What of policy, options, times or machine is not modelled; empty: nothing."""
    policy, workload = wanted.policy, wanted.workload
    if type(policy) not in (Fcfs, Easy, Conservative):
        return "only fcfs, easy and conservative are compiled"
    if getattr(policy, "walltime", "user") != "user":
        return "walltime=learned is not compiled"
    # Another truth than the workload's means that predictions differ from what happens.
    if type(wanted.runtimes) is not PerfectModel or wanted.runtimes.truth is not workload.truth:
        return "run times are predicted from a history"
    if wanted.rates is not None or wanted.forecast is not None:
        return "jobs slow each other down by a rate model"
    if wanted.options.validate or wanted.options.keep_considered:
        return "some job may run in several ways"
    if wanted.cluster.gone:
        return "nodes are gone"
    if workload.follows:
        return "jobs are submitted some time after others have ended"
    if not workload.jobs:
        return "there are no jobs"
    return "" if load_library() is not None else "no C compiler was at hand when the package was built"


def _distinct_requests(workload: Workload) -> set[Request]:
    table = workload.table
    if table is not None:
        return {choices[0].request for _, choices in table.forms}
    return {job.choices[0].request for job in workload.jobs}


def _takes_whole_nodes(workload: Workload, layout: Layout) -> bool:
    """Whether every job takes whole nodes without devices: then the engine counts nodes."""
    free = FreeCapacity(layout)
    whole = free.takes_whole_nodes
    return free.has_like_nodes() and all(
        not requests.devices and whole(requests) for requests in _distinct_requests(workload)
    )


def _counted_first(workload: Workload, layout: Layout) -> bool:
    """Whether all jobs of the first instant take whole nodes without devices, which are not named then."""
    free = FreeCapacity(layout)
    first = takewhile(lambda job: job.submit_time <= workload.jobs[0].submit_time, workload.jobs)
    return free.has_like_nodes() and all(free.takes_whole_nodes(job.choices[0].request) for job in first)


def _whole_share(layout: Layout, request: Request, full: int) -> Share | None:
    """What an idle node gives, if that is CPUs or whole devices; else ``None``."""
    fits = layout.fits[request]
    fit = fits[full] if full in fits else layout.fit_state(request, full)
    if fit is None or fit.share.units != FRACTION_UNITS or not (fit.share.cpus or fit.share.devices):
        return None
    return fit.share


# -------------------------------------------------------------------------------------------- jobs as columns


def _make_columns(workload: Workload, suits: Callable[[Request], bool]) -> _Jobs | NotModelled:
    """The jobs as columns, O(jobs).

    `NotModelled` where any depends on another, may be tried again, is throttled, has several choices, takes
    an unknown time, or requests what does not suit.
    """
    table = workload.table
    if table is not None:
        if not all(suits(request) for request in _distinct_requests(workload)):
            return NotModelled("jobs take shares of devices, or nothing of a node")
        if not np.isfinite(table.seconds).all():
            return NotModelled("some job takes an unknown time")
        return _Jobs(table.submit, table.nodes, table.seconds, table.walltime, table.place, table.times)
    known: dict[Request, bool] = {}
    seconds: dict[JobId, Seconds] = {}
    for job in workload.jobs:
        why = _unlike_job(job, suits, known)
        if why:
            return NotModelled(f"job {job.id} {why}")
        choice = job.choices[0]
        took = workload.truth.seconds(job, choice.implementation, choice.request)
        if took is None or not isfinite(took):
            return NotModelled(f"job {job.id} takes an unknown time")
        seconds[job.id] = took
    # Ids that are used twice would share a truth here; the engine refuses them with a clear error.
    if len(seconds) < len(workload.jobs):
        return NotModelled("an id is used twice")  # which the engine refuses
    return _Jobs(
        np.array([job.submit_time for job in workload.jobs], float),
        np.array([job.choices[0].request.nodes for job in workload.jobs], np.int64),
        np.array(list(seconds.values()), float),
        np.array([job.walltime for job in workload.jobs], float),
        np.array([job.index for job in workload.jobs], np.int64),
        seconds,
    )


def _unlike_job(job: Job, suits: Callable[[Request], bool], known: dict[Request, bool]) -> str:
    """What of a job is not modelled; empty: nothing. ``known``: requests that suit, or do not."""
    if len(job.choices) != 1:
        return "has several implementations or node counts"
    if job.depends or job.retries or job.throttles or job.sizing.auto:
        return "has dependencies, retries, a limit or a learned size"
    if job.begin is not None:
        return "may not begin before a time of its own"
    request = job.choices[0].request
    if request not in known:
        known[request] = suits(request)
    return "" if known[request] else "takes a share of a device, or nothing of a node"


def _compute_bounds(jobs: _Jobs, options: SimulationOptions) -> tuple[Floats, Floats]:
    """What is known beforehand of each run time, and after how long each job is ended."""
    walltime, default = jobs.walltime, options.default_walltime
    missing = np.isnan(walltime)
    bound = np.where(missing, jobs.seconds if isinstance(default, str) else default, walltime)
    if options.overrun != "kill":
        return bound, np.full(len(bound), inf)
    return bound, np.where(missing, inf if isinstance(default, str) else default, walltime)


def _are_promises_kept(jobs: _Jobs, bound: Floats, limit: Floats) -> bool:
    """Whether every promise can be kept: all bounds are above zero and finite, no job runs past its own."""
    ends = np.minimum(jobs.seconds, limit)
    return bool((bound > 0).all() and np.isfinite(bound).all() and (ends <= bound).all())


def _by_rank(workload: Workload, policy: object, bound: Floats) -> Ints:
    """The jobs in the order of the queue."""
    key, bounded = ORDERS[policy.order if isinstance(policy, (Easy, Conservative)) else "fcfs"]
    table = workload.table
    # The file's order is the order of arrival, and nothing else ranks: no keys need to be made.
    if table is not None and key is ORDERS["fcfs"].key:
        return np.arange(len(bound))  # jobs of a table have no priorities
    jobs = workload.jobs if table is None else table.iterate_fleeting()
    if bounded:
        keys = [key(job, limit) for job, limit in zip(jobs, bound.tolist(), strict=True)]
    else:
        keys = [key(job) for job in jobs]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def _simulate_jobs(
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
        shares = [_whole_share(layout, job.choices[0].request, full) for job in workload.jobs]
        requests = [(s.cpus, len(s.devices), s.memory if memory else 0) for s in shares if s is not None]
        cpus, devices, room = np.array(requests, np.int64).T
    sizes = np.zeros(len(bound), np.int64) if room is None else room
    line = np.zeros(len(bound), np.int64)
    for column in (jobs.nodes, cpus, devices, sizes):  # rows at once take twenty times as long
        values, place = distinct(column)
        line = distinct(line * len(values) + place)[1]
    ranked = _by_rank(workload, policy, bound)
    return rigid.simulate_rigid(
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


def _make_records(
    wanted: SimulationRequest, jobs: _Jobs, layout: Layout, full: int, found: rigid.Schedule
) -> list[Record]:
    """The records in file order."""
    devices: dict[str, DeviceClass] = {}
    allocations = _make_allocations(wanted, layout, full, found)
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


def _make_allocations(
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
        share = _whole_share(layout, request, full)
        assert share is not None
        masks: dict[int, int] = {}  # the nodes that give the same devices
        for at in range(first[event], first[event + 1]):
            masks[devices[at]] = masks.get(devices[at], 0) | 1 << node[at]
        parts = (
            Part(mask, share.cpus, tuple(bit_indices(d)), share.units, share.memory)
            for d, mask in masks.items()
        )
        allocation = Allocation(request, tuple(parts))
        named = cores.assign_cores(allocation)
        allocations[event] = allocation if named is EMPTY else replace(allocation, cores=named)
    return [allocations[place] for place in range(len(jobs))]


def _make_result(
    wanted: SimulationRequest, records: Sequence[Record], jobs: _Jobs, found: rigid.Schedule
) -> Result:
    """The records with the request."""
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
