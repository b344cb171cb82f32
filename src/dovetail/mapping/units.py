"""Where a map gets its workers' cores and devices from, and gives them back to.

A map is one job: it holds its workers' units while it uses them, gives each back as soon as nothing is
left for it, and says nothing of its items. `Units` is all that it asks for. `ThisMachine` is the plain
form: the cores that this process may use, and the devices that are found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Protocol

from dovetail.executors.discovery import inventory
from dovetail.mapping.places import Place, Wanted
from dovetail.model import CPU

__all__ = ["ThisMachine", "Units", "devices_here"]


class Units(Protocol):
    """Gives out places for workers."""

    def counts(self, kinds: Sequence[str]) -> Mapping[str, int]:
        """How many units there are: cores under ``cpu``, devices of each of the other kinds."""
        ...

    def take(self, wanted: Sequence[Wanted]) -> Sequence[Place]:
        """A place for each worker, in the order asked for; waits until they are free.

        Raises `InputError` for what can never be had. The caller holds each place until it gives it back.
        """
        ...

    def give(self, place: Place) -> None:
        """A worker has ended and needs its place no longer; called once for each place."""
        ...


class ThisMachine:
    """The cores that this process may use, and the devices found; nothing is kept from anybody.

    Cores are given out in turn, and again from the first when there are fewer than asked for; so are the
    devices of a kind. Where there are none of a kind its worker i gets number i.
    """

    def counts(self, kinds: Sequence[str]) -> Mapping[str, int]:
        """Cores and devices."""
        found = {kind: len(devices_here(kind)) for kind in kinds if kind != CPU}
        return {CPU: len(os.sched_getaffinity(0)), **found}

    def take(self, wanted: Sequence[Wanted]) -> Sequence[Place]:
        """Never waits."""
        cores = sorted(os.sched_getaffinity(0))
        places: list[Place] = []
        at = 0
        for some in wanted:
            devices = devices_here(some.kind)
            for index in range(some.count):
                mine = tuple(dict.fromkeys(cores[(at + i) % len(cores)] for i in range(some.cores)))
                at += some.cores
                device, model = devices[index % len(devices)] if devices else (index, "")
                if some.kind == CPU:
                    model = _cpu_model()
                places.append(Place(some.kind, index, mine, device, model))
        return places

    def give(self, place: Place) -> None:
        """Nothing was kept."""


@cache
def devices_here(kind: str) -> tuple[tuple[int, str], ...]:
    """Number and model of each of this machine's devices of a kind; looked up once."""
    if kind == CPU:
        return ()
    probes = ("opencl",) if kind == "opencl" else ("nvidia", "amd")
    found = inventory(probes=probes).devices
    # Also an OpenCL device on the machine's own cores, which is used by those only who ask for it by name.
    return tuple((d.number, d.model) for d in found if d.kind == kind and not d.broken)


@cache
def _cpu_model() -> str:
    return inventory(probes=()).cores.model
