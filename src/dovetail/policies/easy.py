"""EASY backfilling."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import ClassVar, Literal

from dovetail.interfaces import Free, View
from dovetail.model import Choice, Decision, Job, Request, Reserve, Start
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import Order, ordered
from dovetail.policies.shadow import Shadow, shadow_of

__all__ = ["Easy"]


@dataclass(frozen=True, slots=True)
class Easy:
    """EASY backfilling: later jobs may go first if they do not delay the head of the queue.

    The head that cannot start is promised its shadow time. A later job is backfilled if it fits now and
    either ends by the shadow time or uses only nodes that the head does not need then. ``order`` is the
    order of the queue; the head keeps its place once it holds a promise. ``walltime=learned`` takes the
    upper end of the prediction for the walltime where something is known.
    """

    order: Order = "fcfs"
    walltime: Literal["user", "learned"] = "user"
    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = "Lifka 1995, The ANL/IBM SP scheduling system"
    settles: ClassVar[bool] = True

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front while jobs fit, promise the head its start, backfill behind it."""
        free = view.free()
        releases = list(view.releases())
        waiting = _waiting(view, self.order)
        for job in waiting:
            choice = _choice(view, job)
            allocation = free.fit(choice.request)
            if allocation is None:
                break
            free.take(allocation)
            bound = view.now + view.bound(job, choice.implementation, choice.request)
            insort(releases, (bound, allocation), key=itemgetter(0))
            yield Start(job.id, choice.implementation.name, allocation)
        else:
            return
        shadow = shadow_of(view, choice.request, free, releases)
        promise = view.reservations.get(job.id)
        if shadow.allocation is not None and (promise is None or shadow.start < promise.start):
            yield Reserve(job.id, choice.implementation.name, shadow.allocation, shadow.start)
        yield from _backfill(view, waiting, free, shadow)


def _waiting(view: View, order: Order) -> Iterator[Job]:
    """The head that holds a promise, if any, then the queue in its order."""
    promised = [promise.job for promise in view.reservations.values()]
    yield from promised
    for job in ordered(view.queue, order):
        if job not in promised:
            yield job


def _choice(view: View, job: Job) -> Choice:
    """How the job is to run: as it was promised, else the fastest way."""
    promise = view.reservations.get(job.id)
    if promise is None:
        return fastest(view, job)
    return Choice(promise.implementation, promise.allocation.request)


def _backfill(view: View, candidates: Iterable[Job], free: Free, shadow: Shadow) -> Iterator[Decision]:
    refused: set[tuple[Request, bool]] = set()  # as long as nothing more starts
    for job in candidates:
        choice = fastest(view, job)
        bound = view.bound(job, choice.implementation, choice.request)
        ends_in_time = view.now + bound <= shadow.start < inf
        if (choice.request, ends_in_time) in refused:
            continue
        allocation = shadow.lends(choice.request, free, ends_in_time)
        if allocation is None:
            refused.add((choice.request, ends_in_time))
            continue
        refused.clear()
        free.take(allocation)
        shadow.took(allocation, ends_in_time)
        yield Start(job.id, choice.implementation.name, allocation)
