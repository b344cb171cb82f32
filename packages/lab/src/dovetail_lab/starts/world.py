"""The world of a trace: a policy with true run times, and what of it was known at which moment.

Run times are the trace's, cut at the walltime. A job without a walltime runs to its end; the policy plans
with a day for it, as no true time may be known beforehand.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dovetail import simulate
from dovetail.errors import InputError
from dovetail.files.sentences import file_name
from dovetail.kernels.starts import AMOUNTS, Nodes
from dovetail.model import FRACTION_UNITS, Cluster, Job, Record, TableTruth, Workload
from dovetail.plugins import load_policy
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.starts.rolling import ENDLESS, QueuedJob, Situation
from dovetail.starts.run_times import JobKind
from dovetail.workloads.load import load_workload

MACHINES = {"aaic": "40x20cpu+8gpu", "philly": "80x8cpu+8gpu"}
"""Of traces whose files name none, by the app of their jobs: those on which they have a queue."""
HOUR = 3600.0


class TracedJob(NamedTuple):
    """A job of the trace: what was known at once, and what came of it (seconds)."""

    id: str
    queued: QueuedJob
    submit: float
    start: float
    end: float
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class World:
    """A trace under a policy. ``amounts`` is what each node has; empty where nodes are counted."""

    trace: str
    policy: str
    jobs: list[TracedJob]
    machine: int
    amounts: list[tuple[int, int, int]]

    def walk(self) -> Iterator[Moment]:
        """The moments at which a job is submitted and does not start at once, in order."""
        walk = _Walk(self)
        for place in range(len(self.jobs)):
            moment = walk.submit(place)
            if moment is not None:
                yield moment


def make_world(path: Path, policy: str, cluster: str | None = None) -> World:
    """Simulate a trace. Raises `InputError` where policy or trace has no such world."""
    loaded = load_policy(policy).policy
    # Roll-outs model these policies exactly; under others the truth would follow another rule.
    plain = (type(loaded) is Fcfs and loaded.skip == 0) or (
        type(loaded) is Easy and loaded.order == "fcfs" and loaded.walltime == "user"
    )
    if not plain:
        raise InputError(f"found the policy {policy}, expected easy or fcfs, which roll-outs model")
    workload, machine = _load_trace(path, cluster)
    jobs = list(workload.jobs)
    truth = {}
    for job in jobs:
        choice = job.choices[0]
        seconds = workload.truth.seconds(job, choice.implementation, choice.request)
        if seconds is None:
            raise InputError(f"job {job.id} has no run time, expected one", where=file_name(path))
        key = (job.id, choice.implementation.name, choice.request.nodes)
        # Jobs end at their walltime there, as they would on the machine.
        truth[key] = min(seconds, job.walltime or seconds)
    report = simulate(
        replace(workload, jobs=jobs, truth=TableTruth(truth)),
        cluster=machine,
        policy=policy,
        # Overruns cannot occur: times have been cut already.
        overrun="run",
        default_walltime=ENDLESS,
        knowledge="perfect",
    )
    records = {record.job.id: record for record in report.result.records}
    return _make_world(str(path), "fcfs" if type(loaded) is Fcfs else "easy", jobs, records, machine)


def _load_trace(path: Path, cluster: str | None) -> tuple[Workload, Cluster]:
    """The jobs, and the machine given, else the trace's own, else the one for traces of its kind."""
    given = None if cluster is None else Cluster.parse(cluster)
    workload = load_workload(path, given)
    machine = given or workload.machine
    if machine is None:
        # Traces without a machine are known by the app that their reader names.
        named = MACHINES.get(workload.jobs[0].app.name) if workload.jobs else None
        if named is None:
            raise InputError("names no machine, expected --cluster", where=file_name(path))
        machine = Cluster.parse(named)
        workload = load_workload(path, machine)
    return workload, machine


def _make_world(
    trace: str, policy: str, jobs: list[Job], records: dict[str, Record], machine: Cluster
) -> World:
    needs = {job.id: _node_need(records[job.id]) for job in jobs if records[job.id].allocation is not None}
    amounts = [
        (len(node.cores), len(node.devices) * FRACTION_UNITS, node.memory or 0) for node in machine.nodes
    ]
    # Nodes are only counted where all are alike and every job takes whole ones.
    counted = len(set(amounts)) == 1 and all(_takes_whole(need, amounts[0]) for need in set(needs.values()))
    limited = min(memory for _, _, memory in amounts) > 0
    made = []
    for place, job in enumerate(jobs):
        record = records[job.id]
        if record.start is None or record.end is None or record.allocation is None:
            continue
        cpus, devices, memory = needs[job.id]
        count = record.allocation.request.nodes
        each = 1 if counted else devices // FRACTION_UNITS or cpus or 1
        kind = JobKind(job.user, job.app.name, count * each, job.walltime)
        need = (0, 0, 0) if counted else (cpus, devices, memory if limited else 0)
        queued = QueuedJob(place, kind, place, count, need=need)
        nodes = () if counted else tuple(record.allocation.nodes)
        made.append(TracedJob(str(job.id), queued, job.submit_time, record.start, record.end, nodes))
    return World(trace, policy, made, len(machine), [] if counted else amounts)


def _node_need(record: Record) -> tuple[int, int, int]:
    assert record.allocation is not None
    part = record.allocation.parts[0]
    return part.cpus, len(part.devices) * part.units, part.memory


def _takes_whole(need: tuple[int, int, int], amounts: tuple[int, int, int]) -> bool:
    """Whether no second job of the kind fits on a node."""
    return any(2 * takes > has > 0 for takes, has in zip(need, amounts, strict=True)) and need[0] > 0


class Recent(NamedTuple):
    """Waits of late: the user's last one, the last one of all, the mean of the last hour (seconds)."""

    of_user: float | None
    of_all: float | None
    of_hour: float | None


class Moment(NamedTuple):
    """A job has been submitted and waits: what is known, and ``job``, whose ``start`` is not.

    ``ended`` are the jobs that have ended since the moment before, in order, and ``submitted`` those that
    were submitted since, this one among them; ``started`` those that started, with their waits.
    """

    job: TracedJob
    situation: Situation
    ended: list[TracedJob]
    submitted: list[TracedJob]
    started: list[TracedJob]
    recent: Recent


class _Walk:
    def __init__(self, world: World) -> None:
        self._world = world
        self._running: dict[int, TracedJob] = {}
        self._waiting: dict[int, TracedJob] = {}
        self._starts: list[tuple[float, int]] = []
        self._ends: list[tuple[float, int]] = []
        self._idle = world.machine
        self._free = np.array(world.amounts, np.int64).reshape(-1, AMOUNTS)
        self._groups = np.ones(len(self._free), np.int64)
        self._ended: list[TracedJob] = []
        self._submitted: list[TracedJob] = []
        self._started: list[TracedJob] = []
        self._hour: deque[tuple[float, float]] = deque()
        self._of_user: dict[object, float] = {}
        self._of_all: float | None = None

    def submit(self, place: int) -> Moment | None:
        """The next job is submitted; what is known then, if it waits."""
        job = self._world.jobs[place]
        now = job.submit
        heapq.heappush(self._starts, (job.start, place))
        self._waiting[place] = job
        self._submitted.append(job)
        self._advance_to(now)
        if place not in self._waiting:
            return None
        moment = Moment(
            job,
            self._current_situation(now),
            self._ended,
            self._submitted,
            self._started,
            self._recent_waits(job, now),
        )
        self._ended, self._submitted, self._started = [], [], []
        return moment

    def _advance_to(self, now: float) -> None:
        while self._starts and self._starts[0][0] <= now:
            start, place = heapq.heappop(self._starts)
            job = self._waiting.pop(place)
            self._running[place] = job
            self._take_amounts(job, -1)
            heapq.heappush(self._ends, (job.end, place))
            self._started.append(job)
            wait = start - job.submit
            self._hour.append((start, wait))
            self._of_all = self._of_user[job.queued.kind.user] = wait
        while self._ends and self._ends[0][0] <= now:
            job = self._running.pop(heapq.heappop(self._ends)[1])
            self._take_amounts(job, 1)
            self._ended.append(job)

    def _take_amounts(self, job: TracedJob, sign: int) -> None:
        if job.nodes:
            self._free[list(job.nodes)] += sign * np.array(job.queued.need, np.int64)
        else:
            self._idle += sign * job.queued.nodes

    def _current_situation(self, now: float) -> Situation:
        # What starts and ends at one instant has run for no time: a little, so that it counts as running.
        running = [
            job.queued._replace(spent=max(now - job.start, 1e-9), held=job.nodes)
            for job in self._running.values()
        ]
        waiting = [job.queued for job in self._waiting.values()]
        nodes = Nodes(self._idle, self._free.copy(), self._groups)
        return Situation(now, self._world.policy, nodes, running, waiting)

    def _recent_waits(self, job: TracedJob, now: float) -> Recent:
        while self._hour and self._hour[0][0] <= now - HOUR:
            self._hour.popleft()
        of_hour = sum(wait for _, wait in self._hour) / len(self._hour) if self._hour else None
        user = job.queued.kind.user
        return Recent(None if user is None else self._of_user.get(user), self._of_all, of_hour)
