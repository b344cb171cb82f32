"""Free capacity over time: what runs and what is promised, and the first gap that a job fits into."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import accumulate
from math import inf, nextafter
from operator import sub
from typing import Protocol

from dovetail.interfaces import Free, View
from dovetail.model import Allocation, Request, Seconds

__all__ = ["CountProfile", "NodeProfile", "Profile", "Slot", "profile_of", "take"]


class Profile(Protocol):
    """Free capacity from now on, piecewise constant. A slot is [start, start + duration).

    A slot of no length is in an *instant*, a step of no length before all that begins at its time: nobody
    who holds a node across that time may be in its way, but who starts or ends then is not.
    """

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first time, and before that one, from which the request fits for so long, and where."""
        ...

    def may_fit(self, request: Request, duration: Seconds, before: Seconds) -> bool:
        """``False`` if the request could not begin before that time, were everybody gone from then on."""
        ...

    def at(self, start: Seconds, request: Request, duration: Seconds) -> Allocation | None:
        """Where the request fits for so long from that very time."""
        ...

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        ...

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots; ``False`` if they are not all free (the profile is then of no use)."""
        ...

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back."""
        ...


Slot = tuple[Seconds, Seconds, Allocation]
"""Start, duration, and what is held."""


def _instants_first(slots: Iterable[Slot]) -> list[Slot]:
    """Slots of no length go before others of their time."""
    return sorted(slots, key=lambda slot: slot[1] > 0)


def _steps(view: View) -> list[tuple[Seconds, Allocation]]:
    """Releases; jobs past their bound are expected at the next moment, since they are not free now."""
    soon = nextafter(view.now, inf)
    return [(max(when, soon), allocation) for when, allocation in view.releases()]


class NodeProfile:
    """A profile of any nodes: in each step, what every node has free.

    A slot names nodes and devices, and has them from start to end. Where no slot begins, a step has all
    that the one before has, so a gap is the least of its first step and of those in which slots begin.
    """

    def __init__(self, view: View) -> None:
        self._start = view.free()
        self._releases = _steps(view)
        self._begins: list[Seconds] = []
        self._counts: dict[Request, list[int]] = {}  # nodes that fit, by step; until something changes
        self._times = [view.now]
        self._free = [self._start.copy()]
        self._instant: list[list[Allocation] | None] = [None]  # who is in it; not one: None
        self._sweep([(when, 1, allocation) for when, allocation in self._releases])

    def _sweep(self, changes: list[tuple[Seconds, int, Allocation]]) -> bool:
        """Make the steps from what is given (1) and taken (2) when; ``False`` if something is not free."""
        self._counts.clear()
        now = self._times[0]
        self._times, self._free = [now], [self._start.copy()]
        free = self._free[0]
        for when, kind, allocation in sorted(changes, key=_when_and_kind):
            if when > self._times[-1]:
                free = free.copy()
                self._times.append(when)
                self._free.append(free)
            if kind == 1:
                free.give(allocation)
            elif not take(free, allocation):
                return False
        self._instant = [None] * len(self._times)
        return True

    def _insert(self, at: int, when: Seconds, free: Free, instant: list[Allocation] | None) -> None:
        self._times.insert(at, when)
        self._free.insert(at, free)
        self._instant.insert(at, instant)

    def _count(self, request: Request) -> list[int]:
        counts = self._counts.get(request)
        if counts is None:
            counts = self._counts[request] = [free.count(request) for free in self._free]
        return counts

    def may_fit(self, request: Request, duration: Seconds, before: Seconds) -> bool:
        """``False`` if the request could not begin before that time, were everybody gone from then on."""
        for step, count in enumerate(self._count(request)):
            start = self._times[step]
            if start >= before:
                return False
            if count >= request.nodes and self._fit(step, request, min(start + duration, before)) is not None:
                return True
        return False

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first gap, and the nodes by the placement rule."""
        for step, count in enumerate(self._count(request)):
            start = self._times[step]
            if start >= before:
                break
            if count < request.nodes or (duration > 0 and self._instant[step] is not None):
                continue
            allocation = self._fit(step, request, start + duration)
            if allocation is not None:
                return start, allocation
        return None

    def at(self, start: Seconds, request: Request, duration: Seconds) -> Allocation | None:
        """Where the request fits for so long from that very time."""
        return self._fit(self._begin(start), request, start + duration)

    def _fit(self, step: int, request: Request, end: Seconds) -> Allocation | None:
        """Where the request fits from this step to ``end``."""
        begins = self._begins
        first, last = bisect_right(begins, self._times[step]), bisect_left(begins, end)
        if first >= last:
            return self._free[step].fit(request)
        least = self._free[step].copy()
        for begin in dict.fromkeys(begins[first:last]):
            at = bisect_left(self._times, begin)
            while at < len(self._times) and self._times[at] == begin:
                least.meet(self._free[at])
                at += 1
            if least.count(request) < request.nodes:
                return None
        return least.fit(request)

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        self._counts.clear()
        if duration <= 0:
            held = self._hold_instant(start, allocation)
        else:
            held = True
            taken: list[Free] = []
            for free in self._between(start, start + duration):
                if not take(free, allocation):  # an overrun has made this promise impossible
                    for other in taken:
                        other.give(allocation)
                    held = False
                    break
                taken.append(free)
        if held:
            insort(self._begins, start)
        return held

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots; ``False`` if they are not all free. The first to be held."""
        slots = list(slots)
        if any(slot[1] <= 0 for slot in slots):
            return all(self.hold(*slot) for slot in _instants_first(slots))
        changes = [(when, 1, allocation) for when, allocation in self._releases]
        changes += [(start + duration, 1, allocation) for start, duration, allocation in slots]
        changes += [(start, 2, allocation) for start, _, allocation in slots]
        self._begins = sorted(start for start, _, _ in slots)
        return self._sweep(changes)

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back."""
        self._counts.clear()
        del self._begins[bisect_left(self._begins, start)]
        if duration <= 0:
            for at in range(bisect_left(self._times, start), self._begin(start)):
                instant = self._instant[at]
                if instant is not None and allocation in instant:
                    instant.remove(allocation)
                    self._free[at].give(allocation)
                    return
        for free in self._between(start, start + duration):
            free.give(allocation)

    def _hold_instant(self, start: Seconds, allocation: Allocation) -> bool:
        base = self._begin(start)
        for at in range(bisect_left(self._times, start), base):
            instant = self._instant[at]
            if instant is not None and take(self._free[at], allocation):
                instant.append(allocation)
                return True
        free = self._free[base].copy()
        if not take(free, allocation):
            return False
        self._insert(base, start, free, [allocation])
        return True

    def _between(self, start: Seconds, end: Seconds) -> list[Free]:
        """The steps of a slot, split at its ends."""
        first = self._begin(start)
        last = bisect_left(self._times, end)
        if last == len(self._times) or self._times[last] != end:
            self._insert(last, end, self._free[last - 1].copy(), None)
        return self._free[first:last]

    def _begin(self, when: Seconds) -> int:
        """The step in which slots begin at this time, after the instants of jobs without length."""
        at = bisect_right(self._times, when) - 1
        if self._times[at] != when:
            at += 1
            self._insert(at, when, self._free[at - 1].copy(), None)
        return at


def _when_and_kind(change: tuple[Seconds, int, Allocation]) -> tuple[Seconds, int]:
    return change[:2]


def take(free: Free, allocation: Allocation) -> bool:
    """Take it if it is free."""
    try:
        free.take(allocation)
    except ValueError:
        return False
    return True


class CountProfile:
    """A profile of interchangeable nodes: in each step, a number.

    A slot needs no names: jobs that start at a promised time find as many nodes as were counted. All
    operations are O(steps).
    """

    def __init__(self, view: View, request: Request) -> None:
        self._times = [view.now]
        self._free = [view.free().count(request)]
        self._instant: list[list[int] | None] = [None]  # nodes of who is in it; not one: None
        for when, allocation in _steps(view):
            if when > self._times[-1]:
                self._insert(len(self._times), when, self._free[-1], None)
            self._free[-1] += allocation.request.nodes

    def _insert(self, at: int, when: Seconds, free: int, instant: list[int] | None) -> None:
        self._times.insert(at, when)
        self._free.insert(at, free)
        self._instant.insert(at, instant)

    def may_fit(self, request: Request, duration: Seconds, before: Seconds) -> bool:
        """``False`` if the request could not begin before that time, were everybody gone from then on."""
        last = bisect_left(self._times, before)
        return last > 0 and max(self._free[:last]) >= request.nodes

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first gap; the allocation names no nodes."""
        nodes, times, free = request.nodes, self._times, self._free
        start, steps = 0, len(times)
        while start < steps:
            begin = times[start]
            if begin >= before:
                return None
            if duration > 0 and self._instant[start] is not None:
                start += 1
                continue
            end = begin + duration
            step = start
            while free[step] >= nodes:
                step += 1
                if step == steps or times[step] >= end:
                    return begin, Allocation(request, ())
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
        first, last = self._between(start, start + duration)
        if min(free[first:last]) < nodes:
            return False
        for step in range(first, last):
            free[step] -= nodes
        return True

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots; ``False`` if they are not all free. O(n log n) for n slots and steps."""
        slots = list(slots)
        if any(slot[1] <= 0 for slot in slots):
            return all(self.hold(*slot) for slot in _instants_first(slots))
        changes = dict(zip(self._times, [self._free[0], *map(sub, self._free[1:], self._free)], strict=True))
        for start, duration, allocation in slots:
            nodes, end = allocation.request.nodes, start + duration
            changes[start] = changes.get(start, 0) - nodes
            changes[end] = changes.get(end, 0) + nodes
        self._times = sorted(changes)
        self._free = list(accumulate([changes[time] for time in self._times]))
        self._instant = [None] * len(self._times)
        return min(self._free) >= 0

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back."""
        nodes = allocation.request.nodes
        if duration <= 0:
            for at in range(bisect_left(self._times, start), self._begin(start)):
                instant = self._instant[at]
                if instant is not None and nodes in instant:
                    instant.remove(nodes)
                    self._free[at] += nodes
                    return
        first, last = self._between(start, start + duration)
        for step in range(first, last):
            self._free[step] += nodes

    def _hold_instant(self, start: Seconds, nodes: int) -> bool:
        base, free = self._begin(start), self._free
        for at in range(bisect_left(self._times, start), base):
            instant = self._instant[at]
            if instant is not None and free[at] >= nodes:
                instant.append(nodes)
                free[at] -= nodes
                return True
        if free[base] < nodes:
            return False
        self._insert(base, start, free[base] - nodes, [nodes])
        return True

    def _between(self, start: Seconds, end: Seconds) -> tuple[int, int]:
        first = self._begin(start)
        last = bisect_left(self._times, end)
        if last == len(self._times) or self._times[last] != end:
            self._insert(last, end, self._free[last - 1], None)
        return first, last

    def _begin(self, when: Seconds) -> int:
        """The step in which slots begin at this time, after the instants of jobs without length."""
        at = bisect_right(self._times, when) - 1
        if self._times[at] != when:
            at += 1
            self._insert(at, when, self._free[at - 1], None)
        return at


def profile_of(view: View, request: Request) -> Profile:
    """The profile of what runs; ``request`` is any of the waiting jobs'."""
    return CountProfile(view, request) if view.interchangeable else NodeProfile(view)
