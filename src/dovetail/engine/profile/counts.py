"""Free nodes over time where nodes are alike, with the promises in it: kept from question to question.

In C (`dovetail.native.steps`); `plain_counts` says the same in plain Python.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from dovetail.engine.profile.lineup import Lineup, PromiseInLine, Renewal
from dovetail.files.arrays import np
from dovetail.interfaces import Profile
from dovetail.model import Allocation, Job, JobId, Placed, Promise, Renew, Request, Seconds
from dovetail.native.steps import FreeSteps

Held = tuple[Any, Promise, Seconds]
"""A promise with its key in the order of the queue and its duration."""


class CountProfile:
    """How many nodes are free from now on; running jobs and promises hold theirs.

    A slot needs no names: jobs that start at a promised time find as many nodes as were counted. Slots of
    no length are not for this profile, nor jobs that are past their limit.
    """

    def __init__(self, now: Seconds, most: int, free: int, releases: Iterable[tuple[Seconds, int]]) -> None:
        self.now = now
        self.line = Lineup()
        self._changes: dict[Seconds, int] = {now: free}
        self._most = most
        self._steps: FreeSteps
        for when, nodes in releases:
            self._change(when, nodes)

    def _change(self, when: Seconds, nodes: int) -> None:
        if when < inf:
            self._changes[when] = self._changes.get(when, 0) + nodes

    def enter(self, held: Sequence[Held]) -> bool:
        """Begin with these promises; ``False`` if there is no room for them all. O(n log n).

        Whether they have gaps before their starts is not known.
        """
        for _, promise, duration in held:
            nodes = promise.allocation.request.nodes
            self._change(promise.start, -nodes)
            self._change(promise.start + duration, nodes)
        times = sorted(self._changes)
        free = np.cumsum([self._changes[time] for time in times], dtype=np.int64)
        self._changes.clear()
        self._steps = FreeSteps(np.array(times, np.float64), free, self._most)
        for key, promise, duration in held:
            self.promise(key, promise, duration)
        self._steps.note_all(self.now)
        return bool(free.min() >= 0)

    def advance(self, now: Seconds) -> None:
        """Go to this instant."""
        if now > self.now:
            self.now = now
            self._steps.advance(now)

    def gap(self, nodes: int, duration: Seconds) -> Seconds:
        """The first time from which so many nodes are free for so long; infinite if there is none."""
        return self._steps.gap(nodes, duration, self.now)

    def take(self, start: Seconds, end: Seconds, nodes: int) -> bool:
        """Take nodes; ``False``, nothing changed, if they are not free."""
        if start < end:
            if self._steps.least(start, end) < nodes:
                return False
            self._steps.take(start, end, nodes)
        return True

    def give(self, start: Seconds, end: Seconds, nodes: int) -> None:
        """Give nodes back that were taken, or what is left of the time."""
        start = max(start, self.now)
        if start < end:
            self._steps.give(start, end, nodes)

    def promise(self, key: Any, promise: Promise, duration: Seconds) -> PromiseInLine:
        """Line up a promise whose slot has been taken."""
        waiting = PromiseInLine(promise.job, promise.implementation, promise.allocation, self.line, key)
        class_ = int(self._steps.class_of[promise.allocation.request.nodes])
        self.line.insert(waiting, (promise.start, duration), class_, self._steps.version)
        return waiting

    def forget(self, job: JobId) -> tuple[Seconds, Seconds, int] | None:
        """A job holds no promise any more; start, end and nodes of the slot, which it still takes."""
        promise = self.line.of_job.get(job)
        if promise is None:
            return None
        start, duration = self.line.remove(promise)
        return start, start + duration, promise.allocation.request.nodes

    def renew(self) -> Renewal | None:
        """Make every promise anew, in order, all others in place; ``None`` if none can start earlier.

        O(runs) quick checks, and about √n for each look at what has been given back and each move.
        """
        line = self.line
        draft, runs = line.draft(), line.runs
        self._steps.make_room(4 * len(line))
        draft.count, moved = self._steps.compress(
            self.now, runs.shape[: runs.count], runs.slot[: runs.count], draft.shape, draft.slot
        )
        draft.changed()
        if moved:
            return Renewal(line, draft, self.now)
        line.adopt(draft, self.now)
        return None


class CountPlan:
    """The kept profile in the hands of a policy; implements `dovetail.interfaces.Profile`.

    The policy plans in it directly. What it plans must be what it decides: else the profile is made anew.
    """

    def __init__(self, profile: CountProfile) -> None:
        self._profile = profile
        self.undecided: Counter[tuple[Seconds, Seconds, int]] = Counter()
        self.renewal: Renewal | None = None

    @property
    def settled(self) -> bool:
        """Whether all that was planned has been decided."""
        return self.renewal is None and not self.undecided

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first time from which the request fits for so long; the allocation names no nodes."""
        start = self._profile.gap(request.nodes, duration)
        return None if start == inf else (start, Allocation(request, ()))

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        nodes = allocation.request.nodes
        if not self._profile.take(start, start + duration, nodes):
            return False
        if duration > 0:
            self.undecided[start, start + duration, nodes] += 1
        return True

    def renew(self) -> Renew | None:
        """The decision to make every promise anew; ``None`` if none can start earlier."""
        self.renewal = self._profile.renew()
        return None if self.renewal is None else Renew(self.renewal)

    def due(self) -> list[Promise]:
        """The promises whose time has come, in the order of the queue."""
        line = self._profile.line
        return list(line.until(line.runs if self.renewal is None else self.renewal.draft, self._profile.now))

    def next_due(self) -> Promise | None:
        """The promise whose time comes next."""
        line = self._profile.line
        runs = line.runs if self.renewal is None else self.renewal.draft
        return line.first_after(runs, self._profile.now)

    def decided(self, start: Seconds, end: Seconds, nodes: int) -> bool:
        """Whether this slot was taken here, and not decided on yet; it is then."""
        slot = start, end, nodes
        if slot not in self.undecided:
            return False
        self.undecided[slot] -= 1
        if not self.undecided[slot]:
            del self.undecided[slot]
        return True

    def adopt(self, renewal: object) -> bool:
        """Whether this is the renewal that was planned here; it counts then.

        Jobs that are due now keep the promise that they had: they start.
        """
        if renewal is not self.renewal or self.renewal is None:
            return False
        self._profile.line.adopt(self.renewal.draft, self._profile.now)
        self.renewal = None
        return True


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
