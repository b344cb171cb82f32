"""The profiles that a policy asks for, kept up to date from one question to the next."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, nextafter
from typing import TYPE_CHECKING

from dovetail.engine.count_profile import CountProfile
from dovetail.engine.profile import NodeProfile
from dovetail.interfaces import Profile, Slot
from dovetail.model import Allocation, JobId, Placed, Promise, Seconds

if TYPE_CHECKING:
    from dovetail.engine.core import Engine

__all__ = ["ProfileBook"]


class ProfileBook:
    """Makes profiles of an engine's running jobs and promises.

    Where nodes are counted, a profile is made anew each time, in O(n log n). Else the last one is kept:
    what has started, ended or been promised since is found by comparing, O(jobs), and entered.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.kept: NodeProfile | None = None
        self._valid: tuple[int, int] = (0, 0)
        self._entered: dict[JobId, tuple[Placed | Promise, Seconds, Seconds, Allocation]] = {}

    def running(self) -> Profile:
        """What is free as running jobs end by their bounds."""
        return self._counted() if self._engine.view.interchangeable else self._fresh()

    def promised(self) -> Profile | None:
        """The same with all promises entered; ``None`` where an overrun has made them impossible."""
        engine = self._engine
        now, held = engine.view.now, engine.promises.held
        if any(promise.start < now for promise in held.values()):
            return None
        if engine.view.interchangeable:
            counted = self._counted()
            return counted if counted.hold_all(self._slots()) else None
        known = self.kept is not None and self._valid == self._validity() and self._renew(self.kept)
        if known:
            assert self.kept is not None
            return self.kept.copy()
        return self._rebuild()

    def ended_early(self, placed: Placed) -> None:
        """A job has ended before its bound. It may have come and gone since the last question: plans went
        around it.
        """
        if self.kept is not None:
            self.kept.was_given(placed.allocation)

    def cancelled(self) -> None:
        """A waiting job has gone, of whose promise we may not have heard."""
        if self.kept is not None:
            self.kept.unsettle()

    def _validity(self) -> tuple[int, int]:
        engine = self._engine
        return engine.incidents, engine.predictions.version if engine.learned_bounds else 0

    def _slots(self) -> Iterator[Slot]:
        for promise in self._engine.promises.held.values():
            yield promise.start, self._duration(promise), promise.allocation

    def _duration(self, promise: Promise) -> Seconds:
        return self._engine.bound(promise.job, promise.implementation, promise.allocation.request)

    def _counted(self) -> CountProfile:
        engine = self._engine
        soon = nextafter(engine.view.now, inf)  # for jobs past their bound: they are not free now
        releases = ((max(when, soon), allocation) for when, allocation in engine.releases)
        return CountProfile(engine.view.now, engine.free.unused(), releases)

    def _fresh(self) -> NodeProfile:
        engine = self._engine
        now = engine.view.now
        soon = nextafter(now, inf)
        lost = sum(1 << node for node in engine.lost)
        idle = {state: mask & ~lost for state, mask in engine.layout.full.items() if mask & ~lost}
        profile = NodeProfile(engine.layout, now, idle)
        for placed in engine.running.values():
            if not profile.take(now, max(placed.bound, soon), placed.allocation):
                raise ValueError(f"job {placed.job.id} runs on what is not there")
        return profile

    def _rebuild(self) -> NodeProfile | None:
        """Made anew, and kept unless something in it is true at this instant only.

        Overdue jobs are expected at the next moment, again and again; and in the instant of a job of no
        length counts what began at its time when it was entered.
        """
        engine, self.kept = self._engine, None
        now, held = engine.view.now, engine.promises.held.values()
        profile = self._fresh()
        self._entered = {
            job: (placed, now, placed.bound, placed.allocation) for job, placed in engine.running.items()
        }
        instants = [promise for promise in held if self._duration(promise) <= 0]
        for promise in (*instants, *held):
            if promise.job.id not in self._entered and not self._enter(profile, promise):
                return None
        if instants or (engine.releases and engine.releases[0][0] <= now):
            return profile
        self.kept, self._valid = profile, self._validity()
        return profile.copy()

    def _renew(self, profile: NodeProfile) -> bool:
        """Enter what has changed; ``False`` if that is not possible."""
        engine, entered = self._engine, self._entered
        now, running, held = engine.view.now, engine.running, engine.promises.held
        if engine.releases and engine.releases[0][0] <= now:
            return False
        new = [
            promise for job, promise in held.items() if job not in entered or entered[job][0] is not promise
        ]
        if any(self._duration(promise) <= 0 for promise in new):
            return False
        profile.now = now
        over = [
            job
            for job, (what, _, _, _) in entered.items()
            if running.get(job) is not what and held.get(job) is not what
        ]
        for job in over:
            what, start, end, allocation = entered.pop(job)
            profile.forget(allocation)
            started = running.get(job)
            if started is not None and isinstance(what, Promise) and _as_promised(what, start, end, started):
                entered[job] = started, start, end, allocation
                continue
            if end > now:
                profile.give(max(start, now), end, allocation)
            profile.rest(allocation)
        for job, placed in running.items():
            if job not in entered:
                if not profile.take(now, placed.bound, placed.allocation):
                    return False
                entered[job] = placed, now, placed.bound, placed.allocation
        return all(self._enter(profile, promise) for promise in new)

    def _enter(self, profile: NodeProfile, promise: Promise) -> bool:
        start, end = promise.start, promise.start + self._duration(promise)
        self._entered[promise.job.id] = promise, start, end, promise.allocation
        return profile.take(start, end, promise.allocation)


def _as_promised(promise: Promise, start: Seconds, end: Seconds, placed: Placed) -> bool:
    """Whether a job has started just as it was promised, so that it holds the very slot."""
    same = placed.allocation.parts == promise.allocation.parts and not placed.allocation.donors
    return same and start <= placed.start_time and end == placed.bound
