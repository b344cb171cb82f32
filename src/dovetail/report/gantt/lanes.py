"""The layout of a Gantt chart: which bar lies where. Drawing is left to the renderers beside this.

A lane is a unit of the cluster: a CPU pool or a device. Jobs that share a unit lie above each other in
its lane, each as high as its share. Clusters with too many units are shown by groups of them instead,
as shares in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np
from rich.cells import cell_len

from dovetail.files.sentences import make_printable
from dovetail.model import Cluster, Record, Result, Seconds, State, Unit
from dovetail.model.hostlist import compress_names
from dovetail.records import dataclass
from dovetail.report.columns import Floats, Ints, columns_of
from dovetail.report.run_summary import FAILED
from dovetail.report.usage import held_units, share_in_use, unit_kinds

Span = tuple[Seconds, Seconds]
"""First and last moment of a chart's axis."""

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
"""Colours of apps, distinguished by hue first; they read on white and on black."""

OTHER = "#9498a0"
"""What has no colour of its own."""

UNFINISHED = (*FAILED, State.CANCELLED)
"""Ends that a bar is marked for."""

MOST_LANES, MOST_BARS = 64, 20_000
"""Units, and bars of one chart, up to which every job is drawn; above, shares in use."""
ROWS, COLUMNS = 96, 480
"""Of a chart of shares."""
LEAST_LABEL = 4
"""Letters of a name that is cut."""
SLOTS = 24
"""In how many parts a device's lane can be shared."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on one unit: seconds along, shares of the lane's height (0 to 1) across.

    A job may hold several stretches of a lane that others have broken up. ``row`` is its place among the jobs
    that are there at the same time, whatever their shares. ``failed`` marks what came to no good end there.
    """

    record: Record
    start: Seconds
    end: Seconds
    shares: tuple[tuple[float, float], ...]
    row: int
    failed: bool = False

    @property
    def lane_share(self) -> float:
        """The share of the lane that it takes."""
        return sum(high - low for low, high in self.shares)


@dataclass(frozen=True)
class Lanes:
    """Bars of every unit; ``used`` is the mean share of each that was in use from ``first`` to ``last``."""

    names: tuple[str, ...]
    bars: tuple[tuple[Bar, ...], ...]
    used: tuple[float, ...]
    first: Seconds
    last: Seconds
    labels: Labels

    @property
    def failed(self) -> bool:
        """Whether any bar is marked."""
        return any(bar.failed for bars in self.bars for bar in bars)

    def rows(self, lane: int) -> int:
        """How many jobs are there at once, at most; at least 1."""
        return 1 + max((bar.row for bar in self.bars[lane]), default=0)


@dataclass(frozen=True)
class Density:
    """Shares in use of groups of units: ``share`` has the shape (groups, intervals)."""

    names: tuple[str, ...]
    share: Floats
    edges: Floats


class Labels:
    """What bars are called: the job's id, and where there is no room for it, the part that differs.

    That is what ids of one app do not have in common, at either end.

    >>> Labels.id_parts("run:sim/seed_17-alpha", ("run:sim/seed_1", "-alpha"))
    ['run:sim/seed_17-alpha', 'seed_17-alpha', '17']
    """

    def __init__(self, records: Sequence[Record]) -> None:
        ids: dict[str, list[str]] = {}
        for record in records:
            ids.setdefault(record.job.app.name, []).append(record.job.id)
        self._common = {app: _common_ends(names) for app, names in ids.items()}

    def of(self, record: Record) -> list[str]:
        """Names of a job, the longest first."""
        return self.id_parts(record.job.id, self._common.get(record.job.app.name, ("", "")))

    @staticmethod
    def id_parts(id: str, common: tuple[str, str]) -> list[str]:
        """The id, it without folders and kind of program, what differs (as whole words, then bare)."""
        start, end = len(common[0]), len(id) - len(common[1])
        # Whole numbers: cutting inside of one would turn job 17 and job 18 into 7 and 8.
        while 0 < start < len(id) and id[start - 1].isdigit():  # 17 and 18, not 7 and 8
            start -= 1
        while 0 < end < len(id) and id[end].isdigit():
            end += 1
        last = max(id.rfind("/"), id.rfind(":")) + 1
        word = max(last, *(id.rfind(mark, 0, start) + 1 for mark in "-_. =,"))
        names = [id, id[last:], id[word:end], id[start:end].strip("-_. =,")]
        return list(dict.fromkeys(make_printable(name) for name in names if name))

    def fitting_label(self, record: Record, room: int) -> str:
        """The longest name of so many letters at most; else the end of the shortest; nothing below three."""
        names = self.of(record)
        found = next((name for name in names if cell_len(name) <= room), "")
        return found or (f"…{names[-1][1 - room :]}" if room >= LEAST_LABEL else "")


def _common_ends(ids: Sequence[str]) -> tuple[str, str]:
    """What all ids begin and end with; nothing of a single one."""
    if len(ids) < 2:
        return "", ""
    head = _common_start(ids)
    return head, _common_start([id[len(head) :][::-1] for id in ids])[::-1]


def _common_start(texts: Sequence[str]) -> str:
    # The least and the greatest text in order share what all share.
    first, last = min(texts), max(texts)
    alike = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:alike]


class AppColours:
    """A colour for each app; for each user where there is but one app. The most frequent come first."""

    def __init__(self, records: Sequence[Record]) -> None:
        apps = Counter(r.job.app.name for r in records)
        users = Counter(r.job.user or "" for r in records)
        # With one app and several users, colours by app would all be the same.
        self.by = "app" if len(apps) > 1 or len(users) < 2 else "user"
        counts = apps if self.by == "app" else users
        order = {name: i for i, name in enumerate(counts)}
        # The most frequent get colours, but in the order in which they appear, so the legend reads along the
        # chart.
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

    def legend_entries(self) -> list[tuple[str, str]]:
        """(name, colour) of each, and of all others together."""
        shown = [(name or "no user", colour) for name, colour in self.colours.items()]
        return shown + ([(f"{self.others} others", OTHER)] if self.others else [])


def span_of(results: Sequence[Result]) -> Span:
    """The axis on which all of these schedules can be seen: first submission to last end."""
    columns = [columns_of(result) for result in results if result.records]
    return (min((c.first for c in columns), default=0.0), max((c.last for c in columns), default=0.0))


def bars_of(result: Result) -> int:
    """How many bars, at least, the jobs that ran would make: a job on each of its nodes."""
    held = (r.allocation for r in result.records if r.run_time is not None)
    return sum(allocation.mask.bit_count() for allocation in held if allocation is not None)


def make_lanes(result: Result, span: Span | None = None) -> Lanes:
    """One lane for each unit. O(bars log bars)."""
    columns = columns_of(result)
    cluster = result.cluster
    units = cluster.units
    stretches = columns.stretches
    # By start, then by job: of bars that begin together the same one is at the bottom in every drawing.
    order = np.lexsort((stretches.job, stretches.start))
    found: list[list[Bar]] = [[] for _ in units]
    free = [np.full(_lane_slots(cluster, unit), -np.inf) for unit in units]
    rows: list[list[Seconds]] = [[] for _ in units]
    for which, where, amounts in held_units(columns, order):
        for i, u, amount in zip(which.tolist(), where.tolist(), amounts.tolist(), strict=True):
            start, end = float(stretches.start[i]), float(stretches.end[i])
            whole = len(free[u])
            # A share that rounds to nothing still shows as one slot.
            wanted = round(amount) if units[u].device is None else max(1, round(amount * whole))
            shares = tuple(
                (low / whole, high / whole) for low, high in _take_slots(free[u], wanted, start, end)
            )
            record = columns.records[int(stretches.job[i])]
            row = lowest_free(rows[u], start, end)
            found[u].append(Bar(record, start, end, shares, row, stretches.states[i] in UNFINISHED))
    used = share_in_use(columns, np.arange(len(units)), np.array([columns.first, columns.last]))[:, 0]
    first, last = span or (columns.first, columns.last)
    return Lanes(
        tuple(cluster.short_name(unit.node, unit.name.rpartition("/")[2]) for unit in units),
        tuple(tuple(bars) for bars in found),
        tuple(used.tolist()),
        first,
        last,
        Labels(result.records),
    )


def lowest_free(ends: list[Seconds], start: Seconds, end: Seconds) -> int:
    """The lowest row that is free from ``start`` on; it is taken until ``end``. Jobs come by their start."""
    row = next((i for i, moment in enumerate(ends) if moment <= start), len(ends))
    ends[row : row + 1] = [end]
    return row


def _lane_slots(cluster: Cluster, unit: Unit) -> int:
    return SLOTS if unit.device is not None else cluster.nodes[unit.node].cpus


def _take_slots(free: Floats, wanted: int, start: float, end: float) -> list[tuple[int, int]]:
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


def make_density(
    result: Result, rows: int = ROWS, intervals: int = COLUMNS, span: Span | None = None
) -> Density:
    """Shares in use in at most about ``rows`` rows: neighbouring units of one kind share a row.

    Worked out once for a result, as long as the request is the same: pages and files show the same chart.
    """
    known = _DENSITIES.get(result)
    key = rows, intervals, span or (columns_of(result).first, columns_of(result).last)
    if known is None or known[0] != key:
        known = _DENSITIES[result] = key, _compute_density(result, *key)
    return known[1]


_DENSITIES: WeakKeyDictionary[Result, tuple[tuple[int, int, Span], Density]] = WeakKeyDictionary()


def _compute_density(result: Result, rows: int, intervals: int, span: Span) -> Density:
    columns, cluster = columns_of(result), result.cluster
    kinds, of_unit = unit_kinds(cluster)
    groups = np.full(len(of_unit), -1, np.int64)
    names: list[str] = []
    for place, kind in enumerate(kinds):
        mine = np.flatnonzero(of_unit == place)
        # Each kind has rows in proportion to its units, and one at least, so that a few devices beside many
        # CPUs are seen.
        count = max(1, min(len(mine), round(rows * len(mine) / len(of_unit))))
        for members in np.array_split(mine, count):
            groups[members] = len(names)
            names.append(_group_name(cluster, members, kind))
    edges = np.linspace(*span, intervals + 1)
    return Density(tuple(names), share_in_use(columns, groups, edges), edges)


def _group_name(cluster: Cluster, members: Ints, kind: str) -> str:
    units = cluster.units
    if len(members) == 1:
        return units[int(members[0])].name
    first, last = (cluster.nodes[units[int(i)].node].name for i in members[[0, -1]])
    if len(members) <= 64:
        nodes = list(dict.fromkeys(cluster.nodes[units[i].node].name for i in members.tolist()))
        name = compress_names(nodes)
        if len(name) <= 20:
            return f"{name} {kind}"
    return f"{first}–{last} {kind}"


def round_ticks(first: float, last: float, most: int) -> list[float]:
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
