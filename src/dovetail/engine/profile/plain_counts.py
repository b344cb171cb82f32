"""Free nodes over time where nodes are alike, spelt out: the specification of `counts`.

It also stands in for it where jobs of no length are promised a start, or running jobs are overdue.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from math import inf
from operator import sub

from dovetail.engine.profile.nodes import Slot, instants_first
from dovetail.model import Allocation, Request, Seconds


class PlainCountProfile:
    """In each step, a number.

    A slot needs no names: jobs that start at a promised time find as many nodes as were counted. All
    operations are O(steps).
    """

    def __init__(self, now: Seconds, free: int, releases: Iterable[tuple[Seconds, Allocation]]) -> None:
        self.now = now
        self._times = [now]
        self._free = [free]
        self._instant: list[list[int] | None] = [None]  # nodes of who is in it; not one: None
        for when, allocation in releases:
            if when > self._times[-1]:
                self._insert_step(len(self._times), when, self._free[-1], None)
            self._free[-1] += allocation.request.nodes

    def _insert_step(self, at: int, when: Seconds, free: int, instant: list[int] | None) -> None:
        self._times.insert(at, when)
        self._free.insert(at, free)
        self._instant.insert(at, instant)

    def pull_slot(
        self, start: Seconds, duration: Seconds, allocation: Allocation
    ) -> tuple[Seconds, Allocation] | None:
        """Move a held slot to the first gap that begins earlier; where to, or ``None`` if it stays."""
        nodes, times = allocation.request.nodes, self._times
        before = bisect_left(times, start)
        if not before or max(self._free[:before]) < nodes:
            return None
        first = bisect_right(times, start) - 1
        own = (first, bisect_left(times, start + duration)) if duration > 0 else None
        gap = self._find_gap(nodes, duration, start, own)
        if gap is None:
            return None
        self._release_slot(start, duration, allocation)
        moved = Allocation(allocation.request, ())
        self.hold(gap, duration, moved)
        return gap, moved

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first gap; the allocation names no nodes."""
        gap = self._find_gap(request.nodes, duration, before)
        return None if gap is None else (gap, Allocation(request, ()))

    def _find_gap(
        self, nodes: int, duration: Seconds, before: Seconds, own: tuple[int, int] | None = None
    ) -> Seconds | None:
        """The first time from which so many nodes are free; those of the job's ``own`` slot are."""
        times, free, instants = self._times, self._free, self._instant
        first, last = own or (-1, -1)
        start, steps = 0, len(times)
        while start < steps:
            begin = times[start]
            if begin >= before:
                return None
            if duration > 0 and instants[start] is not None:
                start += 1
                continue
            end = begin + duration
            step = start
            while free[step] >= nodes or step == first:
                step = last if step == first else step + 1
                if step == steps or times[step] >= end:
                    return begin
            start = step + 1  # every gap that begins before the narrow step contains it
        return None

    def at(self, start: Seconds, request: Request, duration: Seconds) -> Allocation | None:
        """The slot needs no names."""
        return Allocation(request, ())

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        nodes, free = allocation.request.nodes, self._free
        if duration <= 0:
            return self._hold_instant(start, nodes)
        first, last = self._steps_between(start, start + duration)
        if min(free[first:last]) < nodes:
            return False
        for step in range(first, last):
            free[step] -= nodes
        return True

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots; ``False`` if they are not all free. O(n log n) for n slots and steps."""
        slots = list(slots)
        if any(slot[1] <= 0 for slot in slots):
            return all(self.hold(*slot) for slot in instants_first(slots))
        changes = dict(zip(self._times, [self._free[0], *map(sub, self._free[1:], self._free)], strict=True))
        for start, duration, allocation in slots:
            nodes, end = allocation.request.nodes, start + duration
            changes[start] = changes.get(start, 0) - nodes
            changes[end] = changes.get(end, 0) + nodes
        self._times = sorted(changes)
        self._free = list(accumulate([changes[time] for time in self._times]))
        self._instant = [None] * len(self._times)
        return min(self._free) >= 0

    def _release_slot(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        nodes = allocation.request.nodes
        if duration <= 0:
            for at in range(bisect_left(self._times, start), self._first_step_at(start)):
                instant = self._instant[at]
                if instant is not None and nodes in instant:
                    instant.remove(nodes)
                    self._free[at] += nodes
                    return
        first, last = self._steps_between(start, start + duration)
        for step in range(first, last):
            self._free[step] += nodes

    def _hold_instant(self, start: Seconds, nodes: int) -> bool:
        base, free = self._first_step_at(start), self._free
        for at in range(bisect_left(self._times, start), base):
            instant = self._instant[at]
            if instant is not None and free[at] >= nodes:
                instant.append(nodes)
                free[at] -= nodes
                return True
        if free[base] < nodes:
            return False
        self._insert_step(base, start, free[base] - nodes, [nodes])
        return True

    def _steps_between(self, start: Seconds, end: Seconds) -> tuple[int, int]:
        first = self._first_step_at(start)
        last = bisect_left(self._times, end)
        if last == len(self._times) or self._times[last] != end:
            self._insert_step(last, end, self._free[last - 1], None)
        return first, last

    def _first_step_at(self, when: Seconds) -> int:
        """The step in which slots begin at this time, after the instants of jobs without length."""
        at = bisect_right(self._times, when) - 1
        if self._times[at] != when:
            at += 1
            self._insert_step(at, when, self._free[at - 1], None)
        return at
