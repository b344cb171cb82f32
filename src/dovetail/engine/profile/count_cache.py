"""Keeps a count of free nodes over time, by what the engine tells of changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.engine.profile.counts import CountPlan, CountProfile
from dovetail.interfaces import Profile
from dovetail.model import Job, JobId, Placed, Promise, Renew, Seconds

__all__ = ["CountProfile", "CountProfileCache"]


class CountProfileCache:
    """Keeps a count of free nodes over time."""

    def __init__(self, profile: CountProfile, place_in_queue: Callable[[Job], Any]) -> None:
        self._profile = profile
        self._place = place_in_queue
        self._plan: CountPlan | None = None
        self._whole = True
        """Whether all slots found their nodes."""

    def plan(self, now: Seconds) -> Profile | None:
        """The profile at this instant; ``None`` if something was planned and not decided."""
        if not self._whole or (self._plan is not None and not self._plan.settled):
            return None
        self._profile.advance(now)
        self._plan = CountPlan(self._profile)
        return self._plan

    def _take(self, start: Seconds, end: Seconds, nodes: int) -> None:
        if self._plan is None or not self._plan.decided(start, end, nodes):
            self._whole = self._profile.take(start, end, nodes) and self._whole

    def started(self, placed: Placed) -> None:
        """A job has started."""
        now, end, nodes = placed.start_time, placed.bound, placed.allocation.request.nodes
        self._profile.advance(now)
        slot = self._profile.forget(placed.job.id)
        if slot is not None:
            if slot[0] <= now and slot[1] == end:
                return  # it has what it was promised
            self._profile.give(*slot)
        self._take(now, end, nodes)

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A running job has ended."""
        self._profile.advance(now)
        self._profile.give(now, placed.bound, placed.allocation.request.nodes)

    def overdue(self, now: Seconds) -> bool:
        """Whether a promise should have been kept before."""
        starts = self._profile.line.runs.starts()
        return len(starts) > 0 and bool(starts.min() < now)

    def promised(self, promise: Promise, duration: Seconds) -> Promise:
        """A start has been promised."""
        self.dropped(promise.job.id)
        if duration <= 0:
            self._whole = False  # jobs of no length are not for this profile
            return promise
        self._take(promise.start, promise.start + duration, promise.allocation.request.nodes)
        return self._profile.promise(self._place(promise.job), promise, duration)

    def renewed(self, decision: Renew) -> bool:
        """Whether the decision is the renewal that has just been planned; it counts then."""
        return self._plan is not None and self._plan.adopt(decision.promises)

    def dropped(self, job: JobId) -> None:
        """A job waits no more."""
        slot = self._profile.forget(job)
        if slot is not None:
            self._profile.give(*slot)

    def let_go(self) -> list[Promise]:
        """The promises with their starts as they are now."""
        return [
            Promise(promise.job, promise.implementation, promise.allocation, promise.start)
            for promise in self._profile.line
        ]
