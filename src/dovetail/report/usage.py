"""What was in use, when: columns of a result, busy time of each unit, and series over time.

Everything works on arrays with one entry a job; nodes of gangs are expanded only where a number is
asked for each unit. 100,000 jobs take a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dovetail.model import FRACTION_UNITS, Allocation, Result, Seconds, State, bits

__all__ = ["Columns", "Step", "busy_seconds", "held_units", "node_indices", "share_in_use"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CHUNK = 4_000_000
"""(job, unit) pairs that are expanded at once: bounds the memory at some 200 MB."""


def node_indices(mask: int) -> Ints:
    """Indices of the set bits of a node mask, ascending."""
    count = mask.bit_count()
    if count <= 64:
        return np.fromiter(bits(mask), np.int64, count)
    raw = np.frombuffer(mask.to_bytes((mask.bit_length() + 7) // 8, "little"), np.uint8)
    return np.flatnonzero(np.unpackbits(raw, bitorder="little"))


@dataclass(frozen=True)
class Step:
    """A step function: ``values[i]`` holds from ``times[i]`` until ``times[i + 1]``; both of shape (n,)."""

    times: Floats
    values: Floats

    @staticmethod
    def of(ups: Floats, downs: Floats, weights: Floats | float = 1.0) -> Step:
        """What is up: ``weights`` added at ``ups`` and taken at ``downs`` (infinite: never). O(n log n)."""
        weight = np.broadcast_to(np.asarray(weights, float), ups.shape)
        times = np.concatenate([ups, downs])
        change = np.concatenate([weight, -weight])
        known = np.isfinite(times)
        at, place = np.unique(times[known], return_inverse=True)
        values = np.cumsum(np.bincount(place, change[known], minlength=len(at)).astype(float))
        values[np.abs(values) < 1e-9] = 0.0
        return Step(at, values)

    def integral(self, start: Seconds, end: Seconds) -> float:
        """The area under the steps between two times."""
        return float(np.diff(self._area(np.array([start, end])))[0])

    def mean(self, edges: Floats) -> Floats:
        """Mean in each of the intervals between ``edges`` (n + 1,), shape (n,). Exact, not sampled."""
        width = np.diff(edges)
        area = np.diff(self._area(edges))
        return np.divide(area, width, out=np.zeros_like(area), where=width > 0)

    def _area(self, at: Floats) -> Floats:
        if len(self.times) == 0:
            return np.zeros(len(at))
        areas = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.times))])
        area = np.interp(at, self.times, areas, left=0.0)
        beyond = np.maximum(at - self.times[-1], 0.0) * self.values[-1]
        return np.asarray(area + beyond)


@dataclass(frozen=True, eq=False)
class Columns:
    """One entry a record, in file order; seconds; NaN where a job never started or ended.

    ``counted`` marks the jobs that means are taken over: those that started and ended and were not
    cancelled. ``ran`` marks all that started and ended, cancelled ones too: they used what they held.
    ``cpus`` and ``devices`` are what a job held over all of its nodes, shares of devices as fractions.
    """

    result: Result
    submit: Floats
    start: Floats
    end: Floats
    counted: Bools
    cpus: Floats
    devices: Floats

    @staticmethod
    def of(result: Result) -> Columns:
        """The columns of a result. O(jobs)."""
        nan = float("nan")
        records = result.records
        submit = np.array([r.job.submit_time for r in records], float)
        start = np.array([nan if r.start is None else r.start for r in records], float)
        end = np.array([nan if r.end is None else r.end for r in records], float)
        left = np.array([r.state is State.CANCELLED for r in records], bool)
        held = [_held(r.allocation) for r in records]
        amounts = np.array(held, float).reshape(len(records), 2)
        counted = np.isfinite(start) & np.isfinite(end) & ~left
        return Columns(result, submit, start, end, counted, amounts[:, 0], amounts[:, 1])

    @cached_property
    def ran(self) -> Bools:
        """Jobs that started and ended."""
        return np.isfinite(self.start) & np.isfinite(self.end)

    @cached_property
    def wait(self) -> Floats:
        """Start minus submission."""
        return self.start - self.submit

    @cached_property
    def run(self) -> Floats:
        """End minus start."""
        return self.end - self.start

    @cached_property
    def response(self) -> Floats:
        """End minus submission."""
        return self.end - self.submit

    @cached_property
    def bounded_slowdown(self) -> Floats:
        """Response over run time, run times below 10 s taken as 10 s, at least 1."""
        return np.maximum(1.0, self.response / np.maximum(self.run, 10.0))

    @cached_property
    def first(self) -> Seconds:
        """First submission; 0 without jobs."""
        return float(self.submit.min()) if len(self.submit) else 0.0

    @cached_property
    def last(self) -> Seconds:
        """Last end; the first submission if nothing ended."""
        return float(self.end[self.ran].max()) if self.ran.any() else self.first

    @property
    def makespan(self) -> Seconds:
        """First submission to last end; 0 if nothing ended."""
        return self.last - self.first

    def cpus_in_use(self) -> Step:
        """CPUs held, over time."""
        return Step.of(self.start[self.ran], self.end[self.ran], self.cpus[self.ran])

    def devices_in_use(self) -> Step:
        """Devices held, over time, shares as fractions."""
        return Step.of(self.start[self.ran], self.end[self.ran], self.devices[self.ran])

    def jobs_waiting(self) -> Step:
        """Jobs that were submitted and have not started; cancelled ones leave at their end."""
        out = np.where(np.isfinite(self.start), self.start, self.end)
        return Step.of(self.submit, np.where(np.isfinite(out), out, np.inf))


def _held(allocation: Allocation | None) -> tuple[float, float]:
    if allocation is None:
        return 0.0, 0.0
    cpus = 0
    devices = float(len(allocation.donors))
    for part in allocation.parts:
        count = part.nodes.bit_count()
        cpus += count * part.cpus
        if part.devices:
            devices += count * len(part.devices) * part.units / FRACTION_UNITS
    return float(cpus), devices


def busy_seconds(columns: Columns) -> Floats:
    """Seconds in which each unit (`Cluster.units`) was in use by any job, shape (units,).

    A CPU pool is in use while any of its CPUs is, a device while any share of it is: time in which
    several jobs share a unit counts once. O(pairs log pairs) in the (job, unit) pairs, O(pairs) where
    jobs always take whole pools.
    """
    cluster = columns.result.cluster
    busy = np.zeros(len(cluster.units))
    order = np.flatnonzero(columns.ran)
    order = order[np.argsort(columns.start[order], kind="stable")]
    covered = np.full(len(busy), -np.inf)
    exclusive = _exclusive(columns)
    for jobs, units, _ in held_units(columns, order):
        start, end = columns.start[jobs], columns.end[jobs]
        if exclusive:
            busy += np.bincount(units, end - start, minlength=len(busy))
        else:
            _union(units, start, end, busy, covered)
    return busy


def _exclusive(columns: Columns) -> bool:
    """Whether no unit can ever be shared, as every job takes whole pools and whole devices."""
    cluster = columns.result.cluster
    pools = {node.cpus for node in cluster.nodes}
    if len(pools) > 1:
        return False
    pool = pools.pop() if pools else 0
    return all(
        (part.cpus in (0, pool)) and part.units == FRACTION_UNITS
        for record in columns.result.records
        if record.allocation is not None
        for part in record.allocation.parts
    )


def held_units(columns: Columns, order: Ints) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Every unit that a job holds, in order of ``order``, in chunks of some `CHUNK` pairs.

    Yields three arrays of shape (pairs,): index of the job, index of the unit, and how much of it: CPUs
    of a pool, share of a device.
    """
    cluster = columns.result.cluster
    pool_of = np.full(len(cluster), -1, np.int64)
    devices_from = np.zeros(len(cluster), np.int64)
    for unit in reversed(cluster.units):
        if unit.device is None:
            pool_of[unit.node] = unit.index
        elif unit.device == 0:
            devices_from[unit.node] = unit.index
    jobs: list[int] = []
    units: list[Ints] = []
    amounts: list[float] = []
    size = 0
    for j in order.tolist():
        allocation = columns.result.records[j].allocation
        if allocation is None:
            continue
        held: list[tuple[Ints, float]] = []
        for part in allocation.parts:
            nodes = node_indices(part.nodes)
            if part.cpus:
                held.append((pool_of[nodes], part.cpus))
            share = part.units / FRACTION_UNITS
            held.extend((devices_from[nodes] + d, share) for d in part.devices)
        held.extend((devices_from[[d.donor]] + d.device, 1.0) for d in allocation.donors)
        for indices, amount in held:
            jobs.append(j)
            units.append(indices)
            amounts.append(amount)
            size += len(indices)
        if size >= CHUNK:
            yield _flat(jobs, units, amounts)
            jobs, units, amounts, size = [], [], [], 0
    if size:
        yield _flat(jobs, units, amounts)


def _flat(jobs: list[int], units: list[Ints], amounts: list[float]) -> tuple[Ints, Ints, Floats]:
    counts = [len(u) for u in units]
    return np.repeat(np.array(jobs), counts), np.concatenate(units), np.repeat(np.array(amounts), counts)


def share_in_use(columns: Columns, groups: Ints, edges: Floats) -> Floats:
    """Mean share in use of each group of units in each interval of time, shape (groups, intervals).

    ``groups`` gives the group of each unit, shape (units,), -1 for none; ``edges`` the times between
    intervals. A group's share is over the CPUs, or devices, that it has.
    """
    cluster = columns.result.cluster
    capacity = np.array([1 if u.device is not None else cluster.nodes[u.node].cpus for u in cluster.units])
    count, bins = int(groups.max(initial=-1)) + 1, len(edges) - 1
    offered = np.bincount(groups[groups >= 0], capacity[groups >= 0], minlength=count)
    area = np.zeros((count, bins + 1))
    for jobs, units, amounts in held_units(columns, np.flatnonzero(columns.ran)):
        group = groups[units]
        known = group >= 0
        group, amount, jobs = group[known], amounts[known], jobs[known]
        area += _area_since(columns.start[jobs], amount, group, count, edges)
        area -= _area_since(columns.end[jobs], amount, group, count, edges)
    width = np.diff(edges)
    share = np.diff(area) / (np.maximum(offered, 1)[:, None] * np.where(width > 0, width, 1.0))
    return np.asarray(np.clip(share, 0.0, 1.0))


def _area_since(times: Floats, amounts: Floats, groups: Ints, count: int, edges: Floats) -> Floats:
    """By group and edge, the sum of ``amount * max(edge - time, 0)``; shape (count, edges)."""
    size = len(edges) + 1
    place = groups * size + np.searchsorted(edges, times, side="left")
    since = times - edges[0]
    totals = np.bincount(place, amounts, minlength=count * size).reshape(count, size)
    moments = np.bincount(place, amounts * since, minlength=count * size).reshape(count, size)
    before, moment = (np.cumsum(m, axis=1)[:, :-1] for m in (totals, moments))
    return np.asarray(before * (edges - edges[0]) - moment)


def _union(units: Ints, start: Floats, end: Floats, busy: Floats, covered: Floats) -> None:
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
    heads = np.flatnonzero(np.diff(units, prepend=-1))
    before[heads] = covered[units[heads]]
    busy += np.bincount(units, np.maximum(reach - np.maximum(start, before), 0.0), minlength=len(busy))
    tails = np.append(heads[1:], len(units)) - 1
    covered[units[tails]] = reach[tails]
