"""Jobs on borrowed GPUs, and everybody who shares a network with them (Markthub 2015, section 4.1).

A job progresses at the rate of the time that it would take if everything stayed as it is now (Equation 9):
communication with local or remote GPUs, the network shared with the other processes and daemons of its nodes
(Equation 2). Rates are relative to the job's time alone, with all GPUs at home.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from dovetail.interfaces import traits_of
from dovetail.model import (
    Allocation,
    Cluster,
    Communication,
    JobId,
    Placed,
    Result,
    Seconds,
    Workload,
    bit_indices,
)
from dovetail.model import remote_times as times
from dovetail.model.remote_costs import RemoteCosts, read_remote_costs

if TYPE_CHECKING:
    from dovetail.simulation.request import NotModelled, SimulationRequest


@dataclass(slots=True)
class _Running:
    """A job that runs: its nodes with their local GPUs, what it borrows, what has come home."""

    communication: Communication
    base: Seconds
    nodes: dict[int, int]  # local GPUs
    donors: list[tuple[int, int]]  # (client, donor), one for each borrowed GPU
    home: dict[int, int]  # migrated GPUs by client
    exec: Seconds = 0.0


@dataclass(slots=True)
class RemoteGpu:
    """The cost model of borrowed GPUs: Equations 1 to 12 of Markthub 2015.

    ``costs`` is a file of constants measured by ``dovetail bench-remote`` (default: the paper's).
    ``processes`` of a job: one a node, or one for each ``gpu``, which then needs no mhelper process after a
    migration. ``recorded``: whether borrowed GPUs can move home, which costs a record of every call (auto: as
    the policy moves them or not). Jobs without communication keep the rate 1.
    """

    costs: str = ""
    processes: Literal["node", "gpu"] = "node"
    recorded: Literal["auto", "yes", "no"] = "auto"
    constants: RemoteCosts = field(init=False, repr=False)
    _jobs: dict[JobId, _Running] = field(init=False, repr=False, default_factory=dict)
    _processes: dict[int, int] = field(init=False, repr=False, default_factory=dict)
    _on_node: dict[int, dict[JobId, None]] = field(init=False, repr=False, default_factory=dict)
    _done: Callable[[JobId], float] = field(init=False, repr=False, default=lambda job: 0.0)
    _bandwidths: dict[int, tuple[float, float]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.constants = read_remote_costs(self.costs) if self.costs else RemoteCosts()

    def prepare(self, workload: Workload, cluster: Cluster, policy: object) -> tuple[Workload, Cluster]:
        """The workload with jobs' times alone, and nodes with the memory of Table 3."""
        cluster = times.with_table_3(cluster)
        self.serve(cluster, migrates=traits_of(policy).migrates)
        return times.with_communication_times(workload, self.constants), cluster

    def serve(self, cluster: Cluster, *, migrates: bool) -> None:
        """Called before a simulation: where it is, and whether its policy moves jobs."""
        if self.recorded == "auto":
            self.recorded = "yes" if migrates else "no"
        costs = self.constants
        for n, node in enumerate(cluster.nodes):
            if node.network_bandwidth is not None or node.gpu_bandwidth is not None:
                self._bandwidths[n] = (
                    node.network_bandwidth or costs.network_bandwidth,
                    node.gpu_bandwidth or costs.gpu_bandwidth,
                )

    def watch(self, done: Callable[[JobId], float]) -> None:
        """Called before a simulation begins: how to read the fraction that a running job has done."""
        self._done = done

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """Rates of jobs on the nodes that changed, stalls of those that moved. O(their nodes and GPUs)."""
        touched: set[int] = set()
        # Ends before moves before starts: rates are those of the state after the instant, and a GPU that has
        # just been given back may be the one that a job moves to.
        for placed in ended:
            touched.update(self._leave_job(placed.job.id))
        stalls: dict[JobId, Seconds] = {}
        moved = {placed.job.id: placed for placed in migrated if placed.job.id in self._jobs}
        for job, placed in moved.items():  # all by the processes and daemons before anything of them moves
            stalls[job] = self._longest_stall(job, placed.allocation)
        for job, placed in moved.items():
            touched.update(self._move_job(job, placed.allocation))
        for placed in started:
            touched.update(self._enter_job(placed))
        return self._compute_rates(touched, moved), stalls

    def _compute_rates(self, touched: set[int], moved: Mapping[JobId, Placed]) -> dict[JobId, float]:
        rates: dict[JobId, float] = {}
        affected = dict.fromkeys(job for n in sorted(touched) for job in self._on_node.get(n, ()))
        for job in (*affected, *moved):
            running = self._jobs[job]
            # Only changed rates are reported: each one makes the engine reckon a job's end again.
            now = self._running_time(running)
            if now != running.exec:
                running.exec = now
                rates[job] = running.base / now
        return rates

    def standing(self, job: JobId) -> tuple[Seconds, Mapping[int, int]]:
        """How long a running job takes in all if everything stays as it is; GPUs that came home, by node."""
        running = self._jobs[job]
        return running.exec, running.home

    def fresh(self, cluster: Cluster) -> RemoteGpu:
        """The same model, of which nothing runs yet."""
        model = replace(self)
        model.constants = self.constants
        model.serve(cluster, migrates=self.recorded == "yes")
        return model

    def stand_in(self, request: SimulationRequest) -> Result | NotModelled:
        """The result of a compiled simulation under this model, or why there is none."""
        from dovetail_remote.policies.compiled import simulate_compiled

        recorded, per_gpu = self.recorded == "yes", self.processes == "gpu"
        return simulate_compiled(request, self.constants, recorded=recorded, per_gpu=per_gpu)

    def as_json(self) -> dict[str, object]:
        """All that makes it what it is, for a journal; `from_json` makes it again."""
        return {
            "processes": self.processes,
            "recorded": self.recorded,
            "constants": {constant.name: constant.value for constant in self.constants.described_constants()},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any], cluster: Cluster) -> RemoteGpu:
        """The model that a journal holds."""
        model = cls(processes=found["processes"], recorded=found["recorded"])
        model.constants = RemoteCosts(**found["constants"])
        model.serve(cluster, migrates=model.recorded == "yes")
        return model

    # --------------------------------------------------------------- book-keeping

    def _enter_job(self, placed: Placed) -> set[int]:
        communication = placed.job.communication
        if communication is None:
            return set()
        allocation = placed.allocation
        nodes = {n: len(part.devices) for part in allocation.parts for n in bit_indices(part.nodes)}
        donors = [(donor.client, donor.donor) for donor in allocation.donors]
        base = times.seconds_alone(self.constants, communication)
        self._jobs[placed.job.id] = running = _Running(communication, base, nodes, donors, {}, base)
        return self._count_processes(placed.job.id, running, +1)

    def _leave_job(self, job: JobId) -> set[int]:
        running = self._jobs.pop(job, None)
        return set() if running is None else self._count_processes(job, running, -1)

    def _count_processes(self, job: JobId, running: _Running, sign: int) -> set[int]:
        """Add or take away its processes and daemons; the nodes where they are."""
        lent = [donor for _, donor in running.donors]
        per_gpu = self.processes == "gpu"
        own = self._processes_by_node(running) if per_gpu else dict.fromkeys(running.nodes, 1)
        for n, processes in own.items():
            self._processes[n] = self._processes.get(n, 0) + sign * processes
        for n in lent:
            self._processes[n] = self._processes.get(n, 0) + sign
        for n in {*running.nodes, *lent}:
            if sign > 0:
                self._on_node.setdefault(n, {})[job] = None
            else:
                self._on_node[n].pop(job, None)
        return {*running.nodes, *lent}

    @staticmethod
    def _processes_by_node(running: _Running) -> dict[int, int]:
        """One process for each GPU, local or borrowed, on the node that uses it."""
        own = dict(running.nodes.items())
        for client, _ in running.donors:
            own[client] += 1
        return own

    def _move_job(self, job: JobId, allocation: Allocation) -> set[int]:
        running = self._jobs[job]
        touched = self._count_processes(job, running, -1)
        before = dict(running.nodes)
        running.nodes = {n: len(part.devices) for part in allocation.parts for n in bit_indices(part.nodes)}
        running.donors = [(donor.client, donor.donor) for donor in allocation.donors]
        for n, local in running.nodes.items():
            came = local - before.get(n, 0)
            if came > 0:
                running.home[n] = running.home.get(n, 0) + came
        return touched | self._count_processes(job, running, +1)

    # ----------------------------------------------------------------------- times

    def _network_share(self, node: int) -> float:
        """Equation 2: the share of a node's network that each of its processes and daemons has."""
        full = self._bandwidths[node][0] if node in self._bandwidths else self.constants.network_bandwidth
        return full / self._processes[node]

    def _gpu_bandwidth_of(self, node: int) -> float:
        return self._bandwidths[node][1] if node in self._bandwidths else self.constants.gpu_bandwidth

    def _running_time(self, running: _Running) -> Seconds:
        """Equation 9, as things stand."""
        costs, job = self.constants, running.communication
        slowest = min(self._network_share(n) for n in running.nodes)
        worst = 0.0
        for n, local in running.nodes.items():
            if local:
                took = times.local_gpu(costs, job, self._gpu_bandwidth_of(n))
                if self.processes == "node" and running.home.get(n, 0) >= 2:
                    took += times.after_helper(costs, job)
                worst = max(worst, took)
        for client, donor in running.donors:
            took = times.remote_gpu(costs, job, min(self._network_share(client), self._network_share(donor)))
            if self.recorded == "yes":
                took += times.recording_seconds(costs, job)
            worst = max(worst, took)
        return times.network_seconds(costs, job, slowest) + worst + job.other

    def _longest_stall(self, job: JobId, target: Allocation) -> Seconds:
        """The longest stall over the GPUs that move, which move at once."""
        running = self._jobs[job]
        staying = [(donor.client, donor.donor) for donor in target.donors]
        done = self._done(job)
        longest = 0.0
        for pair in running.donors:
            if pair in staying:
                staying.remove(pair)
                continue
            bandwidth = min(self._network_share(pair[0]), self._network_share(pair[1]))
            longest = max(
                longest, times.stall_seconds(self.constants, running.communication, done, bandwidth)
            )
        return longest
