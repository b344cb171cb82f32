"""Conservative backfilling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.interfaces import Free, View
from dovetail.model import Allocation, Decision, Job, Promise, Reserve, Seconds, Start, Wait
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import priority_first
from dovetail.policies.profile import Profile, profile_of

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

    def decide(self, view: View) -> Iterable[Decision]:
        """Start what is due, move promises forward after an early end, promise new jobs a start."""
        queue = list(view.queue.by(priority_first))
        if not queue:
            return
        plan = _Plan(view, profile_of(view, queue[0].choices[0].request))
        if plan.keep_promises():
            yield from self._carry_on(view, plan, queue)
        else:
            yield from plan.renew(queue)
        if plan.next is not None:
            yield Wait(plan.next.job.id, f"is promised a start at {plan.next.start:g}", plan.next.start)

    @staticmethod
    def _carry_on(view: View, plan: _Plan, queue: Sequence[Job]) -> Iterator[Decision]:
        changes = view.changes
        if changes.otherwise or any(placed.bound > view.now for placed in changes.ended):
            for job in queue:
                if job.id in view.reservations:
                    yield from plan.compress(view.reservations[job.id])
        else:
            for promise in view.reservations.values():
                yield from plan.keep(promise)
        for job in queue:
            if job.id not in view.reservations:
                yield from plan.admit(job)


class _Plan:
    """The profile of one instant, and the decisions that follow from it."""

    def __init__(self, view: View, profile: Profile) -> None:
        self._view = view
        self._profile = profile
        self._free: Free = view.free()
        self.next: Promise | None = None
        """The first promise to fall due: it need not be an event that frees its nodes."""

    def keep_promises(self) -> bool:
        """Enter all promises into the profile; ``False`` if an overrun has made them impossible."""
        view, profile = self._view, self._profile
        for promise in view.reservations.values():
            if promise.start < view.now:
                return False
            if not profile.hold(promise.start, _bound(view, promise), promise.allocation):
                return False
        return True

    def compress(self, promise: Promise) -> Iterator[Decision]:
        """Make one promise anew, with all the others in place."""
        duration = _bound(self._view, promise)
        self._profile.release(promise.start, duration, promise.allocation)
        found = self._profile.earliest(promise.allocation.request, duration)
        start, allocation = promise.start, promise.allocation
        if found is not None and found[0] < start:
            start, allocation = found
        self._profile.hold(start, duration, allocation)
        new = Promise(promise.job, promise.implementation, allocation, start)
        if promise.start > start > self._view.now:
            yield Reserve(promise.job.id, promise.implementation.name, allocation, start)
        yield from self.keep(new)

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
        yield from self.keep(Promise(job, choice.implementation, allocation, start))

    def keep(self, promise: Promise) -> Iterator[Decision]:
        """Start the job if it is due."""
        if promise.start <= self._view.now:
            yield from self.start(promise.job, promise.implementation.name, promise.allocation)
        elif self.next is None or promise.start < self.next.start:
            self.next = promise

    def start(self, job: Job, implementation: str, allocation: Allocation) -> Iterator[Decision]:
        """Start a job now, unless one of no length is still to end at this instant."""
        if not allocation.parts:
            fits = self._free.fit(allocation.request)
            if fits is None:
                return
            allocation = fits
        try:
            self._free.take(allocation)
        except ValueError:  # a job that ends at this very instant still holds it: asked again then
            return
        yield Start(job.id, implementation, allocation)

    def renew(self, queue: Sequence[Job]) -> Iterator[Decision]:
        """While an overrun makes promises impossible: plan anew, those with the earliest promises first.

        Promises stay as they are; new jobs are promised nothing yet.
        """
        view = self._view
        self._profile = profile_of(view, queue[0].choices[0].request)
        self._free = view.free()
        held = view.reservations
        for promise in sorted(held.values(), key=lambda promise: promise.start):
            duration = _bound(view, promise)
            found = self._profile.earliest(promise.allocation.request, duration)
            if found is None:
                continue
            start, allocation = found
            self._profile.hold(start, duration, allocation)
            if start <= view.now:
                yield from self.start(promise.job, promise.implementation.name, allocation)
        for job in queue:
            if job.id not in held:
                yield from self._squeeze_in(job)

    def _squeeze_in(self, job: Job) -> Iterator[Decision]:
        choice = fastest(self._view, job)
        duration = self._view.bound(job, choice.implementation, choice.request)
        found = self._profile.earliest(choice.request, duration)
        if found is not None:
            self._profile.hold(found[0], duration, found[1])
            if found[0] <= self._view.now:
                yield from self.start(job, choice.implementation.name, found[1])


def _bound(view: View, promise: Promise) -> Seconds:
    return view.bound(promise.job, promise.implementation, promise.allocation.request)
