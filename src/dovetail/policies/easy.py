"""EASY backfilling."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import itemgetter
from typing import ClassVar, Literal

from dovetail.interfaces import Entry, Free, Group, View
from dovetail.model import Choice, Decision, Job, JobId, Promise, Request, Reserve, Start
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import ORDERS, Order
from dovetail.policies.shadow import CountShadow, NodeShadow, Room, Shadow

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
        if not view.queue:
            return []
        key, bounded = ORDERS[self.order]
        line = view.queue.by(key, bounded=bounded)
        promise = next(iter(view.reservations.values()), None)
        waiting = iter(line) if promise is None else _promised_first(promise.job, line)
        free, releases = view.free(), view.releases()
        decisions: list[Decision] = []
        for head in waiting:
            choice = _choice(view, head, promise)
            allocation = free.fit(choice.request)
            if allocation is None:
                break
            free.take(allocation)
            decisions.append(Start(head.id, choice.implementation.name, allocation))
            bound = view.now + view.bound(head, choice.implementation, choice.request)
            releases = list(releases)
            insort(releases, (bound, allocation), key=itemgetter(0))
        else:
            return decisions
        kind = CountShadow if view.interchangeable else NodeShadow
        shadow: Shadow = kind(choice.request, free, releases, view.now)
        promised = inf if promise is None or promise.job is not head else promise.start
        if shadow.allocation is not None and shadow.start < promised:
            decisions.append(Reserve(head.id, choice.implementation.name, shadow.allocation, shadow.start))
        groups = view.queue.groups(key, bounded=bounded) if self.walltime == "user" else None
        if groups is None:
            return chain(decisions, _backfill(view, waiting, free, shadow))
        passed = {head.id, *(decision.job for decision in decisions)}
        return chain(decisions, _backfill_groups(view, groups, passed, free, shadow))


def _promised_first(head: Job, line: Sequence[Job]) -> Iterator[Job]:
    yield head
    for job in line:
        if job is not head:
            yield job


def _choice(view: View, job: Job, promise: Promise | None) -> Choice:
    """How the job is to run: as it was promised, else the fastest way."""
    if promise is None or promise.job is not job:
        return fastest(view, job)
    return Choice(promise.implementation, promise.allocation.request)


def _backfill(view: View, candidates: Iterable[Job], free: Free, shadow: Shadow) -> Iterator[Decision]:
    """Start, in order, each candidate that does not delay the head."""
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
        free.take(allocation)
        shadow.took(allocation, in_time)
        yield Start(job.id, choice.implementation.name, allocation)


def _backfill_groups(
    view: View, groups: Mapping[Request, Group], passed: set[JobId], free: Free, shadow: Shadow
) -> Iterator[Decision]:
    """The same, when each job can run in one way only: groups that do not fit are skipped as a whole."""
    position: Entry | None = None
    now, end = view.now, shadow.start
    while True:
        found: Entry | None = None
        for request, group in groups.items():
            if not group:
                continue
            room = shadow.room(request, free)
            if room is Room.NONE:
                continue
            entry = position
            while True:
                entry = group.first(entry) if room is Room.ANY else group.first_in_time(entry, now, end)
                if entry is None or entry[3].id not in passed:
                    break
            if entry is not None and (found is None or entry < found):
                found = entry
        if found is None:
            return
        job, in_time = found[3], now + found[2] <= end < inf
        choice = job.choices[0]
        allocation = shadow.place(choice.request, free, in_time)
        assert allocation is not None, "there was room"
        free.take(allocation)
        shadow.took(allocation, in_time)
        yield Start(job.id, choice.implementation.name, allocation)
        position = found
