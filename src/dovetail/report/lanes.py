"""The layout of a Gantt chart: which bar lies where. Drawing is left to others.

A lane is a unit of the cluster: a CPU pool or a device. Jobs that share a unit lie above each other in
its lane, each as high as its share. Clusters with too many units are shown by groups of them instead,
as shares in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.model import Record, Result, State
from dovetail.model.hostlist import compress
from dovetail.report.usage import Columns, Floats, Ints, busy_seconds, held_units, share_in_use

__all__ = ["OTHER", "PALETTE", "Bar", "Density", "Lanes", "Tones", "density", "lanes", "ticks"]

PALETTE = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#3ca951",
    "#a463f2",
    "#6cc5b0",
    "#ff8ab7",
    "#9c6b4e",
    "#97bbf5",
    "#c4d96b",
    "#2b4595",
    "#b07e00",
    "#c2402b",
    "#1f7a34",
    "#6f34b8",
    "#35897a",
)
"""Colours of apps, told apart by hue first; they read on white and on black."""

OTHER = "#9498a0"
"""What has no colour of its own."""

SLOTS = 24
"""In how many parts a device's lane can be shared."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on one unit: seconds along, shares of the lane's height (0 to 1) across."""

    record: Record
    start: float
    end: float
    low: float
    high: float


@dataclass(frozen=True)
class Lanes:
    """Bars of every unit; ``busy`` is the share of the makespan in which each unit was in use."""

    names: tuple[str, ...]
    bars: tuple[tuple[Bar, ...], ...]
    busy: tuple[float, ...]
    first: float
    last: float


@dataclass(frozen=True)
class Density:
    """Shares in use of groups of units: ``share`` has the shape (groups, intervals)."""

    names: tuple[str, ...]
    share: Floats
    edges: Floats


class Tones:
    """A colour for each app; for each user where there is but one app. The most frequent come first."""

    def __init__(self, records: Sequence[Record]) -> None:
        apps = Counter(r.job.app.name for r in records)
        users = Counter(r.job.user or "" for r in records)
        self.by = "app" if len(apps) > 1 or len(users) < 2 else "user"
        counts = apps if self.by == "app" else users
        order = {name: i for i, name in enumerate(counts)}
        kept = sorted(counts, key=lambda name: (-counts[name], order[name]))[: len(PALETTE)]
        kept.sort(key=lambda name: order[name])
        self.colours = dict(zip(kept, PALETTE, strict=False))
        self.others = len(counts) - len(kept)

    def name(self, record: Record) -> str:
        """What decides about its colour."""
        return record.job.app.name if self.by == "app" else record.job.user or ""

    def of(self, record: Record) -> str:
        """The colour, as ``#rrggbb``."""
        return self.colours.get(self.name(record), OTHER)

    def legend(self) -> list[tuple[str, str]]:
        """(name, colour) of each, and of all others together."""
        shown = [(name or "no user", colour) for name, colour in self.colours.items()]
        return shown + ([(f"{self.others} others", OTHER)] if self.others else [])


def lanes(result: Result) -> Lanes:
    """One lane for each unit. O(bars log bars)."""
    columns = Columns.of(result)
    units = result.cluster.units
    order = np.flatnonzero(columns.ran)
    order = order[np.lexsort((order, columns.start[order]))]
    found: list[list[Bar]] = [[] for _ in units]
    free = [np.full(_slots(result, i), -np.inf) for i in range(len(units))]
    for jobs, where, amounts in held_units(columns, order):
        for j, u, amount in zip(jobs.tolist(), where.tolist(), amounts.tolist(), strict=True):
            record = result.records[j]
            start, end = float(columns.start[j]), float(columns.end[j])
            whole = len(free[u])
            wanted = round(amount) if units[u].device is None else max(1, round(amount * whole))
            for low, high in _take(free[u], wanted, start, end):
                found[u].append(Bar(record, start, end, low / whole, high / whole))
    span = columns.makespan
    busy = busy_seconds(columns) / span if span > 0 else np.zeros(len(units))
    return Lanes(
        tuple(unit.name for unit in units),
        tuple(tuple(bars) for bars in found),
        tuple(busy.tolist()),
        columns.first,
        columns.last,
    )


def _slots(result: Result, unit: int) -> int:
    u = result.cluster.units[unit]
    return SLOTS if u.device is not None else result.cluster.nodes[u.node].cpus


def _take(free: Floats, wanted: int, start: float, end: float) -> list[tuple[int, int]]:
    """The lowest slots that are free from ``start`` on, as runs; they are taken until ``end``."""
    slack = 1e-9 * max(1.0, abs(start))
    slots = np.flatnonzero(free <= start + slack)[:wanted]
    if len(slots) < wanted:  # rounded shares, or times that overlap by a rounding error
        slots = np.argsort(free, kind="stable")[:wanted]
        slots.sort()
    free[slots] = end
    breaks = np.flatnonzero(np.diff(slots) > 1)
    lows = np.concatenate([slots[:1], slots[breaks + 1]])
    highs = np.concatenate([slots[breaks], slots[-1:]]) + 1
    return list(zip(lows.tolist(), highs.tolist(), strict=True))


def density(result: Result, rows: int, intervals: int) -> Density:
    """Shares in use in at most about ``rows`` rows: neighbouring units of one kind share a row."""
    columns = Columns.of(result)
    units = result.cluster.units
    kinds = list(dict.fromkeys(unit.kind for unit in units))
    groups = np.full(len(units), -1, np.int64)
    names: list[str] = []
    for kind in kinds:
        mine = [u for u in units if u.kind == kind]
        count = max(1, min(len(mine), round(rows * len(mine) / len(units))))
        for members in np.array_split(np.array([u.index for u in mine], np.int64), count):
            groups[members] = len(names)
            names.append(_group_name(result, members, kind))
    edges = np.linspace(columns.first, columns.last, intervals + 1)
    return Density(tuple(names), share_in_use(columns, groups, edges), edges)


def _group_name(result: Result, members: Ints, kind: str) -> str:
    units = result.cluster.units
    if len(members) == 1:
        return units[int(members[0])].name
    nodes = list(dict.fromkeys(result.cluster.nodes[units[i].node].name for i in members.tolist()))
    name = compress(nodes) if len(nodes) <= 64 else f"{nodes[0]}–{nodes[-1]}"
    return f"{name if len(name) <= 20 else f'{nodes[0]}–{nodes[-1]}'} {kind}"


def failed(record: Record) -> bool:
    """Whether a bar is to be marked as one that did not come to a good end."""
    return record.state in (State.FAILED, State.TIMEOUT, State.NODE_FAIL, State.CANCELLED)


def ticks(first: float, last: float, most: int) -> list[float]:
    """Round times between two times, at most ``most`` of them, counted from ``first``.

    Steps are 1, 2 or 5 times a power of ten below a minute, and round minutes, hours or days above.
    """
    span = last - first
    if span <= 0 or most < 1:
        return [first]
    steps = [m * 10.0**e for e in range(-9, 2) for m in (1, 2, 5)][:-1]
    steps += [60.0 * m for m in (1, 2, 5, 10, 20, 30)] + [3600.0 * m for m in (1, 2, 3, 6, 12)]
    steps += [86400.0 * m * 10**e for e in range(6) for m in (1, 2, 5)]
    step = next((s for s in steps if span / s <= most), span)
    return [first + i * step for i in range(int(span / step + 1e-9) + 1)]


def tick_text(seconds: float, step: float) -> str:
    """A time on the axis; one unit for all ticks: ``0.5 s``, ``20 min``, ``1.5 h``, ``2 d``."""
    if seconds == 0:
        return "0"
    for least, size, name in ((43200, 86400, "d"), (1800, 3600, "h"), (60, 60, "min"), (0.1, 1, "s")):
        if step >= least:
            return f"{round(seconds / size, 6):g} {name}"
    factor, name = (1e3, "ms") if step >= 1e-4 else (1e6, "µs")
    return f"{round(seconds * factor, 6):g} {name}"
