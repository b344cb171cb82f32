"""A whole simulation under ``fcfs``, ``rq`` or ``mrq`` with borrowed GPUs in one call, instead of the engine.

The result is the engine's, job by job, but for the times of decisions; property tests hold it to that. The
algorithm is `dovetail.native.borrowing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from dovetail.files.garbage import no_collections
from dovetail.model import (
    EMPTY,
    Allocation,
    Choice,
    Cluster,
    Donor,
    Job,
    Part,
    Prediction,
    Record,
    Result,
    Span,
    State,
    Workload,
    bit_indices,
)
from dovetail.model import remote_times as times
from dovetail.model.remote_costs import CONSTANTS, RemoteCosts
from dovetail.native import borrowing
from dovetail.native.library import load_library
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.request import NotModelled, SimulationRequest, best_times
from dovetail_remote.policies.mrq import Mrq
from dovetail_remote.policies.rq import Rq

MOST_BITS = 62
"""Devices of a node, and its cores: bits of a signed word."""
EMPTY_DONORS: tuple[Donor, ...] = ()


def simulate_compiled(
    wanted: SimulationRequest, costs: RemoteCosts, *, recorded: bool, per_gpu: bool
) -> Result | NotModelled:
    """The result under a rate model with these constants and options, or why the engine has to simulate."""
    rules = _policy_rules(wanted.policy, recorded, per_gpu)
    if isinstance(rules, NotModelled):
        return rules
    columns = _job_columns(wanted, costs)
    if isinstance(columns, NotModelled):
        return columns
    kind = wanted.workload.jobs[0].choices[0].implementation.kind
    constants = [float(getattr(costs, name)) for name in CONSTANTS]
    found = borrowing.simulate_borrowing(
        columns, _machine_arrays(wanted.cluster, costs, kind), constants, rules
    )
    with no_collections():  # half a million objects, all of which stay
        records = _Records(wanted, columns.base.tolist(), found).by_submission()
    if wanted.options.progress is not None:
        wanted.options.progress(len(records), len(records))
    options, workload = wanted.options, wanted.workload
    return Result(
        policy=options.policy_name or type(wanted.policy).__name__,
        options=options.policy_options,
        workload=workload.name,
        cluster=wanted.cluster,
        records=sorted(records, key=lambda record: record.job.index),
        seed=options.seed,
        knowledge=options.knowledge,
        rejected=workload.rejected,
        skipped=workload.skipped,
        best=best_times(workload),
        overrun=options.overrun,
        default_walltime=options.default_walltime,
    )


# ------------------------------------------------------------------------------------------ what is modelled


def _policy_rules(policy: object, recorded: bool, per_gpu: bool) -> borrowing.Rules | NotModelled:
    """The policy's options; those of a class of a user's own are not known."""
    if load_library() is None:
        return NotModelled("no C compiler was at hand when the package was built")
    if type(policy) is Fcfs:
        if policy.placement != "pack":
            return NotModelled(f"placement={policy.placement} of gangs that communicate has no compiled twin")
        return borrowing.Rules(False, False, 0, policy.skip, recorded, per_gpu)
    if type(policy) is Rq:
        return borrowing.Rules(True, False, policy.local, policy.skip, recorded, per_gpu)
    if type(policy) is Mrq and not policy.held:
        return borrowing.Rules(True, True, policy.local, policy.skip, recorded, per_gpu)
    return NotModelled("of jobs that communicate only fcfs, rq and mrq (without held) have a compiled twin")


def _job_columns(wanted: SimulationRequest, costs: RemoteCosts) -> borrowing.Columns | NotModelled:
    """Jobs by submission as arrays; why not, where one is of another kind. O(jobs)."""
    workload, cluster, options = wanted.workload, wanted.cluster, wanted.options
    if type(wanted.runtimes) is not PerfectModel or wanted.runtimes.truth is not workload.truth:
        return NotModelled("run times are predicted from a history")
    if options.validate or options.keep_considered or workload.follows or wanted.forecast is not None:
        return NotModelled("more is kept of each decision than a compiled simulation has")
    if cluster.gone or any(max(len(node.devices), node.cpus) > MOST_BITS for node in cluster.nodes):
        return NotModelled("nodes are gone, or have more than 62 cores or devices")
    if any(device.links for node in cluster.nodes for device in node.devices):
        return NotModelled("some devices are joined")
    if options.default_walltime != "actual":
        return NotModelled("jobs that communicate have a default walltime")
    known = _COLUMNS.setdefault(workload, {})
    if costs not in known:
        known[costs] = _columns_of(workload, costs)
    found = known[costs]
    if isinstance(found, NotModelled):
        return found
    # The twin has one kind of device; a mix would need the engine's matching of classes.
    if len(found.kinds) != 1 or len(cluster.device_classes(*found.kinds)) != 1:
        return NotModelled("devices are of several classes")
    return found.columns


class _Found(NamedTuple):
    """The columns of a workload, and the kinds of device that its jobs request."""

    columns: borrowing.Columns
    kinds: frozenset[str]


_COLUMNS: WeakKeyDictionary[Workload, dict[RemoteCosts, _Found | NotModelled]] = WeakKeyDictionary()
"""Several policies get the same workload one after the other."""


def _columns_of(workload: Workload, costs: RemoteCosts) -> _Found | NotModelled:
    rows, kinds, seen = [], set(), set()
    for job in workload.jobs:
        choice = job.choices[0]
        why = _find_unmodelled(job, choice)
        if why:
            return NotModelled(f"job {job.id} {why}")
        assert job.communication is not None
        base = times.seconds_alone(costs, job.communication)
        # The compiled twin takes times from Equations 1 to 12 alone; any other truth needs the engine.
        if base <= 0 or workload.truth.seconds(job, choice.implementation, choice.request) != base:
            return NotModelled(f"job {job.id} gives another time than its communication takes")
        request, sent = choice.request, job.communication
        kind, count = request.devices[0]
        kinds.add(kind)
        seen.add(job.id)
        wants = job.submit_time, request.nodes, int(count), request.cpus, request.memory, base
        rows.append((*wants, sent.other, sent.gpu_calls, sent.gpu_bytes, sent.net_calls, sent.net_bytes))
    if len(seen) != len(rows):
        return NotModelled("an id is used twice")
    found: list[Any] = [
        np.array(column, np.int64 if name in ("gang", "gpus", "cpus") else np.float64)
        for name, column in zip(borrowing.Columns._fields, zip(*rows, strict=True), strict=True)
    ]
    return _Found(borrowing.Columns(*found), frozenset(kinds))


def _find_unmodelled(job: Job, choice: Choice) -> str:
    """What of a job the compiled simulation does not model; empty: nothing."""
    request = choice.request
    if len(job.choices) != 1:
        return "has several implementations"
    if job.communication is None:
        return "has no communication"
    if job.walltime is not None or job.begin is not None:
        return "has a walltime or a time before which it may not begin"
    if job.priority or job.depends or job.retries or job.throttles or job.foreign or job.sizing.auto:
        return "has a priority, a dependency, retries, a limit or a learned size"
    if request.cpus < 0 or request.partition or request.models or len(request.devices) != 1:
        return "takes a node's pool, a partition, a model, or devices of several kinds"
    kind, count = request.devices[0]
    if count < 1 or count != int(count) or choice.implementation.kind != kind or request.gpu_memory:
        return "takes a share of a device"
    return ""


def _machine_arrays(cluster: Cluster, costs: RemoteCosts, kind: str) -> borrowing.Machine:
    """The nodes as arrays; ``costs`` has bandwidths where a node gives none."""
    nodes = cluster.nodes
    own = [sum(1 << d for d, device in enumerate(node.devices) if device.kind == kind) for node in nodes]
    return borrowing.Machine(
        np.array([node.cpus for node in nodes], np.int64),
        np.array(own, np.int64),
        np.array([np.inf if node.memory is None else node.memory for node in nodes], np.float64),
        np.array([node.network_bandwidth or costs.network_bandwidth for node in nodes], np.float64),
        np.array([node.gpu_bandwidth or costs.gpu_bandwidth for node in nodes], np.float64),
    )


# ---------------------------------------------------------------------------------------------------- records


class _Records:
    """Records made of the log of a compiled simulation."""

    def __init__(
        self, wanted: SimulationRequest, seconds: Sequence[float], found: borrowing.Schedule
    ) -> None:
        self._jobs: Sequence[Job] = wanted.workload.jobs
        self._cluster = wanted.cluster
        self._seconds = seconds
        self._ends = found.end.tolist()
        self._log = found.log
        self._devices = _Indices()
        self._cores: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
        nodes = wanted.cluster.nodes
        self._cores_of = [self._cores.setdefault(node.cores, _Cores(node.cores)) for node in nodes]
        """Of each node, the ids of its cores by their bits."""
        self._made: dict[int, Record] = {}

    def by_submission(self) -> list[Record]:
        """Every job's record. O(what was held)."""
        times_of, log, jobs = self._log.view(np.float64), self._log.tolist(), self._jobs
        words = -(-len(self._cluster) // borrowing.WORD)
        devices, lent_as, cores_of, at = self._devices, _Donors(), self._cores_of, 0
        alike = cores_of[0] if len(self._cores) == 1 else None
        while at < len(log):
            what, place = log[at], log[at + 1]
            if what == borrowing.ENDED:
                at += 2
                continue
            lent, now, groups = log[at + 2], float(times_of[at + 3]), log[at + 4]
            at += 5
            request = jobs[place].choices[0].request
            parts = []
            for _ in range(groups):
                nodes = log[at + 1]
                for word in range(1, words):
                    nodes |= log[at + 1 + word] << word * borrowing.WORD
                parts.append(Part(nodes, request.cpus, devices[log[at]], memory=request.memory))
                at += 1 + words
            donors = EMPTY_DONORS
            if lent:
                end = at + 3 * lent
                lists = log[at:end:3], log[at + 1 : end : 3], log[at + 2 : end : 3]
                donors = tuple(map(lent_as.__getitem__, zip(*lists, strict=True)))
                at = end
            if what == borrowing.STARTED:
                end = at + 1 + 2 * log[at]
                nodes_named, masks = log[at + 1 : end : 2], log[at + 2 : end : 2]
                if alike is not None:
                    cores = dict(zip(nodes_named, map(alike.__getitem__, masks), strict=True))
                else:
                    named = zip(nodes_named, masks, strict=True)
                    cores = {n: cores_of[n][mask] for n, mask in named}
                self._start_job(place, Allocation(request, tuple(parts), cores or EMPTY, donors), now)
                at = end
            else:
                self._move_devices(place, tuple(parts), donors, now)
        return [self._made.get(place) or Record(job) for place, job in enumerate(jobs)]

    def _start_job(self, place: int, allocation: Allocation, now: float) -> None:
        job = self._jobs[place]
        implementation = job.choices[0].implementation
        seconds = self._seconds[place]
        self._made[place] = Record(
            job,
            State.COMPLETED,
            implementation,
            allocation,
            now,
            self._ends[place],
            Prediction(seconds, seconds, 1, "true time", seconds),
            exit_code=0,
            device_class=self._cluster.device_classes(implementation.kind)[0],
            attempts=1,
            remote_gpus=len(allocation.donors),
        )

    def _move_devices(
        self, place: int, parts: tuple[Part, ...], donors: tuple[Donor, ...], now: float
    ) -> None:
        """Some of its borrowed devices go home: what it held before goes on record."""
        record = self._made[place]
        before = record.allocation
        assert before is not None
        assert record.start is not None
        assert record.implementation is not None
        since = record.start if record.since is None else record.since
        if since < now:
            record.earlier = (*record.earlier, Span(since, now, before, record.implementation))
        record.since = now
        record.allocation = Allocation(before.request, parts, before.cores, donors)
        record.migrations += len(before.donors) - len(donors)


class _Indices(dict[int, tuple[int, ...]]):
    """Places of the bits of a mask."""

    def __missing__(self, mask: int) -> tuple[int, ...]:
        found = self[mask] = tuple(bit_indices(mask))
        return found


class _Donors(dict[tuple[int, int, int], Donor]):
    """One donor for all of the same nodes and device, which is given as a bit."""

    def __missing__(self, key: tuple[int, int, int]) -> Donor:
        found = self[key] = Donor(key[0], key[1], key[2].bit_length() - 1)
        return found


class _Cores(dict[int, tuple[int, ...]]):
    """Ids of a node's cores by the bits of their places."""

    def __init__(self, cores: Sequence[int]) -> None:
        super().__init__()
        self._cores = cores

    def __missing__(self, mask: int) -> tuple[int, ...]:
        found = self[mask] = tuple(self._cores[place] for place in bit_indices(mask))
        return found
