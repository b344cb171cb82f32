"""What was in use, when: busy time of each unit, and shares of groups of units over time.

Gangs hold long runs of neighbouring nodes, so everything here works on runs; single units are looked at
only where several jobs may share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from dovetail.files.arrays import distinct
from dovetail.model import CPU, Cluster, Node
from dovetail.model.allocation import NARROW
from dovetail.model.fitting import share_taken
from dovetail.model.job import FRACTION_UNITS
from dovetail.model.masks import bit_runs
from dovetail.records import dataclass
from dovetail.report.columns import Columns, Floats, Ints, expand_ranges

CHUNK = 4_000_000
"""(job, unit) pairs that are expanded at once: bounds the memory at some 200 MB."""
RUNS = 50_000
"""Stretches whose runs of nodes are looked up at once."""
PART = 5_000
"""Stretches that are added up at once: few, so that the memory of one part serves the next."""


@dataclass(frozen=True, slots=True)
class Held:
    """What jobs held, a line for each run of neighbouring nodes; all arrays have shape (lines,).

    ``stretch`` is the index in `Columns.stretches`, ``low`` and ``high`` are the first node and the one after
    the last, ``device`` is the index of a device on each of them, -1 for the CPU pool, ``amount`` how much of
    it: CPUs, or a share of the device.
    """

    stretch: Ints
    low: Ints
    high: Ints
    device: Ints
    amount: Floats

    @staticmethod
    def of(columns: Columns, order: Ints) -> Held:
        """In order of ``order``, which holds indices of stretches. O(runs)."""
        nodes = columns.stretches.nodes
        if nodes is not None:
            lines = nodes.lines(order)
            low, high = nodes.low[lines].astype(np.int64), nodes.high[lines].astype(np.int64)
            pools, cpus = np.full(len(lines), -1, np.int64), np.full(len(lines), float(nodes.cpus))
            return Held(np.repeat(order, nodes.runs[order]), low, high, pools, cpus)
        found: list[float] = []  # five of each; the last two: which of all runs
        every: list[tuple[int, int]] = []
        known: dict[int, tuple[int, int]] = {}
        for j in order.tolist():
            allocation = columns.stretches.allocation(j)
            for part in allocation.parts:
                of_part = known.get(part.nodes)
                if of_part is None:
                    first = len(every)
                    every += bit_runs(part.nodes)
                    of_part = first, len(every) - first
                    # Narrow masks recur from job to job; wide ones hardly do, and are costly as keys, as
                    # hashing reads all of their bits.
                    if part.nodes.bit_length() <= NARROW:
                        known[part.nodes] = of_part
                if part.cpus:
                    found += (j, -1, part.cpus, *of_part)
                # The nodes of one part give the same, so the first stands for all of them.
                first_node = (part.nodes & -part.nodes).bit_length() - 1
                if part.units == FRACTION_UNITS:
                    for d in part.devices:
                        found += (j, d, 1.0, *of_part)
                    continue
                for d in part.devices:
                    given = columns.cluster.nodes[first_node].devices[d]
                    found += (j, d, share_taken(given, part.units, part.gpu_memory), *of_part)
            # A donor lends a whole device.
            for donor in allocation.donors:
                found += (j, donor.device, 1.0, len(every), 1)
                every.append((donor.donor, donor.donor + 1))
        table = np.array(found, float).reshape(-1, 5).T
        stretch, device, _, begin, count = table.astype(np.int64)
        line, place = expand_ranges(begin, count)
        low, high = np.array(every, np.int64).reshape(len(every), 2)[place].T
        return Held(stretch[line], low, high, device[line], table[2][line])

    def part(self, chosen: slice | npt.NDArray[np.bool_]) -> Held:
        """Some of the lines."""
        stretch, low, high, device = (a[chosen] for a in (self.stretch, self.low, self.high, self.device))
        return Held(stretch, low, high, device, self.amount[chosen])


class Places:
    """Where the units of each node lie in `Cluster.units`."""

    def __init__(self, cluster: Cluster) -> None:
        count = len(cluster)
        self.pool = np.full(count, -1, np.int64)
        self.devices = np.zeros(count, np.int64)
        self.counts = np.zeros(count, np.int64)
        first = 0
        for group in cluster.groups:
            pool, devices = bool(group.node.cores), len(group.node.devices)
            starts = first + np.arange(group.count) * (pool + devices)
            of_group = slice(group.first, group.first + group.count)
            if pool:
                self.pool[of_group] = starts
            self.devices[of_group] = starts + pool
            self.counts[of_group] = devices
            first += group.count * (pool + devices)

    def nodes_with_device(self, device: int) -> npt.NDArray[np.bool_]:
        """Which nodes have a device of that index; a CPU pool, where it is -1."""
        return self.pool >= 0 if device < 0 else self.counts > device

    def of(self, node: Ints, device: Ints) -> Ints:
        """Units of these nodes: a device each, or the pool where it is -1."""
        return np.where(device < 0, self.pool[node], self.devices[node] + device)


def busy_seconds(columns: Columns) -> Floats:
    """Seconds in which each unit (`Cluster.units`) was in use by any job, shape (units,).

    A CPU pool is in use while any of its CPUs is, a device while any share of it is: time in which
    several jobs share a unit counts once. O(runs + units) for pools and devices that are always taken
    whole, else O(pairs log pairs) in the (job, unit) pairs.
    """
    cluster, stretches = columns.cluster, columns.stretches
    order = np.argsort(stretches.start, kind="stable")
    busy, covered = np.zeros(len(cluster.units)), np.full(len(cluster.units), -np.inf)
    places = Places(cluster)
    if stretches.nodes is not None and _is_exclusive(columns, np.array([stretches.nodes.cpus]), pool=True):
        # All lines of a million jobs at once would be the most memory of the command.
        parts = (order[first : first + RUNS] for first in range(0, len(order), RUNS))
        _add_whole((Held.of(columns, part) for part in parts), -1, columns, places, busy)
        return busy
    held = Held.of(columns, order)
    for device in distinct(held.device)[0].tolist():
        mine = held.device == device
        # Where every job holds all of a unit, stretches on it cannot overlap, and their sum is the busy time.
        # Shared units need the union of the stretches, pair by pair.
        if not _is_exclusive(columns, held.amount[mine], pool=device < 0):
            for found, units, _ in _interval_pairs(held.part(mine), places):
                _add_union(units, stretches.start[found], stretches.end[found], busy, covered)
            continue
        _add_whole([held.part(mine)], device, columns, places, busy)
    return busy


def _add_whole(parts: Iterable[Held], device: int, columns: Columns, places: Places, busy: Floats) -> None:
    """Set in ``busy`` the time of units of one index that are always taken whole."""
    begun, ended = np.zeros((2, len(columns.cluster) + 1))
    seconds = columns.stretches.seconds
    for held in parts:  # one by one, in their order: the sums do not depend on where a part ends
        np.add.at(begun, held.low, seconds[held.stretch])
        np.add.at(ended, held.high, seconds[held.stretch])
    # What each node is busy with begins at the first node of a run and ends after the last one. Sums of
    # differences in double precision would not come back to nothing where they should.
    by_node = np.cumsum(begun.astype(np.longdouble) - ended)[:-1].astype(float)
    # What is left of a sum may be no more than its rounding.
    nodes = np.flatnonzero((by_node > 0) & places.nodes_with_device(device))
    busy[places.of(nodes, np.full(len(nodes), device))] = by_node[nodes]


def _is_exclusive(columns: Columns, amounts: Floats, *, pool: bool) -> bool:
    """Whether no unit was ever shared, as every job took the whole pool, or the whole device."""
    pools = {group.node.cpus for group in columns.cluster.groups} if pool else {1}
    return len(pools) <= 1 and bool((amounts == max(pools, default=0)).all())


def held_units(columns: Columns, order: Ints) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Every unit that a job holds, in order of ``order``, in chunks of some `CHUNK` pairs.

    ``order`` holds indices of `Columns.stretches`. Yields three arrays of shape (pairs,): index of the
    stretch, index of the unit, and how much of it: CPUs of a pool, share of a device.
    """
    return _interval_pairs(Held.of(columns, order), Places(columns.cluster))


def _interval_pairs(held: Held, places: Places) -> Iterator[tuple[Ints, Ints, Floats]]:
    counts = held.high - held.low
    ends = np.cumsum(counts)
    first = 0
    while first < len(counts):
        done = ends[first - 1] if first else 0
        # At least one line, however many nodes it spans, or a gang wider than a chunk would never be passed.
        last = max(first + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        some, count = held.part(slice(first, last)), counts[first:last]
        line, node = expand_ranges(some.low, count)
        yield some.stretch[line], places.of(node, some.device[line]), some.amount[line]
        first = last


def share_in_use(columns: Columns, groups: Ints, edges: Floats) -> Floats:
    """Mean share in use of each group of units in each interval of time, shape (groups, intervals).

    ``groups`` gives the group of each unit, shape (units,), -1 for none; ``edges`` the times between
    intervals. A group's share is over the CPUs, or devices, that it has.
    """
    cluster = columns.cluster
    capacity = _unit_capacity(cluster)
    count, bins = int(groups.max(initial=-1)) + 1, len(edges) - 1
    offered = np.bincount(groups[groups >= 0], capacity[groups >= 0], minlength=count)
    # `searchsorted` gives 0 before the first edge and bins + 1 after the last, hence two places more than
    # bins.
    size, stretches = bins + 2, columns.stretches
    changes = [
        (times - edges[0], np.searchsorted(edges, times)) for times in (stretches.start, stretches.end)
    ]
    totals, moments = np.zeros((2, count * size))
    every = np.arange(len(stretches.start))
    parts = (every[first : first + PART] for first in range(0, len(every), PART))
    for found, units, amounts in chain.from_iterable(held_units(columns, part) for part in parts):
        group = groups[units]
        known = group >= 0
        if not known.all():
            found, group, amounts = found[known], group[known], amounts[known]
        for (since, places), amount in zip(changes, (amounts, -amounts), strict=True):
            place = group * size + places[found]
            totals += np.bincount(place, amount, minlength=len(totals))
            moments += np.bincount(place, amount * since[found], minlength=len(totals))
    # What steps of `amount` at times `s` add up to until an edge t is t · Σ amount - Σ amount · s: two sums
    # by bin are enough, without a pass over the jobs for each edge. Times count from the first edge, so that
    # neither term is large beside the difference.
    before, moment = (np.cumsum(m.reshape(count, size), axis=1)[:, :-1] for m in (totals, moments))
    area = before * (edges - edges[0]) - moment  # until each edge
    # A group without units and an interval of no length have a share of 0, not a division by 0.
    width = np.diff(edges)
    share = np.diff(area) / (np.maximum(offered, 1)[:, None] * np.where(width > 0, width, 1.0))
    return np.asarray(np.clip(share, 0.0, 1.0))


def _unit_capacity(cluster: Cluster) -> Floats:
    """CPUs of each pool, 1 for each device, shape (units,)."""
    return _by_unit(cluster, lambda node: [*[node.cpus] * bool(node.cores), *[1] * len(node.devices)])


def unit_kinds(cluster: Cluster) -> tuple[list[str], Ints]:
    """The kinds of device, the pool's first, and the place of each unit's kind among them, shape (units,)."""
    kinds = {CPU: 0} if any(group.node.cores for group in cluster.groups) else {}
    for group in cluster.groups:
        for device in group.node.devices:
            kinds.setdefault(device.kind, len(kinds))
    places = _by_unit(
        cluster, lambda node: [*[0] * bool(node.cores), *(kinds[device.kind] for device in node.devices)]
    )
    return list(kinds), places.astype(np.int64)


def _by_unit(cluster: Cluster, of_node: Callable[[Node], list[int]]) -> Floats:
    """The values of ``of_node`` for a node's units, for all units in their order, shape (units,)."""
    parts = [np.tile(np.array(of_node(group.node), float), group.count) for group in cluster.groups]
    return np.concatenate([np.zeros(0), *parts])


def _add_union(units: Ints, start: Floats, end: Floats, busy: Floats, covered: Floats) -> None:
    """Add to ``busy`` the time that intervals (by ascending start) cover beyond ``covered``, by unit.

    A running maximum of ends within each unit: ends are replaced by their ranks and lifted by the unit,
    so that one integer accumulate does all units at once and no precision is lost.
    """
    by_unit = np.argsort(units, kind="stable")
    units, start = units[by_unit], start[by_unit]
    end = np.maximum(end[by_unit], covered[units])
    levels, rank = np.unique(end, return_inverse=True)
    lifted = np.maximum.accumulate(rank + units * len(levels))
    reach = levels[lifted - units * len(levels)]
    before = np.empty_like(reach)
    before[1:] = reach[:-1]
    # The first stretch of each unit goes on from what earlier chunks have covered.
    heads = np.flatnonzero(np.diff(units, prepend=-1))
    before[heads] = covered[units[heads]]
    busy += np.bincount(units, np.maximum(reach - np.maximum(start, before), 0.0), minlength=len(busy))
    tails = np.append(heads[1:], len(units)) - 1
    covered[units[tails]] = reach[tails]
