"""The profiles that a policy uses, kept up to date from one question to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from math import inf, nextafter
from typing import TYPE_CHECKING, Any

from dovetail.engine.profile.counts import CountProfile, NodeCpus, Units, WholeNodes
from dovetail.engine.profile.nodes import NodeProfile, Slot
from dovetail.engine.profile.plain_counts import PlainCountProfile
from dovetail.engine.profile.plan import NodeProfileCache, PlainPlan
from dovetail.interfaces import Profile
from dovetail.model import Allocation, Choice, Job, JobId, Placed, Promise, Renew, Request, Seconds
from dovetail.native.library import load_library

if TYPE_CHECKING:
    from dovetail.engine.state.books import Books

Key = Callable[..., Any]

WHOLE_NODES = WholeNodes()
PATIENCE = 64
"""Ends of jobs for which a profile is kept while no job holds a promise and no policy uses it."""


class ProfileBook:
    """Makes profiles of an engine's running jobs and promises, and has them kept.

    The engine reports what changes promises and running jobs. Nothing is kept while no policy uses a profile.
    """

    def __init__(self, engine: Books) -> None:
        self._engine = engine
        self.counted = engine.free.has_like_nodes()
        """Whether all nodes are alike and every job so far takes whole nodes.

        Then any set of free nodes is as good as any other of its size, and capacity over time is a count.
        """
        self._whole: set[Request] = set()  # looked at, and as long as ``counted`` they take whole nodes
        self._last_choices: tuple[Choice, ...] | None = None
        self.kept: NodeProfileCache | CountProfile | None = None
        self._valid: tuple[Any, ...] = ()
        self._unasked = 0

    # ----------------------------------------------------------- what happens

    def submitted(self, job: Job) -> None:
        """Count no more if a job shares nodes, or takes more than CPUs of the only one."""
        if job.choices is self._last_choices:
            return
        self._last_choices = job.choices
        units = self.kept.units if isinstance(self.kept, CountProfile) else None
        if isinstance(units, NodeCpus) and not all(units.counts_for(one.request) for one in job.choices):
            self.let_go()
        if not self.counted:
            return
        for choice in job.choices:
            if choice.request not in self._whole:
                self._whole.add(choice.request)
                # Once false it stays false until the machine changes: a mixed queue would flip with every
                # job.
                self.counted = self.counted and self._engine.free.takes_whole_nodes(choice.request)

    def machine_changed(self) -> None:
        """Nodes have gone, drained, come back or come new; count no more where they are not all alike.

        Of a gang on drained nodes a part is counted, so its number of nodes means little.
        """
        self.let_go()
        engine = self._engine
        self._last_choices = None
        self._whole.clear()
        alike = not engine.occupancy.drained and engine.free.has_like_nodes()
        self.counted = self.counted and alike and not self.keeps_nodes

    @property
    def keeps_nodes(self) -> bool:
        """Whether whole nodes are reserved, now or later: then it matters which nodes a job gets."""
        return any(one.nodes for one in self._engine.reservations)

    def started(self, placed: Placed) -> None:
        """A job runs."""
        if self.kept is None:
            return
        if placed.start_time != self._engine.view.now:  # it has been running for a while
            # Taken over, or started elsewhere: a kept profile can only enter what begins now.
            self.let_go()
        elif placed.job.id not in self._engine.occupancy.uncounted:
            self.kept.started(placed)

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A running job has ended."""
        if self.kept is not None:
            if placed.job.id not in self._engine.occupancy.uncounted:
                self.kept.ended(placed, now)
            if not self._engine.promises.held:
                self._unasked += 1
                # A policy that has stopped using profiles should not pay for them; one that pauses should not
                # lose them.
                if self._unasked > PATIENCE:
                    self.kept = None

    def note_reservation(self, promise: Promise) -> None:
        """A start has been promised."""
        if self.kept is not None:
            held = self.kept.promised(promise, self._promise_duration(promise))
            self._engine.promises.held[promise.job.id] = held

    def accept_renewal(self, decision: Renew) -> bool:
        """Whether the decision is the renewal that has just been planned; it counts then."""
        return self.kept is not None and self.kept.accept_renewal(decision)

    def drop_job(self, job: JobId) -> None:
        """A job waits no more."""
        if self.kept is not None:
            self.kept.drop_job(job)

    # ------------------------------------------------------ what policies use

    def plan_for_head(self, started: Sequence[tuple[Job, Choice, Allocation]]) -> NodeProfile:
        """What is free as running jobs end, and those that a policy has just started, by node."""
        engine, now = self._engine, self._engine.view.now
        profile = self._make_node_profile()
        for job, choice, allocation in started:
            profile.hold(now, engine.bound(job, choice.implementation, choice.request), allocation)
        return profile

    def running(self) -> Profile:
        """What is free as running jobs end by their limits."""
        return PlainPlan(self._count_free_nodes() if self.counted else self._make_node_profile(), [])

    def promised(self, key: Key, bounded: bool) -> Profile | None:
        """The same with all promises entered; ``None`` where an overrun has made them impossible."""
        engine, now = self._engine, self._engine.view.now
        self._unasked = 0
        late = bool(engine.releases) and engine.releases[0][0] <= now  # a job runs past its limit
        valid = (
            self.counted,
            engine.incidents,
            engine.predictions.version if engine.learned_bounds else 0,
            key,
            # Order, learned bounds, nodes: whatever else makes an old profile wrong.
        )
        lasting = not late and self._is_lasting(engine.view.unpromised(key, bounded=bounded))
        if self.kept is not None:
            plan = self.kept.plan(now) if lasting and valid == self._valid else None
            if plan is not None:
                return None if self.kept.has_overdue_promise(now) else plan
            self.let_go()
        if not self.counted:
            self._name_nodes()
        # A promise in the past was broken by an overrun: no profile can hold it.
        if any(promise.start < now for promise in engine.promises.held.values()):
            return None
        self._valid = valid
        return self._make_profile(key, bounded, lasting)

    def let_go(self) -> None:
        """Keep nothing any more: what has happened cannot be entered, or the order is another one."""
        # Promises that were moved inside of the kept profile go back to the book as they stand there.
        if self.kept is not None:
            held = self._engine.promises.held
            for promise in self.kept.let_go():
                if promise.job.id in held:
                    held[promise.job.id] = promise
            self.kept = None

    # ------------------------------------------------------------ making anew

    def _make_profile(self, key: Key, bounded: bool, keep: bool) -> Profile | None:
        """A profile made anew, and kept unless something in it is true at this instant only.

        Overdue jobs are expected to end at the next moment, again and again.
        """
        engine = self._engine
        held = [(promise, self._promise_duration(promise)) for promise in engine.promises.held.values()]
        queue_order = engine.queue.place_in(key, bounded)
        keep = keep and all(duration > 0 for _, duration in held)
        # In C, where it is there; the plain one gives the same times.
        units = self._units() if keep and load_library() is not None else None
        if units is not None:
            return self._make_count_profile(held, queue_order, units)
        plain = self._count_free_nodes() if self.counted else self._make_node_profile()
        slots: list[Slot] = [(promise.start, duration, promise.allocation) for promise, duration in held]
        if not plain.hold_all(slots):
            return None
        # In the order of the queue, since a renewal moves them in that order.
        in_order = sorted(held, key=lambda entry: queue_order(entry[0].job))
        if self.counted or not keep:
            return PlainPlan(plain, in_order)
        assert isinstance(plain, NodeProfile)
        self.kept = NodeProfileCache(plain, engine.running.values(), held, queue_order)
        return self.kept.plan(engine.view.now)

    def _units(self) -> Units | None:
        """What can be counted for all jobs that wait or run; ``None`` where places matter. O(running)."""
        engine = self._engine
        if self.counted:
            return WHOLE_NODES
        if len(engine.cluster) > 1 or len(engine.layout.full) > 1 or engine.lost or self.keeps_nodes:
            return None
        units = NodeCpus(engine.layout)
        running = [placed.allocation.request for placed in engine.running.values()]
        if not all(map(units.counts_for, chain(engine.queue.requests(), running))):
            return None
        # What is neither free nor held by jobs that are known is not there to plan with.
        return units if self._free_cpus() + sum(map(units.count, running)) == units.most else None

    def _free_cpus(self) -> int:
        return sum(state.cpus * mask.bit_count() for state, mask in self._engine.free.iterate_state_masks())

    def _make_count_profile(
        self, held: list[tuple[Promise, Seconds]], queue_order: Key, units: Units
    ) -> Profile | None:
        """A count of units made anew and kept."""
        engine = self._engine
        profile = CountProfile(
            engine.view.now,
            units.most if isinstance(units, NodeCpus) else len(engine.cluster),
            self._free_cpus() if isinstance(units, NodeCpus) else engine.free.unused(),
            ((when, units.count(allocation.request)) for when, allocation in engine.releases),
            held,
            queue_order,
            units,
        )
        if not profile.whole:
            return None
        self.kept = profile
        for promise in profile.line:
            engine.promises.held[promise.job.id] = promise
        return self.kept.plan(engine.view.now)

    def _is_lasting(self, new: Iterable[Job]) -> bool:
        """Whether a profile in which these jobs are planned is good for more than this instant.

        In the instant of a job of no length counts what began at its time when it was entered. And no nodes
        are kept for jobs that hold less than they were given.
        """
        occupancy, bound = self._engine.occupancy, self._engine.bound
        less = occupancy.uncounted or occupancy.drained
        return (self.counted or not less) and all(
            bound(job, choice.implementation, choice.request) > 0 for job in new for choice in job.choices
        )

    def _promise_duration(self, promise: Promise) -> Seconds:
        return self._engine.bound(promise.job, promise.implementation, promise.allocation.request)

    def _count_free_nodes(self) -> PlainCountProfile:
        # A job past its limit may end at any moment, but holds its nodes now: the next representable time.
        engine = self._engine
        soon = nextafter(engine.view.now, inf)  # for jobs past their limit: they are not free now
        releases = ((max(when, soon), allocation) for when, allocation in engine.releases)
        return PlainCountProfile(engine.view.now, engine.free.unused(), releases)

    def _make_node_profile(self) -> NodeProfile:
        engine = self._engine
        now = engine.view.now
        soon = nextafter(now, inf)
        # Drained nodes run what they have and take nothing new: they are no room for a plan.
        lost = sum(1 << node for node in engine.lost | engine.occupancy.drained)
        keeps = self.keeps_nodes
        states = engine.occupancy.unused_states(nodes_kept=not keeps)
        idle = {state: mask & ~lost for state, mask in states.items() if mask & ~lost}
        profile = NodeProfile(engine.layout, now, idle)
        for placed in engine.running.values():
            held = engine.occupancy.visible_allocation(placed)
            if held is not None and not profile.take(now, max(placed.bound, soon), held):
                raise ValueError(f"job {placed.job.id} runs on what is not there")
        # After what runs, which may run past the beginning of a reservation.
        for one in engine.reservations if keeps else ():
            for node in one.nodes if one.end > now else ():
                profile.keep_node(node, max(one.start, now), one.end, one.planned)
        return profile

    def _name_nodes(self) -> None:
        """Choose nodes for promises that named none, now that nodes are counted no more.

        By their starts: a later start finds as many nodes as were counted. Where an overrun has
        made that impossible, a promise stays without.
        """
        held, now = self._engine.promises.held, self._engine.view.now
        if all(promise.allocation.parts for promise in held.values()):
            return
        profile = self._make_node_profile()
        timed = [(promise, self._promise_duration(promise)) for promise in held.values()]
        for promise, duration in sorted(timed, key=lambda entry: (entry[0].start, entry[1] > 0)):
            start = max(promise.start, now)
            found = profile.at(start, promise.allocation.request, duration)
            if found is not None:
                profile.hold(start, duration, found)
                if promise.start >= now:
                    named = Promise(promise.job, promise.implementation, found, promise.start)
                    held[promise.job.id] = named
