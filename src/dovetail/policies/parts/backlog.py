"""Units with a first-in-first-out queue each, and when each will be done with what it has.

A node's CPU pool is one unit, so is every device (contracts: "several nodes and devices"). Rules 1 and 4 of
Gregg 2011, section 4.1, are here; which unit a job goes to (rules 2 and 3) is the policy's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from heapq import heappop, heappush
from math import inf
from typing import ClassVar, NamedTuple

from dovetail.interfaces import Free, Traits, View, traits_of
from dovetail.model import (
    CPU,
    FRACTION_UNITS,
    Allocation,
    Choice,
    Cluster,
    Decision,
    Dequeue,
    Device,
    DeviceClass,
    Enqueue,
    Implementation,
    Job,
    JobId,
    Placed,
    Request,
    Seconds,
    Start,
    Unit,
    Wait,
    bit_indices,
    class_of,
    class_on,
    one_node_choices,
    units_for,
)
from dovetail.model.fitting import memory_taken, shares_device, units_taken
from dovetail.policies.parts.sharing import REACH, Sharing

NOWHERE = "waits for a node that can run it to come back"
TOGETHER = "waits until {nodes} nodes are free at once; jobs behind it wait"


class UnitChoice(NamedTuple):
    """A unit on which a job can run, and as what; ``device_class`` is where history keeps what runs here."""

    choice: Choice
    unit: Unit
    device_class: DeviceClass
    sharer: Job | None = None  # the job, where it shares devices by what is learned


class WorkAhead(NamedTuple):
    """What is ahead of a job on a unit: jobs of unknown length, and the seconds of the others.

    A unit with a job of unknown length is never thought to be done before one without.
    """

    unknown: int
    seconds: Seconds


NOTHING = WorkAhead(0, 0.0)
OCCUPIED = 1 << 200
# Larger than any sum of shares, so that an empty device always wins over a tight fit.
"""Beyond any tightness: who may share a device takes an empty one first."""


class Holding(NamedTuple):
    """What is held of a device, in `FRACTION_UNITS` and bytes, for so many seconds; infinite: not known."""

    left: Seconds
    units: int
    memory: int


def _holding_of(seconds: Seconds | None, request: Request, device: Device) -> Holding:
    units = units_taken(request, device)
    taken = 0 if device.memory is None else memory_taken(device.memory, units, request.gpu_memory)
    return Holding(inf if seconds is None else seconds, units, taken)


def places_for(view: View, job: Job) -> Sequence[UnitChoice]:
    """Where a job can run now, choice by choice in file order, units in device order. O(1) mostly."""
    return _for_sharer(job, _sorted_places(view.cluster, job.choices)[0])


def places_in_device_order(view: View, job: Job) -> Sequence[UnitChoice]:
    """The same in device order, whatever the file's. O(1) mostly."""
    return _for_sharer(job, _sorted_places(view.cluster, job.choices)[1])


def _for_sharer(job: Job, places: Sequence[UnitChoice]) -> Sequence[UnitChoice]:
    """The places, with the job where it shares devices by what is learned."""
    if not any(choice.request.sharing for choice in job.choices):
        return places
    return [place._replace(sharer=job) if place.choice.request.sharing else place for place in places]


@lru_cache(maxsize=1024)
# Cached by the tuple of choices: thousands of jobs of a sweep have the same.
def _sorted_places(
    cluster: Cluster, choices: tuple[Choice, ...]
) -> tuple[tuple[UnitChoice, ...], tuple[UnitChoice, ...]]:
    """Both orders: to look a job's choices up takes as long as to sort what they give."""
    places = tuple(
        _make_place(choice, unit)
        for choice in choices
        if choice.request.nodes == 1
        for unit in units_for(cluster, choice.request)
    )
    return places, tuple(sorted(places, key=lambda place: place.unit.index))


def _make_place(choice: Choice, unit: Unit) -> UnitChoice:
    return UnitChoice(choice, unit, class_on(choice.implementation, unit))


def is_gang(job: Job) -> bool:
    """Whether a job requests several nodes."""
    return job.nodes > 1 or not any(choice.request.nodes == 1 for choice in job.choices)


def place_of(view: View, job: Job, implementation: Implementation, index: int) -> UnitChoice:
    """Where a job waits: as this implementation, for that unit."""
    return _make_place(_choice_of(job, implementation), view.cluster.units[index])


def start_heads(view: View) -> Iterator[Decision]:
    """Start the head of every unit's FIFO that fits now (Gregg 2011, rule 1)."""
    if not view.device_queues:
        return
    free = view.free()
    units = view.cluster.units
    sharing: Sharing | None = None
    for index in sorted(view.device_queues):
        fifo = view.device_queues[index]
        if any(_choice_of(*one).request.sharing for one in fifo[:REACH]):
            sharing = sharing or Sharing(view)
            yield from start_sharers(sharing, free, fifo, units[index])
            continue
        job, implementation = fifo[0]
        allocation = free.fit_unit(_choice_of(job, implementation).request, units[index])
        if allocation is not None:
            free.take(allocation)
            yield Start(job.id, implementation.name, allocation)


def start_sharers(
    sharing: Sharing, free: Free, fifo: Sequence[tuple[Job, Implementation]], unit: Unit
) -> Iterator[Decision]:
    """Start the head of a FIFO where it fits and is to share, else who ends before those that are there.

    So no waiting job is delayed by one that comes in between.
    """
    # Some places behind the head, not all: a long FIFO would be searched at every end.
    for turn, (job, implementation) in enumerate(fifo[:REACH]):
        choice = _choice_of(job, implementation)
        if turn and not choice.request.sharing:
            continue
        allocation = free.fit_unit(choice.request, unit)
        if allocation is None:
            continue
        if choice.request.sharing and not sharing.may_join(job, choice, unit, within=turn > 0):
            continue
        free.take(allocation)
        sharing.note_start(job, choice, unit)
        if turn:
            # It leaves its place in the FIFO first, so the engine sees a head start.
            yield Dequeue(job.id)
        yield Start(job.id, implementation.name, allocation)
        return


def _choice_of(job: Job, implementation: Implementation) -> Choice:
    return next(choice for choice in one_node_choices(job) if choice.implementation is implementation)


class Backlog:
    """What every unit has to do, in predicted seconds, kept up to date while a policy makes its decisions.

    ``decided`` holds the jobs that `assign_job` has placed, which the view's queue still shows. Building it
    costs a step per unit; seconds are added up, a step per job in a FIFO, at the first question.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.free = view.free()
        self.idle: list[bool] = []
        self.fifo: list[int] = []
        self.decided: set[JobId] = set()
        self._assigned: set[tuple[str, str, DeviceClass]] = set()  # all that runs or waits in a FIFO
        self._seconds: list[Seconds] = []
        self._unknown: list[int] = []
        self._holding: dict[int, list[Holding]] | None = None
        self._bound: dict[int, list[tuple[Job, UnitChoice]]] = {}  # put into a FIFO since
        self._sharing: Sharing | None = None
        gone = view.cluster.gone
        for unit in view.cluster.units:
            waiting = len(view.device_queues.get(unit.index, ()))
            self.fifo.append(waiting)
            # A unit of a node that is gone is never idle, though nothing runs there.
            self.idle.append(not waiting and unit.node not in gone and view.occupant(unit) is None)

    def _add_up(self) -> None:
        """Count what runs on each unit and what waits for it, at the first question."""
        # Most policies only need to know what is idle: sums are made at the first question about seconds.
        if self._seconds:
            return
        view = self.view
        for placed in view.running.values():
            device = class_of(view.cluster, placed.implementation, placed.allocation)
            self._assigned.add((placed.job.app.name, placed.implementation.name, device))
        for unit in view.cluster.units:
            occupant = view.occupant(unit)
            left = 0.0 if occupant is None else self._seconds_left(occupant)
            self._unknown.append(int(left == inf))
            self._seconds.append(0.0 if left == inf else left)
            for job, implementation in view.device_queues.get(unit.index, ()):
                place = _make_place(_choice_of(job, implementation), unit)
                self._assigned.add((job.app.name, implementation.name, place.device_class))
                self._add_load(unit.index, self.seconds(job, place))

    def _seconds_left(self, placed: Placed) -> Seconds:
        """Predicted seconds until it ends: as at its start, else by what is known now; else infinite."""
        if placed.predicted is not None:
            return self.view.remaining(placed)
        # The first runs of an app start together on devices of one class: when the first of them has ended,
        # something is known of the others. Else all that waits would line up behind that one.
        if not placed.job.foreign:
            device = class_of(self.view.cluster, placed.implementation, placed.allocation)
            found = self.view.predict(placed.job, placed.implementation, placed.allocation.request, device)
            if found is not None:
                return max(0.0, placed.start_time + found.expected - self.view.now)
        return inf

    def runs_unpredicted(self, unit: Unit) -> bool:
        """Whether a job has the unit to itself of which nothing was predicted at its start."""
        occupant = self.view.occupant(unit)
        return occupant is not None and occupant.predicted is None

    def _add_load(self, index: int, seconds: Seconds | None) -> None:
        self._seconds[index] += seconds or 0.0
        self._unknown[index] += seconds is None

    def take_out(self, job: Job, place: UnitChoice) -> None:
        """Count as if the job did not wait in that unit's FIFO."""
        self._add_up()
        seconds = self.seconds(job, place)
        self.fifo[place.unit.index] -= 1
        self._seconds[place.unit.index] -= seconds or 0.0
        self._unknown[place.unit.index] -= seconds is None

    def load(self, index: int) -> Seconds:
        """Predicted seconds of all that the unit has to do; what is unknown counts as none."""
        self._add_up()
        return self._seconds[index]

    def seconds(self, job: Job, place: UnitChoice) -> Seconds | None:
        """Predicted seconds of the job there; ``None`` where nothing is known."""
        choice = place.choice
        found = self.view.predict(job, choice.implementation, choice.request, place.device_class)
        return None if found is None else found.expected

    def runs(self, job: Job, place: UnitChoice) -> int:
        """Completed runs of the job's app on that class, as that implementation, whatever the inputs."""
        name = place.choice.implementation.name
        return self.view.runtimes.runs(job.app.name, name, place.device_class)

    def is_assigned(self, job: Job, place: UnitChoice) -> bool:
        """Whether a job of the app runs or waits on that class now, as that implementation."""
        self._add_up()
        return (job.app.name, place.choice.implementation.name, place.device_class) in self._assigned

    def can_start(self, place: UnitChoice) -> bool:
        """Whether the job could start there at once: it fits and nothing waits before it."""
        return self._allocation_at(place) is not None

    def _allocation_at(self, place: UnitChoice) -> Allocation | None:
        """What a job that started there at once would hold."""
        if self.fifo[place.unit.index]:
            return None
        allocation = self.free.fit_unit(place.choice.request, place.unit)
        if allocation is None or place.sharer is None:
            return allocation
        return allocation if self.device_sharing.may_join(place.sharer, place.choice, place.unit) else None

    @property
    def device_sharing(self) -> Sharing:
        """Who is on each device; found at the first question, then kept."""
        if self._sharing is None:
            self._sharing = Sharing(self.view)
        return self._sharing

    def seconds_beside(self, job: Job, place: UnitChoice) -> Seconds | None:
        """Predicted seconds of the job there, beside who is there if it would share the device with them."""
        seconds = self.seconds(job, place)
        if place.sharer is None or seconds is None or self.device_sharing.is_empty(place.unit):
            return seconds
        ends = self.device_sharing.outlook(job, place.choice, place.unit) if self.can_start(place) else None
        return seconds if ends is None else ends.comes

    def work_ahead(self, place: UnitChoice) -> WorkAhead:
        """What is ahead of the job there; nothing if it could start at once."""
        if self.can_start(place):
            return NOTHING
        if (
            place.sharer is None
            and place.unit.device is not None
            and (shares_device(place.choice.request) or self._is_shared(place.unit))
        ):
            return self._room_ahead(place)
        self._add_up()
        used = [unit.index for unit in self._units_used(place)]
        return WorkAhead(max(self._unknown[u] for u in used), max(self._seconds[u] for u in used))

    def _is_shared(self, unit: Unit) -> bool:
        """Whether a job runs on a device that has not got all of it."""
        return any(held.units < FRACTION_UNITS for held in self._shared_holdings().get(unit.index, ()))

    def tightness(self, place: UnitChoice) -> int:
        """Where a device stands by the placement rule among those on which a job that shares one could start.

        0 for jobs that have their devices to themselves: they go by the order of the devices, those first
        that are reserved for them.
        """
        if place.unit.device is None or not shares_device(place.choice.request):
            return -1 if (place.unit.node, place.unit.device) in self.view.cluster.kept else 0
        occupied = place.sharer is not None and not self.device_sharing.is_empty(place.unit)
        return self.free.tightness(place.unit) + (OCCUPIED if occupied else 0)

    def _shared_holdings(self) -> dict[int, list[Holding]]:
        """What holds a part of a device and runs, by unit; found at the first question, then kept."""
        if self._holding is None:
            self._holding = {}
            view = self.view
            at = {(unit.node, unit.device): unit for unit in view.cluster.units}
            for placed in view.running.values():
                left = self._seconds_left(placed)
                for part in placed.allocation.parts:
                    for n, d in ((n, d) for n in bit_indices(part.nodes) for d in part.devices):
                        self._hold_share(at[n, d], left, part.units, part.gpu_memory)
        return self._holding

    def _hold_share(self, unit: Unit, left: Seconds, units: int, gpu_memory: int) -> None:
        assert self._holding is not None
        assert unit.device is not None
        device = self.view.cluster.nodes[unit.node].devices[unit.device]
        taken = 0 if device.memory is None else memory_taken(device.memory, units, gpu_memory)
        self._holding.setdefault(unit.index, []).append(Holding(left, units, taken))

    def _lined_up(self, unit: Unit) -> list[Holding]:
        """What waits for a device, in its order, with what each will hold of it and for how long."""
        assert unit.device is not None
        device = self.view.cluster.nodes[unit.node].devices[unit.device]
        fifo = [
            (job, _make_place(_choice_of(job, implementation), unit))
            for job, implementation in self.view.device_queues.get(unit.index, ())
        ]
        return [
            _holding_of(self.seconds(job, place), place.choice.request, device)
            for job, place in [*fifo, *self._bound.get(unit.index, ())]
        ]

    def _room_ahead(self, place: UnitChoice) -> WorkAhead:
        """When a device has room for a job beside others, after those that wait before it."""
        unit = place.unit
        assert unit.device is not None
        device = self.view.cluster.nodes[unit.node].devices[unit.device]
        units, memory = FRACTION_UNITS, device.memory or 0
        ends: list[Holding] = []
        for held in self._shared_holdings().get(unit.index, ()):
            units, memory = units - held.units, memory - held.memory
            heappush(ends, held)
        now = 0.0
        for one in [*self._lined_up(unit), _holding_of(0.0, place.choice.request, device)]:
            while (one.units > units or one.memory > memory) and ends:
                held = heappop(ends)
                now = max(now, held.left)
                units, memory = units + held.units, memory + held.memory
            if now == inf:
                return WorkAhead(1, 0.0)
            units, memory = units - one.units, memory - one.memory
            heappush(ends, Holding(now + one.left, one.units, one.memory))
        return WorkAhead(0, now)

    def _units_used(self, place: UnitChoice) -> Iterable[Unit]:
        """The unit, and its node's CPU pool where the implementation needs both."""
        yield place.unit
        if place.unit.device is not None and place.choice.implementation.kind.startswith("cpu+"):
            node = place.unit.node
            yield from (u for u in self.view.cluster.units if u.node == node and u.device is None)

    def gang_seconds(self, job: Job, choice: Choice) -> Seconds:
        """Predicted seconds of a gang on the class where it is fastest; infinite where nothing is known."""
        known = (
            self.view.predict(job, choice.implementation, choice.request, device)
            for device in self.view.cluster.device_classes(choice.implementation.kind)
        )
        return min((found.expected for found in known if found is not None), default=inf)

    def start_gang(self, job: Job, choice: Choice) -> Decision | None:
        """Start a gang on nodes that are free now; ``None`` where there are too few."""
        allocation = self.free.fit(choice.request)
        if allocation is None:
            return None
        self.decided.add(job.id)
        self.free.take(allocation)
        return Start(job.id, choice.implementation.name, allocation)

    def assign_job(self, job: Job, place: UnitChoice) -> Decision:
        """Start the job there at once if possible, else put it into the unit's FIFO."""
        self._add_up()
        choice, unit = place.choice, place.unit
        self.decided.add(job.id)
        self._assigned.add((job.app.name, choice.implementation.name, place.device_class))
        decision: Decision
        allocation = self._allocation_at(place)
        if allocation is not None:
            self.free.take(allocation)
            if place.sharer is not None or self._sharing is not None:
                self.device_sharing.note_start(job, choice, unit)
            decision = Start(job.id, choice.implementation.name, allocation)
            if self._holding is not None and unit.device is not None:
                part, left = allocation.parts[0], self.seconds(job, place)
                self._hold_share(unit, inf if left is None else left, part.units, part.gpu_memory)
        else:
            self.fifo[unit.index] += 1
            self._bound.setdefault(unit.index, []).append((job, place))
            decision = Enqueue(job.id, choice.implementation.name, unit.index)
        seconds = self.seconds(job, place)
        for used in self._units_used(place):
            self._add_load(used.index, seconds)
            self.idle[used.index] = False
        return decision


class UnitFifos(ABC):
    """What has reached the front of a FIFO starts (rule 1); else the main queue is looked at.

    The papers have one node a job and leave it open where a gang goes: it starts at its turn, where enough
    nodes are free at once (first fit), as the implementation predicted to be fastest. Until then nothing
    behind it leaves the main queue, so that the FIFOs run dry and it does not starve.
    """

    traits: ClassVar[Traits] = Traits(each_unit=True, partitions=True)

    def gang_decision(self, backlog: Backlog, job: Job) -> Decision:
        """Start a gang where it fits now, or have it wait."""
        keeps = traits_of(self).keeps_to
        wanted = [choice for choice in job.asked if (choice.implementation.kind == CPU) == (keeps == "cpu")]
        choices = wanted if keeps and wanted else job.asked
        choice = min(choices, key=partial(backlog.gang_seconds, job))
        return backlog.start_gang(job, choice) or Wait(job.id, TOGETHER.format(nodes=choice.request.nodes))

    def decide(self, view: View) -> Iterable[Decision]:
        """Start the heads; where there are none, assign what is in the main queue."""
        heads = list(start_heads(view))
        if heads or not len(view.queue):
            return heads  # the policy is called again once they run
        return self.assign_queue(view, Backlog(view))

    @abstractmethod
    def assign_queue(self, view: View, backlog: Backlog) -> Iterable[Decision]:
        """Where the jobs of the main queue go."""


class DynamicQueue(UnitFifos):
    """While a unit is idle, the next job of the main queue goes to a unit, or into its FIFO."""

    def assign_queue(self, view: View, backlog: Backlog) -> Iterable[Decision]:
        """Go through the queue once (rule 4); through what is new where the rest cannot run here anyway."""
        jobs: Iterable[Job] = view.queue
        if not view.changes.incident and not any(
            _fits_present_nodes(view, request) for request in view.queue.requests()
        ):
            jobs = [job for job in view.changes.submitted if job in view.queue]
        for job in jobs:
            if is_gang(job):
                yield self.gang_decision(backlog, job)
                return  # the policy is called again once it runs
            places = places_in_device_order(view, job)
            if not places:
                yield Wait(job.id, NOWHERE)
                continue
            if not any(backlog.idle) and not any(backlog.can_start(place) for place in places):
                return
            place = self.choose_place(backlog, job, places)
            if place is not None:
                yield backlog.assign_job(job, place)

    @abstractmethod
    def choose_place(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> UnitChoice | None:
        """Where the next job goes: started there if it can be, else into the FIFO; ``None``: it waits."""


def _fits_present_nodes(view: View, request: Request) -> bool:
    """Whether a job with this request can run on nodes that are there. O(1) mostly."""
    return request.nodes > 1 or bool(units_for(view.cluster, request))
