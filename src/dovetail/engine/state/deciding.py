"""What a policy decides: checked against capacity and the state of the job, then applied to the books."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

from dovetail.engine.capacity.gangs import gang_fault
from dovetail.engine.state.books import PENDING, Books
from dovetail.engine.state.phases import STEPS
from dovetail.errors import PolicyError
from dovetail.model import (
    CPU,
    Allocation,
    Choice,
    Decision,
    Dequeue,
    Enqueue,
    Inquire,
    Intend,
    Job,
    JobId,
    Migrate,
    Preempt,
    Promise,
    Record,
    Renew,
    Request,
    Reserve,
    Seconds,
    Start,
    State,
    Submit,
    Wait,
    join_allocations,
)
from dovetail.model.reservation import NODE, kept_devices, with_avoids


class Decisions:
    """What a policy may decide, applied to the books of a run. Raises `PolicyError` for what cannot be done.

    ``policy_name`` is for sentences about a wrong decision. With ``hold_moves`` a migrating job holds source
    and target until `Migrated`, whatever the policy wants.
    """

    __slots__ = ("_books", "hold_moves", "policy_name")

    def __init__(self, books: Books, policy_name: str, *, hold_moves: bool) -> None:
        self._books = books
        self.policy_name = policy_name
        self.hold_moves = hold_moves

    def apply_decision(self, decision: Decision, now: Seconds) -> bool:
        """Check and apply one decision; ``True`` if it changed anything that a policy sees."""
        return _APPLY[type(decision)](self, decision, now) is not False

    def _make_policy_error(self, job: JobId, message: str) -> PolicyError:
        return PolicyError(self.policy_name, job, message)

    def _known_record(self, job: JobId) -> Record:
        books = self._books
        record = books.records.get(job)
        if record is None:
            raise self._make_policy_error(job, "was never submitted")
        return record

    def _find_choice(self, job: Job, implementation: str, request: Request | None) -> Choice:
        for choice in job.choices:
            if choice.implementation.name == implementation and request in (None, choice.request):
                return choice
        names = dict.fromkeys(choice.implementation.name for choice in job.choices)
        if implementation not in names:
            raise self._make_policy_error(
                job.id, f"cannot run as {implementation}, expected one of {', '.join(names)}"
            )
        raise self._make_policy_error(job.id, f"cannot run as {implementation} with {request}")

    def start(self, decision: Start, now: Seconds) -> bool:
        """Start the job; ``False``, and it loses that choice, where the cluster would end before it does."""
        books = self._books
        record = books.records.get(decision.job) or self._known_record(decision.job)
        job = record.job
        if record.state is not PENDING or decision.job in books.handed_over:
            # Checked before anything changes: a wrong decision must leave the books as they were.
            raise self._make_policy_error(decision.job, f"is started while {record.state}")
        unit = books.bound_to.get(decision.job) if books.bound_to else None
        if unit is not None and books.device_queues[unit][0][0] is not job:
            raise self._make_policy_error(decision.job, "is started before others in its device's FIFO")
        allocation = decision.allocation
        choice = job.choices[0]
        # By identity first: policies pass on the request object of the choice, and comparing fields costs
        # more.
        if choice.request is not allocation.request or choice.implementation.name != decision.implementation:
            choice = self._find_choice(job, decision.implementation, allocation.request)
        fault = gang_fault(books.cluster, choice, allocation)
        if fault is not None:
            raise self._make_policy_error(job.id, fault)
        avoids = allocation.request.avoids
        if avoids and books.reservations:
            fault = self._reserved_fault(allocation)
            if fault:
                raise self._make_policy_error(job.id, fault)
        if books.horizon.end != inf and books.horizon.too_late(job, choice, now, allocation):
            # The cluster ends before the job would: it loses this choice, and the policy decides again.
            return not books.choices.narrow_choices(job, now, choice)
        implementation = choice.implementation
        device = books.only_class.get(implementation.kind) or books.class_of(implementation, allocation)
        if books.suspensions.active:
            way = (job.app.name, implementation.name, device)
            if books.suspensions.is_blocked(way) and books.choices.leave_out_suspended(job):
                return False
        if unit is None:
            books.queue.remove_job(job)
        else:
            books.remove_from_queue(job)
        if books.intended:
            books.intended.pop(decision.job, None)
        if decision.job in books.promises.held:
            bound = books.learned_bound(job, choice.implementation, allocation.request)
            # The promise is settled with the bound of this very place: a learned one may have changed since.
            record.promised = books.promises.settle(decision.job, now, bound)
        try:
            # Last, since it is the only step that can fail after the checks: cores may be free but apart.
            allocation = books.occupancy.reserve_allocation(allocation)
        except ValueError as error:
            raise self._make_policy_error(job.id, f"cannot be started: {error}") from None
        if avoids:  # what it stayed off while it waited is no part of what it holds
            record.job = with_avoids(record.job, 0)
            allocation = replace(allocation, request=replace(allocation.request, avoids=0))
        books.run(record, implementation, allocation, device, now)
        return True

    def _reserved_fault(self, allocation: Allocation) -> str:
        """What is wrong where a job is given a device that it is to stay off; empty where nothing is."""
        kept, avoids = kept_devices(self._books.reservations), allocation.request.avoids
        for n in allocation.nodes if any(one.nodes for one in self._books.reservations) else ():
            if kept.get((n, NODE), 0) & avoids:
                return f"is given node {self._books.cluster.nodes[n].name}, which is reserved"
        for n, d in allocation.device_places():
            if kept.get((n, d), 0) & avoids:
                device = self._books.cluster.nodes[n].devices[d]
                return f"is given {device.name}, which is reserved for others"
        return ""

    def _dequeue_job(self, decision: Dequeue, now: Seconds) -> None:
        books = self._books
        job = self._known_record(decision.job).job
        if decision.job not in books.bound_to:
            raise self._make_policy_error(decision.job, "is in no device's FIFO")
        books.remove_from_queue(job)
        books.queue.add(job)

    def _inquire_outside(self, decision: Inquire, now: Seconds) -> bool:
        books = self._books
        return books.outside.ask(decision.shape)

    def _enqueue_job(self, decision: Enqueue, now: Seconds) -> None:
        books = self._books
        job = self._known_record(decision.job).job
        # By the queue, not by state: a job bound twice would sit in two FIFOs.
        if job not in books.queue:
            raise self._make_policy_error(decision.job, "is bound to a device while it is not in the queue")
        choice = self._find_choice(job, decision.implementation, None)
        if not 0 <= decision.unit < len(books.cluster.units):
            raise self._make_policy_error(
                decision.job, f"is bound to unit {decision.unit}, which does not exist"
            )
        unit = books.cluster.units[decision.unit]
        kinds = {CPU} if choice.implementation.kind.startswith(CPU) else set()
        kinds |= {kind for kind, _ in choice.request.devices}
        if unit.kind not in kinds:
            raise self._make_policy_error(
                decision.job, f"as {decision.implementation} cannot run on {unit.name}"
            )
        books.queue.remove_job(job)
        books.bound_to[job.id] = decision.unit
        books.device_queues.setdefault(decision.unit, []).append((job, choice.implementation))
        books.last_enqueued = decision.unit

    def _reserve_promise(self, decision: Reserve, now: Seconds) -> bool:
        books = self._books
        record = self._known_record(decision.job)
        if record.state is not State.PENDING:
            raise self._make_policy_error(decision.job, f"gets a promise while {record.state}")
        choice = self._find_choice(record.job, decision.implementation, decision.allocation.request)
        if books.horizon.too_late(record.job, choice, decision.start, decision.allocation):
            return books.choices.narrow_choices(record.job, now, choice)
        promise = Promise(record.job, choice.implementation, decision.allocation, decision.start)
        old = books.promises.held.get(decision.job)
        # The same promise again changes nothing: a policy may repeat it at every instant.
        if old is not None and old.start == promise.start and old.allocation == promise.allocation:
            return False
        if books.learned_bounds:
            books.update_promise_bounds()
        bound = books.learned_bound(record.job, choice.implementation, decision.allocation.request)
        wrong = books.promises.reserve_promise(promise, now, bound)
        if wrong:
            raise self._make_policy_error(decision.job, wrong)
        books.profiles.note_reservation(promise)
        return True

    def _renew_promises(self, decision: Renew, now: Seconds) -> bool:
        books = self._books
        if books.learned_bounds:
            books.update_promise_bounds()
        # A renewal that the kept profile has planned is true by construction: no check of each promise.
        if books.horizon.end == inf and books.profiles.accept_renewal(decision):
            return True
        changed = [self._reserve_promise(promise, now) for promise in decision.promises]
        return any(changed)

    def _migrate_job(self, decision: Migrate, now: Seconds) -> None:
        """Checked like a start: the target is a gang of the job's request, free beside what it holds."""
        books = self._books
        placed = books.running.get(decision.job)
        if placed is None:
            raise self._make_policy_error(decision.job, "is migrated while it does not run")
        if decision.job in books.moving:
            raise self._make_policy_error(decision.job, "is migrated while it is moving")
        if decision.job in books.occupancy.uncounted:
            raise self._make_policy_error(decision.job, "is migrated while an outside scheduler runs it")
        target = decision.allocation
        if target.request != placed.allocation.request:
            raise self._make_policy_error(decision.job, "is migrated to another request")
        choice = self._find_choice(placed.job, placed.implementation.name, target.request)
        fault = gang_fault(books.cluster, choice, target)
        if fault is not None:
            raise self._make_policy_error(decision.job, f"is migrated and {fault}")
        try:
            if self.hold_moves or decision.held:
                # Source and target at once: the work is in both until it has arrived.
                books.change_place(placed, join_allocations(placed.allocation, target), now)
                books.moving[decision.job] = placed, target
                books.view.changes.moved.append(replace(placed, allocation=target))
            else:
                books.complete_move(placed, placed, target, now)
                books.view.changes.moved.append(books.running[decision.job])
        except ValueError as error:
            raise self._make_policy_error(decision.job, f"cannot be migrated: {error}") from None

    def _preempt_job(self, decision: Preempt, now: Seconds) -> bool:
        books = self._books
        record = self._known_record(decision.job)
        if (books.phase_of(decision.job), Preempt) not in STEPS:
            raise self._make_policy_error(
                decision.job, f"is preempted while it is {books.phase_of(decision.job).value}"
            )
        if decision.job in books.preempted:
            return False
        books.preempted.add(decision.job)
        record.wait_reason = decision.reason
        return True

    def _hand_over(self, decision: Submit, now: Seconds) -> None:
        books = self._books
        record = self._known_record(decision.job)
        if record.state is not State.PENDING or decision.job in books.handed_over:
            raise self._make_policy_error(
                decision.job, f"is submitted to {decision.target} while {record.state}"
            )
        choice = self._find_choice(record.job, decision.implementation, decision.request)
        books.withdraw(record.job)
        record.wait_reason = decision.reason
        known = [
            found.expected
            for device in books.classes_of(choice, None)
            if (found := books.predictions.predict(record.job, choice.implementation, choice.request, device))
        ]
        books.outside.hand_over(decision, record.job.walltime, now, known)

    def _note_intention(self, decision: Intend, now: Seconds) -> bool:
        books = self._books
        record = self._known_record(decision.job)
        if (books.phase_of(decision.job), Intend) not in STEPS:
            raise self._make_policy_error(
                decision.job, f"is planned while it is {books.phase_of(decision.job).value}"
            )
        before = books.intended.pop(decision.job, None)  # they stand in the order in which a plan names them
        books.intended[decision.job] = decision
        record.wait_reason = decision.why
        return decision != before

    def _note_wait_reason(self, decision: Wait, now: Seconds) -> bool:
        books = self._books
        record = self._known_record(decision.job)
        record.wait_reason = decision.reason or record.wait_reason
        if decision.until is not None:
            books.wake_at(decision.until, now)
        return False


_APPLY: dict[type, Callable[[Decisions, Any, Seconds], bool | None]] = {
    Start: Decisions.start,
    Wait: Decisions._note_wait_reason,
    Reserve: Decisions._reserve_promise,
    Renew: Decisions._renew_promises,
    Enqueue: Decisions._enqueue_job,
    Dequeue: Decisions._dequeue_job,
    Intend: Decisions._note_intention,
    Migrate: Decisions._migrate_job,
    Preempt: Decisions._preempt_job,
    Submit: Decisions._hand_over,
    Inquire: Decisions._inquire_outside,
}
"""What each decision does; ``False`` where that changed nothing that a policy sees."""
DECISIONS = tuple(_APPLY)
