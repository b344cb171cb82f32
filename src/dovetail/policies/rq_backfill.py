"""Remote-GPU queueing with EASY backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import ClassVar, Literal

from dovetail.interfaces import Free, Traits, View
from dovetail.model import (
    Allocation,
    Cluster,
    Decision,
    JobId,
    Request,
    Reserve,
    Seconds,
    Start,
    without_nodes,
)
from dovetail.policies.easy import promised_choice
from dovetail.policies.parts.lending import borrow
from dovetail.policies.parts.orders import priority_first
from dovetail.policies.parts.shadow import PlacingShadow, Releases, backfill, promised_first

__all__ = ["RqBackfill", "lend_and_backfill"]


class LendingShadow(PlacingShadow):
    """The head's reservation, at home; a candidate that finds no room beside it may borrow."""

    def __init__(
        self, head: Request, free: Free, releases: Releases, now: Seconds, cluster: Cluster, local: int
    ) -> None:
        super().__init__(head, free, releases, now)
        self._cluster, self._local = cluster, local

    def place(self, request: Request, free: Free, in_time: bool) -> Allocation | None:
        """Where a candidate starts, if the head is not delayed by it. O(nodes · log nodes)."""
        allocation = super().place(request, free, in_time)
        if allocation is None:
            allocation = borrow(free, self._cluster, request, local=self._local)
            if allocation is not None and not in_time and not self.fits_beside(allocation):
                return None
        return allocation


def lend_and_backfill(
    view: View, free: Free, *, local: int, moves: Mapping[JobId, Allocation] | None = None
) -> list[Decision]:
    """From the front of the queue as `rq` does; the head that cannot start is promised its shadow time.

    Jobs behind it go first, at home or with borrowed GPUs, where that does not delay it by the walltimes.
    ``moves`` are places that running jobs have been given in this instant; ``free`` is as free after them.
    """
    if not view.queue:
        return []
    promise = next(iter(view.reservations.values()), None)
    line = view.queue.by(priority_first)
    waiting = iter(line) if promise is None else promised_first(promise.job, line)
    decisions: list[Decision] = []
    releases = _releases(view, moves or {})
    for head in waiting:
        choice = promised_choice(view, head, promise)
        allocation = free.fit(choice.request) or borrow(free, view.cluster, choice.request, local=local)
        if allocation is None:
            break
        free.take(allocation)
        decisions.append(Start(head.id, choice.implementation.name, allocation))
        releases.append((view.now + view.bound(head, choice.implementation, choice.request), allocation))
    else:
        return decisions
    releases.sort(key=itemgetter(0))
    shadow = LendingShadow(choice.request, free, releases, view.now, view.cluster, local)
    promised = inf if promise is None or promise.job is not head else promise.start
    if shadow.start < promised and shadow.allocation is not None:
        decisions.append(Reserve(head.id, choice.implementation.name, shadow.allocation, shadow.start))
    return [*decisions, *backfill(view, waiting, free, shadow)]


def _releases(view: View, moves: Mapping[JobId, Allocation]) -> list[tuple[Seconds, Allocation]]:
    """When running jobs end by their bounds and what they free, those that move at their new places."""
    gone = sum(1 << n for n in view.cluster.gone)
    return [
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
