"""Workers as they are requested (``cpu:14,gpu:2``), and the cores and the device that each is bound to.

A map is one job: it holds its workers' places while it uses them, gives each back as soon as nothing is left
for it, and publishes nothing of its items.
"""

from __future__ import annotations

import os
import re
import secrets
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import TypeVar

from dovetail.errors import DovetailWarning, InputError
from dovetail.files.sentences import show_value
from dovetail.local.claims import MAP, Claims, Holder, claim_environment
from dovetail.local.discovery import take_inventory
from dovetail.model import CPU, Device, DeviceClass
from dovetail.process.environment import THREAD_COUNTS, device_vendor, visible_name
from dovetail.records import dataclass

_T = TypeVar("_T")
_WORKERS = re.compile(r"([A-Za-z][\w-]*)(?::(\d+)(?:x(\d+))?)?")
MOST = 4096
_MINE: set[str] = set()
"""Who holds units for maps of this process; a process that was forked off has none."""
os.register_at_fork(after_in_child=_MINE.clear)


@dataclass(frozen=True, slots=True)
class Wanted:
    """So many workers of a kind, each with so many cores."""

    kind: str
    count: int = 1
    cores: int = 1

    def __str__(self) -> str:
        return f"{self.kind}:{self.count}" + (f"x{self.cores}" if self.cores != 1 else "")


@dataclass(frozen=True, slots=True)
class Place:
    """What one worker is bound to.

    ``index`` counts the workers of its kind. ``device`` is the number of its device among those of the
    kind: the value of DOVETAIL_DEVICE; ``model`` is the device's (or CPU's) model, empty where there is none.
    """

    kind: str
    index: int
    cores: tuple[int, ...]
    device: int = 0
    model: str = ""

    @property
    def name(self) -> str:
        """``cpu 3``, for people."""
        return f"{self.kind} {self.index}"

    @property
    def device_class(self) -> DeviceClass:
        """What the history keeps its times under."""
        return DeviceClass(self.kind, self.model)


def parse_workers(text: str) -> list[Wanted]:
    """``KIND[:COUNT[xCORES]]``, joined by commas: ``cpu:14,gpu:2``, ``cpu:2x4``. Raises `InputError`."""
    found: dict[str, Wanted] = {}
    for word in text.split(","):
        match = _WORKERS.fullmatch(word.strip())
        if match is None:
            raise InputError(
                f"found {show_value(word)}, expected KIND:COUNT joined by commas, e.g. cpu:14,gpu:2",
                where="workers",
            )
        kind, count, cores = match[1], int(match[2] or 1), int(match[3] or 1)
        if kind in found:
            raise InputError(f"found {kind} twice, expected each kind once", where="workers")
        if not 0 <= count <= MOST or not 1 <= cores <= MOST:
            raise InputError(
                f"found {show_value(word)}, expected 0 to {MOST} workers of 1 to {MOST} cores",
                where="workers",
            )
        found[kind] = Wanted(kind, count, cores)
    kept = [wanted for wanted in found.values() if wanted.count]
    if not kept:
        raise InputError(f"found {show_value(text)}, expected at least one worker", where="workers")
    return kept


def environment_of(place: Place, outer: Mapping[str, str], kinds: Sequence[str]) -> dict[str, str]:
    """Variables to set for a worker over ``outer``, our own; ``kinds`` are those of all workers of the map.

    DOVETAIL_DEVICE is kind and number of its device, ``gpu:1``; of a CPU worker its own number. A worker
    sees its own GPU only (numbers count among those that we ourselves see), a CPU worker sees none.
    """
    threads = str(len(place.cores) or 1)
    env = dict.fromkeys(THREAD_COUNTS, threads)
    env["DOVETAIL_DEVICE"] = f"{place.kind}:{place.device}"
    env["DOVETAIL_CORES"] = ",".join(map(str, place.cores))
    env["DOVETAIL_WORKER"] = place.name.replace(" ", ":")
    for kind in kinds:
        maker = device_vendor(Device(kind))
        if maker is None:
            continue
        variable = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}[maker]
        if place.kind == kind:
            env[variable] = visible_name(variable, place.device, outer)
        elif place.kind == CPU:
            env[variable] = ""
        if maker == "nvidia":
            # Numbers in the variable above are the driver's, by bus; CUDA's own order is by speed.
            env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if place.kind == "opencl":
        env["POCL_MAX_PTHREAD_COUNT"] = threads
        # It would override the worker's cores.
        env["POCL_AFFINITY"] = "0"
        if "POCL_DEVICES" not in outer and "pocl" in place.model.lower():
            env["POCL_DEVICES"] = "pthread"
    return env


def default_workers(kinds: Sequence[str], cores: int, devices: Mapping[str, int]) -> list[Wanted]:
    """The workers of a map without a request: one for each device, and one for each core left.

    ``kinds`` are those that have an implementation; a kind without a device gets no worker.
    """
    others = [Wanted(kind, devices[kind]) for kind in kinds if kind != CPU and devices.get(kind)]
    left = max(1, cores - sum(wanted.count for wanted in others))
    return ([Wanted(CPU, left)] if CPU in kinds else []) + others


class InUse(Exception):  # noqa: N818 - not an error: it will be free later
    """Others use what was requested; the text names what and who."""


class ThisMachine:
    """The cores that this process may use, and the devices found, but for those that other Dovetails use.

    Workers of a map get cores of their own while there are any, and then share them in turn; so it is with
    the devices of a kind. Where there are none of a kind its worker i gets number i, which is not claimed.

    Maps of one process (one inside the other, perhaps, in a single thread) never wait for each other: they
    share what is left when all is in use.
    """

    def __init__(self) -> None:
        self._claims = Claims(MAP + secrets.token_hex(4))
        self._held: list[Place] = []

    def free_counts(self, kinds: Sequence[str]) -> dict[str, int]:
        """Cores and devices that no other Dovetail uses now; at least one core."""
        # Without a view of the others the map takes all cores; `take` finds what is free.
        others: Mapping[str, Holder] = {}
        with suppress(OSError):
            others = self._claims.held_by_others()
        free = _Free(others)
        found = {kind: len(free.devices(kind)) for kind in kinds if kind != CPU}
        return {CPU: max(1, len(free.cores)), **found}

    def default_workers(self, kinds: Sequence[str]) -> list[Wanted]:
        """What there is now; notes which kinds get no worker. Raises `InputError` where none gets one."""
        counts = self.free_counts(kinds)
        found = default_workers(kinds, counts[CPU], counts)
        for kind in kinds:
            if kind == CPU or counts[kind]:
                continue
            there = bool(devices_here(kind))
            if there and not found:
                return [Wanted(kind)]  # waits until one is free
            if not found:
                raise InputError(
                    f"found no {kind} device on this machine, expected one "
                    f"({kind}:1 makes a worker without it)",
                    where="workers",
                )
            why = f"every {kind} device is in use" if there else f"this machine has no {kind} device"
            how = "" if there else f" (workers {kind}:1 makes one all the same)"
            warnings.warn(f"{why}: the map has no {kind} worker{how}", DovetailWarning, stacklevel=1)
        return found

    def take(self, wanted: Sequence[Wanted], before: Sequence[Place] = ()) -> list[Place]:
        """A place for each worker, in the order of the request; their earlier ones, if these are free.

        All or none, never waiting: raises `InUse` where others have them now. The caller holds each place
        until it gives it back.
        """
        places: list[Place] = []

        def choose_units(others: Mapping[str, Holder]) -> set[str]:
            free = _Free(others)
            # The earlier places again: their workers still run, bound to these very cores.
            again = bool(before) and not any(
                map(free.is_taken, (u for place in before for u in _units_of_place(place)))
            )
            places.extend(before if again else free.find_places(wanted))
            return {unit for place in (*self._held, *places) for unit in _units_of_place(place)}

        try:
            others = self._claims.choose_units(choose_units)
            _MINE.add(self._claims.uid)
        except TimeoutError as error:
            # Others are there, and what they use cannot be seen for now.
            raise InUse(f"{error}, so that nothing can be claimed on this machine") from None
        except OSError as error:
            warnings.warn(
                f"other Dovetails on this machine are not seen: {error.strerror or error}",
                DovetailWarning,
                stacklevel=1,
            )
            others = {}
            choose_units(others)
        if not places:
            raise InUse(_Free(others).describe_holders(wanted))
        self._held += places
        return places

    def add(self, some: Wanted, index: int, *, share: bool = False) -> Place:
        """A place for one more worker of a kind, never waiting. Raises `InUse` where there is none.

        No other of ours has its cores and its device, unless they may ``share`` them.
        """
        places: list[Place] = []

        def choose_units(others: Mapping[str, Holder]) -> set[str]:
            held = Counter(unit for place in self._held for unit in _units_of_place(place))
            found = _Free(others).find_place(some, index, held, share=share)
            places.extend([] if found is None else [found])
            return {unit for place in (*self._held, *places) for unit in _units_of_place(place)}

        try:
            others = self._claims.choose_units(choose_units)
            _MINE.add(self._claims.uid)
        except OSError as error:
            raise InUse(f"nothing can be claimed on this machine: {error.strerror or error}") from None
        if not places:
            raise InUse(_Free(others).describe_holders([some]))
        self._held += places
        return places[0]

    def add_again(self, place: Place) -> bool:
        """Hold a place that was given back, if no other process has it now."""
        units = set(_units_of_place(place))
        free = False

        def choose_units(others: Mapping[str, Holder]) -> set[str]:
            nonlocal free
            held = {unit for kept in self._held for unit in _units_of_place(kept)}
            free = not units & (held | others.keys())
            return held | units if free else held

        # Then it is as good as taken.
        with suppress(OSError):
            self._claims.choose_units(choose_units)
            _MINE.add(self._claims.uid)
            self._held += [place] if free else []
            return free
        return False

    def give(self, place: Place) -> None:
        """A worker has ended; what no other worker of the map uses is free for others."""
        self._held.remove(place)
        # Another process keeps the folder locked: the next release, or the end, catches up.
        with suppress(OSError):
            self._claims.keep(unit for kept in self._held for unit in _units_of_place(kept))

    def worker_environment(self) -> Mapping[str, str]:
        """Variables for the workers: a Dovetail in one of them may use what the map holds."""
        return claim_environment(self._claims.uid)

    def claim_descriptors(self) -> Sequence[int]:
        """For the supervisor, which ends workers if we cannot: what is held stays so while one is open."""
        try:
            return (self._claims.inheritable_descriptor,)
        except OSError:
            return ()

    def close(self) -> None:
        """Hold nothing any more."""
        self._claims.close()
        _MINE.discard(self._claims.uid)


class _Free:
    """What no other process uses: first what no other map of ours does either."""

    def __init__(self, others: Mapping[str, Holder]) -> None:
        self._others = others
        self._cores = sorted(os.sched_getaffinity(0))
        free = [core for core in self._cores if not self.is_taken(f"core:{core}")]
        # Cores that another map of this process shares come last.
        self.cores = sorted(free, key=lambda core: f"core:{core}" in others)

    def is_taken(self, unit: str) -> bool:
        """Whether another process has it."""
        holder = self._others.get(unit)
        return holder is not None and holder.uid not in _MINE

    def devices(self, kind: str) -> list[tuple[int, str]]:
        """Number and model of those of a kind."""
        found = [one for one in devices_here(kind) if not self.is_taken(f"{kind}:{one[0]}")]
        return sorted(found, key=lambda one: (f"{kind}:{one[0]}" in self._others, one[0]))

    def find_place(self, some: Wanted, index: int, held: Mapping[str, int], *, share: bool) -> Place | None:
        """A place for one more worker beside those that hold so much; ``None`` if nothing is left for it."""

        def least_used(units: Sequence[tuple[str, _T]]) -> list[_T]:
            """What may be used, least used first."""
            found = [(held.get(unit, 0) + (unit in self._others), unit, one) for unit, one in units]
            return [one for used, _, one in sorted(found, key=lambda it: it[0]) if share or not used]

        need = min(some.cores, len(self._cores))
        cores = least_used([(f"core:{core}", core) for core in self.cores])[:need]
        devices = least_used([(f"{some.kind}:{one[0]}", one) for one in self.devices(some.kind)])
        if len(cores) < need or (devices_here(some.kind) and not devices):
            return None
        device, model = devices[0] if devices else (index, "")
        model = _cpu_model() if some.kind == CPU else model
        return Place(some.kind, index, tuple(sorted(cores)), device, model)

    def find_places(self, wanted: Sequence[Wanted]) -> list[Place]:
        """One for each worker; none where less is free than all workers can use of what there is."""
        # In ascending order, so that neighbouring workers get neighbouring cores.
        cores = sorted(self.cores[: sum(some.count * some.cores for some in wanted)])
        if len(cores) < min(len(self._cores), sum(some.count * some.cores for some in wanted)):
            return []
        places: list[Place] = []
        at = 0
        for some in wanted:
            devices = self.devices(some.kind)
            if len(devices) < min(some.count, len(devices_here(some.kind))):
                return []
            for index in range(some.count):
                mine = tuple(dict.fromkeys(cores[(at + i) % len(cores)] for i in range(some.cores)))
                at += some.cores
                device, model = devices[index % len(devices)] if devices else (index, "")
                model = _cpu_model() if some.kind == CPU else model
                places.append(Place(some.kind, index, mine, device, model))
        return places

    def describe_holders(self, wanted: Sequence[Wanted]) -> str:
        """Who has what of all that would do."""
        units = [f"core:{core}" for core in self._cores]
        units += [f"{some.kind}:{number}" for some in wanted for number, _ in devices_here(some.kind)]
        taken = [unit for unit in units if self.is_taken(unit)]
        labels = sorted({self._others[unit].label for unit in taken})
        return f"{', '.join(taken)} in use by {', '.join(labels)}"


def _units_of_place(place: Place) -> list[str]:
    """As `claims` names them: cores, and the device if there is one."""
    units = [f"core:{core}" for core in place.cores]
    # A worker without a device has a number too, which claims nothing.
    real = any(place.device == number for number, _ in devices_here(place.kind))
    return [*units, f"{place.kind}:{place.device}"] if real else units


@cache
def devices_here(kind: str) -> tuple[tuple[int, str], ...]:
    """Number and model of each of this machine's devices of a kind; looked up once.

    Numbers of GPUs count among those that our own environment lets us see.
    """
    if kind == CPU:
        return ()
    probes = ("opencl",) if kind == "opencl" else ("nvidia", "amd")
    found = [device for device in take_inventory(probes=probes).devices if device.kind == kind]
    # Also an OpenCL device on the machine's own cores, which is used only where it is requested by name.
    return tuple((number, device.model) for number, device in enumerate(found) if not device.broken)


@cache
def _cpu_model() -> str:
    return take_inventory(probes=()).cores.model
