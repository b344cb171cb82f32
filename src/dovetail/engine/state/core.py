"""The decision core: events in, decisions out. No clock, no I/O, no randomness.

The same engine drives a simulation, this machine and a cluster: time comes in with the events, and what
the policy decides is checked against capacity and state before it takes effect. A policy can be wrong, a
schedule cannot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from dovetail.engine.capacity.free import Placement
from dovetail.engine.capacity.sizing import apply_sizes, sized_whole
from dovetail.engine.state.books import PENDING, Books, Bound, no_bound
from dovetail.engine.state.deciding import DECISIONS, Decisions
from dovetail.engine.state.mistakes import mistake_in, with_place, wrong_decision
from dovetail.engine.state.phases import STEPS, Phase
from dovetail.engine.state.progress import Expectations
from dovetail.errors import PolicyError
from dovetail.interfaces import Policy, RuntimeModel, traits_of
from dovetail.model import (
    Adopted,
    Allocation,
    Cancelled,
    Cluster,
    ClusterEnds,
    Decision,
    Delayed,
    Ended,
    Ending,
    Estimated,
    Event,
    Foreseen,
    Held,
    Job,
    JobId,
    KeptOff,
    Lingering,
    Migrated,
    Moved,
    NodeDrained,
    NodeJoined,
    NodeLost,
    Paused,
    Planned,
    Promise,
    Recalled,
    Record,
    Released,
    Requeued,
    Reserved,
    Seconds,
    Signalled,
    Sized,
    Start,
    Started,
    State,
    Submitted,
    Updated,
    Withdrawn,
    Woken,
)
from dovetail.model.allocation import NARROW
from dovetail.model.job import TURN
from dovetail.model.reservation import kept_devices, with_avoids

__all__ = ["EVENTS", "Bound", "Engine", "no_bound"]


class Engine(Books):
    """Holds the state of a run, calls the policy, checks and applies what it decides.

    ``timer`` is called around every ``decide`` and its differences kept in ``decision_seconds``.
    ``keep_questions`` remembers predictions for a journal; ``keep_considered`` keeps with each started job
    what was predicted for its other choices, for ``explain``. With ``hold_moves`` a migrating job holds
    source and target until `Migrated`; without, only where the policy wants that.
    """

    __slots__ = ("_decisions", "_saw_changes", "_settles", "_timer", "packs", "unforeseen")

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        runtimes: RuntimeModel,
        *,
        policy_name: str = "",
        bound: Bound = no_bound,
        placement: Placement = "pack",
        forecast: Expectations | None = None,
        timer: Callable[[], float] | None = None,
        keep_questions: bool = False,
        keep_considered: bool = False,
        hold_moves: bool = False,
    ) -> None:
        super().__init__(
            cluster, policy, runtimes, bound, placement, forecast, keep_questions, keep_considered
        )
        self._decisions = Decisions(self, policy_name or type(policy).__name__, hold_moves=hold_moves)
        self._settles = traits_of(policy).settles
        self._saw_changes = False
        self.packs = len(cluster) > NARROW
        """What ended jobs held is kept as runs of nodes: a mask of a wide machine takes kilobytes."""
        self._timer = timer
        self.unforeseen: Callable[[Event, Exception, Seconds], None] | None = None
        """What is done about an error in the handling of one event; without, it is raised."""

    @property
    def policy_name(self) -> str:
        """For people."""
        return self._decisions.policy_name

    # ------------------------------------------------------------------ events

    def handle_events(self, now: Seconds, events: Sequence[Event], *, ask: bool = True) -> Sequence[Decision]:
        """Take in what happened at ``now``, call the policy until it has nothing new, return what it decided.

        Every returned decision has been checked and has taken effect in the engine's state. With
        ``ask=False`` the policy is not called (a planner is to look at the view first).
        """
        view = self.view
        view.now = now
        # Cleared only once a policy has seen them: several calls may pass without one.
        if self._saw_changes:
            self._saw_changes = False
            view.changes.begin_instant()
        if len(events) > 1:  # mostly there is one
            # Ranks (see `_STEPS`), so that what ends frees its place before anything is placed.
            events = sorted(events, key=_event_rank)
        quiet = True
        for event in events:
            _, apply, incident = _STEPS[type(event)]
            if incident:
                view.changes.incident = True
            try:
                quiet = apply(self, event, now) is True and quiet
            except Exception as error:
                if self.unforeseen is None:
                    raise
                quiet = False
                self.unforeseen(event, error, now)
        # Rates still change by what ended, though no policy has decided on it.
        if quiet or not ask:
            if self.forecast is not None and not quiet:
                self.forecast.note_changes(now, self.changes)
            return ()
        self.predictions.refresh_cache()
        self.choices.check_waiting_jobs(now)
        # A job past its bound breaks promises without any event: looked for at each instant.
        bounds = self.occupancy.release_times
        if bounds and bounds[0] < now:
            self.promises.note_overrun(now)
        decided = self._call_policy(now)
        if self.forecast is not None:
            self.forecast.note_changes(now, self.changes)
        return decided

    def _submit_job(self, event: Submitted, now: Seconds) -> None:
        job = event.job
        record = Record(job)
        record.attempts, record.failures = event.attempts, event.failures
        if self.records.setdefault(job.id, record) is not record:
            raise ValueError(f"job {job.id} was submitted twice")
        if event.held:
            self.hold_back(record, event.held)
        else:
            self.enter_queue(job)
        self.view.changes.submitted.append(job)

    def _hold_job(self, event: Held, now: Seconds) -> bool:
        """A job that waits is held back; one that runs, or is not known, is left alone."""
        if (self.phase_of(event.job), Held) not in STEPS:
            return True
        record = self.records[event.job]
        if event.job not in self.held:
            self.withdraw(record.job)
        self.hold_back(record, event.reason)
        self.view.changes.withdrawn = True
        return False

    def _let_go(self, event: Released, now: Seconds) -> bool:
        if not self.held.let_go(event.job):
            return True
        record = self.records[event.job]
        record.wait_reason = ""
        self.enter_queue(record.job)
        self.view.changes.submitted.append(record.job)
        return False

    def _size_job(self, event: Sized, now: Seconds) -> bool:
        """A waiting job requests other amounts of memory; one that runs meanwhile is left alone."""
        if (self.phase_of(event.job), Sized) not in STEPS:
            return True
        record = self.records[event.job]
        before = record.job
        record.job = apply_sizes(before, event)
        # Its other choices come back when a suspension or a horizon ends: they must not undo what a kill has
        # shown.
        whole = self.horizon.narrowed.get(event.job)
        if whole is not None:  # it has its other choices back one day, with no less than now
            self.horizon.narrowed[event.job] = sized_whole(whole, before, event)
        if event.job not in self.held:
            self.withdraw(before)
            self.enter_queue(record.job)
        # Predictions depend on the request, so those for the old one are of no use.
        if self.predictions.cached:
            self.predictions.drop_job(event.job)
        self.view.changes.incident = True
        return False

    def _keep_off(self, event: KeptOff, now: Seconds) -> bool:
        """A waiting job stays off other reservations than before; one that runs meanwhile is left alone."""
        if (self.phase_of(event.job), KeptOff) not in STEPS:
            return True
        record = self.records[event.job]
        before = record.job
        for narrowed in (self.horizon.narrowed, self.suspensions.narrowed):
            if event.job in narrowed:  # its other choices come back with the same limits
                narrowed[event.job] = with_avoids(narrowed[event.job], event.avoids)
        record.job = with_avoids(before, event.avoids)
        if event.job not in self.held and record.job is not before:
            promise = self.promises.held.get(event.job) if self.profiles.keeps_nodes else None
            if promise is None:
                self.withdraw(before)
            else:  # what it was promised was planned around the nodes that it stays off
                self.remove_from_queue(before)
                self.profiles.let_go()
                self.promises.held[event.job] = _of_job(promise, before, record.job)
            self.enter_queue(record.job)
        self.view.changes.incident = True
        return False

    def _update_job(self, event: Updated, now: Seconds) -> bool:
        """A job is another one from now on, at its old place; what was set aside is looked at again."""
        id, phase = event.job, self.phase_of(event.job)
        if (phase, Updated) not in STEPS:
            return True
        if self.predictions.cached:
            self.predictions.drop_job(id)
        self.view.changes.incident = True
        record = self.records[id]
        # What runs cannot become another job; only its walltime counts.
        if phase is Phase.RUNNING:
            self._limit_anew(record, event.into.walltime)
            return False
        aside = self.choices.set_aside(id)
        reason = self.held.get(id)
        if not self.held.let_go(id):
            self.withdraw(record.job)
        # Set aside anew from its new choices: what was narrowed belonged to the old job.
        self.choices.forget_job(id)
        record.job = event.into
        if reason is not None and not aside:
            self.hold_back(record, reason)
            return False
        record.wait_reason = ""
        self.enter_queue(event.into)
        self.view.changes.submitted.append(event.into)
        return False

    def _move_job(self, event: Moved, now: Seconds) -> bool:
        """A waiting job has another place; what was promised on the old ones holds no more."""
        if (self.phase_of(event.job), Moved) not in STEPS:
            return True
        record, waits = self.records[event.job], event.job not in self.held
        before = record.job
        if waits:
            self.withdraw(before)
        record.job = replace(before, options={**before.options, TURN: event.turn})
        narrowed = self.suspensions.narrowed
        if event.job in narrowed:
            whole = narrowed[event.job]
            narrowed[event.job] = replace(whole, options={**whole.options, TURN: event.turn})
        self.queue.move_job(before, event.after)
        if waits:
            self.enter_queue(record.job)
        else:
            self.held.move_job(event.job, event.after)
        # Promises were made in the old order of the queue.
        self.promises.drop_all()
        self.view.changes.incident = True
        return False

    def _limit_anew(self, record: Record, walltime: Seconds | None) -> None:
        """A running job has another walltime; what was promised behind it holds no more."""
        placed = self.running[record.job.id]
        narrowed = self.suspensions.narrowed
        if record.job.id in narrowed:
            narrowed[record.job.id] = replace(narrowed[record.job.id], walltime=walltime)
        record.job = job = replace(record.job, walltime=walltime)
        bound = placed.start_time + self.bound_of(job, placed.implementation, placed.allocation.request)
        # Releases are ordered by bounds, so the placed job is exchanged, not changed.
        self.occupancy.rebind_job(placed, replace(placed, job=job, bound=bound))
        self.profiles.machine_changed()
        self.promises.drop_all()

    def _start_outside_job(self, event: Started, now: Seconds) -> bool:
        start = now if event.at is None else event.at
        submitted = self.outside.left(event.job, start, started=True)
        if submitted is None:
            return True  # our own start, confirmed
        self.preempted.discard(event.job)
        record = self.records[event.job]
        implementation = record.job.app.implementation(submitted.implementation)
        nowhere = Allocation(submitted.request, ())
        allocation = event.allocation or nowhere
        # Reserved where it fits our books, else counted as taken by others: refusing a fact would help no
        # one.
        try:  # what an outside scheduler chose is a fact, also where it overlaps what others hold
            counted = bool(allocation.parts) and self._find_allocation_fault(record.job, allocation) is None
            allocation = self.occupancy.reserve_allocation(allocation) if counted else allocation
        except ValueError:
            counted = False
        device = event.device_class or self.class_of(implementation, allocation if counted else nowhere)
        self.run(record, implementation, allocation, device, start, counted=counted)
        return False

    def _adopt_job(self, event: Adopted, now: Seconds) -> None:
        """The job runs already: its place is a fact, which must be free."""
        record = self.records[event.job]
        implementation = record.job.app.implementation(event.implementation)
        fault = self._find_allocation_fault(record.job, event.allocation)
        if fault is not None:
            raise ValueError(f"job {event.job} cannot be adopted: it {fault}")
        allocation = self.occupancy.reserve_allocation(event.allocation)
        self.queue.remove_job(record.job)
        record.attempts = event.attempt - 1
        device = self.class_of(implementation, allocation)
        # Its limit was chosen when it started, maybe by a learned bound: predicting it anew could differ.
        expected = None if event.limit is None else (event.predicted, event.limit)
        self.run(record, implementation, allocation, device, event.start_time, expected=expected)

    def _end_job(self, event: Ended, now: Seconds) -> None:
        record = self.records[event.job]
        placed = self.running.get(event.job)
        if placed is None:
            placed = self.ending.pop(event.job, None)
            if placed is not None:
                if self.looks_back:
                    self.recent.ended(placed, now)
            elif self.outside.left(event.job, now, started=False) is None:
                raise ValueError(f"job {event.job} ended but was not running")
        else:
            if self.profiles.kept is not None:
                self.profiles.ended(placed, now)
            self.occupancy.leave(placed)
            self.staying.discard(placed.job.id)
            if now > placed.bound:
                # A run past its bound delays promises behind it: they are no fault of the policy.
                self.promises.note_overrun(now)
            self.view.changes.ended.append(placed)
            if self.looks_back:
                self.recent.ended(placed, now)
            if event.job in self.moving:  # it held both places to the last, and has arrived nowhere
                before, _ = self.moving.pop(event.job)
                self.close_span(record, now, None)
                record.since, record.allocation = now, before.allocation
        if self.outside.cut:
            self.outside.ended(event.job, at_limit=event.state is State.TIMEOUT)
        # On wide machines a mask takes kilobytes for each ended job.
        if self.packs and record.allocation is not None:
            record.allocation = record.allocation.pack_runs()
        record.state = event.state
        record.end = now
        record.exit_code = event.exit_code
        record.detail = event.detail
        record.usage = event.usage
        if self.predictions.cached:
            self.predictions.drop_job(event.job)
        suspensions = self.suspensions
        several = len(record.job.choices) > 1
        if several or event.state is State.FAILED or suspensions.active or suspensions.narrowed:
            self.choices.weigh_end(record, event, now)

    def _requeue_job(self, event: Requeued, now: Seconds) -> None:
        """An ended job waits again, at its old place; what it held so far stays on record."""
        job = event.job
        record = self.records[job]
        if self.phase_of(job) is not Phase.ENDED:
            raise ValueError(f"job {job} is requeued while it is {self.phase_of(job).value}")
        self.preempted.discard(job)
        if record.start is not None and record.end is not None:
            self.close_span(record, record.end, record.state)
        # Under an outside scheduler it never began: no span shows the failure, so it is counted apart.
        elif record.state in (State.FAILED, State.NODE_FAIL):
            record.failures += 1  # it never began, under an outside scheduler
        self._waits_again(record)

    def _waits_again(self, record: Record) -> None:
        record.state, record.start, record.end = PENDING, None, None
        record.implementation, record.allocation, record.device_class = None, None, None
        record.exit_code, record.predicted, record.promised, record.usage = None, None, None, None
        self.enter_queue(record.job)
        self.view.changes.submitted.append(record.job)

    # ------------------------------------------------- places given away a moment early

    def _give_place_away(self, event: Ending, now: Seconds) -> bool:
        """Free the place of a job that is about to end; ``True``, nothing changed, if it cannot be freed."""
        job = event.job
        placed = self.running.get(job)
        if placed is None or job in self.moving or job in self.occupancy.uncounted:
            return True
        if self.profiles.kept is not None:
            self.profiles.ended(placed, now)
        self.occupancy.leave(placed)
        self.staying.discard(placed.job.id)
        self.ending[job] = placed
        self.view.changes.ended.append(placed)
        return False

    def _take_place_back(self, event: Lingering, now: Seconds) -> None:
        """It goes on after all; who was to follow it there was `Withdrawn` before."""
        placed = self.ending.pop(event.job, None)
        if placed is not None:
            # The profile was made as if the place were free: it must be made anew.
            self.profiles.let_go()
            placed = self.occupancy.retake_place(placed)
            self.records[event.job].allocation = placed.allocation

    def _not_begun(self, event: Withdrawn, now: Seconds) -> None:
        """A job that follows one that goes on: as if it had not been started."""
        job = event.job
        placed = self.running.get(job)
        if placed is not None:
            self.profiles.let_go()
            self.occupancy.leave(placed)
            self.staying.discard(placed.job.id)
        elif self.ending.pop(job, None) is None:
            if self.outside.left(job, 0.0, started=False) is not None:
                self.preempted.discard(job)
                self._waits_again(self.records[job])
            return
        self.preempted.discard(job)
        record = self.records[job]
        # The attempt never began, so it does not count.
        record.attempts -= 1
        self._waits_again(record)

    def _cancel_job(self, event: Cancelled, now: Seconds) -> bool:
        job = event.job
        if (self.phase_of(job), Cancelled) not in STEPS:
            return True  # it runs, here or elsewhere: its driver stops it and reports the end
        record = self.records[job]
        if not self.held.let_go(job):
            self.withdraw(record.job)
        if self.looks_back:
            self.recent.note_withdrawal(job)
        self.view.changes.withdrawn = True
        record.state, record.end, record.exit_code = State.CANCELLED, now, None
        record.detail = event.detail
        self.predictions.drop_job(job)
        return False

    def _complete_migration(self, event: Migrated, now: Seconds) -> bool:
        placed = self.running.get(event.job)
        if placed is not None and event.stays:
            self.staying.add(event.job)
        if placed is None or event.job not in self.moving:
            return True  # it has ended meanwhile, or did not move
        before, target = self.moving.pop(event.job)
        if event.failed:
            self.change_place(placed, before.allocation, now)
            self.view.changes.incident = True
            self.view.changes.moved.append(self.running[event.job])
        else:
            self.complete_move(before, placed, target, now)
        return False

    def expel_job(self, job: JobId, now: Seconds, detail: str) -> bool:
        """End a job whose handling went wrong, wherever it stands: as NODE_FAIL. Whether it had not ended.

        # Each book by itself, with errors logged: the one that raised at first may well raise again.
        The books may hold half of what was to be done: each is cleared of the job by itself.
        """
        record = self.records.get(job)
        if record is None or record.end is not None:
            return False
        placed = self.running.get(job)
        clear: list[Callable[[], object]] = []
        if placed is not None:
            clear += [self.profiles.let_go, lambda: self.occupancy.leave(placed)]
        if job in self.held:
            clear.append(lambda: self.held.let_go(job))
        elif placed is None:
            clear.append(lambda: self.withdraw(record.job))
        clear += [
            lambda: self.running.pop(job, None),
            lambda: self.ending.pop(job, None),
            lambda: self.moving.pop(job, None),
            lambda: self.staying.discard(job),
            lambda: self.outside.left(job, now, started=False),
            lambda: self.outside.cut.pop(job, None),
            lambda: self.promises.drop_promise(job),
            lambda: self.intended.pop(job, None),
            lambda: self.preempted.discard(job),
            lambda: self.predictions.drop_job(job),
        ]
        for book in clear:
            try:
                book()
            except Exception:  # noqa: BLE001 - what it is stands in the log, and ends nothing else
                _log.exception("a book could not be cleared of job %s", job)
        record.state, record.end, record.exit_code, record.detail = State.NODE_FAIL, now, None, detail
        self.view.changes.incident = True
        return True

    def retire_job(self, job: JobId) -> Record:
        """Forget a job that has ended, for memory's sake. Raises `ValueError` before its end."""
        record = self.records.get(job)
        if record is None or record.end is None or job in self.running:
            raise ValueError(f"job {job} cannot be retired while it is {self.phase_of(job).value}")
        self.queue.forget_job(job)
        return self.records.pop(job)

    # ------------------------------------------------------------------- nodes

    def _lose_node(self, event: NodeLost, now: Seconds) -> None:
        node = event.node
        if node in self.lost or node >= len(self.cluster):
            return
        # Before the node is lost: each end frees what its job held on other nodes.
        for placed in self.occupancy.held_on(node):
            self._end_job(Ended(placed.job.id, State.NODE_FAIL, None, "a node was lost"), now)
        self.occupancy.remove_node(node)
        self._take_no_more(node)

    def _drain_node(self, event: NodeDrained, now: Seconds) -> None:
        if event.node < len(self.cluster):
            self.occupancy.drain_node(event.node)
            self._take_no_more(event.node)

    def _take_no_more(self, node: int) -> None:
        """Jobs that were bound to a node wait for any node again, and nothing that was promised holds."""
        # A FIFO of a lost device would never move.
        for unit in self.cluster.units if self.device_queues else ():
            if unit.node == node:
                for job, _ in list(self.device_queues.get(unit.index, ())):
                    self.remove_from_queue(job)
                    self.queue.add(job)
        self._machine_changed()
        self.promises.drop_all()

    def _join_node(self, event: NodeJoined, now: Seconds) -> None:
        if event.new is None:
            self.occupancy.join(event.node)
        elif event.node != len(self.cluster):
            raise ValueError(f"new node {event.new.name} has index {event.node}, not {len(self.cluster)}")
        else:
            self.cluster = self.occupancy.append_node(event.new)
            # A new node may bring a class of devices of its own.
            self.only_class.clear()
        self._machine_changed()

    def _pause_kinds(self, event: Paused, now: Seconds) -> None:
        self.suspensions.pause_kinds(event.kinds)

    def _reserve(self, event: Reserved, now: Seconds) -> None:
        """Other devices are reserved than before; what was promised on them holds no more."""
        before, self.reservations = self.reservations, event.reservations
        self.occupancy.keep(kept_devices(event.reservations))
        for one in event.reservations:
            self.wake_at(one.end, now)
        self._machine_changed()
        # Where whole nodes are reserved plans know until when: the end of that breaks no promise.
        gone = [one for one in before if one not in event.reservations]
        if len(before) - len(gone) < len(event.reservations) or not all(one.nodes for one in gone):
            self.promises.drop_all()

    def _machine_changed(self) -> None:
        self.incidents += 1
        self.profiles.machine_changed()
        gone = frozenset(self.occupancy.lost | self.occupancy.drained)
        kept = kept_devices(self.reservations)
        changed = gone or kept
        self.view.cluster = replace(self.cluster, gone=gone, kept=kept) if changed else self.cluster

    # ------------------------------------------------------------- news of other schedulers

    def _note_delay(self, event: Delayed, now: Seconds) -> bool:
        """An outside scheduler gives the reason why a job still waits there."""
        submitted = self.handed_over.get(event.job)
        if submitted is not None:
            self.records[event.job].wait_reason = event.reason or submitted.reason
        return True

    def _cluster_ends(self, event: ClusterEnds, now: Seconds) -> None:
        self.choices.move_horizon(now, event.left)
        self.wake_at(self.horizon.end, now)

    def _accept_plan(self, event: Planned, now: Seconds) -> None:
        self.view.plan = event.plan

    def _recall_recent(self, event: Recalled, now: Seconds) -> None:
        self.recent.recall_state(event.ran, event.came)

    def _note_forecast(self, event: Foreseen, now: Seconds) -> None:
        self.outside.take_answer(event, now)

    def _note_signal(self, event: Signalled, now: Seconds) -> bool:
        """A running job goes on, whatever it makes of its signal: the policy is not called."""
        return True

    def _call_policy_only(self, event: Event, now: Seconds) -> None:
        """The policy is called: that is all."""

    # --------------------------------------------------------------- decisions

    def _call_policy(self, now: Seconds) -> list[Decision]:
        decided: list[Decision] = []
        policy, view, timer, start = self.policy, self.view, self._timer, self._decisions.start
        rounds = 0
        self._saw_changes = True
        while True:
            before = timer() if timer else 0.0
            try:
                # A generator would run between the decisions and see them half applied.
                batch = policy.decide(view)
                if not isinstance(batch, list):
                    batch = self._collect_decisions(batch)
            except (Exception, SystemExit) as error:
                mistake = mistake_in(policy, self.policy_name, error)
                if mistake is None:
                    raise
                raise mistake from error
            if timer:
                self.decision_seconds.add(timer() - before)
            if not batch:
                return decided
            fresh = again = False
            for decision in batch:
                try:
                    if type(decision) is Start:
                        # A start that the horizon refuses has taken a choice from the job: the policy decides
                        # once more.
                        if not start(decision, now):
                            again = True
                            continue
                    elif not self._decisions.apply_decision(decision, now):
                        continue
                except PolicyError as error:
                    raise with_place(error, policy) from error.__cause__
                # A policy of a user's own may return anything: its mistake is named, an error of ours is
                # raised as it is.
                except (AttributeError, KeyError, TypeError) as error:
                    wrong = wrong_decision(policy, self.policy_name, decision, DECISIONS)
                    if wrong is None:
                        raise
                    raise wrong from error
                fresh = True
                decided.append(decision)
            if self.suspensions.changed:  # a trial began: it is the only one
                self.choices.look_at_suspensions(now)
                again = True
            # Policies that settle decide everything in one call: the second one, which others need, is saved.
            if not again and (not fresh or self._settles):
                return decided
            rounds += 1
            # Linear in what could be decided: a policy that alternates would hang the run for ever.
            if rounds > 1000 + 4 * (len(self.queue) + len(self.running)):
                endless = "decides something new at one instant without end"
                raise with_place(PolicyError(self.policy_name, "", endless), policy)

    def _collect_decisions(self, batch: Iterable[Decision]) -> list[Decision]:
        """All of one call, before the first is applied: the view is not to change meanwhile."""
        most = 10_000 + 100 * (len(self.queue) + len(self.running))
        found = list(islice(batch, most))
        # A generator without end would fill the memory.
        if len(found) == most:
            endless = f"decides without end: {most:,} decisions of one call"
            raise with_place(PolicyError(self.policy_name, "", endless), self.policy)
        return found

    def impose_decisions(self, now: Seconds, decisions: Iterable[Decision], enqueued: int | None) -> None:
        """Take decisions that were made before (`dovetail.engine.state.checkpoint`), checked as any other."""
        for decision in decisions:
            self._decisions.apply_decision(decision, now)
        self.last_enqueued = enqueued


def _of_job(promise: Promise, before: Job, after: Job) -> Promise:
    """The promise to a job whose requests stay off other reservations than before."""
    place = next(
        (n for n, choice in enumerate(before.choices) if choice.request == promise.allocation.request), 0
    )
    allocation = replace(promise.allocation, request=after.choices[place].request)
    return replace(promise, job=after, allocation=allocation)


_log = logging.getLogger(__name__)
_Apply = Callable[[Engine, Any, Seconds], bool | None]

# At one instant ends come first, then what became of nodes, then submissions and requests of people;
# then the policy decides. An applier returns ``True`` where the policy need not be called because of it.
# An incident is a change that the lists of `InstantChanges` do not hold.
_STEPS: dict[type, tuple[int, _Apply, bool]] = {
    Ended: (0, Engine._end_job, False),
    Withdrawn: (1, Engine._not_begun, True),
    Lingering: (2, Engine._take_place_back, True),
    Ending: (3, Engine._give_place_away, False),
    Migrated: (4, Engine._complete_migration, False),
    NodeLost: (5, Engine._lose_node, True),  # nodes as they came: one may join and be lost at once
    NodeDrained: (5, Engine._drain_node, True),
    NodeJoined: (5, Engine._join_node, True),
    Paused: (6, Engine._pause_kinds, True),
    Reserved: (6, Engine._reserve, True),
    ClusterEnds: (6, Engine._cluster_ends, True),
    Submitted: (7, Engine._submit_job, False),
    Adopted: (8, Engine._adopt_job, True),
    Requeued: (9, Engine._requeue_job, True),
    Sized: (10, Engine._size_job, False),
    KeptOff: (10, Engine._keep_off, False),
    Updated: (10, Engine._update_job, True),
    Moved: (10, Engine._move_job, True),
    Held: (11, Engine._hold_job, False),
    Released: (12, Engine._let_go, False),
    Cancelled: (13, Engine._cancel_job, False),
    Started: (14, Engine._start_outside_job, False),
    Delayed: (15, Engine._note_delay, False),
    Estimated: (16, Engine._call_policy_only, True),
    Foreseen: (17, Engine._note_forecast, True),
    Planned: (18, Engine._accept_plan, True),
    Recalled: (19, Engine._recall_recent, True),
    Woken: (20, Engine._call_policy_only, False),
    Signalled: (21, Engine._note_signal, True),
}

EVENTS = frozenset(_STEPS)
"""Kinds of events that there are."""


def _event_rank(event: Event) -> int:
    return _STEPS[type(event)][0]
