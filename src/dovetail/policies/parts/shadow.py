"""EASY's head and those behind it, where a policy places candidates in its own way: on borrowed GPUs, too.

Policies that place as the engine does ask `View.shadow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf

from dovetail.interfaces import Free, View
from dovetail.model import Allocation, Decision, Job, Request, Seconds, Start, fastest

__all__ = ["PlacingShadow", "Releases", "backfill", "promised_first"]

Releases = Sequence[tuple[Seconds, Allocation]]


class PlacingShadow:
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
        if self.fits_beside(allocation):
            return allocation
        return free.fit(request, within=~planned.mask)

    def fits_beside(self, allocation: Allocation) -> bool:
        """Whether the head fits at its time where this is still held then."""
        without = self._then.copy()
        without.take(allocation)
        return without.fit(self._head) is not None

    def took(self, allocation: Allocation, in_time: bool, free: Free) -> None:
        """A candidate starts there."""
        free.take(allocation)
        if not in_time:
            self._then.take(allocation)


def promised_first(head: Job, line: Sequence[Job]) -> Iterator[Job]:
    """The line, with the job before all others that holds a promise."""
    yield head
    for job in line:
        if job is not head:
            yield job


def backfill(view: View, candidates: Iterable[Job], free: Free, shadow: PlacingShadow) -> list[Decision]:
    """Start, in order, each candidate that does not delay the head."""
    decisions: list[Decision] = []
    refused: set[tuple[Request, bool]] = set()  # as long as nothing more starts
    for job in candidates:
        choice = fastest(view, job)
        bound = view.bound(job, choice.implementation, choice.request)
        in_time = view.now + bound <= shadow.start < inf
        if (choice.request, in_time) in refused:
            continue
        allocation = shadow.place(choice.request, free, in_time)
        if allocation is None:
            refused.add((choice.request, in_time))
            continue
        refused.clear()
        shadow.took(allocation, in_time, free)
        decisions.append(Start(job.id, choice.implementation.name, allocation))
    return decisions
