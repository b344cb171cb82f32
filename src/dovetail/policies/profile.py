"""Free capacity over time: what runs and what is promised, and the first gap that a job fits into."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf, nextafter
from typing import Protocol

from dovetail.interfaces import Free, View
from dovetail.model import Allocation, Request, Seconds

__all__ = ["CountProfile", "NodeProfile", "Profile", "profile_of"]


class Profile(Protocol):
    """Free capacity from now on, piecewise constant. A slot is [start, start + duration)."""

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first time from which the request fits for so long, and where; ``None``: never."""
        ...

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        ...

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back."""
        ...


def _steps(view: View) -> list[tuple[Seconds, Allocation]]:
    """Releases; jobs past their bound are expected at the next moment, since they are not free now."""
    soon = nextafter(view.now, inf)
    return [(max(when, soon), allocation) for when, allocation in view.releases()]


class NodeProfile:
    """A profile of any nodes: in each step, what every node has free.

    A slot names nodes and devices, and has them from start to end. `earliest` costs O(steps^2) at worst,
    `hold` and `release` O(steps), in operations on node states.
    """

    def __init__(self, view: View) -> None:
        free = view.free()
        self._times = [view.now]
        self._free = [free]
        for when, allocation in _steps(view):
            if when > self._times[-1]:
                self._times.append(when)
                self._free.append(self._free[-1].copy())
            self._free[-1].give(allocation)

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first gap, and the nodes by the placement rule."""
        for step, start in enumerate(self._times):
            if start == inf:
                break
            allocation = self._fit(step, request, start + duration)
            if allocation is not None:
                return start, allocation
        return None

    def _fit(self, step: int, request: Request, end: Seconds) -> Allocation | None:
        """Where the request fits from this step to ``end``: what is free in all the steps between."""
        least = self._free[step].copy()
        times = self._times
        while least.count(request) >= request.nodes:
            step += 1
            if step == len(times) or times[step] >= end:
                return least.fit(request)
            least.meet(self._free[step])
        return None

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        taken: list[Free] = []
        for free in self._between(start, start + duration):
            try:
                free.take(allocation)
            except ValueError:  # promises that an overrun has made impossible
                for other in taken:
                    other.give(allocation)
                return False
            taken.append(free)
        return True

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back."""
        for free in self._between(start, start + duration):
            free.give(allocation)

    def _between(self, start: Seconds, end: Seconds) -> list[Free]:
        """The steps of a slot, split at its ends. None of an empty slot."""
        if end <= start:
            return []
        return self._free[self._split(start) : self._split(end)]

    def _split(self, when: Seconds) -> int:
        at = bisect_left(self._times, when)
        if at == len(self._times) or self._times[at] != when:
            self._times.insert(at, when)
            self._free.insert(at, self._free[at - 1].copy())
        return at


class CountProfile:
    """A profile of interchangeable nodes: in each step, a number.

    A slot needs no names: jobs that start at a promised time find as many nodes as were counted. All
    operations are O(steps).
    """

    def __init__(self, view: View, request: Request) -> None:
        self._times = [view.now]
        self._free = [view.free().count(request)]
        for when, allocation in _steps(view):
            if when > self._times[-1]:
                self._times.append(when)
                self._free.append(self._free[-1])
            self._free[-1] += allocation.request.nodes

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first gap; the allocation names no nodes."""
        nodes, times, free = request.nodes, self._times, self._free
        start, steps = 0, len(times)
        while start < steps:
            begin = times[start]
            if begin == inf:
                return None
            end = begin + duration
            step = start
            while free[step] >= nodes:
                step += 1
                if step == steps or times[step] >= end:
                    return begin, Allocation(request, ())
            start = step + 1  # every gap that begins before the narrow step contains it
        return None

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        first, last = self._between(start, start + duration)
        nodes = allocation.request.nodes
        free = self._free
        if any(free[step] < nodes for step in range(first, last)):
            return False
        for step in range(first, last):
            free[step] -= nodes
        return True

    def release(self, start: Seconds, duration: Seconds, allocation: Allocation) -> None:
        """Give a held slot back."""
        first, last = self._between(start, start + duration)
        for step in range(first, last):
            self._free[step] += allocation.request.nodes

    def _between(self, start: Seconds, end: Seconds) -> tuple[int, int]:
        if end <= start:
            return 0, 0
        return self._split(start), self._split(end)

    def _split(self, when: Seconds) -> int:
        at = bisect_right(self._times, when) - 1
        if self._times[at] != when:
            at += 1
            self._times.insert(at, when)
            self._free.insert(at, self._free[at - 1])
        return at


def profile_of(view: View, request: Request) -> Profile:
    """The profile of what runs; ``request`` is any of the waiting jobs'."""
    return CountProfile(view, request) if view.interchangeable else NodeProfile(view)
