"""Conservative backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal

from dovetail.interfaces import Free, Profile, Slot, View
from dovetail.model import Allocation, Decision, Job, JobId, Promise, Reserve, Seconds, Start, Wait
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import priority_first

__all__ = ["Conservative"]


@dataclass(frozen=True, slots=True)
class Conservative:
    """Conservative backfilling: every job is promised a start, and none moves later.

    On submission a job gets the earliest start that moves no promise (priority, then file order within
    one instant). When a job has ended early, every promise is taken out in queue order and made anew at
    the earliest start; the promises of all others stay where they are meanwhile, so none gets later.
    ``walltime=learned`` takes the upper end of the prediction for the walltime where something is known.
    """

    walltime: Literal["user", "learned"] = "user"
    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = (
        "Mu'alem and Feitelson 2001, Utilization, predictability, workloads, and user runtime estimates"
    )
    settles: ClassVar[bool] = True
    priorities: ClassVar[bool] = True

    def decide(self, view: View) -> Iterable[Decision]:
        """Start what is due, move promises forward after an early end, promise new jobs a start."""
        if not view.queue:
            return
        plan = _Plan(view)
        queue: Iterable[Job] = view.queue.by(priority_first)
        if not plan.held:
            queue = plan.start_front(queue)
        elif not _renewing(view) and len(plan.held) == len(view.queue) and not _overrun(view):
            queue = ()  # nothing ended early, nobody is new: the promises stand
            for promise in plan.held.values():
                plan.keep(promise)
        waiting = list(queue)
        if waiting:
            yield from plan.name_nodes()
            if plan.keep_promises():
                yield from self._carry_on(view, plan, waiting)
            else:
                plan.renew(waiting)
        yield from plan.start_due()
        if plan.next is not None:
            yield Wait(plan.next.job.id, f"is promised a start at {plan.next.start:g}", plan.next.start)

    @staticmethod
    def _carry_on(view: View, plan: _Plan, queue: Sequence[Job]) -> Iterator[Decision]:
        held = plan.held
        if _renewing(view):
            for job in queue:
                if job.id in held:
                    yield from plan.compress(held[job.id])
        else:
            for promise in held.values():
                plan.keep(promise)
        for job in queue:
            if job.id not in held:
                yield from plan.admit(job)


def _renewing(view: View) -> bool:
    """Whether capacity has become free that was not counted on."""
    changes, now = view.changes, view.now
    return changes.otherwise or any(placed.bound > now for placed in changes.ended)


def _overrun(view: View) -> bool:
    """Whether a running job or a promise is overdue."""
    releases, now = view.releases(), view.now
    return bool(releases and releases[0][0] <= now) or any(
        promise.start < now for promise in view.reservations.values()
    )


class _Plan:
    """The profile of one instant, and the decisions that follow from it."""

    _profile: Profile

    def __init__(self, view: View) -> None:
        self._view = view
        self._free = view.free()
        self._due: list[Promise] = []
        self._front: list[Slot] = []
        self.held: Mapping[JobId, Promise] = view.reservations
        self.next: Promise | None = None
        """The first promise to fall due: it need not be an event that frees its nodes."""

    def start_front(self, queue: Iterable[Job]) -> Iterator[Job]:
        """Start jobs that fit, while nobody holds a promise; gives the queue from the first that waits."""
        waiting = iter(queue)
        free = self._free.copy()
        for job in waiting:
            choice = fastest(self._view, job)
            allocation = free.fit(choice.request)
            if allocation is None:
                return chain([job], waiting)
            free.take(allocation)
            duration = self._view.bound(job, choice.implementation, choice.request)
            self._front.append((self._view.now, duration, allocation))
            self._due.append(Promise(job, choice.implementation, allocation, self._view.now))
        return iter(())

    def name_nodes(self) -> Iterator[Decision]:
        """Choose nodes for promises that named none, now that nodes are no longer interchangeable.

        By their starts: whoever starts later finds as many nodes as were counted.
        """
        view = self._view
        if view.interchangeable or all(promise.allocation.parts for promise in self.held.values()):
            return
        profile = view.profile()
        named: dict[JobId, Promise] = dict(self.held)
        for promise in sorted(self.held.values(), key=lambda p: (p.start, _bound(view, p) > 0)):
            duration = _bound(view, promise)
            start = max(promise.start, view.now)
            found = profile.at(start, promise.allocation.request, duration)
            if found is None:
                continue  # an overrun has made it impossible
            profile.hold(start, duration, found)
            named[promise.job.id] = Promise(promise.job, promise.implementation, found, promise.start)
            if promise.start >= view.now:
                yield Reserve(promise.job.id, promise.implementation.name, found, promise.start)
        self.held = named

    def keep_promises(self) -> bool:
        """Plan with all promises in place; ``False`` if an overrun has made them impossible."""
        view, held = self._view, self.held
        if held and held is view.reservations:
            promised = view.promised()
            if promised is not None:
                self._profile = promised
            return promised is not None
        self._profile = view.profile()  # nobody holds a promise yet, or nodes have only just been named
        if any(promise.start < view.now for promise in held.values()):
            return False
        slots = [(promise.start, _bound(view, promise), promise.allocation) for promise in held.values()]
        return self._profile.hold_all(self._front + slots)

    def compress(self, promise: Promise) -> Iterator[Decision]:
        """Make one promise anew, with all the others in place."""
        duration = _bound(self._view, promise)
        moved = self._profile.pull(promise.start, duration, promise.allocation)
        if moved is not None:
            start, allocation = moved
            promise = Promise(promise.job, promise.implementation, allocation, start)
            if start > self._view.now:
                yield Reserve(promise.job.id, promise.implementation.name, allocation, start)
        self.keep(promise)

    def admit(self, job: Job) -> Iterator[Decision]:
        """Give a new job the earliest start that moves no promise."""
        choice = fastest(self._view, job)
        duration = self._view.bound(job, choice.implementation, choice.request)
        found = self._profile.earliest(choice.request, duration)
        if found is None:
            return  # behind jobs that may run for ever: nothing can be promised yet
        start, allocation = found
        self._profile.hold(start, duration, allocation)
        if start > self._view.now:
            yield Reserve(job.id, choice.implementation.name, allocation, start)
        self.keep(Promise(job, choice.implementation, allocation, start))

    def keep(self, promise: Promise) -> None:
        """Note whether the job is due, and if not, when it will be."""
        if promise.start <= self._view.now:
            self._due.append(promise)
        elif self.next is None or promise.start < self.next.start:
            self.next = promise

    def start_due(self) -> Iterator[Decision]:
        """Start the jobs that are due, those of no length first.

        What they hold, others may get at the same instant: these are promised now, and start when those
        have ended and the policy is asked again.
        """
        free = self._free
        for promise in sorted(self._due, key=lambda promise: _bound(self._view, promise) > 0):
            allocation: Allocation | None = promise.allocation
            if not promise.allocation.parts:
                allocation = free.fit(promise.allocation.request)
            if allocation is not None and _take(free, allocation):
                yield Start(promise.job.id, promise.implementation.name, allocation)
            else:
                name = promise.implementation.name
                yield Reserve(promise.job.id, name, promise.allocation, self._view.now)

    def renew(self, queue: Sequence[Job]) -> None:
        """While an overrun makes promises impossible: plan anew, those with the earliest promises first.

        Promises stay as they are; new jobs are promised nothing yet.
        """
        view = self._view
        self._profile = view.profile()
        held = self.held
        for promise in sorted(held.values(), key=lambda p: (p.start, _bound(view, p) > 0)):
            duration = _bound(view, promise)
            found = self._profile.earliest(promise.allocation.request, duration)
            if found is None:
                continue
            start, allocation = found
            self._profile.hold(start, duration, allocation)
            if start <= view.now:
                self.keep(Promise(promise.job, promise.implementation, allocation, start))
        for job in queue:
            if job.id not in held:
                self._squeeze_in(job)

    def _squeeze_in(self, job: Job) -> None:
        choice = fastest(self._view, job)
        duration = self._view.bound(job, choice.implementation, choice.request)
        found = self._profile.earliest(choice.request, duration)
        if found is not None:
            self._profile.hold(found[0], duration, found[1])
            if found[0] <= self._view.now:
                self.keep(Promise(job, choice.implementation, found[1], found[0]))


def _bound(view: View, promise: Promise) -> Seconds:
    return view.bound(promise.job, promise.implementation, promise.allocation.request)


def _take(free: Free, allocation: Allocation) -> bool:
    """Take it if it is free."""
    try:
        free.take(allocation)
    except ValueError:
        return False
    return True
