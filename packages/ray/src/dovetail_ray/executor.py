"""Jobs on a Ray cluster: each command a Ray task, pinned to the node that the policy chose.

Ray counts the CPUs, GPUs and memory of every task, so that its other users are not disturbed, and picks the
GPUs themselves (CUDA_VISIBLE_DEVICES is its own). A gang is a placement group with a bundle on each of its
nodes, and starts when all are held. Each command stands behind a fence (`dovetail_ray.task`): it
ends with its worker, which ends with its node, or with Dovetail.

What Ray knows of a dead node comes late: it lists it as alive for ten seconds and more, while a task that is
to start there just waits. So every node carries a beacon, an actor that answers; a node is there while it
does.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import field
from typing import Any

from dovetail.errors import ExecutorError, InputError
from dovetail.interfaces import LastAttempts, RunFolder
from dovetail.model import (
    Cluster,
    Ended,
    Event,
    JobId,
    Node,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Placed,
    Seconds,
    State,
    Usage,
)
from dovetail.model.command_line import command_words
from dovetail.process.environment import THREAD_COUNTS, child_environment, cores_of
from dovetail.process.notes import append_note, read_notes
from dovetail.process.reporting import Reporting
from dovetail.process.spawn_log import end_event, uid_of
from dovetail.process.supervised import limit_of
from dovetail.records import dataclass
from dovetail_ray import task as ray_task
from dovetail_ray.backend import draining_nodes, import_ray, nodes_of
from dovetail_ray.outputs import LOG

_log = logging.getLogger(__name__)
LOOK = 1.0
"""Seconds between two looks at the nodes."""
SILENCE = 8.0
"""Seconds for which a beacon may be silent before the executor checks with Ray whether its node is dead."""
PATIENCE = 60.0
"""Seconds for which it may be silent where Ray takes the node to be alive: a busy node answers late."""


@dataclass(eq=False, slots=True)
class _Task:
    """A job that runs: its tasks, those that have ended, and what is held for a gang."""

    placed: Placed
    files: tuple[str, str]
    intent: dict[str, Any]
    refs: list[Any] = field(default_factory=list)
    ends: list[dict[str, Any]] = field(default_factory=list)
    group: Any = None
    stop: str = ""


class RayExecutor(Reporting):
    """Implements `Executor`; use it in one event loop.

    A gang waits ``patience`` seconds for Ray to hold its nodes.
    """

    def __init__(self, patience: Seconds, folder: RunFolder, cluster: Cluster, ids: Sequence[str]) -> None:
        super().__init__(folder, cluster)
        self._ray = ray = import_ray()
        # By value, as the nodes of the cluster need not have this package.
        ray.cloudpickle.register_pickle_by_value(ray_task)
        # Ray repeats nothing: the engine counts attempts, and decides where the next one runs.
        self._run = ray.remote(max_retries=0)(ray_task.run_command)
        errors = ray.exceptions
        self._lost_errors = (
            *(errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError),
            errors.TaskUnschedulableError,
        )
        # A beacon holds no CPU, or every node would have one less for jobs.
        self._beacon = ray.remote(num_cpus=0, max_restarts=0)(ray_task.Beacon)
        self._patience = patience
        self._marker = self.run_dir / f".{self.run_uid}"
        self._ids = list(ids)  # Ray's, by node; empty where it is not known
        self._beacons: dict[int, Any] = {}
        self._heard_at: dict[int, float] = {}
        self._lost: set[int] = set()
        self._drained: set[int] = set()
        self._given_up: set[str] = set()
        self._running: dict[JobId, _Task] = {}
        self._first: list[Event] = []
        self._marker.touch(mode=0o600)

    def take_up(self, others: Sequence[tuple[str, Node]]) -> LastAttempts:
        """What is on record of each job's last start; nodes that are gone are lost, ``others`` join."""
        for id, node in others:
            self._first.append(NodeJoined(len(self.cluster), node))
            self.cluster = Cluster((*self.cluster.nodes, node), self.cluster.label)
            self._ids.append(id)
        for n, id in enumerate(self._ids):
            if not id:
                self._lost.add(n)
                self._first.append(NodeLost(n))
        last: dict[JobId, dict[str, Any]] = {}
        ends: dict[str, dict[str, Any]] = {}
        for record in read_notes(self.run_dir / LOG):
            if record["t"] == "intent":
                last[record["job"]] = record
                self._outputs.paths[record["job"]] = record["files"][0], record["files"][1]
            else:
                ends[record["uid"]] = record
        over = [
            end_event(intent, end) for intent in last.values() if (end := ends.get(intent["uid"])) is not None
        ]
        why = "its Dovetail was killed while it ran, and Ray ended it with that"
        unknown = [
            Ended(intent["job"], State.NODE_FAIL, None, why, Usage(), attempt=intent["attempt"])
            for intent in last.values()
            if intent["uid"] not in ends
        ]
        return LastAttempts((), sorted(over, key=lambda end: end.ended_at or 0.0), unknown)

    # ------------------------------------------------------------------- the Executor protocol

    async def launch(self, placed: Placed) -> None:
        """Start the job; one that cannot be started ends as FAILED, with a sentence in ``detail``."""
        if self._closing:
            raise ExecutorError(f"job {placed.job.id} was launched after the executor was closed")
        self._attach_to_loop()
        try:
            words = command_words(placed)
        except InputError as error:
            now = time.time()
            end = Ended(placed.job.id, State.FAILED, None, str(error), Usage(), now, now, placed.attempt)
            self._report_event(end)
            return
        files, _ = self._outputs.of(placed.job, placed.attempt, self._cwd)
        uid = uid_of(self.run_uid, placed.job.id, placed.attempt)
        intent = {"job": placed.job.id, "attempt": placed.attempt, "uid": uid, "files": files}
        task = _Task(placed, files, intent)
        self._running[placed.job.id] = task
        # On record before it starts: if this Dovetail is killed in between, its successor finds the attempt.
        self._append_note(t="intent", **intent)
        self._begin_task(self._begin_ray_task, task, words, uid)

    async def _begin_ray_task(self, task: _Task, words: list[str], uid: str) -> None:
        """`_start_task`, once: what goes wrong with it is this job's end."""
        try:
            await self._start_task(task, words, uid)
        except Exception as error:  # noqa: BLE001 - whatever it is ends this job only
            _log.exception("job %s could not be started", task.placed.job.id)
            if task.refs:
                await self.stop(task.placed.job.id, State.FAILED.value)
            else:
                self._finish_task(task, {"error": str(error) or type(error).__name__})

    async def _start_task(self, task: _Task, words: list[str], uid: str) -> None:
        """Have Ray hold what the job needs, and run it there."""
        try:
            strategies = await self._placement_strategies(task)
        except (ExecutorError, self._ray.exceptions.RayError) as error:
            self._finish_task(task, {"error": str(error).strip().splitlines()[0]})
            return
        # Meanwhile the job may have been stopped, since Ray can take its time for a gang.
        if task.stop:
            self._finish_task(task, {"error": "it was ended before it began", "state": task.stop})
            return
        placed, command = task.placed, task.placed.implementation.command
        each = 1 if command is None else command.tasks
        ranks = len(strategies) * each
        for rank in range(ranks):
            node, strategy = strategies[rank // each]
            spec = self._task_spec(task, words, uid, node, (rank, ranks, rank % each))
            needs = self._task_needs(placed, node, each)
            ref = self._run.options(scheduling_strategy=strategy, **needs).remote(spec)
            task.refs.append(ref)
        loop = asyncio.get_running_loop()
        for ref in task.refs:
            ref.future().add_done_callback(
                lambda future: (
                    None if loop.is_closed() else loop.call_soon_threadsafe(self._task_ended, task, future)
                )
            )

    async def _placement_strategies(self, task: _Task) -> list[tuple[int, Any]]:
        """Where each of the job's nodes is, for Ray. Raises `ExecutorError` where it does not hold a gang."""
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import (
            NodeAffinitySchedulingStrategy,
            PlacementGroupSchedulingStrategy,
        )

        nodes = task.placed.allocation.nodes
        if len(nodes) == 1:
            return [(nodes[0], NodeAffinitySchedulingStrategy(self._ids[nodes[0]], soft=False))]
        bundles = [self._node_bundle(task.placed, n) for n in nodes]
        # By the id of each node: the policy has chosen these very nodes, and Ray must not choose others.
        places = [{"ray.io/node-id": self._ids[n]} for n in nodes]
        task.group = group = placement_group(bundles, strategy="PACK", bundle_label_selector=places)
        # In a thread, as this blocks, and the loop serves all jobs.
        held = await asyncio.to_thread(group.wait, self._patience)
        if not held:
            raise ExecutorError(
                f"Ray did not hold the {len(nodes)} nodes of this gang within {self._patience:g} s; "
                "others may use them ('ray status')"
            )
        return [(n, PlacementGroupSchedulingStrategy(group, i)) for i, n in enumerate(nodes)]

    def _node_bundle(self, placed: Placed, node: int) -> dict[str, float]:
        part = placed.allocation.part_on(node)
        assert part is not None
        held = {"CPU": float(part.cpus), "GPU": float(len(part.devices)), "memory": float(part.memory)}
        # Ray refuses a bundle of nothing.
        return {name: amount for name, amount in held.items() if amount} or {"CPU": 0.001}

    def _task_needs(self, placed: Placed, node: int, tasks: int) -> dict[str, float]:
        """What one of the node's tasks takes of it; the first holds the devices of all."""
        bundle = self._node_bundle(placed, node)
        request = placed.allocation.request
        share = next((count for _, count in request.devices if count < 1), None)
        gpus = bundle.get("GPU", 0.0) if share is None else share
        needs = {"num_cpus": bundle.get("CPU", 0.0) / tasks, "num_gpus": gpus / tasks}
        if "memory" in bundle:
            needs["memory"] = bundle["memory"] / tasks
        return needs

    def _task_spec(
        self, task: _Task, words: list[str], uid: str, node: int, rank: tuple[int, int, int]
    ) -> dict[str, Any]:
        placed, files = task.placed, task.files
        cores = cores_of(placed, self.cluster)
        own = child_environment(placed, self.cluster, cores, self._environ)
        # Ray sets this itself, by the devices that it has given to the task.
        own.pop("CUDA_VISIBLE_DEVICES", None)
        if len(placed.allocation.nodes) > 1:
            mine = placed.allocation.cores_on(node, self.cluster.nodes[node])
            command = placed.implementation.command
            environment = {} if command is None else dict(command.env)
            own |= {name: environment.get(name, str(max(1, len(mine)))) for name in THREAD_COUNTS}
        if rank[1] > 1:
            names = ("DOVETAIL_RANK", "DOVETAIL_RANKS", "DOVETAIL_LOCAL_RANK")
            own |= dict(zip(names, map(str, rank), strict=True))
        part, (folder, brought) = placed.allocation.part_on(node), self._job_surroundings(placed.job)
        return {
            "argv": words,
            "files": list(files),
            "cwd": folder,
            "environ": self._environ if brought is None else dict(brought),
            "env": {**own, "DOVETAIL_JOB": placed.job.id, "DOVETAIL_UID": uid},
            "gpus": 0 if part is None else len(part.devices),
            "grace": self._grace,
            "marker": str(self._marker),
            **limit_of(placed),
        }

    async def stop(self, job: JobId, reason: str) -> None:
        """TERM to the job's group, KILL after the grace; `Ended` follows with the state ``reason``."""
        task = self._running.get(job)
        if task is None or task.stop:
            return
        task.stop = reason
        # Without force: the task ends its own group within the grace, and reports how that went.
        for ref in task.refs:
            self._ray.cancel(ref, force=False, recursive=False)

    async def close(self) -> None:
        """Stop what still runs, and let Ray go."""
        if self._closed:
            return
        self._closing = True
        for job in list(self._running):
            await self.stop(job, State.CANCELLED.value)
        deadline = time.monotonic() + self._grace + 10.0
        while self._running and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await self._end_tasks()
        self._marker.unlink(missing_ok=True)
        await asyncio.to_thread(self._ray.shutdown)  # ends our workers, and what their fences hold
        self._all_reported()

    def settle(self) -> bool:
        """After `close`: whether everything that ran has ended and was reported."""
        return self._closed and not self._running

    # ------------------------------------------------------------------- ends

    def _task_ended(self, task: _Task, future: Any) -> None:
        """One of a job's tasks has ended; the job has when all have, and one failure ends the others."""
        # After the loss of a node the driver has ended the job: this report comes too late.
        if self._running.get(task.placed.job.id) is not task:
            return
        error = future.exception()
        if error is not None and isinstance(error, self._lost_errors) and not task.stop:
            self._begin_task(self._check_doubtful_node, task, error)
            return
        self._one_ended(task, future.result() if error is None else self._lost_task_end(task, error))

    async def _check_doubtful_node(self, task: _Task, error: BaseException) -> None:
        """A worker is gone, perhaps with its node: see, before the job starts there again in vain."""
        self._drain_nodes(await asyncio.to_thread(draining_nodes))
        message = str(error)  # of a node that died it names the id; its beacon may still answer for a while
        for n in task.placed.allocation.nodes:
            beacon = self._beacons.get(n)
            if beacon is None:
                continue
            if isinstance(error, self._ray.exceptions.NodeDiedError) and self._ids[n] in message:
                self._lose_node(n)
                continue
            answer = asyncio.wrap_future(beacon.ping.remote().future())
            while n not in self._lost and not answer.done():
                await asyncio.wait([answer], timeout=LOOK)
            if answer.done() and answer.exception() is not None:
                self._lose_node(n)
        if self._running.get(task.placed.job.id) is task:
            self._one_ended(task, self._lost_task_end(task, error))

    def _one_ended(self, task: _Task, end: dict[str, Any]) -> None:
        if "output" in end:
            self._save_output(task, end.pop("output"))
        task.ends.append(end)
        failed = "error" in end or end.get("status") != 0
        if failed and len(task.ends) < len(task.refs):
            for ref in task.refs:
                self._ray.cancel(ref, force=False, recursive=False)
        if len(task.ends) == len(task.refs):
            self._finish_task(task, _worst_end(task.ends))

    def _lost_task_end(self, task: _Task, error: BaseException) -> dict[str, Any]:
        """Ray has lost a task, or cancelled it on our request."""
        errors = self._ray.exceptions
        now = time.time()
        if isinstance(error, errors.TaskCancelledError):
            return {"from": now, "at": now, "error": "", "state": task.stop or State.CANCELLED.value}
        message = (str(error).strip().splitlines() or [type(error).__name__])[0]
        state = State.NODE_FAIL if isinstance(error, self._lost_errors) else State.FAILED
        if isinstance(error, errors.OutOfMemoryError):  # Ray's own monitor has killed its worker
            state = State.OUT_OF_MEMORY
        return {"from": now, "at": now, "error": f"Ray: {message}", "state": state.value}

    def _save_output(self, task: _Task, output: Sequence[str]) -> None:
        """Write down what a node has sent that does not see the run folder."""
        for path, text in zip(task.files, output, strict=True):
            with open(path, "ab") as file:
                file.write(base64.b64decode(text))

    def _finish_task(self, task: _Task, end: dict[str, Any]) -> None:
        job = task.placed.job.id
        if self._running.get(job) is task:
            del self._running[job]
        now = time.time()
        whole = {"from": now, "at": now, **end}
        if task.stop and whole.get("status") != 0:
            whole["stop"] = whole["state"] = task.stop
        self._release_group(task)
        self._append_note(t="end", uid=task.intent["uid"], **whole)
        self._report_event(end_event(task.intent, whole))

    def _release_group(self, task: _Task) -> None:
        if task.group is not None:
            from ray.util.placement_group import remove_placement_group

            remove_placement_group(task.group)
            task.group = None

    # ------------------------------------------------------------------- nodes

    def _attach_to_loop(self) -> None:
        if not self._tasks and not self._closing:
            for event in self._first:
                self._report_event(event)
            self._first.clear()
            self._drain_nodes(draining_nodes())
            self._begin_task(self._watch_beacons)

    async def _watch_beacons(self) -> None:
        """Call the beacons; those that do not answer are lost with their nodes, those that are new join."""
        for n in range(len(self.cluster)):
            if n not in self._lost:
                self._light_beacon(n)
        while True:
            await asyncio.sleep(LOOK)
            listed = await asyncio.to_thread(self._ray.nodes)
            alive = {about["NodeID"] for about in listed if about["Alive"]}
            now = time.monotonic()
            for n, at in list(self._heard_at.items()):
                if now - at > (PATIENCE if self._ids[n] in alive else SILENCE):
                    self._lose_node(n)
            leaving = await asyncio.to_thread(draining_nodes)
            self._drain_nodes(leaving)
            for id, node in nodes_of(listed):
                if id not in self._ids and id not in self._given_up and id not in leaving:
                    self._ids.append(id)
                    self.cluster = Cluster((*self.cluster.nodes, node), self.cluster.label)
                    n = len(self.cluster) - 1
                    self._light_beacon(n, NodeJoined(n, node))

    def _light_beacon(self, n: int, joins: NodeJoined | None = None) -> None:
        """Put a beacon on a node; it is there (or has joined) once that answers."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        strategy = NodeAffinitySchedulingStrategy(self._ids[n], soft=False)
        self._beacons[n] = self._beacon.options(scheduling_strategy=strategy).remote()
        if joins is not None:
            # The engine knows nodes by the order of their joining: reported now, lost again if it is silent.
            self._report_event(joins)
        self._heard_at[n] = time.monotonic() + 30.0  # the first worker of a node takes its time to start
        self._begin_task(self._listen_to, n)

    async def _listen_to(self, n: int) -> None:
        """Call a node's beacon again and again."""
        while n in self._beacons:
            try:
                await asyncio.wrap_future(self._beacons[n].ping.remote().future())
            except self._ray.exceptions.RayError:
                self._lose_node(n)
                return
            self._heard_at[n] = max(self._heard_at.get(n, 0.0), time.monotonic())
            await asyncio.sleep(LOOK)

    def _drain_nodes(self, ids: Collection[str]) -> None:
        """Nodes on which Ray starts nothing more; what runs there goes on. It never takes a drain back."""
        for n, id in enumerate(self._ids):
            if id in ids and n not in self._drained and n not in self._lost:
                self._drained.add(n)
                self._report_event(NodeDrained(n))

    def _lose_node(self, n: int) -> None:
        """A node is gone; its jobs end with it, by the driver. Should it come back, it has another id."""
        if n in self._lost:
            return
        self._lost.add(n)
        self._beacons.pop(n, None)
        self._heard_at.pop(n, None)
        self._given_up.add(self._ids[n])
        for job, task in list(self._running.items()):
            if n in task.placed.allocation.nodes:
                del self._running[job]
                self._release_group(task)
                for ref in task.refs:
                    self._ray.cancel(ref, force=True, recursive=False)
        self._report_event(NodeLost(n))

    # ------------------------------------------------------------------- what is reported

    def _append_note(self, **record: Any) -> None:
        """Append to the run's own record of what was started. Raises `ExecutorError`."""
        append_note(self.run_dir / LOG, record)


def _worst_end(ends: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How a gang has ended: as the first of its tasks that failed, over the time of all."""
    first = next((end for end in ends if "error" in end or end.get("status") != 0), ends[0])
    began: Seconds = min(end["from"] for end in ends)
    return {**first, "from": began, "at": max(end["at"] for end in ends)}
