"""Other Dovetails on this machine: what they use is taken, as if a job that is not ours ran there.

Who waits for cores or devices notes what it lacks with its claims, and since when. Who has waited for
`STARVED` seconds without starting anything goes first: whatever becomes free is left to it, longest wait
first, until it has what it lacks. What that costs in idle time is limited (`YIELDED`, `SHARE`), so that one
a request that will not be met, or never ends, stops no other run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from math import ceil, inf

from dovetail.driver.driver import Driver
from dovetail.local.claims import Claims, Holder, Unit, units_of, units_of_cluster
from dovetail.model import (
    FRACTION_UNITS,
    WHOLE_POOL,
    Adopted,
    Allocation,
    App,
    Choice,
    Cluster,
    Ended,
    Implementation,
    Job,
    JobId,
    NodeJoined,
    Part,
    Placed,
    Request,
    Seconds,
    State,
)
from dovetail.model.strangers import BARRED
from dovetail.running.device_guard import Bar, DeviceGuard

_log = logging.getLogger(__name__)
Place = tuple[int, str]
"""A node's number, and the name of one of its cores (``core:3``) or devices."""
POLL: Seconds = 0.1
"""Between looks whether others have ended, while a job waits for that, and for the folder's lock."""
LOOK: Seconds = 1.0
"""Between looks whether others wait, while jobs of ours do and hold all there is."""
PATIENCE: Seconds = 0.05
"""For the folder's lock: nothing else goes on meanwhile."""
STARVED: Seconds = 1.0
"""After which one who waits and has started nothing goes before others."""
YIELDED: Seconds = 5.0
"""Unit-seconds for which units may lie idle for one user who waits, and"""
SHARE = 0.05
"""in the long run this share of the time."""
WATCH: Seconds = 0.5
"""Between looks whether strangers have left devices, while a job waits."""
MOST_TOLD = 100
"""Sentences about devices that a run prints at most."""
FRONT = 20
"""Jobs at the queue's front of which the one that lacks least is noted."""


def foreign_job(
    id: JobId, cluster: Cluster, place: Place, holder: Holder | Bar, now: Seconds
) -> tuple[Job, Allocation]:
    """What another Dovetail holds at one place, as a job that is not ours, and its allocation."""
    n, name = place
    node = cluster.nodes[n]
    device = next((d for d, one in enumerate(node.devices) if one.name == name), None)
    if device is None:
        kind, request = "cpu", Request(1, 1)
        part, cores = Part(1 << n, 1), {n: (int(name.partition(":")[2]),)}
    else:
        kind = node.devices[device].kind
        memory = holder.memory if isinstance(holder, Bar) else None
        request = Request(1, 0, ((kind, 1.0),), gpu_memory=memory or 0)
        units = FRACTION_UNITS
        if isinstance(holder, Bar) and memory is not None:
            units = holder.units
            request = replace(request, devices=((kind, units / FRACTION_UNITS if units else 1.0),))
        part, cores = Part(1 << n, 0, (device,), units, 0, memory or 0), {}
    implementation = Implementation(kind, kind, request)
    app = App(BARRED if isinstance(holder, Bar) else "elsewhere", (implementation,))
    choice = Choice(implementation, request)
    job = Job(id, app, (choice,), submit_time=now, name=holder.label, foreign=True)
    return job, Allocation(request, (part,), cores)


def place_of(unit: Unit, cluster: Cluster, units: Mapping[Unit, tuple[int, int | None]]) -> Place:
    """A core of a pool, or the device that a unit is or belongs to."""
    node, device = units[unit]
    return node, unit if device is None else cluster.nodes[node].devices[device].name


def _expected_end(ours: Iterable[Placed], now: Seconds) -> float | None:
    """When all of these are expected to have ended, seconds since the epoch; ``None``: not known."""
    ends = [None if one.predicted is None else one.start_time + one.predicted for one in ours]
    if not ends or any(end is None for end in ends):
        return None
    return time.time() + max(0.0, max(end for end in ends if end is not None) - now)


class Neighbours:
    """Keeps claims before and after each instant of a live run (`dovetail.driver.live.LiveRun`).

    Before it, where something may start, all units are claimed that no other holds and no other goes
    first for; the others become foreign jobs, which hold their places in the engine. After it, what is idle
    is given back. ``due`` is when to look again, ``trouble`` why nothing can be claimed now (empty where it
    can). ``notify`` gets a sentence when a job waits for others, and when there is trouble.
    """

    def __init__(
        self,
        claims: Claims,
        cluster: Cluster,
        notify: Callable[[str], None],
        guard: DeviceGuard | None = None,
    ) -> None:
        self.due: Seconds = inf
        self.guard = guard
        self._barred: set[Place] = set()  # of the places with a foreign job those that strangers hold
        self._told_bars: set[str] = set()
        self.trouble = ""
        claims.patience = PATIENCE
        self._claims, self._cluster, self._notify = claims, cluster, notify
        self._units = units_of_cluster(cluster)
        self._places: dict[Place, list[Unit]] = {}
        for unit in self._units:
            self._places.setdefault(self._place_of(unit), []).append(unit)
        self._foreign: dict[Place, JobId] = {}
        self._stands_for: dict[Place, tuple[str, int | None]] = {}  # its owner, and with how much memory
        self._count = 0
        self._said = self._unadopted = False
        self._looked = -inf  # by the driver's clock
        self._left: dict[Place, Holder] = {}  # idle, and left to one who waits
        self._left_since = 0.0
        self._spent: dict[int, tuple[float, float]] = {}  # by user: when first, and unit-seconds since then
        self._started: frozenset[JobId] = frozenset()
        self._since = time.monotonic()  # of our last start, or of our waiting
        self._noted: tuple[dict[str, int], float] = {}, 0.0

    def before(self, driver: Driver, now: Seconds) -> None:
        """Something is about to be decided."""
        engine, guard = driver.engine, self.guard
        look = inf
        if guard is not None:
            guard.observe_instant(driver, now)
            look = guard.due
        if not (driver.pending or engine.queue or engine.device_queues):
            self.due = look
            return
        busy = self._busy_places(driver)
        bars = {} if guard is None else guard.device_bars(driver, now)
        news = self._foreign or self.trouble or self._claims.waiting or now >= self._looked + LOOK
        if not news and not bars and self._claims.held >= self._units.keys():
            self.due = min(self.due, look) if guard is None else min(now + LOOK, look)
            # All units are held and no stranger waits: a look at the folder could change nothing.
            return
        self._looked, self.due = now, min(now + LOOK, look)
        try:
            others = self._take_free_units(busy)
        except OSError as error:
            self._close_all_places(driver, busy, now, str(error.strerror or error))
            return
        if self.trouble:
            self.trouble, again = "", "claims can be made again: jobs start"
            _log.warning("%s", again)
            self._notify(again)
        taken = self._taken_places(
            {unit: who for unit, who in others.items() if unit not in self._claims.held}
        )
        taken = {place: who for place, who in (self._left | taken).items() if place not in busy}
        barred = self._bars_beside(driver, {p: bar for p, bar in bars.items() if p not in taken}, busy)
        self._hold_places(driver, {**barred, **taken}, now)
        self._tell_of_bars(bars)
        if taken:
            self.due = now + POLL
        elif bars:
            self.due = min(self.due, now + WATCH)
        if taken and not self._said:
            self._said = True
            units = ", ".join(sorted(f"{name}" for _, name in taken))
            who = ", ".join(sorted({holder.label for holder in taken.values()}))
            self._notify(f"{units} in use by {who}: jobs here take what is free, and wait for the rest")

    def _bars_beside(self, driver: Driver, bars: Mapping[Place, Bar], busy: set[Place]) -> dict[Place, Bar]:
        """What of a barred device is to be held: all, their memory, or what our jobs leave of it."""
        found: dict[Place, Bar] = {}
        over = {event.job for event in driver.pending if isinstance(event, Ended)}
        assert self.guard is not None or not bars
        for place, bar in bars.items():
            rest = self.guard.rest(driver, place, over) if self.guard is not None and place in busy else None
            if rest is None:
                found[place] = bar
            elif bar.memory is not None:
                if left := min(rest[0], bar.memory):
                    found[place] = Bar(bar.label, left)
            elif rest[0]:
                found[place] = Bar(bar.label, rest[0])
            elif rest[1] and self.guard is not None and self.guard.devices[place].memory is None:
                # Its memory is not known: what our jobs leave of its time is all that can be held.
                found[place] = Bar(bar.label, 0, rest[1])
        return found

    def _tell_of_bars(self, bars: Mapping[Place, Bar]) -> None:
        """Once of each device and cause, and once when all can be used again."""
        if not bars and self._told_bars:
            self._told_bars.clear()
            self._notify("no device is left alone any more")
        for (_, name), bar in bars.items():
            words = f"{name} {bar.label}"
            if words not in self._told_bars and len(self._told_bars) < MOST_TOLD:
                self._told_bars.add(words)
                what = "its memory is left out" if bar.memory is not None else "it is left alone meanwhile"
                _log.info("%s", words)
                self._notify(f"{words}: {what}")

    def _take_free_units(self, busy: set[Place]) -> dict[Unit, Holder]:
        """Claim what is free, but for what is left to others who have waited longer. Raises `OSError`."""
        claims = self._claims
        # Jobs of an earlier Dovetail run on these units: they are ours before anything is chosen.
        if self._unadopted:
            claims.adopt_units(unit for place in busy for unit in self._places[place])
            self._unadopted = False

        def choose_units(others: Mapping[Unit, Holder]) -> Iterable[Unit]:
            free = [
                place
                for place, units in self._places.items()
                if place not in busy and not any(unit in others for unit in units)
            ]
            self._leave_for_others(free)
            return [
                unit
                for place, units in self._places.items()
                if place not in self._left
                for unit in units
                if unit not in others
            ]

        return claims.choose_units(choose_units)

    def _leave_for_others(self, free: list[Place]) -> None:
        """What of these is left to others who wait: longest wait first, as far as they lack it."""
        clock = time.monotonic()
        for holder in self._left.values():
            # The time for which units lay idle is charged to the user for whose sake they did.
            first, spent = self._spent.get(holder.user, (clock, 0.0))
            self._spent[holder.user] = first, spent + clock - self._left_since
        self._left, self._left_since = {}, clock
        for holder in self._claims.waiting:
            first, spent = self._spent.get(holder.user, (clock, 0.0))
            # Only one who waits longer than we do: of two that yield to each other neither would start.
            longer = holder.since < self._since and clock - holder.since >= STARVED
            if not longer or spent > YIELDED + SHARE * (clock - first):
                continue
            lacks = dict(holder.wants)
            for place in free:
                kind = self._place_kind(place)
                if lacks.get(kind, 0) and place not in self._left:
                    lacks[kind] -= 1
                    self._left[place] = holder

    def _place_kind(self, place: Place) -> str:
        """``core``, or the kind of a device."""
        n, name = place
        return next((one.kind for one in self._cluster.nodes[n].devices if one.name == name), "core")

    def _close_all_places(self, driver: Driver, busy: set[Place], now: Seconds, why: str) -> None:
        """Nothing can be claimed: nothing starts but where we hold what is idle, until it can."""
        self.due = now + POLL
        if not self.trouble:
            self.trouble = f"nothing can be claimed on this machine, so nothing starts for now: {why}"
            _log.warning("%s", self.trouble)
            self._notify(self.trouble)
        held = self._claims.held
        stranger = Holder("unknown", 1, -1, frozenset())
        self._hold_places(
            driver,
            {
                place: stranger
                for place, units in self._places.items()
                if place not in busy and not held.issuperset(units)
            },
            now,
        )

    def _hold_places(self, driver: Driver, taken: Mapping[Place, Holder | Bar], now: Seconds) -> None:
        """Have foreign jobs at these places, and at no others."""
        driver.yields = any(time.monotonic() - one.since >= STARVED for one in self._claims.waiting)
        wanted = {place: _stands_for(who) for place, who in taken.items()}
        # An ended one first: its unit may stand for another holder in the same instant.
        for place in [place for place in self._foreign if wanted.get(place) != self._stands_for.get(place)]:
            driver.queue_events(Ended(self._foreign.pop(place), State.COMPLETED))
            self._barred.discard(place)
        occupancy = driver.engine.occupancy
        # Nothing starts there, nor has it room for a foreign job.
        away = occupancy.lost | occupancy.drained
        away -= {event.node for event in driver.pending if isinstance(event, NodeJoined)}
        for place, holder in taken.items():
            if place not in self._foreign and place[0] not in away:
                self._enter_foreign_job(driver, place, holder, now)
                self._stands_for[place] = wanted[place]
                if isinstance(holder, Bar):
                    self._barred.add(place)
                    if holder.memory is None:
                        self._free_fifo(driver, place)

    def _busy_places(self, driver: Driver) -> set[Place]:
        """Where jobs of ours are, but for those that have just ended."""
        over = {(event.job, event.attempt) for event in driver.pending if isinstance(event, Ended)}
        return {
            self._place_of(unit)
            for placed in driver.engine.at_work
            if not placed.job.foreign
            and (placed.job.id, placed.attempt) not in over
            and (placed.job.id, None) not in over
            for unit in units_of(placed, self._cluster)
            if unit in self._units
        }

    def _place_of(self, unit: Unit) -> Place:
        return place_of(unit, self._cluster, self._units)

    def _taken_places(self, others: dict[Unit, Holder]) -> dict[Place, Holder]:
        """Places in the cluster that others use: cores of pools, and devices (also by one of their cores)."""
        return {self._place_of(unit): holder for unit, holder in others.items() if unit in self._units}

    def _free_fifo(self, driver: Driver, place: Place) -> None:
        """Jobs that wait for a device which takes none for now go back into the queue."""
        for index, fifo in driver.engine.device_queues.items():
            unit = self._cluster.units[index]
            name = "" if unit.device is None else self._cluster.nodes[unit.node].devices[unit.device].name
            if (unit.node, name) == place:
                for job, _ in fifo:
                    # Held and released, a job passes through the queue, where the policy may move it.
                    driver.hold(job.id)
                    driver.release(job.id)

    def _enter_foreign_job(self, driver: Driver, place: Place, holder: Holder | Bar, now: Seconds) -> None:
        """A foreign job, which holds one core or one device."""
        self._count += 1
        job, allocation = foreign_job(f"elsewhere-{self._count}", self._cluster, place, holder, now)
        self._foreign[place] = job.id
        driver.adopt_job(job, Adopted(job.id, job.choices[0].implementation.name, allocation, now))

    def after(self, driver: Driver) -> None:
        """Give back what no job of ours uses; note what the next one lacks."""
        engine, started = driver.engine, self._started
        waits = bool(engine.queue or engine.device_queues)
        ours = [placed for placed in engine.at_work if not placed.job.foreign]
        self._started = frozenset(placed.job.id for placed in ours)
        if not waits or not self._started <= started:
            self._since = time.monotonic()
        used = {unit for placed in ours for unit in units_of(placed, self._cluster)}
        self._claims.until = None if waits else _expected_end(ours, engine.view.now)
        others = self._foreign.keys() - self._barred
        lacks = self._lacking_units(driver) if waits and others and not self.trouble else {}
        if lacks != self._noted[0] or self._since > self._noted[1] + STARVED / 2:
            self._noted = lacks, self._since
        try:
            self._claims.wait_for(*self._noted)
            # The wish first: once the units are free, another Dovetail decides by what it reads.
            self._claims.keep(used)
        except OSError:
            # Another one has the folder's lock: they are given back at the next instant.
            self.due = min(self.due, driver.engine.view.now + POLL)

    def _lacking_units(self, driver: Driver) -> dict[str, int]:
        """Cores and devices that the job at the queue's front needs that needs least."""
        engine = driver.engine
        front = list(islice(engine.queue, FRONT))
        front += [job for fifo in engine.device_queues.values() for job, _ in islice(fifo, FRONT)]
        needs = [self._needed_units(choice.request) for job in front for choice in job.choices]
        return min(needs, key=lambda one: sum(one.values()), default={})

    def _needed_units(self, request: Request) -> dict[str, int]:
        cpus = len(self._cluster.nodes[0].cores) if request.cpus == WHOLE_POOL else max(0, request.cpus)
        found = {kind: ceil(count * request.nodes) for kind, count in request.devices}
        return {**found, "core": cpus * request.nodes} if cpus else found

    def close(self) -> None:
        """The run is over."""
        if self.guard is not None:
            self.guard.close()

    def note_adopted_jobs(self, driver: Driver) -> None:
        """Jobs run already that an earlier Dovetail of this run has started."""
        running = driver.engine.running.values()
        try:
            self._claims.adopt_units(u for placed in running for u in units_of(placed, self._cluster))
        except OSError:
            self._unadopted = True  # before anything starts


def _stands_for(who: Holder | Bar) -> tuple[str, int | None]:
    """The owner that a foreign job stands for, and with how much memory of its device."""
    return ("", None) if isinstance(who, Holder) else (who.label, who.memory)
