"""Free units over time, with the promises in it: kept from question to question.

Units are nodes, where these are alike and taken whole, or the CPUs of the only node.

In C (`dovetail.native.steps`); `plain_counts` does the same in plain Python.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Protocol

from dovetail.engine.capacity.free import UNLIMITED, Layout, Share
from dovetail.engine.profile.lineup import Lineup, PromiseInLine, Renewal, Runs
from dovetail.files.arrays import np
from dovetail.model import Allocation, Job, JobId, Part, Placed, Promise, Renew, Request, Seconds
from dovetail.native.steps import FreeSteps


class Units(Protocol):
    """What is counted, so that any free units are as good as any others."""

    def count(self, request: Request) -> int:
        """How many units a job with this request takes, at least one."""
        ...

    def place(self, request: Request) -> Allocation:
        """What is promised to such a job, wherever its units will be."""
        ...


class WholeNodes:
    """Nodes that are alike and taken whole: a promise names none."""

    def count(self, request: Request) -> int:
        """As many as the job has nodes."""
        return request.nodes

    def place(self, request: Request) -> Allocation:
        """Nowhere yet."""
        return Allocation(request, ())


class NodeCpus:
    """The CPUs of a cluster's only node, for jobs that take nothing else of it."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        (self._idle,) = layout.full
        self.most = layout.states[self._idle].cpus
        """CPUs of the node."""

    def _share(self, request: Request) -> Share | None:
        fits = self._layout.fits[request]
        fit = fits[self._idle] if self._idle in fits else self._layout.fit_state(request, self._idle)
        return None if fit is None else fit.share

    def counts_for(self, request: Request) -> bool:
        """Whether such jobs fit the node, and take CPUs and nothing else that is counted."""
        share = self._share(request)
        if share is None or share.cpus <= 0 or share.devices or request.nodes != 1:
            return False
        return not share.memory or self._layout.states[self._idle].memory == UNLIMITED

    def count(self, request: Request) -> int:
        """As many as the job has CPUs."""
        share = self._share(request)
        assert share is not None
        return share.cpus

    def place(self, request: Request) -> Allocation:
        """On that node: it is named, as on any nodes that are shared."""
        share = self._share(request)
        assert share is not None
        return Allocation(request, (Part(1, *share),))


class CountProfile:
    """How many units are free from now on; running jobs and promises (``held``, with durations) hold theirs.

    It is kept, and a policy plans in it directly: it implements `dovetail.interfaces.Profile`. What it plans
    must be what it decides: else the profile is made anew.

    A slot needs no names: jobs that start at a promised time find as many nodes as were counted. Slots of
    no length are not for this profile, nor jobs that are past their limit.
    """

    def __init__(
        self,
        now: Seconds,
        most: int,
        free: int,
        releases: Iterable[tuple[Seconds, int]],
        held: Iterable[tuple[Promise, Seconds]],
        place_in_queue: Callable[[Job], Any],
        units: Units,
    ) -> None:
        self._now = now
        self.units = units
        self._place = place_in_queue
        self.line = Lineup()
        self._undecided: Counter[tuple[Seconds, Seconds, int]] = Counter()
        self._renewal: Renewal | None = None
        in_order = sorted(held, key=lambda entry: place_in_queue(entry[0].job))
        changes: defaultdict[Seconds, int] = defaultdict(int, {now: free})
        for when, nodes in releases:
            changes[when] += nodes
        for promise, duration in in_order:
            count = units.count(promise.allocation.request)
            changes[promise.start] -= count
            changes[promise.start + duration] += count
        changes.pop(inf, None)
        times = sorted(changes)
        counts = np.cumsum([changes[time] for time in times], dtype=np.int64)
        self.whole = bool(counts.min() >= 0)
        """Whether all slots found their units."""
        self._steps = FreeSteps(np.array(times, np.float64), counts, most)
        for promise, duration in in_order:
            self._line_up(promise, duration)
        self._steps.note_all(now)  # whether there are gaps before their starts is not known

    def _advance_to(self, now: Seconds) -> None:
        if now > self._now:
            self._now = now
            self._steps.advance_to(now)

    def _line_up(self, promise: Promise, duration: Seconds) -> PromiseInLine:
        """Line up a promise whose slot has been taken."""
        waiting = PromiseInLine(
            promise.job, promise.implementation, promise.allocation, self.line, self._place(promise.job)
        )
        count = self.units.count(promise.allocation.request)
        class_ = int(self._steps.class_of[count])
        self.line.insert(waiting, (promise.start, duration), (count, 1, class_, self._steps.version))
        return waiting

    def _forget_promise(self, job: JobId) -> tuple[Seconds, Seconds, int] | None:
        """A job holds no promise any more; start, end and nodes of the slot, which it still takes."""
        promise = self.line.of_job.get(job)
        if promise is None:
            return None
        start, duration = self.line.remove_promise(promise)
        return start, start + duration, self.units.count(promise.allocation.request)

    def _take_nodes(self, start: Seconds, end: Seconds, nodes: int) -> bool:
        """Take nodes; ``False``, nothing changed, if they are not free."""
        if start < end:
            if self._steps.least_free(start, end) < nodes:
                return False
            self._steps.take(start, end, nodes)
        return True

    def _give_nodes(self, start: Seconds, end: Seconds, nodes: int) -> None:
        """Give nodes back that were taken, or what is left of the time."""
        start = max(start, self._now)
        if start < end:
            self._steps.give(start, end, nodes)

    # ------------------------------------------------------ what a policy plans

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first time from which the request fits for so long, and what is promised then."""
        start = self._steps.gap(self.units.count(request), duration, self._now)
        return None if start == inf else (start, self.units.place(request))

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        nodes = self.units.count(allocation.request)
        if not self._take_nodes(start, start + duration, nodes):
            return False
        if duration > 0:
            self._undecided[start, start + duration, nodes] += 1
        return True

    def renew(self) -> Renew | None:
        """Make every promise anew, in order, all others in place; ``None`` if none can start earlier.

        O(runs) quick checks, and about √n for each look at what has been given back and each move.
        """
        line = self.line
        draft, runs = line.make_draft(), line.runs
        self._steps.make_room(4 * len(line))
        draft.count, moved = self._steps.compress_promises(
            self._now, runs.shape[: runs.count], runs.slot[: runs.count], draft.shape, draft.slot
        )
        draft.changed()
        if moved:
            self._renewal = Renewal(line, draft, self._now)
            return Renew(self._renewal)
        self._renewal = None
        line.adopt_draft(draft, self._now)
        return None

    def _planned_runs(self) -> Runs:
        return self.line.runs if self._renewal is None else self._renewal.draft

    def due(self) -> list[Promise]:
        """The promises whose time has come, in the order of the queue."""
        return list(self.line.promises_until(self._planned_runs(), self._now))

    def next_due(self) -> Promise | None:
        """The promise whose time comes next."""
        return self.line.first_after(self._planned_runs(), self._now)

    # ------------------------------------------------------------ what happens

    def plan(self, now: Seconds) -> CountProfile | None:
        """The profile at this instant; ``None`` if something was planned and not decided."""
        if not self.whole or self._undecided or self._renewal is not None:
            return None
        self._advance_to(now)
        return self

    def _note_decided_slot(self, start: Seconds, end: Seconds, nodes: int) -> None:
        """A slot is taken: the one that was planned, or another one."""
        slot = start, end, nodes
        if slot not in self._undecided:
            self.whole = self._take_nodes(start, end, nodes) and self.whole
        elif self._undecided[slot] > 1:
            self._undecided[slot] -= 1
        else:
            del self._undecided[slot]

    def started(self, placed: Placed) -> None:
        """A job has started."""
        now, end, nodes = placed.start_time, placed.bound, self.units.count(placed.allocation.request)
        self._advance_to(now)
        slot = self._forget_promise(placed.job.id)
        if slot is not None:
            if slot[0] <= now and slot[1] == end:
                return  # it has what it was promised
            self._give_nodes(*slot)
        self._note_decided_slot(now, end, nodes)

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A running job has ended."""
        self._advance_to(now)
        self._give_nodes(now, placed.bound, self.units.count(placed.allocation.request))

    def has_overdue_promise(self, now: Seconds) -> bool:
        """Whether a promise should have been kept before."""
        starts = self.line.runs.starts()
        return len(starts) > 0 and bool(starts.min() < now)

    def promised(self, promise: Promise, duration: Seconds) -> Promise:
        """A start has been promised."""
        self.drop_job(promise.job.id)
        if duration <= 0:
            self.whole = False  # jobs of no length are not for this profile
            return promise
        count = self.units.count(promise.allocation.request)
        self._note_decided_slot(promise.start, promise.start + duration, count)
        return self._line_up(promise, duration)

    def accept_renewal(self, decision: Renew) -> bool:
        """Whether the decision is the renewal that has just been planned; it counts then.

        Jobs that are due now keep the promise that they had: they start.
        """
        if self._renewal is None or decision.promises is not self._renewal:
            return False
        self.line.adopt_draft(self._renewal.draft, self._now)
        self._renewal = None
        return True

    def drop_job(self, job: JobId) -> None:
        """A job waits no more."""
        slot = self._forget_promise(job)
        if slot is not None:
            self._give_nodes(*slot)

    def let_go(self) -> list[Promise]:
        """The promises with their starts as they are now."""
        return [
            Promise(promise.job, promise.implementation, promise.allocation, promise.start)
            for promise in self.line
        ]
