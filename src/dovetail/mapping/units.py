"""Where a map gets its workers' cores and devices from, and gives them back to.

A map is one job: it holds its workers' units while it uses them, gives each back as soon as nothing is
left for it, and says nothing of its items. `Units` is all that it asks for. `ThisMachine` has the cores that
this process may use, and the devices that are found, as far as no other Dovetail uses them.
"""

from __future__ import annotations

import os
import secrets
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Protocol

from dovetail.errors import DovetailWarning
from dovetail.executors.claims import MAP, Claims, Holder, around
from dovetail.executors.discovery import inventory
from dovetail.mapping.places import Place, Wanted
from dovetail.model import CPU

__all__ = ["InUse", "ThisMachine", "Units", "devices_here"]

_MINE: set[str] = set()
"""Who holds units for maps of this process; a process that was forked off has none."""
os.register_at_fork(after_in_child=_MINE.clear)


class InUse(Exception):  # noqa: N818 - not an error: it will be free later
    """Others use what was asked for; says what and who."""


class Units(Protocol):
    """Gives out places for workers."""

    def counts(self, kinds: Sequence[str]) -> Mapping[str, int]:
        """How many units there are for us: cores under ``cpu``, devices of each of the other kinds."""
        ...

    def take(self, wanted: Sequence[Wanted], before: Sequence[Place] = ()) -> Sequence[Place]:
        """A place for each worker, in the order asked for; those that they had before, if these are free.

        Raises `InUse` where others have them now, and `InputError` for what can never be had. The caller
        holds each place until it gives it back.
        """
        ...

    def give(self, place: Place) -> None:
        """A worker has ended and needs its place no longer; called once for each place."""
        ...

    def environment(self) -> Mapping[str, str]:
        """Variables for the workers, which may use what is held for them."""
        ...

    def descriptors(self) -> Sequence[int]:
        """For whoever ends the workers if we cannot: what is held stays so while one of these is open."""
        ...

    def close(self) -> None:
        """All places were given back, and no more are taken."""
        ...


class ThisMachine:
    """The cores that this process may use, and the devices found, but for those that other Dovetails use.

    Workers of a map get cores of their own while there are any, and then share them in turn; so it is with
    the devices of a kind. Where there are none of a kind its worker i gets number i, which nobody claims.

    Maps of one process (one inside the other, perhaps, in a single thread) never wait for each other: they
    share what is left when all is in use.
    """

    def __init__(self) -> None:
        self._claims = Claims(MAP + secrets.token_hex(4))
        self._held: list[Place] = []

    def counts(self, kinds: Sequence[str]) -> Mapping[str, int]:
        """Cores and devices that no other Dovetail uses now; at least one core."""
        others: Mapping[str, Holder] = {}
        with suppress(OSError):
            others = self._claims.others()
        free = _Free(others)
        found = {kind: len(free.devices(kind)) for kind in kinds if kind != CPU}
        return {CPU: max(1, len(free.cores)), **found}

    def take(self, wanted: Sequence[Wanted], before: Sequence[Place] = ()) -> Sequence[Place]:
        """All places or none; never waits."""
        places: list[Place] = []

        def choose(others: Mapping[str, Holder]) -> set[str]:
            free = _Free(others)
            if before and all(free.has(place) for place in before):
                places.extend(before)
            else:
                places.extend(_Seats(free, wanted).places())
            return {unit for place in (*self._held, *places) for unit in _units(place)}

        try:
            others = self._claims.choose(choose)
            _MINE.add(self._claims.uid)
        except TimeoutError as error:  # others are there, and what they use cannot be seen for now
            raise InUse(f"{error}, so that nothing can be claimed on this machine") from None
        except OSError as error:
            warnings.warn(
                f"other Dovetails on this machine are not seen: {error.strerror or error}",
                DovetailWarning,
                stacklevel=1,
            )
            others = {}
            choose(others)
        if not places:
            raise InUse(_said(others, wanted))
        self._held += places
        return places

    def give(self, place: Place) -> None:
        """What no other worker of the map uses is free for others."""
        self._held.remove(place)
        with suppress(OSError):  # somebody keeps the folder locked: with the next place, or at the end
            self._claims.keep(unit for kept in self._held for unit in _units(kept))

    def environment(self) -> Mapping[str, str]:
        """A Dovetail in a worker may use what the map holds."""
        return around(self._claims.uid)

    def descriptors(self) -> Sequence[int]:
        """Of the claim; none where claims cannot be written."""
        try:
            return (self._claims.descriptor,)
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
        self.cores = [
            core
            for _, core in sorted(
                (f"core:{core}" in others, core)
                for core in os.sched_getaffinity(0)
                if not self._taken(f"core:{core}")
            )
        ]

    def _taken(self, unit: str) -> bool:
        holder = self._others.get(unit)
        return holder is not None and holder.uid not in _MINE

    def devices(self, kind: str) -> list[tuple[int, str]]:
        """Number and model of those of a kind."""
        found = [one for one in devices_here(kind) if not self._taken(f"{kind}:{one[0]}")]
        return sorted(found, key=lambda one: (f"{kind}:{one[0]}" in self._others, one[0]))

    def has(self, place: Place) -> bool:
        """Whether this very place is free."""
        return not any(self._taken(unit) for unit in _units(place))


class _Seats:
    """Places for workers in what is free."""

    def __init__(self, free: _Free, wanted: Sequence[Wanted]) -> None:
        self._free, self._wanted = free, wanted

    def places(self) -> list[Place]:
        """One for each worker; none where too little is free.

        Too little is less than all workers can use of what there is, be it theirs or others'.
        """
        every, cores = len(os.sched_getaffinity(0)), self._free.cores
        cores = cores[: sum(some.count * some.cores for some in self._wanted)]
        if len(cores) < min(every, sum(some.count * some.cores for some in self._wanted)):
            return []
        cores.sort()
        places: list[Place] = []
        at = 0
        for some in self._wanted:
            devices = self._free.devices(some.kind)
            if len(devices) < min(some.count, len(devices_here(some.kind))):
                return []
            for index in range(some.count):
                mine = tuple(dict.fromkeys(cores[(at + i) % len(cores)] for i in range(some.cores)))
                at += some.cores
                device, model = devices[index % len(devices)] if devices else (index, "")
                if some.kind == CPU:
                    model = _cpu_model()
                places.append(Place(some.kind, index, mine, device, model))
        return places


def _said(others: Mapping[str, Holder], wanted: Sequence[Wanted]) -> str:
    """Who has what of all that would do."""
    units = [f"core:{core}" for core in sorted(os.sched_getaffinity(0))]
    units += [f"{some.kind}:{number}" for some in wanted for number, _ in devices_here(some.kind)]
    taken = {unit: others[unit] for unit in units if unit in others and others[unit].uid not in _MINE}
    labels = sorted({holder.label for holder in taken.values()})
    return f"{', '.join(taken)} in use by {', '.join(labels)}"


def _units(place: Place) -> list[str]:
    """As `claims` names them: cores, and the device if there is one."""
    units = [f"core:{core}" for core in place.cores]
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
    found = [device for device in inventory(probes=probes).devices if device.kind == kind]
    # Also an OpenCL device on the machine's own cores, which is used by those only who ask for it by name.
    return tuple((number, device.model) for number, device in enumerate(found) if not device.broken)


@cache
def _cpu_model() -> str:
    return inventory(probes=()).cores.model
