"""Profiles in the hands of a policy, slot by slot; that of any nodes is kept from instant to instant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dovetail.engine.profile.nodes import NodeProfile
from dovetail.engine.profile.plain_counts import PlainCountProfile
from dovetail.interfaces import Profile
from dovetail.model import Allocation, Job, JobId, Placed, Promise, Renew, Request, Reserve, Seconds

Change = tuple[int, Seconds, Seconds, tuple[Any, ...]]
"""+1 for a slot that is taken, -1 for one that is given back; start, end, and what it holds."""


def change_of(sign: int, start: Seconds, end: Seconds, allocation: Allocation) -> Change:
    """A change, comparable: allocations are the same if they hold the same."""
    return sign, start, end, (allocation.request.nodes, allocation.parts, allocation.donors)


class PlainPlan:
    """Implements `dovetail.interfaces.Profile` over slots; ``promises`` with their durations, in order."""

    def __init__(
        self, profile: NodeProfile | PlainCountProfile, promises: Sequence[tuple[Promise, Seconds]]
    ) -> None:
        self.profile = profile
        self.changes: Counter[Change] = Counter()
        self._promises = list(promises)

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first time from which the request fits for so long, and where."""
        return self.profile.earliest(request, duration)

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        if not self.profile.hold(start, duration, allocation):
            return False
        self.changes[change_of(1, start, start + duration, allocation)] += 1
        return True

    def renew(self) -> Renew | None:
        """The decision to make every promise anew, one by one, all others in place.

        Those that can start now are due, and promised nothing else.
        """
        now = self.profile.now
        moves: list[Reserve] = []
        for row, (promise, duration) in enumerate(self._promises):
            moved = self.profile.pull_slot(promise.start, duration, promise.allocation)
            if moved is not None:
                start, allocation = moved
                self.changes[change_of(-1, promise.start, promise.start + duration, promise.allocation)] += 1
                self.changes[change_of(1, start, start + duration, allocation)] += 1
                anew = Promise(promise.job, promise.implementation, allocation, start)
                self._promises[row] = anew, duration
                if start > now:
                    moves.append(Reserve(promise.job.id, promise.implementation.name, allocation, start))
        return Renew(moves) if moves else None

    def due(self) -> list[Promise]:
        """The promises whose time has come, in order."""
        now = self.profile.now
        return [promise for promise, _ in self._promises if promise.start <= now]

    def next_due(self) -> Promise | None:
        """The promise whose time comes next; the first in order of equals."""
        now = self.profile.now
        later = (promise for promise, _ in self._promises if promise.start > now)
        return min(later, key=_promised_start, default=None)


def _promised_start(promise: Promise) -> Seconds:
    return promise.start


Interval = tuple[Seconds, Seconds, Allocation]
"""Start, end, and what is held."""


class NodeProfileCache:
    """A policy plans in a copy. If what it decides is what it has planned, the copy is kept; else the changes
    are entered one by one.
    """

    def __init__(
        self,
        profile: NodeProfile,
        running: Iterable[Placed],
        held: Iterable[tuple[Promise, Seconds]],
        place_in_queue: Callable[[Job], Any],
    ) -> None:
        self._profile = profile
        self._place = place_in_queue
        self._slots: dict[JobId, Interval] = {
            placed.job.id: (profile.now, placed.bound, placed.allocation) for placed in running
        }
        self._held: dict[JobId, tuple[Promise, Seconds]] = {}
        for promise, duration in held:
            self._slots[promise.job.id] = promise.start, promise.start + duration, promise.allocation
            self._held[promise.job.id] = promise, duration
        self._in_order: list[tuple[Promise, Seconds]] | None = None
        self._plan: PlainPlan | None = None
        self._whole = True
        """Whether all changes so far went in."""
        self._before: dict[JobId, Interval | None] = {}  # jobs whose slot has changed: the one in the profile

    def plan(self, now: Seconds) -> Profile | None:
        """A copy to plan with; ``None`` if the changes do not fit into what is kept."""
        if not self._whole or not self._settle_changes():
            return None
        self._profile.now = now
        if self._in_order is None:
            self._in_order = sorted(self._held.values(), key=lambda entry: self._place(entry[0].job))
        self._plan = PlainPlan(self._profile.copy(), self._in_order)
        return self._plan

    def has_overdue_promise(self, now: Seconds) -> bool:
        """Whether a promise should have been kept before."""
        return any(promise.start < now for promise, _ in self._held.values())

    def _settle_changes(self) -> bool:
        """Enter what has changed, the plan as a whole if just that was decided; ``False`` if it won't fit."""
        plan, self._plan = self._plan, None
        gone: list[Interval] = []
        new: list[Interval] = []
        for job, old in self._before.items():
            slot = self._slots.get(job)
            if old is None or slot is None or change_of(1, *old) != change_of(1, *slot):
                gone += [] if old is None else [old]
                new += [] if slot is None else [slot]
        self._before.clear()
        if plan is not None and plan.changes == _count_changes(gone, new):
            assert isinstance(plan.profile, NodeProfile)
            self._profile = plan.profile
            for _, _, allocation in gone:
                self._profile.forget_slot(allocation)
            return True
        profile = self._profile
        for start, end, allocation in gone:
            profile.forget_slot(allocation)
            if end > profile.now:
                profile.give(max(start, profile.now), end, allocation)
            profile.rest(allocation)
        return all(profile.take(max(start, profile.now), end, allocation) for start, end, allocation in new)

    def _change_slot(self, job: JobId, slot: Interval | None) -> None:
        """A job has another slot, or none."""
        old = self._slots.pop(job, None)
        self._before.setdefault(job, old)
        if slot is not None:
            self._slots[job] = slot

    def _forget_promise(self, job: JobId) -> None:
        if self._held.pop(job, None) is not None:
            self._in_order = None

    def started(self, placed: Placed) -> None:
        """A job has started."""
        slot = self._slots.get(placed.job.id)
        self._forget_promise(placed.job.id)
        if slot is None or not _as_promised(slot, placed):
            self._change_slot(placed.job.id, (placed.start_time, placed.bound, placed.allocation))

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A running job has ended, before its limit perhaps."""
        if self._plan is not None:
            self._whole = self._settle_changes() and self._whole
        self._profile.now = now
        self._change_slot(placed.job.id, None)

    def promised(self, promise: Promise, duration: Seconds) -> Promise:
        """A start has been promised, or another one."""
        self._held[promise.job.id] = promise, duration
        self._in_order = None
        self._change_slot(promise.job.id, (promise.start, promise.start + duration, promise.allocation))
        return promise

    def accept_renewal(self, decision: Renew) -> bool:
        """Promises on nodes are renewed one by one."""
        return False

    def drop_job(self, job: JobId) -> None:
        """A job waits no more."""
        if self._plan is not None:
            self._whole = self._settle_changes() and self._whole
        self._forget_promise(job)
        self._change_slot(job, None)

    def let_go(self) -> list[Promise]:
        """None stands here only."""
        return []


def _count_changes(gone: Iterable[Interval], new: Iterable[Interval]) -> Counter[Change]:
    """Slots that are given back and taken, as a plan notes them."""
    changes = Counter(change_of(-1, *slot) for slot in gone)
    changes.update(change_of(1, *slot) for slot in new)
    return changes


def _as_promised(slot: Interval, placed: Placed) -> bool:
    """Whether a job has started just as it was promised, so that it holds the very slot."""
    start, end, allocation = slot
    same = placed.allocation.parts == allocation.parts and not placed.allocation.donors
    return same and start <= placed.start_time and end == placed.bound
