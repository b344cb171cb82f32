"""EASY backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import itemgetter
from typing import ClassVar, Literal

from dovetail.interfaces import Entry, Free, Group, View
from dovetail.model import Allocation, Choice, Decision, Job, JobId, Promise, Request, Reserve, Seconds, Start
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import ORDERS, Order
from dovetail.policies.shadow import CountShadow, NodeShadow, Releases, Shadow

__all__ = ["Easy"]

Placement = tuple[Job, Choice, Allocation]


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
    priorities: ClassVar[bool] = True

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front while jobs fit, promise the head its start, backfill behind it."""
        queue, promise = view.queue, next(iter(view.reservations.values()), None)
        if not queue:
            return []
        if promise is not None and _nothing_freed(view, promise):
            new = [job for job in view.changes.submitted if _fits(view, job)]
            if not new:
                return []
        key, bounded = ORDERS[self.order]
        line = queue.by(key, bounded=bounded)
        waiting = iter(line) if promise is None else _promised_first(promise.job, line)
        free, allocation = view.free(), None
        decisions: list[Decision] = []
        started: list[Placement] = []
        for head in waiting:
            if allocation is not None:
                free.take(allocation)
            choice = _choice(view, head, promise)
            allocation = free.fit(choice.request)
            if allocation is None:
                break
            started.append((head, choice, allocation))
            decisions.append(Start(head.id, choice.implementation.name, allocation))
        else:
            return decisions
        kind = CountShadow if view.interchangeable else NodeShadow
        shadow: Shadow = kind(choice.request, free, _releases(view, started), view.now)
        promised = inf if promise is None or promise.job is not head else promise.start
        groups = queue.groups(key, bounded=bounded) if self.walltime == "user" else None
        if groups is None:
            backfilled = _backfill(view, waiting, free, shadow)
        else:
            passed = {head.id, *[decision.job for decision in decisions]}
            backfilled = _backfill_groups(view.now, groups, passed, free, shadow)
        if shadow.start < promised and shadow.allocation is not None:
            decisions.append(Reserve(head.id, choice.implementation.name, shadow.allocation, shadow.start))
        return decisions + backfilled


def _releases(view: View, started: Sequence[Placement]) -> Releases:
    """What ends when by the walltimes, with the jobs that this very call starts."""
    releases = view.releases()
    if not started:
        return releases
    new = [
        (view.now + view.bound(job, choice.implementation, choice.request), allocation)
        for job, choice, allocation in started
    ]
    return sorted([*releases, *new], key=itemgetter(0))


def _nothing_freed(view: View, promise: Promise) -> bool:
    """Whether the head still waits, and whoever was refused when the policy was last asked still is.

    So it is on interchangeable nodes if nothing has ended since: what is free now and at the shadow time
    has not grown, and the shadow time is where it was.
    """
    changes = view.changes
    return not changes.ended and not changes.otherwise and promise.start > view.now and view.interchangeable


def _fits(view: View, job: Job) -> bool:
    request = fastest(view, job).request
    return view.free().count(request) >= request.nodes


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


def _backfill(view: View, candidates: Iterable[Job], free: Free, shadow: Shadow) -> list[Decision]:
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


def _backfill_groups(
    now: Seconds, groups: Mapping[Request, Group], passed: set[JobId], free: Free, shadow: Shadow
) -> list[Decision]:
    """The same, when each job can run in one way only: groups that do not fit are skipped as a whole."""
    decisions: list[Decision] = []
    position: Entry | None = None
    end = shadow.start
    while True:
        found: Entry | None = None
        for group, whoever in shadow.rooms(groups, free):
            entry = group.first(position) if whoever else group.first_in_time(position, now, end)
            while entry is not None and entry[3].id in passed:
                entry = group.first(entry) if whoever else group.first_in_time(entry, now, end)
            if entry is not None and (found is None or entry < found):
                found = entry
        if found is None:
            return decisions
        job, in_time = found[3], now + found[2] <= end < inf
        choice = job.choices[0]
        allocation = shadow.place(choice.request, free, in_time)
        assert allocation is not None, "there was room"
        shadow.took(allocation, in_time, free)
        decisions.append(Start(job.id, choice.implementation.name, allocation))
        position = found
