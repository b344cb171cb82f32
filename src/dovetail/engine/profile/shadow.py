"""When a job that cannot start now will, and what others may use without delaying it.

Lifka 1995 speaks of the shadow time, at which the head of the queue can start if running jobs end by their
walltimes, and of the extra nodes, which are free then and not needed by the head. Where nodes are alike
and taken whole the extra nodes are a number; else it is known of each node what is free at that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from dovetail.engine.profile.nodes import NodeProfile
from dovetail.interfaces import Free
from dovetail.model import Allocation, Request, Seconds

Releases = Iterable[tuple[Seconds, Allocation]]


class NodeShadow:
    """The shadow on any nodes; implements `dovetail.interfaces.Shadow`.

    A job that runs past the shadow time uses only extra nodes if the head still fits then; tried are the
    normal placement, and nodes outside those planned for the head.
    """

    def __init__(self, head: Request, free: Free, releases: Releases, now: Seconds) -> None:
        self._head = head
        self._free = free
        self._then = free.copy()
        # Its time is infinite where only jobs without a limit are in its way: then what is free at that time
        # is all that there is.
        found = self._then.give_until_fit(head, releases, now, fits_now=False)
        self._planned: Allocation | None
        self.start, self._planned = found or (inf, None)
        self.allocation = self._planned if self.start < inf else None
        self._places: dict[tuple[Request, bool], Allocation | None] = {}  # until something is taken

    def deadlines(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Seconds]]:
        """Of these the requests of jobs that may start, and when those must have ended."""
        most, total = self._free.cpus()  # most requests are too large for what is free
        for request in requests:
            if request.cpus > most or request.cpus * request.nodes > total:
                continue
            if self._free.count(request) >= request.nodes:
                if self._place_request(request, False) is not None:
                    yield request, inf
                elif self.start < inf:
                    yield request, self.start

    def backfill(self, request: Request, end: Seconds) -> Allocation | None:
        """Take nodes for a job that starts now and ends by then; ``None`` if that would delay the head."""
        in_time = end <= self.start < inf
        allocation = self._place_request(request, in_time)
        if allocation is not None:
            self._free.take(allocation)
            self._places.clear()
            if not in_time:
                self._then.take(allocation)
                self._planned = self._then.fit(self._head)
        return allocation

    def _place_request(self, request: Request, in_time: bool) -> Allocation | None:
        """Where a job would start; remembered. O(distinct node states)."""
        key = request, in_time
        if key not in self._places:
            self._places[key] = self._free.fit(request) if in_time else self._fit_extra(request)
        return self._places[key]

    def _fit_extra(self, request: Request) -> Allocation | None:
        """Nodes for a job of any length, such that the head still fits at its time."""
        allocation, planned = self._free.fit(request), self._planned
        if allocation is None or planned is None:
            return None  # where the head never fits, nothing may make that worse
        if not planned.mask & allocation.mask:
            return allocation
        without = self._then.copy()
        without.take(allocation)
        if without.fit(self._head) is not None:
            return allocation
        return self._free.fit(request, within=~planned.mask)


class CountShadow:
    """The shadow where nodes are counted; implements `dovetail.interfaces.Shadow`."""

    __slots__ = ("_extra", "_free", "_head", "_idle", "start")

    def __init__(self, head: Request, free: Free, releases: Releases, now: Seconds) -> None:
        self._head = head
        self._free = free
        self._idle = free.count(head)
        extra = self._idle - head.nodes
        start, ends = inf, iter(releases)
        for when, allocation in ends:
            extra += allocation.request.nodes
            if extra >= 0:
                start = max(when, now)
                break
        for when, allocation in ends:  # what ends at that very time is free then too
            if when > start:
                break
            extra += allocation.request.nodes
        self.start = start
        self._extra = extra

    @property
    def allocation(self) -> Allocation | None:
        """As many nodes as the head needs, whichever they will be."""
        return Allocation(self._head, ()) if self.start < inf else None

    def deadlines(self, requests: Iterable[Request]) -> list[tuple[Request, Seconds]]:
        """Of these the requests of jobs that may start, and when those must have ended."""
        extra, start = self._extra, self.start
        most = self._idle if start < inf else min(self._idle, extra)
        if most <= 0:
            return []
        return [
            (request, inf if request.nodes <= extra else start)
            for request in requests
            if request.nodes <= most
        ]

    def backfill(self, request: Request, end: Seconds) -> Allocation | None:
        """Take nodes for a job that starts now and ends by then; ``None`` if that would delay the head."""
        nodes, in_time = request.nodes, end <= self.start < inf
        if nodes > self._idle or (not in_time and nodes > self._extra):
            return None
        self._idle -= nodes
        if not in_time:
            self._extra -= nodes
        return self._free.claim(request)


class ReservedShadow:
    """The shadow where whole nodes are reserved, now or later; implements `dovetail.interfaces.Shadow`.

    The head has a slot in a plan of all nodes. Another job may start on the nodes that it would get without
    the head, if that fits elsewhere then at its time, else on others.
    """

    def __init__(self, head: Request, duration: Seconds, free: Free, plan: NodeProfile, now: Seconds) -> None:
        self._head, self._duration, self._free, self._plan, self._now = head, duration, free, plan, now
        found = plan.earliest(head, duration)
        self.start = inf if found is None else found[0]
        self.allocation = None if found is None else found[1]
        if self.allocation is not None:
            plan.hold(self.start, duration, self.allocation)

    def deadlines(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Seconds]]:
        """Of these the requests of jobs that may start now: the plan has the times by which they must end."""
        return ((one, inf) for one in requests if self._free.count(one) >= one.nodes)

    def backfill(self, request: Request, end: Seconds) -> Allocation | None:
        """Take nodes for a job that starts now and ends by then; ``None`` if that would delay the head."""
        if self.allocation is None:
            return None  # where the head never fits, nothing may make that worse
        duration = end - self._now
        without = self._plan.copy()
        without.give(self.start, self.start + self._duration, self.allocation)
        found = without.at(self._now, request, duration)
        if found is None:
            return None
        if not self._place_both(without, found, duration):
            found = self._plan.at(self._now, request, duration)
            if found is None or not self._place_both(without, found, duration):
                return None
        self._free.take(found)
        return found

    def _place_both(self, without: NodeProfile, found: Allocation, duration: Seconds) -> bool:
        """Enter the job, and the head beside it at its time, into the plan without the head's slot."""
        plan = without.copy()
        plan.hold(self._now, duration, found)
        head = plan.at(self.start, self._head, self._duration)
        if head is None:
            return False
        plan.hold(self.start, self._duration, head)
        self._plan, self.allocation = plan, head
        return True
