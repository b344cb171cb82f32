"""Remote-GPU queueing with EASY backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import ClassVar, Literal

from dovetail.interfaces import Free, Traits, View
from dovetail.model import (
    Allocation,
    Decision,
    JobId,
    Request,
    Reserve,
    Seconds,
    Start,
    without_nodes,
)
from dovetail.policies.parts.lending import borrow_devices
from dovetail.policies.parts.orders import priority_first
from dovetail.policies.parts.trials import Trials, fastest_or_first

Releases = Sequence[tuple[Seconds, Allocation]]


class _Shadow:
    """The head's reservation at home: of each node it is known what is free at the shadow time.

    A candidate that runs past it uses only extra nodes if the head still fits then; tried are the normal
    placement, nodes outside those planned for the head, and borrowed GPUs.
    """

    def __init__(self, head: Request, free: Free, releases: Releases, view: View, local: int) -> None:
        self._head, self._free, self._cluster, self._local = head, free, view.cluster, local
        self._then = free.copy()  # what is free at the shadow time, for candidates that run past it
        found = self._then.give_until_fit(head, releases, view.now)
        self.start = inf if found is None else found[0]
        self.allocation = None if found is None or self.start == inf else found[1]

    def start_beside(self, request: Request, in_time: bool) -> Allocation | None:
        """Take the place where a candidate starts, if the head is not delayed by it. O(nodes · log nodes)."""
        allocation = self._at_home(request, in_time)
        if allocation is None:
            allocation = borrow_devices(self._free, self._cluster, request, local=self._local)
            if allocation is not None and not in_time and not self._fits_beside(allocation):
                return None
        if allocation is not None:
            self._free.take(allocation)
            if not in_time:
                self._then.take(allocation)
        return allocation

    def _at_home(self, request: Request, in_time: bool) -> Allocation | None:
        allocation = self._free.fit(request)
        if allocation is None or in_time:
            return allocation
        planned = self._then.fit(self._head)
        if planned is None:
            return None  # the head never fits: nothing may make that worse
        if not planned.mask & allocation.mask or self._fits_beside(allocation):
            return allocation
        return self._free.fit(request, within=~planned.mask)

    def _fits_beside(self, allocation: Allocation) -> bool:
        """Whether the head fits at its time where this is still held then."""
        without = self._then.copy()
        without.take(allocation)
        return without.fit(self._head) is not None


def lend_and_backfill(
    view: View, free: Free, *, local: int, moves: Mapping[JobId, Allocation] | None = None
) -> list[Decision]:
    """From the front of the queue as `rq` does; the head that cannot start is promised its shadow time.

    Jobs behind it go first, at home or with borrowed GPUs, where that does not delay it by the walltimes.
    ``moves`` are places that running jobs have been given in this instant; ``free`` is as free after them.
    """
    if not view.queue:
        return []
    promise, trials = next(iter(view.reservations.values()), None), Trials(view)
    line = view.queue.by(priority_first)
    promised = None if promise is None else promise.job
    waiting = iter(sorted(line, key=lambda job: job is not promised))  # a stable sort
    decisions: list[Decision] = []
    releases = _expected_releases(view, moves or {})
    for head in waiting:
        choice = trials.preferred_choice(head, free, promise)
        allocation = free.fit(choice.request) or borrow_devices(
            free, view.cluster, choice.request, local=local
        )
        if allocation is None:
            break
        free.take(allocation)
        decisions.append(Start(head.id, choice.implementation.name, allocation))
        releases.append((view.now + view.bound(head, choice.implementation, choice.request), allocation))
    else:
        return decisions
    releases.sort(key=itemgetter(0))
    if promise is None or promise.job is not head:
        choice = fastest_or_first(
            view, head, lambda _, choice: (free.earliest(choice.request, releases, view.now) or (inf,))[0]
        )
    shadow = _Shadow(choice.request, free, releases, view, local)
    latest = inf if promise is None or promise.job is not head else promise.start
    if shadow.start < latest and shadow.allocation is not None:
        decisions.append(Reserve(head.id, choice.implementation.name, shadow.allocation, shadow.start))
    # A shape that was refused stays refused until something starts: only that changes what is free.
    refused: set[tuple[Request, bool]] = set()  # as long as nothing more starts
    for job in waiting:
        choice = trials.preferred_choice(job, free)
        bound = view.bound(job, choice.implementation, choice.request)
        in_time = view.now + bound <= shadow.start < inf
        if (choice.request, in_time) in refused:
            continue
        allocation = shadow.start_beside(choice.request, in_time)
        if allocation is None:
            refused.add((choice.request, in_time))
            continue
        refused.clear()
        decisions.append(Start(job.id, choice.implementation.name, allocation))
    return decisions


def _expected_releases(view: View, moves: Mapping[JobId, Allocation]) -> list[tuple[Seconds, Allocation]]:
    """When running jobs end by their bounds and what they free, those that move at their new places."""
    gone = sum(1 << n for n in view.cluster.gone)
    return [
        # A job past its bound may end at any moment: it frees now, not in the past.
        (max(placed.bound, view.now), without_nodes(moves.get(job, placed.allocation), gone))
        for job, placed in view.running.items()
        if job not in view.elsewhere
    ]


@dataclass(frozen=True, slots=True)
class RqBackfill:
    """As ``rq``, with EASY: later jobs go first, at home or borrowing, if they do not delay the head.

    The head that cannot start even with borrowed GPUs is promised the time from which it fits at home, by the
    walltimes. Borrowing makes jobs slower: without walltimes promises are best effort. ``local``: see ``rq``.
    """

    local: int = 0
    walltime: Literal["user", "learned"] = "user"

    paper: ClassVar[str] = "Markthub 2015, section 2; Lifka 1995"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, borrows=True, slows=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front, promise the head its start, backfill behind it."""
        return lend_and_backfill(view, view.free(), local=self.local)
