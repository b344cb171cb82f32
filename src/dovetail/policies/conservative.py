"""Conservative backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from dovetail.interfaces import Profile, Traits, View
from dovetail.model import (
    Choice,
    Decision,
    Job,
    Promise,
    Reserve,
    Seconds,
    Start,
    Wait,
    fastest_choice,
)
from dovetail.policies.parts.orders import ORDERS, Order
from dovetail.policies.parts.trials import Trials, fastest_or_first


@dataclass(frozen=True, slots=True)
class Conservative:
    """Conservative backfilling: every job is promised a start, and none moves later.

    On submission a job gets the earliest start that moves no promise. When a job has ended early, every
    promise is made anew in the order of the queue: it moves to the earliest start that the others leave,
    which stay where they are meanwhile, so none gets later. ``order`` is the order of the queue, and of
    jobs that are submitted together. ``walltime=learned`` takes the upper end of the prediction for the
    walltime where something is known.

    Job 4 fits beside the first one, but job 3 is promised the node from 15 on:

    >>> from dovetail.testing.examples import on_nodes
    >>> rows = [(0, 2, 10, 10), (1, 3, 5, 5), (1, 3, 5, 5), (2, 1, 8, 8), (2, 1, 9, 9)]
    >>> on_nodes(Conservative(), "3x1cpu", rows)
    0 n[0-1] 0 to 10, 1 n[0-2] 10 to 15, 2 n[0-2] 15 to 20, 3 n2 2 to 10, 4 n0 20 to 29
    """

    order: Order = "fcfs"
    walltime: Literal["user", "learned"] = "user"
    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = (
        "Mu'alem and Feitelson 2001, Utilization, predictability, workloads, and user runtime estimates"
    )
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, partitions=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Move promises forward after an early end, promise new jobs a start, start what is due."""
        if not view.queue:
            return
        order = ORDERS[self.order]
        new = view.unpromised(order.key, bounded=order.bounded)
        # While there are no promises, nothing can be delayed: what fits from the front starts without the
        # cost of a profile.
        front = [] if view.reservations else list(_promise_front(view, new))
        new = new[len(front) :]
        if not new and not view.reservations:
            yield from _start_due_jobs(view, front)
            return
        plan = view.promised(order.key, bounded=order.bounded)
        if plan is None:
            yield from _start_due_jobs(view, _startable_under_overrun(view, new))
            return
        # What the front takes must be in the plan before it promises the rest.
        for promise in front:
            plan.hold(promise.start, _promise_bound(view, promise), promise.allocation)
        # Promises move only where capacity came free earlier than planned: ends on time are in the plan.
        if _came_free(view):
            renewal = plan.renew()
            if renewal is not None:
                yield renewal
        due = front + plan.due()
        later = plan.next_due()
        for promise in _promise_new_jobs(view, plan, new):
            if promise.start <= view.now:
                due.append(promise)
            else:
                yield Reserve(promise.job.id, promise.implementation.name, promise.allocation, promise.start)
                later = promise if later is None or promise.start < later.start else later
        yield from _start_due_jobs(view, due)
        if later is not None:  # it need not be an event that frees its nodes
            yield Wait(later.job.id, f"is promised a start at {later.start:g}", later.start)


def _promise_front(view: View, jobs: Sequence[Job]) -> Iterator[Promise]:
    """While no job holds a promise: the jobs from the front that can start now."""
    free, trials = view.free(), Trials(view)
    for job in jobs:
        choice = trials.preferred_choice(job, free)
        allocation = free.claim(choice.request)
        if allocation is None:
            return
        yield Promise(job, choice.implementation, allocation, view.now)


def _came_free(view: View) -> bool:
    """Whether capacity has become free that was not counted on."""
    changes, now = view.changes, view.now
    return changes.otherwise or any(placed.bound > now for placed in changes.ended)


def _promise_new_jobs(view: View, plan: Profile, jobs: Sequence[Job]) -> Iterator[Promise]:
    """The earliest start of each new job that moves no promise.

    Behind jobs that may run for ever nothing can be promised yet.
    """

    def earliest_start(job: Job, choice: Choice) -> Seconds:
        bound = view.bound(job, choice.implementation, choice.request)
        return (plan.earliest(choice.request, bound) or (inf,))[0]

    for job in jobs:
        choice = fastest_or_first(view, job, earliest_start)
        duration = view.bound(job, choice.implementation, choice.request)
        found = plan.earliest(choice.request, duration)
        if found is not None:
            plan.hold(found[0], duration, found[1])
            yield Promise(job, choice.implementation, found[1], found[0])


def _start_due_jobs(view: View, due: Iterable[Promise]) -> Iterator[Decision]:
    """Start the jobs that are due, those of no length first.

    What they hold, others may get at the same instant: these are promised now, and start when those have
    ended and the policy is called again.
    """
    free = view.free()
    for promise in sorted(due, key=lambda promise: _promise_bound(view, promise) > 0):
        name, allocation = promise.implementation.name, free.claim_as(promise.allocation)
        if allocation is not None:
            yield Start(promise.job.id, name, allocation)
        else:
            yield Reserve(promise.job.id, name, promise.allocation, view.now)


def _startable_under_overrun(view: View, new: Sequence[Job]) -> Iterator[Promise]:
    """While an overrun makes promises impossible: who can start now, those with the earliest promises first.

    Promises stay as they are; new jobs are promised nothing yet.
    """
    profile = view.profile()
    # Of those promised the same instant the jobs of no length first, as they free at once what they hold.
    held = sorted(view.reservations.values(), key=lambda p: (p.start, _promise_bound(view, p) > 0))
    wishes = [(promise.job, Choice(promise.implementation, promise.allocation.request)) for promise in held]
    for job, choice in [*wishes, *((job, fastest_choice(view, job)) for job in new)]:
        duration = view.bound(job, choice.implementation, choice.request)
        found = profile.earliest(choice.request, duration)
        if found is not None:
            profile.hold(found[0], duration, found[1])
            if found[0] <= view.now:
                yield Promise(job, choice.implementation, found[1], found[0])


def _promise_bound(view: View, promise: Promise) -> Seconds:
    return view.bound(promise.job, promise.implementation, promise.allocation.request)
