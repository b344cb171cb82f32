"""When each CPU pool and device will be free, and gangs on them: what policies for moldable jobs plan with.

This is the model of Ravi 2012, section III.B: a node has one CPU pool and its devices, each is used by one
job at a time, and each has one time at which it is free, after all that runs there or is promised it. What
a job leaves of a pool or of a device goes unused until it ends; the engine's capacity is never exceeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import inf, nextafter

from dovetail.files.arrays import Bools, Floats, np
from dovetail.interfaces import Free, View
from dovetail.kernels.gangs import compiled_place
from dovetail.model import (
    FRACTION_UNITS,
    Allocation,
    Choice,
    Cluster,
    Decision,
    Job,
    Part,
    Promise,
    Request,
    Reserve,
    Seconds,
    Start,
    Wait,
    Way,
    bit_indices,
    fits_node,
    predicted_seconds,
)
from dovetail.model.fitting import cpus_on, suits_request, takes_alike, units_taken, whole_devices

Column = tuple[int, int]
"""(node, column): column 0 is the CPU pool, column 1 + d is device d."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What a request takes of each of its nodes, in the arrays of `dovetail.kernels.gangs`."""

    pool: bool
    count: int
    eligible: Bools
    able: Bools


@lru_cache(maxsize=256)
def shape_of(cluster: Cluster, request: Request) -> Shape:
    """The shape of a request for one node, on a cluster of which no node is lost."""
    columns = 1 + max((len(node.devices) for node in cluster.nodes), default=0)
    eligible = np.zeros((len(cluster), columns), np.bool_)
    able = np.zeros(len(cluster), np.bool_)
    pool = False
    for n, node in enumerate(cluster.nodes):
        cpus = cpus_on(request, node.cpus, node.host_cpus)
        for d, device in enumerate(node.devices):
            eligible[n, 1 + d] = any(suits_request(device, kind, request) for kind, _ in request.devices)
        able[n] = fits_node(request, node) and (cpus > 0 or bool(request.devices))
        pool = pool or cpus > 0
    return Shape(pool, sum(whole_devices(number) for _, number in request.devices), eligible, able)


@dataclass(frozen=True, slots=True)
class Gang:
    """A job, how it is to run, and its place: nodes, and a start from which they can all be had."""

    job: Job
    way: Way
    nodes: tuple[int, ...]
    start: Seconds

    @property
    def end(self) -> Seconds:
        """When it is expected to end."""
        return self.start + self.way.least_seconds


class ReadyTimes:
    """When every CPU pool and device will be free, given what runs and what is promised.

    Building it costs a step for each node of each running job and promise. ``ready`` holds expected times,
    by predictions; ``sure`` those by which it is so for sure, if jobs keep to their limits: promises rest
    on them. ``latest`` is the last expected end of all that runs or is promised.

    With ``each_device`` a job on devices leaves its node's pool to others (the paper has one GPU a node): the
    CPUs that it takes beside them are counted, but hold up no job that finds enough.
    """

    def __init__(self, view: View, *, each_device: bool = False) -> None:
        cluster = view.cluster
        self.view = view
        self._each = each_device
        self.now = view.now
        self.after_now = nextafter(view.now, inf)
        self.free = view.free()
        columns = 1 + max((len(node.devices) for node in cluster.nodes), default=0)
        # Infinite where there is no device: such a column is never chosen.
        self.ready = np.full((len(cluster), columns), inf)
        for n, node in enumerate(cluster.nodes):
            if node.cpus:
                self.ready[n, 0] = self.now
            self.ready[n, 1 : 1 + len(node.devices)] = self.now
        self.sure = self.ready.copy()
        self.latest = self.now
        self._shapes: dict[Request, Shape] = {}
        self._idle = (1 << len(cluster)) - 1
        for placed in view.running.values():
            # At least a moment from now: a job past its prediction still holds its place.
            end = placed.start_time + (placed.predicted or 0.0)
            self._hold_until(placed.allocation, max(end, self.after_now), max(placed.bound, self.after_now))
            self._idle &= ~placed.allocation.mask
        self._scratch = np.empty((2, len(cluster)), np.float64)
        self._chosen = np.empty(len(cluster), np.int64)

    def _columns_of(self, allocation: Allocation) -> Iterator[Column]:
        for part in allocation.parts:
            for n in bit_indices(part.nodes):
                if part.cpus and not (self._each and part.devices):
                    yield n, 0
                for d in part.devices:
                    yield n, 1 + d

    def _hold_until(self, allocation: Allocation, end: Seconds, sure: Seconds) -> None:
        for at in self._columns_of(allocation):  # a pool may be shared: it is free after the last
            self.ready[at] = max(end, self.ready[at])
            self.sure[at] = max(sure, self.sure[at])
        self.latest = max(self.latest, end)

    def hold_until(self, allocation: Allocation, end: Seconds) -> None:
        """A place is used from now on, and expected to be free again then."""
        end = max(end, self.after_now)
        self._hold_until(allocation, end, end)

    def keep_promises(self) -> Iterator[Decision]:
        """Start the promised jobs whose turn has come; the others hold what they were promised."""
        claimed: set[Column] = set()
        for promise in self.view.reservations.values():
            columns = set(self._columns_of(promise.allocation))
            # Promises that share a unit start one after the other, in their order.
            started = not columns & claimed and self._try_take(promise.allocation)
            self._carry_on(promise, started)
            if started:
                yield Start(promise.job.id, promise.implementation.name, promise.allocation)
            else:
                claimed |= columns

    def _carry_on(self, promise: Promise, started: bool) -> None:
        """What a promise means for the times at which its place will be free again."""
        job, request = promise.job, promise.allocation.request
        seconds = predicted_seconds(self.view, job, Choice(promise.implementation, request)) or 0.0
        at = tuple(np.array(list(self._columns_of(promise.allocation))).T)
        start, sure = self.now, self.now
        if not started:
            start = max(float(self.ready[at].max()), self.after_now)
            sure = max(float(self.sure[at].max()), self.after_now)
        sure += self.view.bound(job, promise.implementation, request)
        # Not assigned but raised: the pool may be free later by another job.
        # A pool on which it has started beside another job is free after the last of them.
        self.ready[at] = np.maximum(self.ready[at], max(start + seconds, self.after_now))
        self.sure[at] = np.maximum(self.sure[at], max(sure, self.after_now))
        self.latest = max(self.latest, start + seconds)

    def _try_take(self, allocation: Allocation) -> bool:
        try:
            self.free.take(allocation)
        except ValueError:  # not all of it is free
            return False
        return True

    def shape(self, request: Request) -> Shape:
        """The shape of a request; lost nodes are not able."""
        one = request.on(1)
        found = self._shapes.get(one)
        if found is None:
            found = self._without_lost(shape_of(self.view.cluster, one), one)
            found = self._shapes[one] = self._beside_devices(found, one) if self._each else found
        return found

    def look_again(self) -> None:
        """What was committed has taken CPUs: see anew where requests fit beside jobs on devices."""
        self._shapes.clear()

    def _beside_devices(self, shape: Shape, one: Request) -> Shape:
        """The shape without the pool for a job on devices; else with nodes that have CPUs enough by now."""
        if one.devices:
            return Shape(False, shape.count, shape.eligible, shape.able)
        able = shape.able.copy()
        for n in np.flatnonzero(able):  # a pool that another job holds is free after that
            able[n] = self.ready[n, 0] > self.now or self.free.count(one, within=1 << int(n)) > 0
        return Shape(shape.pool, shape.count, shape.eligible, able)

    def _without_lost(self, shape: Shape, one: Request) -> Shape:
        """Nodes on which nothing runs and where the request still does not fit are gone."""
        idle = [n for n in np.flatnonzero(shape.able) if self._idle >> int(n) & 1]
        mask = sum(1 << int(n) for n in idle)
        free = self.view.free()
        if free.count(one, within=mask) == len(idle):
            return shape
        able = shape.able.copy()
        for n in idle:
            able[n] = free.count(one, within=1 << int(n)) > 0
        return Shape(shape.pool, shape.count, shape.eligible, able)

    def find_gang(self, job: Job, way: Way, *, packed: bool) -> Gang | None:
        """Where and when the gang can start first; ``None`` if it never can. See `kernels.gangs.place`."""
        request = way.choice.request
        shape = self.shape(request)
        start = compiled_place(
            self.ready,
            1,
            int(shape.pool),
            shape.count,
            shape.eligible,
            shape.able,
            request.nodes,
            packed,
            self._chosen,
            *self._scratch,
        )
        if start == inf:
            return None
        return Gang(job, way, tuple(self._chosen[: request.nodes].tolist()), float(start))

    def starts_now(self, job: Job, choice: Choice) -> bool:
        """Whether the job could start so at this instant."""
        gang = self.find_gang(job, Way(choice, None), packed=True)
        return gang is not None and gang.start <= self.now

    def sure_start(self, job: Job, choice: Choice) -> Seconds:
        """When it would start by the bounds of all that is before it; infinite where it cannot run."""
        gang = self.find_gang(job, Way(choice, None), packed=True)
        if gang is None:
            return inf
        allocation = self._gang_allocation(gang)
        at = tuple(np.array(list(self._columns_of(allocation))).T)
        return self.now if gang.start <= self.now else max(float(self.sure[at].max()), gang.start)

    def commit_gang(self, gang: Gang) -> Decision | None:
        """Give the gang its place: its start if that is now, else a promise.

        What it waits for may have no bound; then it holds its place at this instant only, and has to
        wait. ``None``, and nothing changed, if it cannot start after all: what is not planned here, such as
        memory, is missing.
        """
        allocation = self._gang_allocation(gang)
        job, implementation = gang.job, gang.way.choice.implementation
        at = tuple(np.array(list(self._columns_of(allocation))).T)
        decision: Decision
        if gang.start <= self.now:
            if not self._try_take(allocation):
                return None
            sure = self.now
            decision = Start(job.id, implementation.name, allocation)
        else:
            sure = max(float(self.sure[at].max()), gang.start)
            if sure < inf:
                decision = Reserve(job.id, implementation.name, allocation, sure)
            else:
                decision = Wait(job.id, f"is to run as {implementation.name} on {len(gang.nodes)} nodes")
        self.ready[at] = max(gang.end, self.after_now)
        self.sure[at] = max(self.after_now, sure + self.view.bound(job, implementation, allocation.request))
        self.latest = max(self.latest, gang.end)
        return decision

    def state(self) -> tuple[Floats, Floats, Free, Seconds]:
        """All that a commitment changes, to go back to it with `restore_state`."""
        return self.ready.copy(), self.sure.copy(), self.free.copy(), self.latest

    def restore_state(self, state: tuple[Floats, Floats, Free, Seconds]) -> None:
        """Take back what was committed since."""
        self.ready, self.sure, self.free, self.latest = state

    def _gang_allocation(self, gang: Gang) -> Allocation:
        """The engine's form of the gang's place: nodes that give the same make one part."""
        request = gang.way.choice.request
        shape = self.shape(request)
        masks: dict[tuple[int, tuple[int, ...], int], int] = {}
        for n in gang.nodes:
            row, allowed = self.ready[n], shape.eligible[n]
            usable = [c - 1 for c in range(1, len(row)) if allowed[c] and row[c] <= gang.start]
            node = self.view.cluster.nodes[n]
            groups = takes_alike(request, node.devices, usable)
            usable = next((alike for alike in groups if len(alike) >= shape.count), usable)
            units = units_taken(request, node.devices[usable[0]]) if usable else FRACTION_UNITS
            share = (cpus_on(request, node.cpus, node.host_cpus), tuple(usable[: shape.count]), units)
            masks[share] = masks.get(share, 0) | 1 << n
        memory = request.gpu_memory if request.devices else 0
        parts = tuple(
            Part(mask, cpus, devices, units, request.memory, memory)
            for (cpus, devices, units), mask in masks.items()
        )
        return Allocation(request, parts)

    def any_free(self) -> bool:
        """Whether some pool or device is free now."""
        return bool((self.ready <= self.now).any())
