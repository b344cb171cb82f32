"""The head's reservation in EASY: when it can start, and what others may use without delaying it.

Lifka 1995 speaks of the shadow time, at which the head can start if running jobs end by their
walltimes, and of the extra nodes, which are free then and not needed by the head.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Protocol

from dovetail.interfaces import Free, Group
from dovetail.model import Allocation, Request, Seconds

__all__ = ["CountShadow", "NodeShadow", "Releases", "Shadow"]

Releases = Sequence[tuple[Seconds, Allocation]]


class Shadow(Protocol):
    """``start`` is the shadow time, infinite if no walltimes tell; ``allocation`` the head's nodes then.

    Candidates that "end in time" have ended by the shadow time, by their walltimes.
    """

    start: Seconds
    allocation: Allocation | None

    def rooms(self, groups: Mapping[Request, Group], free: Free) -> list[tuple[Group, bool]]:
        """The groups that may give a candidate: it fits on ``free`` now and does not delay the head.

        With each, whether any job of the group may start, or only those that end in time.
        """
        ...

    def place(self, request: Request, free: Free, in_time: bool) -> Allocation | None:
        """Where such a candidate starts."""
        ...

    def took(self, allocation: Allocation, in_time: bool, free: Free) -> None:
        """A candidate starts there: ``free`` gets less."""
        ...


class NodeShadow:
    """The shadow on any nodes: of each node it is known what is free at the shadow time.

    A candidate that runs past the shadow time uses only extra nodes if the head still fits then; tried
    are the normal placement, and nodes outside those planned for the head.
    """

    def __init__(self, head: Request, free: Free, releases: Releases, now: Seconds) -> None:
        found = free.earliest(head, releases, now)
        self.start = inf if found is None else found[0]
        self.allocation = None if found is None or self.start == inf else found[1]
        self._head = head
        self._then = free.copy()
        for when, allocation in releases:
            if when > self.start:
                break
            self._then.give(allocation)

    def rooms(self, groups: Mapping[Request, Group], free: Free) -> list[tuple[Group, bool]]:
        """The groups that may give a candidate. O(groups * distinct node states)."""
        found: list[tuple[Group, bool]] = []
        for request, group in groups.items():
            if group.size and free.count(request) >= request.nodes:
                whoever = self.place(request, free, False) is not None
                if whoever or self.start < inf:
                    found.append((group, whoever))
        return found

    def place(self, request: Request, free: Free, in_time: bool) -> Allocation | None:
        """Where such a candidate starts. O(distinct node states)."""
        allocation = free.fit(request)
        if allocation is None or in_time:
            return allocation
        planned = self._then.fit(self._head)
        if planned is None:
            return None  # the head never fits: nothing may make that worse
        if not planned.mask & allocation.mask:
            return allocation
        without = self._then.copy()
        without.take(allocation)
        if without.fit(self._head) is not None:
            return allocation
        return free.fit(request, within=~planned.mask)

    def took(self, allocation: Allocation, in_time: bool, free: Free) -> None:
        """A candidate starts there."""
        free.take(allocation)
        if not in_time:
            self._then.take(allocation)


class CountShadow:
    """The shadow on interchangeable nodes: a number of extra nodes."""

    allocation: Allocation | None

    def __init__(self, head: Request, free: Free, releases: Releases, now: Seconds) -> None:
        self._idle = free.count(head)
        self._last: Allocation | None = None
        extra = self._idle - head.nodes
        self.start = inf
        self.allocation = None
        for when, allocation in releases:
            if extra >= 0 and when > self.start:
                break
            extra += allocation.request.nodes
            if extra >= 0:
                self.start = max(when, now)
        self._extra = extra
        if self.start < inf:
            self.allocation = Allocation(head, ())

    def rooms(self, groups: Mapping[Request, Group], free: Free) -> list[tuple[Group, bool]]:
        """The groups that may give a candidate. O(groups)."""
        extra = self._extra
        most = self._idle if self.start < inf else min(self._idle, extra)
        return [
            (group, request.nodes <= extra)
            for request, group in groups.items()
            if group.size and request.nodes <= most
        ]

    def place(self, request: Request, free: Free, in_time: bool) -> Allocation | None:
        """Where such a candidate starts."""
        if not in_time and request.nodes > self._extra:
            return None
        if self._last is not None:
            free.take(self._last)
            self._last = None
        return free.fit(request)

    def took(self, allocation: Allocation, in_time: bool, free: Free) -> None:
        """A candidate starts there; its nodes are taken when the next one is placed, if one is."""
        self._last = allocation
        self._idle -= allocation.request.nodes
        if not in_time:
            self._extra -= allocation.request.nodes
