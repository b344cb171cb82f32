"""When the jobs of a long queue start if each takes as long as predicted: rolled out by compiled code.

The engine's simulation of ten thousand jobs takes seconds of CPU, and is made again and again while users
look. Where all jobs are plain ones, under a policy that roll-outs model, one roll-out over expected times
gives the same starts, but for how jobs are packed on nodes that they share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dovetail.driver.priority import is_ranked
from dovetail.engine.capacity.free import Layout
from dovetail.files.arrays import np
from dovetail.kernels.starts import AMOUNTS, Nodes
from dovetail.model import (
    FRACTION_UNITS,
    Allocation,
    Cluster,
    Implementation,
    Job,
    JobId,
    Part,
    Request,
    Seconds,
    Truth,
)
from dovetail.policies.easy import Easy
from dovetail.policies.fcfs import Fcfs
from dovetail.starts.rolling import QueuedJob, Situation, roll_out
from dovetail.starts.run_times import JobKind

LONG = 1000
"""Waiting jobs from which a queue is rolled out; the engine simulates shorter ones."""
NOTHING_KNOWN = JobKind(None, None, 1, None)


class ForeseenRun(NamedTuple):
    """A waiting job as it will run; seconds from now."""

    job: Job
    implementation: Implementation | None
    allocation: Allocation | None
    start: Seconds | None
    end: Seconds | None


class Hold(NamedTuple):
    """What runs: where, and for how many seconds more by what is expected and by what is planned with."""

    allocation: Allocation
    left: Seconds
    bound: Seconds


def partition_bits(cluster: Cluster) -> dict[str, int]:
    """A bit for each partition, from the second on; the first one is every node's."""
    names = sorted({name for node in cluster.nodes for name in node.partitions})[:62]
    return {name: 2 << place for place, name in enumerate(names)}


def idle_nodes(cluster: Cluster, drained: Sequence[str] | frozenset[str] = frozenset()) -> Nodes:
    """The nodes with nothing in use; those that are drained are in no group."""
    bit = partition_bits(cluster)
    amounts = [
        (len(node.cores), len(node.devices) * FRACTION_UNITS, node.memory or 2**62) for node in cluster.nodes
    ]
    groups = [
        0 if node.name in drained else 1 | sum(bit.get(name, 0) for name in node.partitions)
        for node in cluster.nodes
    ]
    return Nodes(0, np.array(amounts, np.int64).reshape(-1, AMOUNTS), np.array(groups, np.int64))


def need_of(allocation: Allocation) -> tuple[int, int, int]:
    """CPUs, devices (in `FRACTION_UNITS`) and bytes of each node."""
    part = allocation.parts[0]
    return part.cpus, len(part.devices) * part.units, part.memory


def roll_out_queue(
    jobs: Sequence[Job],
    policy: object,
    places: IdlePlaces,
    truth: Truth,
    holds: Sequence[Hold],
    default_walltime: Seconds | None,
) -> dict[JobId, ForeseenRun] | None:
    """The starts of waiting jobs, in the order of the queue; ``None`` where some of it is not modelled.

    Jobs that fit nowhere are missing. O(jobs · instants) at worst, most of it in compiled code.
    """
    name, cluster = _rolled_policy(policy), places.cluster
    if name is None or len(cluster.device_classes("cpu")) > 1:
        return None
    if len({(device.kind, device.model) for node in cluster.nodes for device in node.devices}) > 1:
        return None
    bit = partition_bits(cluster)
    waiting: list[QueuedJob] = []
    lengths: list[Seconds] = []
    modelled: list[tuple[Job, Allocation]] = []
    before, now = places.queued, dict[JobId, tuple[Job, Seconds, Seconds | None, QueuedJob, Allocation]]()
    for job in sorted(jobs, key=lambda job: (-job.priority, job.index)):
        request = job.choices[0].request
        seconds = truth.seconds(job, job.choices[0].implementation, request)
        same = before.get(job.id)
        # Most jobs are those of the last round, as they were.
        if (
            same is None
            or same[0] is not job
            or same[1] != seconds
            or same[2] != default_walltime
            or seconds is None
        ):
            if not _is_plain(job):
                return None
            place = places.find_place(request)
            if place is None or seconds is None:
                continue
            if place.parts[0].units != FRACTION_UNITS:
                return None
            wall = job.walltime if job.walltime is not None else default_walltime
            kind = NOTHING_KNOWN._replace(walltime=seconds if wall is None else wall)
            group = bit.get(request.partition, 1)
            queued = QueuedJob(job.id, kind, 0, request.nodes, need=need_of(place), group=group)
            same = job, seconds, default_walltime, queued, place
        now[job.id] = same
        waiting.append(same[3])
        lengths.append(seconds)
        modelled.append((job, same[4]))
    places.queued = now
    nodes = idle_nodes(cluster)
    running = []
    for hold in holds:
        held, need = hold.allocation.nodes, need_of(hold.allocation)
        nodes.free[held] -= np.array(need, np.int64)
        kind = NOTHING_KNOWN._replace(walltime=hold.bound)
        running.append(QueuedJob(None, kind, 0, len(held), need=need, held=tuple(held)))
    situation = Situation(0.0, name, nodes, running, waiting)
    every = np.array([[*(hold.left for hold in holds), *lengths]])
    starts = roll_out(situation, every)[0].tolist()
    found: dict[JobId, ForeseenRun] = {}
    for (job, place), start, seconds in zip(modelled, starts, lengths, strict=True):
        if start < np.inf:
            implementation = job.choices[0].implementation
            found[job.id] = ForeseenRun(job, implementation, place, start, start + seconds)
    return found


def _rolled_policy(policy: object) -> str | None:
    """The policy of the roll-outs that decides as this one does."""
    if type(policy) is Fcfs and policy.skip == 0:
        return "fcfs"
    return "easy" if type(policy) is Easy and policy.order == "fcfs" and policy.walltime == "user" else None


def _is_plain(job: Job) -> bool:
    """Whether a job waits for nothing but its turn, and can run in one way only."""
    return not (
        len(job.choices) != 1
        or job.depends
        or job.throttles
        or job.sizing.auto
        or is_ranked(job)
        or job.choices[0].request.gpu_memory
        or job.submit_time > 1e-3
    )


class IdlePlaces:
    """What an idle node gives to a request."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._layout = Layout(cluster, "pack")
        self._found: dict[Request, Allocation | None] = {}
        self.queued: dict[JobId, tuple[Job, Seconds, Seconds | None, QueuedJob, Allocation]] = {}
        """Plain jobs of the last round: with which seconds and default walltime they became what."""

    def find_place(self, request: Request) -> Allocation | None:
        """An allocation on idle nodes; ``None`` where none has enough. O(node states), then O(1)."""
        if request not in self._found:
            self._found[request] = None
            for state in self._layout.full:
                fit = self._layout.fit_state(request, state)
                if fit is not None:
                    share = fit.share
                    part = Part(1, share.cpus, share.devices, share.units, share.memory)
                    self._found[request] = Allocation(request, (part,))
                    break
        return self._found[request]
