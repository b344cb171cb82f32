"""EASY backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, Protocol

from dovetail.interfaces import Free, Shadow, Traits, View
from dovetail.model import (
    Allocation,
    Choice,
    Decision,
    Job,
    JobId,
    Promise,
    Reserve,
    Start,
)
from dovetail.policies.parts.orders import ORDERS, Order
from dovetail.policies.parts.trials import Trials, fastest_or_first


class RoomKept(Protocol):
    """What is kept free for others than those that wait."""

    @property
    def first_kept_from(self) -> JobId | None:
        """The first job that has been passed over for it."""
        ...

    def is_kept_from(self, job: Job) -> bool:
        """Whether the job fits now and is not to start yet."""
        ...

    def started(self, job: Job) -> None:
        """The job takes its part."""
        ...


@dataclass(frozen=True, slots=True)
class Easy:
    """EASY backfilling: later jobs may go first if they do not delay the head of the queue.

    The head that cannot start is promised its shadow time. A later job is backfilled if it fits now and
    either ends by the shadow time or uses only nodes that the head does not need then. ``order`` is the
    order of the queue; the head keeps its place once it holds a promise. ``walltime=learned`` takes the
    upper end of the prediction for the walltime where something is known.

    Job 1 needs both nodes and is promised them for 10, when job 0 must have ended. Job 2 ends before; job
    3 would not:

    >>> from dovetail.testing.examples import on_nodes
    >>> on_nodes(Easy(), "2x1cpu", [(0, 1, 10, 10), (1, 2, 5, 5), (2, 1, 8, 8), (2, 1, 9, 9)])
    0 n0 0 to 10, 1 n[0-1] 10 to 15, 2 n1 2 to 10, 3 n0 15 to 24
    """

    order: Order = "fcfs"
    walltime: Literal["user", "learned"] = "user"
    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = "Lifka 1995, The ANL/IBM SP scheduling system"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, partitions=True)

    def decide(
        self,
        view: View,
        first: Sequence[Job] = (),
        room: RoomKept | None = None,
        *,
        overdue: Sequence[Job] = (),
    ) -> list[Decision]:
        """Start from the front while jobs fit, promise the head its start, backfill behind it.

        The jobs of ``first`` come before all others of the queue, one after the other. Those that ``room`` is
        kept from are passed over. The ``overdue`` ones come before these, and a job that passes one of them
        must have ended when the head starts: so they are delayed by no job behind them.
        """
        first = [*overdue, *first]
        if not view.queue:
            return []
        promise = next(iter(view.reservations.values())) if view.reservations else None
        free = view.free()
        # Most instants change nothing for the head: they must not cost a search.
        if promise is not None and _nothing_new(view, free, promise):
            return []
        trials = Trials(view)
        decisions: list[Decision] = []
        started: list[tuple[Job, Choice, Allocation]] = []
        for head in self._ordered_queue(view, promise, first, room):
            if room is not None and room.is_kept_from(head):
                continue
            choice = trials.preferred_choice(head, free, promise)
            allocation = free.claim(choice.request)
            if allocation is None:
                break
            started.append((head, choice, allocation))
            decisions.append(Start(head.id, choice.implementation.name, allocation))
            if room is not None:
                room.started(head)
        else:
            return decisions

        def shadow_of(choice: Choice) -> Shadow:
            duration = view.bound(head, choice.implementation, choice.request)
            return view.shadow(choice.request, free, started, duration)

        # The head's choice is the one that could start first; a kept promise keeps its choice.
        if promise is None or promise.job is not head:
            choice = fastest_or_first(view, head, lambda _, choice: shadow_of(choice).start)
        shadow = shadow_of(choice)
        promised = promise.start if promise is not None and promise.job is head else inf
        # A promise is only ever moved forward: a later one would break it.
        if shadow.start < promised and shadow.allocation is not None:
            decisions.append(Reserve(head.id, choice.implementation.name, shadow.allocation, shadow.start))
        if len(view.queue) > len(started) + 1:
            ahead = {job.id for job, _, _ in started}
            ahead.add(head.id)
            late = [job.id for job in overdue if job.id not in ahead]
            decisions += self._backfill_jobs(view, shadow, ahead, first, room, trials, free, late)
        return decisions

    def _ordered_queue(
        self, view: View, promise: Promise | None, first: Sequence[Job], room: RoomKept | None
    ) -> Iterator[Job]:
        """The queue in its order, the job that holds the promise before all others."""
        # The promised job first, whatever its rank now: a promise binds the order as well.
        promised = None if promise is None else promise.job
        if promised is not None:
            yield promised
        for job in first:
            if job is not promised:
                yield job
        if room is not None and room.first_kept_from is not None:
            return  # no job behind the first ones goes before them
        ahead = {job.id for job in first} if first else ()
        order = ORDERS[self.order]
        for job in view.queue.by(order.key, bounded=order.bounded):
            if job is not promised and job.id not in ahead:
                yield job

    def _backfill_jobs(
        self,
        view: View,
        shadow: Shadow,
        ahead: set[JobId],
        first: Sequence[Job],
        room: RoomKept | None,
        trials: Trials,
        free: Free,
        late: list[JobId],
    ) -> list[Decision]:
        """Start, in order, each job behind the head that delays neither it nor those that are ``late``."""
        decisions: list[Decision] = []
        order = ORDERS[self.order]
        # By the deadlines of the shadow: jobs that are too long for it are never looked at.
        if self.walltime == "user":  # jobs whose walltime rules them out cost no time
            line: Iterable[Job] = view.queue.in_time(
                order.key, view.now, shadow.deadlines, bounded=order.bounded
            )
        else:
            line = view.queue.by(order.key, bounded=order.bounded)
        if first:  # all that could go are sorted: a few, since the head waits
            place = {job.id: at for at, job in enumerate(first)}
            line = sorted(line, key=lambda job: place.get(job.id, len(place)))
        for job in line:
            if job.id not in ahead and not (room is not None and room.is_kept_from(job)):
                choice = trials.preferred_choice(job, free)
                end = view.now + view.bound(job, choice.implementation, choice.request)
                # Past an overdue job only what has ended by the head's start.
                if late and job.id != late[0] and end > shadow.start:
                    continue
                allocation = shadow.backfill(choice.request, end)
                if allocation is not None:
                    decisions.append(Start(job.id, choice.implementation.name, allocation))
                    if late and job.id == late[0]:
                        del late[0]
                    if room is not None:
                        room.started(job)
        return decisions


def _nothing_new(view: View, free: Free, promise: Promise) -> bool:
    """Whether the head still waits for its promised start, and no job that could start has come since."""
    if promise.start <= view.now or view.freed:
        return False
    for job in view.changes.submitted:
        request = Trials(view).preferred_choice(job, free).request
        if free.count(request) >= request.nodes:
            return False
    return True
