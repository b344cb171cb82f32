"""Jobs that share a device slow each other down as runs before have shown.

The slowdowns are those that a history shows (`dovetail.history.slowdowns`), or are given. A simulation
with it shows what sharing would have brought: `dovetail compare last --rates sharing-learned`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.errors import InputError
from dovetail.history.base import MeasuredHistory
from dovetail.history.slowdowns import Slowdowns
from dovetail.model import (
    BESIDE,
    EMPTY,
    Cluster,
    DeviceClass,
    JobId,
    Placed,
    Seconds,
    bit_indices,
)

UNKNOWN = 2.0
"""Beside a run of which nothing is known: each gets half of the device's time."""


@dataclass(slots=True)
class SharingLearned:
    """Jobs on one device take as many times as long as runs of their apps took beside each other.

    ``pairs`` lists slowdowns as ``APP/OTHER:TIMES,…``: APP takes so many times as long beside OTHER (``*``
    stands for any app); others are those that the history of the simulation knows, else ``default``. Beside
    several each adds its part. Raises `InputError`.
    """

    default: float = UNKNOWN
    pairs: str = ""
    _given: dict[tuple[str, str], float] = field(init=False, repr=False, default_factory=dict)
    _known: Slowdowns | None = field(init=False, repr=False, default=None)
    _cluster: Cluster | None = field(init=False, repr=False, default=None)
    _at: dict[tuple[int, int], dict[JobId, Placed]] = field(init=False, repr=False, default_factory=dict)
    _places: dict[JobId, tuple[tuple[int, int], ...]] = field(init=False, repr=False, default_factory=dict)
    _rate: dict[JobId, float] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        _check_factor(self.default, f"default={self.default:g}")
        for entry in filter(None, (part.strip() for part in self.pairs.split(","))):
            apps, colon, text = entry.rpartition(":")
            app, slash, other = apps.partition("/")
            if not colon or not slash or not app or not other:
                raise InputError(
                    f"found {entry!r}, expected APP/OTHER:TIMES", where="rates sharing-learned: pairs"
                )
            self._given[app, other] = _check_factor(_parse_number(text), entry)

    def learn(self, history: MeasuredHistory | None, cluster: Cluster) -> None:
        """Know the devices, and what runs before have shown; ``None``: nothing."""
        self._cluster = cluster
        self._known = None if history is None else Slowdowns(history)

    def slowdown(self, app: str, implementation: str, device: DeviceClass) -> float:
        """How many times as long runs take on this class of runs beside another app."""
        other = device.model.partition(BESIDE)[2]
        # What is given goes before what was measured, and the narrower pair before the wider one.
        for pair in ((app, other), (app, "*"), ("*", other)):
            if pair in self._given:
                return self._given[pair]
        found = None if self._known is None else self._known.of(app, implementation, device)
        return self.default if found is None else found[0]

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """Rates of the jobs on the devices where something changed; there are no stalls."""
        # Only neighbours of what changed are computed anew: a rate depends on nothing but the shared devices.
        touched: set[tuple[int, int]] = set()
        # Ends before starts: a job that migrates is forgotten at its old place, then noted at the new one.
        for placed in [*ended, *migrated]:
            touched.update(self._forget_places(placed.job.id))
        for placed in [*started, *migrated]:
            touched.update(self._note_places(placed))
        rates: dict[JobId, float] = {}
        for place in touched:
            for job, placed in self._at.get(place, {}).items():
                rate = 1 / self._slowed_rate(placed)
                if rate != self._rate.get(job, 1.0):
                    rates[job] = self._rate[job] = rate
        return rates, EMPTY

    def _note_places(self, placed: Placed) -> Iterable[tuple[int, int]]:
        places = tuple(
            (n, d)
            for part in placed.allocation.parts
            for n in (bit_indices(part.nodes) if part.devices else ())
            for d in part.devices
        )
        for place in places:
            self._at.setdefault(place, {})[placed.job.id] = placed
        self._places[placed.job.id] = places
        return places

    def _forget_places(self, job: JobId) -> Iterable[tuple[int, int]]:
        places = self._places.pop(job, ())
        self._rate.pop(job, None)
        for place in places:
            self._at[place].pop(job, None)
        return places

    def _slowed_rate(self, placed: Placed) -> float:
        """By those that share one of its devices with it: it is as slow as on the slowest."""
        # One slow device holds up the whole job, as its parts wait for each other.
        return max(1.0 + sum(self._slowdowns_at(placed, place)) for place in self._places[placed.job.id])

    def _slowdowns_at(self, placed: Placed, place: tuple[int, int]) -> Iterable[float]:
        n, d = place
        model = "" if self._cluster is None else self._cluster.nodes[n].devices[d].model
        for other in self._at[place].values():
            if other.job.id != placed.job.id:
                device = DeviceClass(placed.implementation.kind, model).beside(other.job.app.name)
                yield self.slowdown(placed.job.app.name, placed.implementation.name, device) - 1.0


def _parse_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _check_factor(times: float, entry: str) -> float:
    if not 1 <= times < math.inf:
        raise InputError(
            f"found {entry!r}, expected how many times as long, at least 1, e.g. 1.3",
            where="rates sharing-learned",
        )
    return times
