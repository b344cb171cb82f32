"""Offering idle units to jobs: what the rules of Ravi 2012, section III.A, have in common.

The paper's "resources" are units: a node's CPU pool or one device. They take turns kind by kind, the CPU
pools first, then by index: on one CPU and one GPU a node that is CPU0, CPU1, …, GPU0, GPU1, …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from dovetail.interfaces import View
from dovetail.model import (
    CPU,
    Allocation,
    Choice,
    Cluster,
    Decision,
    DeviceClass,
    Job,
    Seconds,
    Start,
    Unit,
    Way,
    class_on,
    device_kind,
    one_node_choices,
    seconds_on,
    way_with_given_times,
)
from dovetail.policies.parts.trials import Trials, without_untried


class Assignment(NamedTuple):
    """A job, how it is to run, and what it gets."""

    job: Job
    choice: Choice
    allocation: Allocation


@lru_cache(maxsize=16)
def unit_kinds(cluster: Cluster) -> tuple[str, ...]:
    """Kinds of unit, the CPU first, then in order of first appearance."""
    kinds = dict.fromkeys(device_class.kind for device_class in cluster.classes)
    return tuple(sorted(kinds, key=lambda kind: kind != CPU))


@lru_cache(maxsize=16)
def units_in_turn(cluster: Cluster) -> tuple[Unit, ...]:
    """Every unit, in the order in which idle ones take their turn."""
    place = {kind: i for i, kind in enumerate(unit_kinds(cluster))}
    return tuple(sorted(cluster.units, key=lambda unit: (place[unit.kind], unit.index)))


def ways_by_kind(view: View, job: Job) -> dict[str, Way]:
    """The best way to run the job by kind of unit, for kinds that the cluster has.

    An implementation for the kind alone goes before one that also takes the CPUs; then the faster one.
    """
    found: dict[str, Way] = {}
    kinds = unit_kinds(view.cluster)
    ways = [
        way_with_given_times(view, job, c) for c in one_node_choices(job) if device_kind(c.request) in kinds
    ]
    for way in without_untried(view, job, ways):
        kind = device_kind(way.choice.request)
        if kind not in found or _way_rank(way) < _way_rank(found[kind]):
            found[kind] = way
    return found


def _way_rank(way: Way) -> tuple[bool, Seconds]:
    return way.choice.implementation.kind.startswith("cpu+"), inf if way.seconds is None else way.seconds


class IdleUnits:
    """What is free at this instant, and which units are offered a job.

    ``open`` are the units that have room for one of the waiting jobs at least; building it costs a step
    for each unit and kind of request.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.free = view.free()
        self._requests = [request for request in view.queue.requests() if request.nodes == 1]
        self.open = [unit for unit in units_in_turn(view.cluster) if self.has_room(unit)]
        self._ready: dict[int, Seconds] = {}
        self._gone: set[str] = set()

    def has_room(self, unit: Unit) -> bool:
        """Whether one of the waiting jobs' requests fits there now."""
        return any(
            self.free.fit_unit(request, unit) is not None
            for request in self._requests
            if device_kind(request) == unit.kind
        )

    def seconds_until_free(self, unit: Unit) -> Seconds:
        """Predicted seconds until the unit is free, given what has been started at this instant."""
        found = self._ready.get(unit.index)
        if found is None:
            occupant = self.view.occupant(unit)
            found = self._ready[unit.index] = 0.0 if occupant is None else self.view.remaining(occupant)
        return found

    def waits(self, job: Job) -> bool:
        """Whether the job has not been started at this instant."""
        return job.id not in self._gone

    def first_fit(self, candidates: Iterable[tuple[Job, Choice]], unit: Unit) -> Assignment | None:
        """The first of the candidates that still waits and can start on this unit now."""
        refused = set()
        for job, choice in candidates:
            if job.id in self._gone or choice.request in refused:
                continue
            allocation = self.free.fit_unit(choice.request, unit)
            if allocation is not None:
                return Assignment(job, choice, allocation)
            refused.add(choice.request)
        return None

    def offer_units(self, choose: Callable[[Unit], Assignment | None]) -> Iterator[Decision]:
        """Try what was never tried; offer all open units in order, one job each, until nothing changes."""
        yield from self.trials()
        units = [unit for unit in self.open if self.has_room(unit)]
        while units:
            started = False
            for unit in units:
                found = choose(unit)
                if found is not None:
                    started = True
                    yield self.start(unit, found)
            if not started:
                return
            units = [unit for unit in units if self.has_room(unit)]

    def trials(self) -> Iterator[Decision]:
        """Start one waiting job of each app on each idle unit of a class on which the app was never tried."""
        idle: dict[DeviceClass, list[Unit]] = {}
        for unit in sorted(self.open, key=lambda unit: unit.kind == CPU):
            if self.view.occupant(unit) is None:
                idle.setdefault(unit.device_class, []).append(unit)
        trials = Trials(self.view)
        for job in self.view.queue if idle else ():
            if len(job.choices) > 1:
                found = self._start_trial(trials, idle, job)
                if found is not None:
                    yield found
                    if not idle:
                        return

    def _start_trial(self, trials: Trials, idle: dict[DeviceClass, list[Unit]], job: Job) -> Decision | None:
        """Start the job on the first idle unit that fits, of a class on which its app was never tried."""
        choices = one_node_choices(job)
        for like, those in idle.items():
            for choice in choices:
                if device_kind(choice.request) != like.kind:
                    continue
                device, name = class_on(choice.implementation, those[0]), choice.implementation.name
                if not self.view.untried(job.app.name, name, device):  # so a blind policy needs no times
                    continue
                if not trials.untried(job, choice, device):
                    continue
                for unit in those:
                    allocation = self.free.fit_unit(choice.request, unit)
                    if allocation is not None:
                        trials.begin_trial(job, choice, device)
                        those.remove(unit)
                        if not those:
                            del idle[like]
                        return self.start(unit, Assignment(job, choice, allocation))
        return None

    def start(self, unit: Unit, assignment: Assignment) -> Decision:
        """Take what the job needs there, and the decision to start it."""
        job, choice, allocation = assignment
        self.free.take(allocation)
        self._gone.add(job.id)
        seconds = seconds_on(self.view, job, choice, class_on(choice.implementation, unit)) or 0.0
        self._ready[unit.index] = max(self.seconds_until_free(unit), seconds)
        return Start(job.id, choice.implementation.name, allocation)
