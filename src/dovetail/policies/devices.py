"""What the single-node policies share: devices with a FIFO each, and when each will be done.

A node's CPU pool is one device, so is every GPU (contracts: "several nodes and devices").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dovetail.interfaces import View
from dovetail.model import (
    CPU,
    Choice,
    Cluster,
    Decision,
    DeviceClass,
    Enqueue,
    Implementation,
    Job,
    JobId,
    Placed,
    Seconds,
    Start,
    Unit,
)

__all__ = ["Devices", "class_on", "one_node_choices", "refuse_gangs", "start_heads", "units_for"]


def refuse_gangs(jobs: Sequence[Job]) -> str | None:
    """Why these jobs cannot be placed by a policy that uses one node a job; ``None`` if they can."""
    for job in jobs:
        if job.nodes > 1 or not any(choice.request.nodes == 1 for choice in job.choices):
            return f"places each job on one node; job {job.id} asks for {job.nodes} nodes"
    return None


def one_node_choices(job: Job) -> list[Choice]:
    """The job's choices on one node, in file order."""
    return [choice for choice in job.choices if choice.request.nodes == 1]


def class_on(implementation: Implementation, unit: Unit) -> DeviceClass:
    """The device class under which history keeps this implementation on this unit."""
    if implementation.kind == unit.kind:
        return unit.device_class
    return DeviceClass(implementation.kind, unit.device_class.model)


def class_of(cluster: Cluster, placed: Placed) -> DeviceClass:
    """The device class on which a job runs (of its first node)."""
    node = placed.allocation.first_node
    part = placed.allocation.part_on(node)
    model = cluster.nodes[node].cpu_model
    if part is not None and part.devices:
        model = cluster.nodes[node].devices[part.devices[0]].model
    return DeviceClass(placed.implementation.kind, model)


def units_for(cluster: Cluster, choice: Choice) -> Iterator[Unit]:
    """The units to which a choice can be bound: devices if it needs one, else CPU pools."""
    kind = choice.request.devices[0][0] if choice.request.devices else CPU
    models = choice.request.models
    for unit in cluster.units:
        if unit.kind == kind and (not models or unit.device_class.model in models):
            yield unit


def start_heads(view: View) -> Iterator[Decision]:
    """Start the head of every device's FIFO that fits now (Gregg 2011, rule 1)."""
    if not view.device_queues:
        return
    free = view.free()
    units = view.cluster.units
    for index in sorted(view.device_queues):
        job, implementation = view.device_queues[index][0]
        request = next(c.request for c in one_node_choices(job) if c.implementation is implementation)
        allocation = free.fit_unit(request, units[index])
        if allocation is not None:
            free.take(allocation)
            yield Start(job.id, implementation.name, allocation)


class Devices:
    """Every unit's backlog in predicted seconds, kept up to date while a policy makes its decisions.

    ``underway`` holds (app, implementation, class) of all that runs or waits in a FIFO; ``decided`` the
    jobs that `assign` has placed, which the view's queue still shows.

    Building it costs a step per unit and per job in a FIFO; policies build it only when jobs wait.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.free = view.free()
        self.backlog: list[Seconds] = []
        self.idle: list[bool] = []
        self.fifo: list[int] = []
        self.decided: set[JobId] = set()
        self.underway: set[tuple[str, str, DeviceClass]] = {
            (placed.job.app.name, placed.implementation.name, class_of(view.cluster, placed))
            for placed in view.running.values()
        }
        for unit in view.cluster.units:
            occupant = view.occupant(unit)
            fifo = view.device_queues.get(unit.index, ())
            seconds = view.remaining(occupant) if occupant is not None else 0.0
            for job, implementation in fifo:
                self.underway.add((job.app.name, implementation.name, class_on(implementation, unit)))
                seconds += self.time(job, implementation, unit) or 0.0
            self.backlog.append(seconds)
            self.idle.append(occupant is None and not fifo)
            self.fifo.append(len(fifo))

    def time(self, job: Job, implementation: Implementation, unit: Unit) -> Seconds | None:
        """Predicted seconds of the job there, ``None`` where nothing is known."""
        request = next((c.request for c in one_node_choices(job) if c.implementation is implementation), None)
        if request is None:
            return None
        found = self.view.predict(job, implementation, request, class_on(implementation, unit))
        return None if found is None else found.expected

    def can_start(self, choice: Choice, unit: Unit) -> bool:
        """Whether the job could start there at once: it fits and nothing waits before it."""
        return not self.fifo[unit.index] and self.free.fit_unit(choice.request, unit) is not None

    def ready_in(self, choice: Choice, unit: Unit) -> Seconds:
        """Predicted seconds until the job could start there: what runs, plus the FIFO."""
        if self.can_start(choice, unit):
            return 0.0
        wait = self.backlog[unit.index]
        if unit.device is not None and choice.implementation.kind.startswith("cpu+"):
            wait = max(wait, *(self.backlog[u.index] for u in self._pool_of(unit)))
        return wait

    def _pool_of(self, unit: Unit) -> Iterable[Unit]:
        return (u for u in self.view.cluster.units if u.node == unit.node and u.device is None)

    def assign(self, job: Job, choice: Choice, unit: Unit) -> Decision:
        """Start the job there at once if possible, else put it into the unit's FIFO."""
        seconds = self.time(job, choice.implementation, unit) or 0.0
        self.decided.add(job.id)
        self.underway.add((job.app.name, choice.implementation.name, class_on(choice.implementation, unit)))
        touched = [unit.index]
        if choice.implementation.kind.startswith("cpu+"):
            touched += [u.index for u in self._pool_of(unit)]
        decision: Decision
        if self.can_start(choice, unit):
            allocation = self.free.fit_unit(choice.request, unit)
            assert allocation is not None
            self.free.take(allocation)
            decision = Start(job.id, choice.implementation.name, allocation)
        else:
            self.fifo[unit.index] += 1
            decision = Enqueue(job.id, choice.implementation.name, unit.index)
        for index in touched:
            self.backlog[index] += seconds
            self.idle[index] = False
        return decision
