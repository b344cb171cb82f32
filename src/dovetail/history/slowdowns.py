"""How many times as long runs take beside a run of another app on one device.

Of runs that shared a device the history keeps the other, for how long, and what both were expected to take
alone (`dovetail.model.Companions`). From each follows how many times as long it took while it shared; the
mean of the logarithms of the newest, by how long they shared, is what is expected of the next. Not from a
paper; what pairs cost each other is measured so for sharing in Gandiva (Xiao et al. 2018, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Hashable

from dovetail.history.base import MeasuredHistory
from dovetail.model import BESIDE, DeviceClass

FEWEST = 2
"""Known slowdowns from which others are estimated."""
EVEN = math.log(2.0)
"""Twice as long: sharing gains nothing. Such an estimate needs ``ENOUGH`` known slowdowns."""
ENOUGH = 4
NEWEST = 16
"""Runs of a pair that count."""
PURE = 0.8
"""A run counts for a pair if it shared for this part of its sharing with that app alone."""


class Slowdowns:
    """What a history knows of pairs; O(1) a question until runs of the app are added."""

    def __init__(self, history: MeasuredHistory) -> None:
        self._history = history
        self._known: dict[tuple[str, str, DeviceClass], tuple[Hashable, tuple[float, int] | None]] = {}
        self._tables: dict[DeviceClass, tuple[Hashable, dict[tuple[str, str], float]]] = {}

    def of(self, app: str, implementation: str, device: DeviceClass) -> tuple[float, int] | None:
        """How many times as long runs take on this class (``MODEL beside APP``), and how many there were.

        Of a pair that never was the number is 0: by how much other apps slow this one, and that one others.
        ``None`` where too little is known for that.
        """
        found = self._direct_slowdown(app, implementation, device)
        return found if found is not None else self._estimate_slowdown(app, device)

    def _estimate_slowdown(self, app: str, device: DeviceClass) -> tuple[float, int] | None:
        """The mean over known pairs, and what is special to both apps, as far as they were seen."""
        model, _, other = device.model.partition(BESIDE)
        table = self._known_logarithms(DeviceClass(device.kind, model))
        if len(table) < FEWEST:
            return None
        mean = sum(table.values()) / len(table)
        found = mean
        for own in (
            [value - mean for (slowed, _), value in table.items() if slowed == app],
            [value - mean for (_, by), value in table.items() if by == other],
        ):
            found += sum(own) / (len(own) + 1)
        if found > EVEN and len(table) < ENOUGH:
            # One pair that does not suit discourages no other.
            return None
        return math.exp(max(0.0, found)), 0

    def _known_logarithms(self, device: DeviceClass) -> dict[tuple[str, str], float]:
        """Logarithms of the known slowdowns on such devices: of which app, by which."""
        version = self._history.version
        kept = self._tables.get(device)
        if kept is None or kept[0] != version:
            table: dict[tuple[str, str], float] = {}
            for group in self._history.list_groups():
                model, mark, by = group.device_class.model.partition(BESIDE)
                if mark and (group.device_class.kind, model) == device:
                    found = self._direct_slowdown(group.app, group.implementation, group.device_class)
                    if found is not None:
                        table[group.app, by] = math.log(found[0])
            kept = self._tables[device] = version, table
        return kept[1]

    def _direct_slowdown(
        self, app: str, implementation: str, device: DeviceClass
    ) -> tuple[float, int] | None:
        stamp, key = self._history.app_stamp(app), (app, implementation, device)
        kept = self._known.get(key)
        if kept is None or kept[0] != stamp:
            kept = self._known[key] = stamp, self._measure_slowdown(app, implementation, device)
        return kept[1]

    def _measure_slowdown(
        self, app: str, implementation: str, device: DeviceClass
    ) -> tuple[float, int] | None:
        other = device.model.partition(BESIDE)[2]
        weights = total = 0.0
        count = 0
        for run in self._history.recent(app, implementation, device, NEWEST):
            if run.beside is None or run.seconds <= 0:
                continue
            spans = dict(run.beside.device)
            shared, came = sum(spans.values()), run.beside.came(run.seconds)
            if came is None or spans.get(other, 0.0) < PURE * shared:
                continue
            weight = min(1.0, shared / run.seconds)
            weights, total, count = weights + weight, total + weight * math.log(came), count + 1
        return (math.exp(total / weights), count) if weights else None
