"""Asking idle resources for jobs: what the rules of Ravi 2012, section III.A, have in common.

A resource is a node's CPU pool or one device. Resources are asked kind by kind, the CPU pools first, then
by index: on one CPU and one GPU a node that is CPU0, CPU1, …, GPU0, GPU1, …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import inf

from dovetail.interfaces import View
from dovetail.model import (
    CPU,
    Allocation,
    Choice,
    Cluster,
    Decision,
    DeviceClass,
    Job,
    Request,
    Seconds,
    Start,
    Unit,
)
from dovetail.policies.devices import class_on, one_node_choices

__all__ = [
    "Placement",
    "Resources",
    "Way",
    "could_run",
    "kinds_of",
    "resources_of",
    "seconds_on",
    "way_on",
    "ways",
]

Placement = tuple[Job, Choice, Allocation]

Way = tuple[Choice, Seconds | None]
"""How a job would run on a kind of resource, and its predicted seconds there."""


@lru_cache(maxsize=16)
def kinds_of(cluster: Cluster) -> tuple[str, ...]:
    """Kinds of resource, the CPU first, then in order of first appearance."""
    kinds = dict.fromkeys(unit.kind for unit in cluster.units)
    return tuple(sorted(kinds, key=lambda kind: kind != CPU))


@lru_cache(maxsize=16)
def resources_of(cluster: Cluster) -> tuple[Unit, ...]:
    """Every resource, in the order in which idle ones are asked."""
    place = {kind: i for i, kind in enumerate(kinds_of(cluster))}
    return tuple(sorted(cluster.units, key=lambda unit: (place[unit.kind], unit.index)))


def kind_of(request: Request) -> str:
    """The kind of resource that a request occupies: its device's, or the CPU."""
    return request.devices[0][0] if request.devices else CPU


def could_run(cluster: Cluster, choice: Choice, unit: Unit) -> bool:
    """Whether the unit could run it if nothing else ran: kind, model, CPUs, devices and memory suffice."""
    request, node = choice.request, cluster.nodes[unit.node]
    if request.nodes != 1 or unit.kind != kind_of(request):
        return False
    if request.cpus > node.cpus or (choice.implementation.kind.startswith(CPU) and not node.cpus):
        return False
    if node.memory is not None and request.memory > node.memory:
        return False
    if request.models and unit.device is not None and unit.device_class.model not in request.models:
        return False
    return all(sum(d.kind == kind for d in node.devices) >= count for kind, count in request.devices)


def seconds_on(view: View, job: Job, choice: Choice, device: DeviceClass) -> Seconds | None:
    """Predicted seconds on a class of device, else SQ over the speedup that the job gives, else ``None``."""
    found = view.predict(job, choice.implementation, choice.request, device)
    if found is not None:
        return found.expected
    speedup = job.speedup.get(choice.implementation.name)
    return None if job.sequential is None or not speedup else job.sequential / speedup


def way_on(view: View, job: Job, choice: Choice) -> Way:
    """The choice with its seconds on the best class of its kind."""
    known = [
        seconds
        for device in view.cluster.device_classes(choice.implementation.kind)
        if not choice.request.models or device.model in choice.request.models
        if (seconds := seconds_on(view, job, choice, device)) is not None
    ]
    return choice, min(known, default=None)


def ways(view: View, job: Job) -> dict[str, Way]:
    """The best way to run the job by kind of resource, for kinds that the cluster has.

    An implementation for the kind alone goes before one that also takes the CPUs; then the faster one.
    """
    found: dict[str, Way] = {}
    kinds = kinds_of(view.cluster)
    for choice in one_node_choices(job):
        kind = kind_of(choice.request)
        if kind in kinds:
            way = way_on(view, job, choice)
            if kind not in found or _rank(way) < _rank(found[kind]):
                found[kind] = way
    return found


def _rank(way: Way) -> tuple[bool, Seconds]:
    return way[0].implementation.kind.startswith("cpu+"), inf if way[1] is None else way[1]


class Resources:
    """What is free at this instant, and who is offered it.

    ``open`` are the resources that have room for one of the waiting jobs at least; building it costs a step
    for each resource and kind of request. ``ready`` is the predicted seconds until a resource is free.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.free = view.free()
        self._requests = [request for request in view.queue.requests() if request.nodes == 1]
        self.open = [unit for unit in resources_of(view.cluster) if self.has_room(unit)]
        self._ready: dict[int, Seconds] = {}
        self._gone: set[str] = set()

    def has_room(self, unit: Unit) -> bool:
        """Whether one of the waiting jobs' requests fits there now."""
        return any(
            self.free.fit_unit(request, unit) is not None
            for request in self._requests
            if kind_of(request) == unit.kind
        )

    def ready(self, unit: Unit) -> Seconds:
        """Predicted seconds until the resource is free, given what has been started at this instant."""
        found = self._ready.get(unit.index)
        if found is None:
            occupant = self.view.occupant(unit)
            found = self._ready[unit.index] = 0.0 if occupant is None else self.view.remaining(occupant)
        return found

    def waits(self, job: Job) -> bool:
        """Whether the job has not been started at this instant."""
        return job.id not in self._gone

    def first_fit(self, candidates: Iterable[tuple[Job, Choice]], unit: Unit) -> Placement | None:
        """The first of the candidates that still waits and can start on this resource now."""
        refused = set()
        for job, choice in candidates:
            if job.id in self._gone or choice.request in refused:
                continue
            allocation = self.free.fit_unit(choice.request, unit)
            if allocation is not None:
                return job, choice, allocation
            refused.add(choice.request)
        return None

    def offer(self, choose: Callable[[Unit], Placement | None]) -> Iterator[Decision]:
        """Ask all open resources in order, one job each, again and again until nothing changes."""
        asked = self.open
        while asked:
            started = False
            for unit in asked:
                found = choose(unit)
                if found is not None:
                    started = True
                    yield self.start(unit, *found)
            if not started:
                return
            asked = [unit for unit in asked if self.has_room(unit)]

    def start(self, unit: Unit, job: Job, choice: Choice, allocation: Allocation) -> Decision:
        """Take what the job needs there, and the decision to start it."""
        self.free.take(allocation)
        self._gone.add(job.id)
        seconds = seconds_on(self.view, job, choice, class_on(choice.implementation, unit)) or 0.0
        self._ready[unit.index] = max(self.ready(unit), seconds)
        return Start(job.id, choice.implementation.name, allocation)
