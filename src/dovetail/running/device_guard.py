"""The devices of this machine while a run goes: who else is on them, what our jobs hold, whether they work.

Processes of their own query the drivers (`dovetail.local.device_watch`). What strangers hold is
not ours: by ``avoid`` a device on which a stranger computes is left alone until that ends, by ``memory``
only their memory counts as taken. A device whose driver reports an error or does not answer, and one on which
jobs of several apps fail at once, is suspended, with a sentence. What our jobs hold is measured on the way.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from importlib.util import find_spec
from math import inf
from typing import Protocol

from dovetail.driver.driver import Driver
from dovetail.local.device_processes import DeviceProcess
from dovetail.local.device_watch import PATIENCE, WATCHED, DeviceState, DeviceWatch, Snapshot
from dovetail.local.discovery import with_traces
from dovetail.model import (
    FRACTION_UNITS,
    Cluster,
    Ended,
    JobId,
    Placed,
    Released,
    Requeued,
    Seconds,
    State,
    Submitted,
    Usage,
    bit_indices,
)
from dovetail.model.fitting import memory_taken
from dovetail.process.environment import device_vendor, driver_names
from dovetail.process.processes import parent_of
from dovetail.records import dataclass
from dovetail.running.failing_devices import FailingDevices
from dovetail.spec.values import Neighbourhood

_log = logging.getLogger(__name__)
Place = tuple[int, str]
"""A node's number, and the name of one of its devices."""
FRESH: Seconds = 0.2
"""What was seen so long ago is looked at again before a job starts on a device."""
STALE: Seconds = 2.0
"""Nothing starts on what was seen longer ago than this, and twice what the driver took for it: while it reads
the next state, the one before is the newest that there is."""
FIRST_LOOK: Seconds = 5.0
"""A driver may take so long to answer for the first time."""
SAMPLES = ((10.0, 0.5), (60.0, 1.0), (inf, 2.0))
"""Seconds between looks at what our jobs hold, by the age of the youngest of them."""
BUSY = 0.01
"""A job that uses less of its devices' time does not use them."""
SURE_AFTER, SELDOM = 8, 16
"""After so many looks a process that is no job's is taken to stay so, and looked up at each so many-th."""
IDLE_AFTER: Seconds = 1800.0
"""So long a job may not use its devices before that is shown."""
NEAR_LIMIT = 0.97
"""A job that is killed while it held this part of what it was given has very likely wanted more."""
_MARKS = (b"DOVETAIL_UID=", b"DOVETAIL_AROUND=")
"""What the environment of Dovetails' jobs and of maps' workers has."""
SERVERS = "nvidia-cuda-mps"
"""How the names of processes begin that only serve others' processes."""


class Watch(Protocol):
    """Queries the driver of a maker's devices; see `dovetail.local.device_watch.DeviceWatch`."""

    @property
    def trouble(self) -> str:
        """What is wrong with the driver; empty while it answers."""
        ...

    @property
    def alive(self) -> bool:
        """Whether it can be queried."""
        ...

    def take_snapshot(self, patience: float = PATIENCE) -> Snapshot | None:
        """The devices as they are now, with the moment by our clock; ``None`` where no answer comes."""
        ...

    def close(self) -> None:
        """Look no more."""
        ...


@dataclass(frozen=True, slots=True)
class Bar:
    """Why jobs may not start on a device, or not with all of its memory: ``memory`` is how much is taken.

    ``units`` is how much else is taken, in `FRACTION_UNITS`, where jobs of ours hold the rest.
    """

    label: str
    memory: int | None = None
    units: int = 0


@dataclass(frozen=True, slots=True)
class WatchedDevice:
    """A device as its driver knows it."""

    place: Place
    maker: str
    name: str
    memory: int | None
    exclusive: bool = False


@dataclass(frozen=True, slots=True)
class DeviceSight:
    """A device as it was last seen: bytes in use, and how busy it was, from 0 to 1; ``None``: not known.

    ``idle`` is the job that holds it without using it, its user, and for how many seconds.
    """

    used: int | None = None
    utilisation: float | None = None
    idle: tuple[JobId, str | None, Seconds] | None = None


@dataclass(slots=True)
class _Measured:
    """What was seen of one attempt of a job."""

    peak: int = 0
    use: float = 0.0
    looks: int = 0

    def combined_usage(self, usage: Usage | None) -> Usage:
        """What is known of a run, and this."""
        use = self.use / self.looks if self.looks else None
        peak = max(self.peak, (usage.gpu_memory or 0) if usage is not None else 0)
        return replace(usage or Usage(), gpu_memory=peak or None, gpu_use=use)


@dataclass(slots=True)
class DeviceGuard:
    """Queries the drivers when something is to start on a device, and now and then while our jobs run there.

    ``is_ours`` knows of a process whether it is one of a job's, and of which. ``due`` is when to look again,
    by the driver's clock. ``notify_idle`` gets, once an attempt, a job that holds a device without using it.
    """

    mode: Neighbourhood
    is_ours: Callable[[int], tuple[bool, JobId]]
    watches: Mapping[str, Watch]
    devices: Mapping[Place, WatchedDevice]
    due: Seconds = inf
    notify_idle: Callable[[JobId, str, Seconds], None] = lambda job, device, seconds: None
    clock: Callable[[], float] = time.monotonic
    _seen: dict[str, Snapshot] = field(default_factory=dict)
    _ours: set[Place] = field(default_factory=set)  # where jobs of ours are
    _measured: dict[tuple[JobId, int], _Measured] = field(default_factory=dict)
    _left: dict[Place, float] = field(default_factory=dict)  # when a job of ours last ended there
    _busy_at: dict[tuple[JobId, int], float] = field(default_factory=dict)  # when it last used a device
    _told_idle: set[tuple[JobId, int]] = field(default_factory=set)
    _failing: FailingDevices[Place] = field(default_factory=FailingDevices)
    _owners: dict[int, tuple[bool, JobId]] = field(default_factory=dict)  # of pids: not a stranger's, job
    _looked: Counter[int] = field(default_factory=Counter)  # of pids: how often their owner was looked up
    _never: set[str] = field(default_factory=set)  # makers whose drivers cannot be queried at all
    _hidden: dict[Place, Counter[int]] = field(default_factory=dict)
    """Processes that the kernel does not show us, by pid (0: the driver hides it too), as they were on each
    device when no job of ours was: those that came since are ours, as far as anybody can know."""

    # ------------------------------------------------------------------- what has happened

    def observe_instant(self, driver: Driver, now: Seconds) -> None:
        """Something has happened, or a look is due: measure what runs, weigh what has ended."""
        self.due = inf
        held = self._jobs_by_device(driver)
        if held:
            age = min(now - placed.start_time for jobs in held.values() for placed in jobs)
            # Short jobs need looks close together, or their peak is missed; long ones do not.
            pause = next(pause for below, pause in SAMPLES if age < below)
            if self._older_than(pause - 0.01):
                self._query_drivers(now)
                self._measure_jobs(held)
                self._tell_of_idle(held)
            self.due = now + pause
        for at, event in enumerate(driver.pending):
            if isinstance(event, Ended):
                driver.pending[at] = self._weigh_end(driver, event, now)

    def _jobs_by_device(self, driver: Driver) -> dict[Place, list[Placed]]:
        """Our jobs by the devices that they hold."""
        found: dict[Place, list[Placed]] = {}
        for placed in driver.engine.at_work:
            if not placed.job.foreign:
                for place in self._device_places(driver.engine.cluster, placed):
                    found.setdefault(place, []).append(placed)
        self._ours = set(found)
        return found

    def _device_places(self, cluster: Cluster, placed: Placed) -> list[Place]:
        return [
            (n, cluster.nodes[n].devices[d].name)
            for part in placed.allocation.parts
            if part.devices
            for n in bit_indices(part.nodes)
            for d in part.devices
            if (n, cluster.nodes[n].devices[d].name) in self.devices
        ]

    def _weigh_end(self, driver: Driver, event: Ended, now: Seconds) -> Ended:
        """An end with what was measured; what it shows of its devices is kept."""
        placed = driver.engine.running.get(event.job) or driver.engine.ending.get(event.job)
        if placed is None or event.attempt not in (None, placed.attempt):
            return event
        places = self._device_places(driver.engine.cluster, placed)
        if not places:
            return event
        measured = self._measured.pop((event.job, placed.attempt), None)
        self._busy_at.pop((event.job, placed.attempt), None)
        self._told_idle.discard((event.job, placed.attempt))
        if measured is not None:
            event = replace(event, usage=measured.combined_usage(event.usage))
            event = self._killed_near_limit(event, placed, places)
        if event.state is State.OUT_OF_MEMORY and event.on_device:
            event = self._beside_strangers(event, places, now)
        for place in places:
            self._left[place] = self.clock()
            if event.ran:
                ran = now - placed.start_time
                self._failing.ended(place, placed.job.app.name, event.state, ran, now)
        return event

    def _killed_near_limit(self, event: Ended, placed: Placed, places: Iterable[Place]) -> Ended:
        """A job without last words that a signal ended, while it held nearly all that it was given."""
        # Only where a signal ended it: a program that gave an exit code has its own reason.
        if event.state is not State.FAILED or event.usage is None or (event.exit_code or 0) >= 0:
            return event
        given = placed.allocation.request.gpu_memory
        sizes = [size for place in places if (size := self.devices[place].memory) is not None]
        limit, peak = given or min(sizes, default=0), event.usage.gpu_memory or 0
        if not limit or peak < NEAR_LIMIT * limit:
            return event
        names = ", ".join(name for _, name in places)
        why = f"out of memory on {names}, by its peak: it held {peak / 1e9:.1f} of {limit / 1e9:.1f} GB"
        detail = "; ".join(filter(None, (why, event.detail)))
        return replace(event, state=State.OUT_OF_MEMORY, detail=detail, on_device=True)

    def _beside_strangers(self, event: Ended, places: Iterable[Place], now: Seconds) -> Ended:
        """An end for want of memory, with what strangers left of the device, and who they are."""
        if self._older_than(FRESH):
            self._query_drivers(now)
        for place in places:
            device, state = self.devices[place], self._seen_state(self.devices[place])
            others = [] if state is None else self._foreign_processes(state, device)
            memory = _memory_of(others, state) if others and state is not None else None
            if not memory or device.memory is None:
                continue
            available = max(0, device.memory - memory)
            if event.available is None or available < event.available:
                who = f"{others[0].process_label} held {memory / 1e9:.1f} GB of {device.memory / 1e9:.1f} GB"
                detail = "; ".join(filter(None, (event.detail, who)))
                event = replace(event, available=available, detail=detail)
        return event

    # ------------------------------------------------------------------- what is seen

    def _older_than(self, age: Seconds) -> bool:
        now = self.clock()
        return any(
            maker not in self._seen or now - self._seen[maker].at > age
            for maker in self.watches
            if maker not in self._never
        )

    def _query_drivers(self, now: Seconds) -> None:
        """Query every driver for the state of its devices."""
        for maker, watch in self.watches.items():
            if maker in self._never:
                continue
            first = maker not in self._seen
            # A driver may load for seconds at first; later an instant of the run must not wait for it.
            found = watch.take_snapshot(FIRST_LOOK) if first and not watch.trouble else watch.take_snapshot()
            if found is not None:
                self._seen[maker] = found = self._note_events(maker, found, now)
                self._note_owners(found)
                self._note_hidden(maker, found)
            elif first and not watch.alive:
                # Its library cannot be used here: nothing is known of its devices.
                self._never.add(maker)

    def _note_events(self, maker: str, seen: Snapshot, now: Seconds) -> Snapshot:
        """Suspend devices of which the driver reports an Xid; what it reports besides.

        An Xid is an event, which the driver reports once, perhaps while nothing waits for the device.
        """
        events: set[int] = set()
        for place, device in self.devices.items():
            state = seen.device(device.name) if device.maker == maker else None
            if state is not None and "Xid" in state.fault:
                self._failing.note_fault(place, state.fault, now)
                events.add(id(state))
        if not events:
            return seen
        calm = [replace(one, fault="") if id(one) in events else one for one in seen.devices]
        return replace(seen, devices=calm)

    def _seen_state(self, device: WatchedDevice) -> DeviceState | None:
        seen = self._seen.get(device.maker)
        return None if seen is None else seen.device(device.name)

    def _measure_jobs(self, held: Mapping[Place, list[Placed]]) -> None:
        """Add what was just seen to what is known of each job."""
        peaks: dict[tuple[JobId, int], int] = {}
        uses: dict[tuple[JobId, int], list[float]] = {}
        for place, jobs in held.items():
            state = self._seen_state(self.devices[place])
            if state is None or state.fault:
                continue
            attempts = {placed.job.id: (placed.job.id, placed.attempt) for placed in jobs}
            memory: dict[tuple[JobId, int], int] = {}
            busy: dict[tuple[JobId, int], float] = {}
            for process in state.processes:
                job = self._owners.get(process.pid, (False, ""))[1]
                # In a container pids are those of the host.
                if not process.is_visible and len(attempts) == 1:
                    job = next(iter(attempts))
                if job not in attempts:
                    continue
                key = attempts[job]
                memory[key] = memory.get(key, 0) + (process.memory or 0)
                use = process.utilisation
                if use is None and len(state.processes) == 1:
                    use = state.utilisation
                busy[key] = busy.get(key, 0.0) + (use or 0.0)
            measurable = state.utilisation is not None or any(
                p.utilisation is not None for p in state.processes
            )
            for key in attempts.values():
                by_others = key not in memory and (state.utilisation or 0.0) >= BUSY  # perhaps it is the job
                if busy.get(key, 0.0) >= BUSY or not measurable or by_others:
                    self._busy_at[key] = self.clock()
                else:
                    self._busy_at.setdefault(key, self.clock())
                peaks[key] = max(peaks.get(key, 0), memory.get(key, 0))
                uses.setdefault(key, []).append(min(1.0, busy.get(key, 0.0)))
        for key, peak in peaks.items():
            measured = self._measured.setdefault(key, _Measured())
            measured.peak = max(measured.peak, peak)
            measured.use += sum(uses[key]) / len(uses[key])
            measured.looks += 1

    def _note_owners(self, seen: Snapshot) -> None:
        """Whose each process is, looked up while it lives: later nothing shows it."""
        here = {process.pid: process for device in seen.devices for process in device.processes}
        for pid in self._owners.keys() - here.keys():
            del self._owners[pid]
            self._looked.pop(pid, None)
        for pid, process in here.items():
            if process.is_visible and not self._owners.get(pid, (False, ""))[1]:
                # Whose it is may show a moment after its start; to look each time costs more than all else.
                self._looked[pid] += 1
                if self._looked[pid] > SURE_AFTER and self._looked[pid] % SELDOM:
                    continue
                try:
                    # Looked up while it lives: its parents are gone afterwards.
                    ours, job = self.is_ours(pid)
                    self._owners[pid] = ours or _is_kin(pid) or _is_dovetails(pid), job
                except ProcessLookupError:
                    self._owners[pid] = True, ""  # it has ended since

    def _note_hidden(self, maker: str, seen: Snapshot) -> None:
        for place, device in self.devices.items():
            if device.maker == maker and place not in self._ours and (state := seen.device(device.name)):
                found = Counter(process.pid for process in state.processes if not process.is_visible)
                if found or place in self._hidden:
                    self._hidden[place] = found

    def measured_usage(self, job: JobId, attempt: int) -> Usage | None:
        """What was seen so far of a job that runs."""
        found = self._measured.get((job, attempt))
        return None if found is None else found.combined_usage(None)

    def device_sights(self, driver: Driver) -> dict[Place, DeviceSight]:
        """The devices as they were last seen, and who holds one without using it."""
        held, found = self._jobs_by_device(driver), {}
        for place, device in self.devices.items():
            state = self._seen_state(device)
            spans = {p.job.id: self._idle_for(p) for p in held.get(place, ())}
            idle = min(spans.values(), default=0.0)
            who = next((p for p in held.get(place, ()) if spans[p.job.id] == idle), None)
            idler = None if who is None or idle < IDLE_AFTER else (who.job.id, who.job.user, idle)
            used, busy = (None, None) if state is None else (state.used, state.utilisation)
            found[place] = DeviceSight(used, busy, idler)
        return found

    def _idle_for(self, placed: Placed) -> Seconds:
        since = self._busy_at.get((placed.job.id, placed.attempt))
        return 0.0 if since is None else self.clock() - since

    def _tell_of_idle(self, held: Mapping[Place, list[Placed]]) -> None:
        """A line for the operator, once an attempt."""
        for place, jobs in held.items():
            for placed in jobs:
                key, idle = (placed.job.id, placed.attempt), self._idle_for(placed)
                if idle >= IDLE_AFTER and key not in self._told_idle:
                    self._told_idle.add(key)
                    who, span = placed.job.user or "a user", idle / 60
                    words = "%s is held by %s (job %s), 0 %% busy for %.0f min"
                    _log.warning(words, place[1], who, placed.job.id, span, extra={"job": placed.job.id})
                    self.notify_idle(placed.job.id, place[1], idle)

    # ------------------------------------------------------------------- what is barred

    def device_bars(self, driver: Driver, now: Seconds) -> dict[Place, Bar]:
        """On which devices jobs may not start now, or with less memory, and why."""
        held = self._jobs_by_device(driver)
        look = self._older_than(FRESH) and (held or not self._seen or _wants_devices(driver))
        if look:
            # A job starts on what is seen now: a stranger may have come since the last look.
            self._query_drivers(now)
            self._measure_jobs(held)
        found = {place: Bar(why) for place, (why, _) in self._failing.suspended_devices(now).items()}
        for place, device in self.devices.items():
            if place not in found:
                bar = self._device_bar(device, bool(look))
                if bar is not None:
                    found[place] = bar
        return found

    def _device_bar(self, device: WatchedDevice, looked: bool) -> Bar | None:
        """Why jobs may not start there; ``looked``: its driver was queried, with an answer or without."""
        if device.maker in self._never:
            return None
        watch, state = self.watches[device.maker], self._seen_state(device)
        if watch.trouble:
            return Bar(f"suspended: {watch.trouble}")
        seen = self._seen.get(device.maker)
        if seen is None or (looked and self.clock() - seen.at > STALE + 2 * seen.took):
            return Bar(f"suspended until the {device.maker} driver answers")
        if state is None:
            # One with a UUID was listed before, or is named wrongly. Of others nothing is known.
            named = device.name.startswith(("GPU-", "MIG-"))
            return Bar(f"suspended: the {device.maker} driver does not list it") if named else None
        if state.fault:
            return Bar(f"suspended: {state.fault}")
        if self.mode == "ignore":
            return None
        others = self._foreign_processes(state, device)
        if not others:
            return None
        label = f"in use by {others[0].process_label}" + (
            f" and {len(others) - 1} more" if len(others) > 1 else ""
        )
        if self.mode == "avoid" or device.memory is None or device.exclusive:
            return Bar(label)
        memory = _memory_of(others, state)
        if memory is None:
            return Bar(label)
        return Bar(label, min(memory, device.memory)) if memory else None

    def _foreign_processes(self, state: DeviceState, device: WatchedDevice) -> list[DeviceProcess]:
        """The processes on a device that are not ours."""
        hidden = self._hidden.get(device.place, Counter()).copy()
        fresh = self._seen[device.maker].at > self._left.get(device.place, -inf)
        found: list[DeviceProcess] = []
        for process in state.processes:
            if process.is_visible:
                served = process.name.startswith(SERVERS)
                if not served and not self._owners.get(process.pid, (False, ""))[0]:
                    found.append(process)
            elif device.place in self._ours:  # it was there before ours
                if hidden[process.pid] > 0:
                    hidden[process.pid] -= 1
                    found.append(process)
            elif fresh:
                # Else perhaps one of ours that has just ended.
                found.append(process)
        return found

    def rest(self, driver: Driver, place: Place, over: set[JobId]) -> tuple[int, int] | None:
        """Bytes and `FRACTION_UNITS` of a device that our jobs leave; ``None`` where none is there.

        ``over`` have ended. A device whose memory is not known has no bytes.
        """
        jobs = [placed for placed in self._jobs_by_device(driver).get(place, ()) if placed.job.id not in over]
        size = self.devices[place].memory
        if not jobs:
            return None
        n, name = place
        node = driver.engine.cluster.nodes[n]
        taken = units = 0
        for placed in jobs:
            part = placed.allocation.part_on(n)
            if part is not None and any(node.devices[d].name == name for d in part.devices):
                taken += memory_taken(size or 0, part.units, part.gpu_memory)
                units += part.units
        return max(0, (size or 0) - taken), max(0, FRACTION_UNITS - units)

    def close(self) -> None:
        """End the processes that watch."""
        for watch in self.watches.values():
            watch.close()


def _memory_of(others: Iterable[DeviceProcess], state: DeviceState) -> int | None:
    """Bytes that strangers hold; where the driver does not report that of each, what no job of ours holds.

    ``None``: it does not report how much is in use either.
    """
    others = list(others)
    known = sum(process.memory or 0 for process in others)
    if all(process.memory is not None for process in others):
        return known
    if state.used is None:
        return None
    # What the driver counts but gives to no process (contexts, buffers) is counted as theirs: we cannot
    # promise it to a job.
    return max(known, state.used - sum(p.memory or 0 for p in state.processes if p not in others))


def _wants_devices(driver: Driver) -> bool:
    """Whether a job may begin on a device at this instant: others need no look. O(kinds of requests)."""
    engine = driver.engine
    if engine.held or any(isinstance(event, Requeued | Released) for event in driver.pending):
        # What they wait for may end at this instant.
        return True
    if any(engine.cluster.units[index].device is not None for index in engine.device_queues):
        return True
    if any(request.devices for request in engine.queue.requests()):
        return True
    return any(
        choice.request.devices
        for event in driver.pending
        if isinstance(event, Submitted)
        for choice in event.job.choices
    )


def _is_kin(pid: int) -> bool:
    """Whether a process is ours, one that started us (it waits for us, not we for it), or one we started."""
    us = os.getpid()
    try:
        return us in _line_of(pid) or pid in _line_of(us)
    except ProcessLookupError:
        return False


def _line_of(pid: int) -> set[int]:
    """A process and those above it. Raises `ProcessLookupError`."""
    line: set[int] = set()
    while pid > 1:
        line.add(pid)
        pid = parent_of(pid)
    return line


def _is_dovetails(pid: int) -> bool:
    """Whether it is a job's of another Dovetail, whose claims list exactly what it uses."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(word.startswith(_MARKS) for word in file.read().split(b"\0"))
    except OSError:
        # Another user's: its claims stand before this.
        return False


def guard_of(
    cluster: Cluster,
    environ: Mapping[str, str],
    mode: Neighbourhood,
    is_ours: Callable[[int], tuple[bool, JobId]],
) -> DeviceGuard | None:
    """A guard for the devices that have a driver to query; ``None`` where there are none."""
    there = {maker for maker in with_traces() if maker in WATCHED}
    if find_spec("pynvml") is None:
        there.discard("nvidia")
    devices: dict[Place, WatchedDevice] = {}
    for n, node in enumerate(cluster.nodes) if there else ():
        for device, name in zip(node.devices, driver_names(node, environ), strict=True):
            maker = device_vendor(device) or ""
            if name and maker in there:
                place = n, device.name
                devices[place] = WatchedDevice(place, maker, name, device.memory, device.exclusive)
    if not devices:
        return None
    watches = {maker: DeviceWatch(maker) for maker in sorted({one.maker for one in devices.values()})}
    for watch in watches.values():
        # A driver takes its time to be loaded.
        watch.start()
    return DeviceGuard(mode, is_ours, watches, devices)
