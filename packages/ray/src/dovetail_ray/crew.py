"""Workers on a Ray cluster: an actor for each slot of each node, data through Ray's object store.

Slots are per node, as in the paper: ``cpu:14,gpu:2`` are fourteen actors that hold a CPU each and two that
hold a GPU each, on every node that has so many. Nodes that join are used, those that die are lost with
what ran there. What Ray knows of a dead node comes late (it lists it as alive for ten seconds and more,
while an actor that is to start there just waits): so a worker counts only once it has answered, and a
call that breaks is the end of its worker, whatever Ray hopes for.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from queue import Empty, SimpleQueue
from typing import Any

from dovetail.errors import DovetailWarning, ExecutorError, InputError
from dovetail.mapping.crew import Crew, Event, Finished, Lost, Ready, Slot, Unable
from dovetail.mapping.far_workers import FALSE_STARTS, FarWorker
from dovetail.mapping.places import Place, ThisMachine, Wanted, default_workers
from dovetail.mapping.running import (
    UNREADABLE,
    Failure,
    Work,
    describe_failure,
    fold_batch,
    load_function,
    run_items,
)
from dovetail.model import CPU
from dovetail.records import dataclass
from dovetail_ray.backend import connect_ray, import_ray, model_of

NODE_BEAT = 1.0
"""Seconds between two looks at which nodes there are."""
ALONE = 60.0
"""Seconds in which another node may join when the last one has gone."""
OBJECT_STORE = 1 << 30
"""Bytes of the object store of a Ray of our own, where the machine has as many to spare."""


class _Worker:
    """The actor."""

    def __init__(self, env: Mapping[str, str]) -> None:
        import ray

        os.environ.update(env)
        for gpu in ray.get_runtime_context().get_accelerator_ids().get("GPU", ()):
            os.environ["DOVETAIL_DEVICE"] = f"gpu:{gpu}"
        self._function: Callable[..., Any] | None = None
        self._work = Work({}, None)

    def prepare(self, shipped: bytes, work: bytes) -> None:
        """Load the function. Raises what that raises."""
        import pickle

        self._function, self._work = load_function(shipped), pickle.loads(work)

    def run(self, start: int, plain: bool, *items: Any) -> tuple[list[Any], list[Failure], float, int]:
        """Run a batch; object references among the items have been fetched. The last number: items run."""
        assert self._function is not None
        work = Work(self._work.common, None) if plain else self._work
        values, failures, seconds = run_items(self._function, items, work)
        return *fold_batch(values, failures, start, work), seconds, len(values)

    def run_list(
        self, start: int, plain: bool, items: Sequence[Any]
    ) -> tuple[list[Any], list[Failure], float, int]:
        """Run a batch that came as one object."""
        return self.run(start, plain, *items)


@dataclass(eq=False, slots=True)
class _Actor(FarWorker):
    """The actor of one slot."""

    handle: Any = None
    resources: dict[str, float] = field(default_factory=dict)


class RayCrew(Crew):
    """Actors of a Ray cluster.

    ``asked`` is the workers of each node; by default one for each GPU, and one for each CPU left. Where Ray
    is not connected to already, it is by ``address``; without one it is started here, and stopped by
    `close`. Raises `InputError` where there is no Ray, or no such cluster.
    """

    tells_position = False

    def __init__(
        self, asked: Sequence[Wanted] | None, kinds: Sequence[str], *, address: str | None, kept: bool
    ) -> None:
        self._ray = ray = import_ray()
        self._asked, self._kinds, self.kept = asked, list(kinds), kept
        self._said: SimpleQueue[tuple[Any, ...] | None] = SimpleQueue()
        self.slots: list[Slot] = []
        self._actors: dict[int, _Actor] = {}
        self._nodes: set[str] = set()
        self._indices: dict[str, int] = {}
        self._short: set[str] = set()
        self._numbers = 0
        self._jobs = 0
        self._shipped: Mapping[str, bytes] = {}
        self._work: Any = None
        self._looked = 0.0
        self._staffed = time.monotonic()
        self._closed = False
        self._connected = not ray.is_initialized()
        if self._connected:
            self._connect_cluster(address)
        # Without restarts: an actor that Ray begins anew lacks the function, so the crew replaces it itself.
        self._actor_class = ray.remote(max_restarts=0, max_task_retries=0)(_Worker)
        self._look_at_nodes()
        missing = self._missing_workers()
        if missing:
            self.close()
            raise InputError(
                f"found no node of the Ray cluster with room for {' and '.join(missing)} beside the others, "
                "expected one (counts are for each node)",
                where="workers",
            )

    def _connect_cluster(self, address: str | None) -> None:
        try:
            connect_ray(self._ray, address, self._needed_resources)
        except (OSError, RuntimeError, ValueError) as error:
            what = str(error).strip().splitlines()[0]
            raise InputError(
                f"Ray cannot be reached: {what}", where=f"address {address or 'local'}"
            ) from error

    def _needed_resources(self) -> dict[str, float]:
        """What a Ray of our own has: enough for all workers."""
        here = ThisMachine().free_counts([CPU, *self._kinds])
        needs = {"num_cpus": 0.0, "num_gpus": 0.0, "object_store_memory": OBJECT_STORE}
        for some in self._asked or default_workers(self._kinds, here[CPU], here):
            resource, amount = _resource_of_worker(some)
            needs[resource] += some.count * amount
        return {**needs, "num_cpus": max(1, needs["num_cpus"])}

    # -- for the scheduler -----------------------------------------------------------------------------

    def begin_map(self, shipped: Mapping[str, bytes], work: Work) -> None:
        """Give all actors their function."""
        self._jobs += 1
        self._shipped = shipped
        try:
            # Into Ray's store once, instead of along with a message to each actor.
            self._work = self._ray.put(self._ray.cloudpickle.dumps(work))
        except (TypeError, AttributeError, ValueError) as error:
            raise InputError(f"cannot be sent to a worker: {error}", where="common") from error
        for actor in self._actors.values():
            self._prepare_actor(actor)

    def send_items(
        self, slot: Slot, order: int, items: Sequence[Any], start: int, *, plain: bool = False
    ) -> None:
        """Give an actor items."""
        actor = self._actors[slot.number]
        actor.orders.append(order)
        # Ray fetches references that are arguments themselves; within a list they would arrive as references.
        if any(isinstance(item, self._ray.ObjectRef) for item in items):
            ref = actor.handle.run.remote(start, plain, *items)
        else:
            ref = actor.handle.run_list.remote(start, plain, list(items))
        self._when_done(ref, "done", actor, order)

    def wait(self, seconds: float | None) -> list[Event]:
        """Happenings; see `Crew`."""
        events = self._look_at_nodes()
        now = time.monotonic()
        self._staffed = now if self.slots else self._staffed
        if now - self._staffed > ALONE:
            raise ExecutorError(f"no node of the Ray cluster was left for {ALONE:g} s")
        deadline = now + (NODE_BEAT if seconds is None else seconds)
        while True:
            try:
                left = 0.0 if events else max(0.0, deadline - time.monotonic())
                reply = self._said.get(timeout=left) if left else self._said.get_nowait()
            except Empty:
                return events
            if reply is None:
                return events
            events += self._interpret_result(*reply)

    def end_wait(self) -> None:
        """End a wait."""
        self._said.put(None)

    def item_position(self, slot: Slot) -> int | None:
        """The first, since with a time limit items go one by one."""
        actor = self._actors.get(slot.number)
        return 0 if actor is not None and actor.orders else None

    def nodes_of_items(self, items: Sequence[Any]) -> list[str] | None:
        """The node that holds each item, where all of them are references to objects in Ray's store."""
        if not items or not all(isinstance(item, self._ray.ObjectRef) for item in items):
            return None
        places = self._ray.experimental.get_object_locations(list(items))
        return [next(iter(places.get(item, {}).get("node_ids", ())), "") for item in items]

    def kill(self, slot: Slot, reason: str, *, trace: bool = False) -> None:
        """End a busy actor; where it was is not known."""
        actor = self._actors.get(slot.number)
        if actor is not None:
            actor.reason = reason
            self._ray.kill(actor.handle)

    def dismiss_worker(self, slot: Slot) -> None:
        """Let an actor go, and give its CPU or GPU back to Ray."""
        actor = self._forget_slot(slot)
        if actor is not None:
            self._ray.kill(actor.handle)

    def close(self) -> None:
        """End all actors; a Ray of our own, or our connection, too."""
        if self._closed:
            return
        self._closed = True
        for actor in self._actors.values():
            self._ray.kill(actor.handle)
        self._actors.clear()
        self.slots = []
        if self._connected:
            self._ray.shutdown()

    # -- nodes -----------------------------------------------------------------------------------------

    def _look_at_nodes(self) -> list[Event]:
        """Hire on nodes that have come, forget those that have gone."""
        now = time.monotonic()
        if now - self._looked < NODE_BEAT:
            return []
        self._looked = now
        alive = {node["NodeID"]: node for node in self._ray.nodes() if node["Alive"]}
        events: list[Event] = []
        for slot in [slot for slot in self.slots if slot.node not in alive]:
            actor = self._forget_slot(slot)
            if actor is not None and actor.ready:
                events.append(Lost(slot, "its node has left the Ray cluster"))
        for node in [node for node in alive if node not in self._nodes]:
            self._hire_actors(node, alive[node]["Resources"])
        self._nodes = set(alive)
        return events

    def _missing_workers(self) -> list[str]:
        """Workers that were requested, or that the function can use, of which there is not one."""
        here = {slot.kind for slot in self.slots}
        if self._asked is not None:
            return [str(wanted) for wanted in self._asked if wanted.kind not in here]
        for kind in self._kinds:
            if here and kind not in here:
                _warn_caller(f"no node of the Ray cluster has a {kind}: the map has no {kind} worker")
        return [] if here else list(self._kinds)

    def _forget_slot(self, slot: Slot) -> _Actor | None:
        """The slot is no more; its actor, if it had one."""
        if slot in self.slots:
            self.slots.remove(slot)
        return self._actors.pop(slot.number, None)

    def _hire_actors(self, node: str, resources: Mapping[str, float]) -> None:
        """Actors for the slots of one node, as far as it has room for them."""
        counts = {CPU: int(resources.get("CPU", 0)), "gpu": int(resources.get("GPU", 0))}
        model = model_of(resources)
        left = {"num_cpus": float(counts[CPU]), "num_gpus": float(counts["gpu"])}
        # By default all of its CPUs and GPUs, as far as they are of use.
        default = [Wanted(kind, counts[kind]) for kind in self._kinds if counts.get(kind)]
        for wanted in self._asked or default:
            resource, amount = _resource_of_worker(wanted)
            room = min(wanted.count, int(left[resource] // amount))
            left[resource] -= room * amount
            if room < wanted.count and wanted.kind not in self._short:
                self._short.add(wanted.kind)  # one line for each kind
                _warn_caller(
                    f"node {node[:8]} of the Ray cluster has room for {room} of {wanted} beside the others "
                    "(counts are for each node)"
                )
            for _ in range(room):
                index = self._indices.get(wanted.kind, 0)
                self._indices[wanted.kind] = index + 1
                place = Place(wanted.kind, index, (), index, model if wanted.kind == "gpu" else "")
                slot = Slot(self._numbers, place, node)
                self._numbers += 1
                self.slots.append(slot)
                self._start_actor(slot, {resource: amount})

    def _start_actor(self, slot: Slot, resources: dict[str, float], false_starts: int = 0) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        env = {"DOVETAIL_WORKER": slot.place.name.replace(" ", ":")}
        if slot.kind != "gpu":
            env["DOVETAIL_DEVICE"] = f"{slot.kind}:{slot.place.device}"
        options = {"num_cpus": 0.0, "num_gpus": 0.0} | resources
        handle = self._actor_class.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(slot.node, soft=False), **options
        ).remote(env)
        actor = _Actor(slot, false_starts=false_starts, handle=handle, resources=resources)
        self._actors[slot.number] = actor
        if self._jobs:
            self._prepare_actor(actor)

    def _prepare_actor(self, actor: _Actor) -> None:
        shipped = actor.begin_map(self._shipped)
        if shipped is not None:
            self._when_done(actor.handle.prepare.remote(shipped, self._work), "set", actor, self._jobs)

    # -- answers of actors -----------------------------------------------------------------------------

    def _when_done(self, ref: Any, what: str, actor: _Actor, number: int) -> None:
        """Have the answer, or the error, in the queue as soon as it is there."""
        reply = self._said
        ref.future().add_done_callback(lambda future: reply.put((what, actor, number, future)))

    def _interpret_result(self, what: str, actor: _Actor, number: int, future: Any) -> list[Event]:
        slot = actor.slot
        if self._actors.get(slot.number) is not actor or (what == "set" and number != self._jobs):
            return []
        error = future.exception()
        if error is not None and not isinstance(error, self._ray.exceptions.RayTaskError):
            return self._replace_actor(actor, error)
        if what == "set":
            if error is not None:
                return [Unable(slot, describe_failure(0, error.cause or error))]
            actor.ready = True
            actor.false_starts = 0
            return [Ready(slot)]
        if not actor.orders or number != actor.orders[0]:
            return []
        actor.orders.popleft()
        if error is not None:  # the function's own errors come as failures: this is about sending results
            cause = error.cause or error
            message = f"the result cannot be sent back: {cause}"
            failure = Failure(UNREADABLE, type(cause).__qualname__, message, "")
            return [Finished(slot, number, [], [failure], 0.0, 0)]
        values, failures, seconds, ran = future.result()
        return [Finished(slot, number, values, failures, seconds, ran)]

    def _replace_actor(self, actor: _Actor, error: BaseException) -> list[Event]:
        """The actor is of no use any more: start another in its place, if its node is there."""
        slot = actor.slot
        del self._actors[slot.number]
        self._ray.kill(actor.handle)
        found = _loss_reason(error)
        events, starts = actor.note_loss(found)
        self._looked = 0.0  # a node may have gone
        unschedulable = isinstance(error, self._ray.exceptions.ActorUnschedulableError)
        if starts and (unschedulable or "node" in (actor.reason or found)):
            self._forget_slot(slot)  # it has gone; where it has not, its other slots stay
            return []
        if starts < FALSE_STARTS and slot in self.slots:
            self._start_actor(slot, actor.resources, starts)
        return events


def _warn_caller(sentence: str) -> None:
    warnings.warn(sentence, DovetailWarning, stacklevel=1)


def _resource_of_worker(wanted: Wanted) -> tuple[str, float]:
    """What one worker holds of its node, as Ray names it."""
    return ("num_gpus", 1.0) if wanted.kind == "gpu" else ("num_cpus", float(wanted.cores))


def _loss_reason(error: BaseException) -> str:
    """Ray's own reason for a lost actor, short."""
    known = re.search(r"The actor is dead because (.+?)\.(\s|$)", str(error))
    if known is not None:
        return known[1]
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__qualname__
