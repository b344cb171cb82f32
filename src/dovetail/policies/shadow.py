"""The head's reservation in EASY: when it can start, and what others may use without delaying it.

Lifka 1995 speaks of the shadow time, at which the head can start if running jobs end by their
walltimes, and of the extra nodes, which are free then and not needed by the head.
"""

from __future__ import annotations

from math import inf
from typing import Protocol

from dovetail.interfaces import Free, View
from dovetail.model import Allocation, Request, Seconds

__all__ = ["Releases", "Shadow", "shadow_of"]

Releases = list[tuple[Seconds, Allocation]]


class Shadow(Protocol):
    """``start`` is the shadow time, infinite if no walltimes tell; ``allocation`` the head's nodes then."""

    start: Seconds
    allocation: Allocation | None

    def lends(self, request: Request, free: Free, ends_in_time: bool) -> Allocation | None:
        """Where a candidate may start now without delaying the head, or ``None``.

        ``free`` is what is free now; with ``ends_in_time`` the candidate has ended by the shadow time.
        """
        ...

    def took(self, allocation: Allocation, ends_in_time: bool) -> None:
        """A candidate has started there."""
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

    def lends(self, request: Request, free: Free, ends_in_time: bool) -> Allocation | None:
        """Where a candidate may start now without delaying the head. O(distinct node states)."""
        allocation = free.fit(request)
        if allocation is None or ends_in_time:
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

    def took(self, allocation: Allocation, ends_in_time: bool) -> None:
        """A candidate has started there."""
        if not ends_in_time:
            self._then.take(allocation)


class CountShadow:
    """The shadow on interchangeable nodes: a number of extra nodes."""

    allocation: Allocation | None

    def __init__(self, head: Request, free: Free, releases: Releases, now: Seconds) -> None:
        extra = free.count(head) - head.nodes
        self.start = inf
        self.allocation = None
        for when, allocation in releases:
            if extra >= 0 and when > self.start:
                break
            extra += allocation.request.nodes
            if extra >= 0:
                self.start = max(when, now)
        self.extra = extra
        if self.start < inf:
            self.allocation = Allocation(head, ())

    def lends(self, request: Request, free: Free, ends_in_time: bool) -> Allocation | None:
        """Where a candidate may start now without delaying the head. O(1)."""
        if not ends_in_time and request.nodes > self.extra:
            return None
        return free.fit(request)

    def took(self, allocation: Allocation, ends_in_time: bool) -> None:
        """A candidate has started there."""
        if not ends_in_time:
            self.extra -= allocation.request.nodes


def shadow_of(view: View, head: Request, free: Free, releases: Releases) -> Shadow:
    """The head's shadow, given what is free after this instant's starts, and all releases to come."""
    kind = CountShadow if view.interchangeable else NodeShadow
    return kind(head, free, releases, view.now)
