"""What a policy decides: checked against capacity and the state of the job, then applied to the books."""

from __future__ import annotations

from bisect import bisect_left
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
    Placed,
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
    together,
)

__all__ = ["Decisions"]


class Decisions(Books):
    """The books of a run, and what decisions do to them. Raises `PolicyError` for what cannot be done."""

    __slots__ = ("hold_moves", "policy_name")
    policy_name: str
    """For sentences about a wrong decision."""
    hold_moves: bool
    """A migrating job holds source and target until `Migrated`, whatever the policy asks for."""

    def _decide(self, decision: Decision, now: Seconds) -> bool:
        """Check and apply one decision; ``True`` if it changed anything that a policy sees."""
        return _APPLY[type(decision)](self, decision, now) is not False

    def _wrong(self, job: JobId, message: str) -> PolicyError:
        return PolicyError(self.policy_name, job, message)

    def _record(self, job: JobId) -> Record:
        record = self.records.get(job)
        if record is None:
            raise self._wrong(job, "was never submitted")
        return record

    def _choice(self, job: Job, implementation: str, request: Request | None) -> Choice:
        for choice in job.choices:
            if choice.implementation.name == implementation and request in (None, choice.request):
                return choice
        raise self._wrong(job.id, f"cannot run as {implementation} with {request}")

    def _start(self, decision: Start, now: Seconds) -> bool:
        """Start the job; ``False``, and it loses that choice, where the cluster would end before it does."""
        record = self.records.get(decision.job) or self._record(decision.job)
        job = record.job
        if record.state is not PENDING or decision.job in self.handed_over:
            raise self._wrong(decision.job, f"is started while {record.state}")
        unit = self._bound_to.get(decision.job) if self._bound_to else None
        if unit is not None and self.device_queues[unit][0][0] is not job:
            raise self._wrong(decision.job, "is started before others in its device's FIFO")
        allocation = decision.allocation
        choice = job.choices[0]
        if choice.request is not allocation.request or choice.implementation.name != decision.implementation:
            choice = self._choice(job, decision.implementation, allocation.request)
        fault = gang_fault(self.cluster, choice, allocation)
        if fault is not None:
            raise self._wrong(job.id, fault)
        if self.horizon.end != inf and self.horizon.too_late(job, choice, now, allocation):
            return not self._narrow(job, now, choice)
        implementation = choice.implementation
        device = self._classes.get(implementation.kind) or self.class_of(implementation, allocation)
        if self.suspensions.active:
            way = (job.app.name, implementation.name, device)
            if self.suspensions.blocked(way) and self._leave_out_suspended(job):
                return False
        if unit is None:
            self.queue.remove(job)
        else:
            self._unqueue(job)
        if self.intended:
            self.intended.pop(decision.job, None)
        if decision.job in self.promises.held:
            bound = self._learned_bound(job, choice.implementation, allocation.request)
            record.promised = self.promises.settle(decision.job, now, bound)
        try:
            allocation = self.occupancy.reserve(allocation)
        except ValueError as error:
            raise self._wrong(job.id, f"cannot be started: {error}") from None
        self._run(record, implementation, allocation, device, now)
        return True

    def _dequeue(self, decision: Dequeue, now: Seconds) -> None:
        job = self._record(decision.job).job
        if decision.job not in self._bound_to:
            raise self._wrong(decision.job, "is in no device's FIFO")
        self._unqueue(job)
        self.queue.add(job)

    def _inquire(self, decision: Inquire, now: Seconds) -> bool:
        return self.outside.ask(decision.shape)

    def _enqueue(self, decision: Enqueue, now: Seconds) -> None:
        job = self._record(decision.job).job
        if job not in self.queue:
            raise self._wrong(decision.job, "is bound to a device while it is not in the queue")
        choice = self._choice(job, decision.implementation, None)
        if not 0 <= decision.unit < len(self.cluster.units):
            raise self._wrong(decision.job, f"is bound to unit {decision.unit}, which does not exist")
        unit = self.cluster.units[decision.unit]
        kinds = {CPU} if choice.implementation.kind.startswith(CPU) else set()
        kinds |= {kind for kind, _ in choice.request.devices}
        if unit.kind not in kinds:
            raise self._wrong(decision.job, f"as {decision.implementation} cannot run on {unit.name}")
        self.queue.remove(job)
        self._bound_to[job.id] = decision.unit
        self.device_queues.setdefault(decision.unit, []).append((job, choice.implementation))
        self.last_enqueued = decision.unit

    def _reserve(self, decision: Reserve, now: Seconds) -> bool:
        record = self._record(decision.job)
        if record.state is not State.PENDING:
            raise self._wrong(decision.job, f"gets a promise while {record.state}")
        choice = self._choice(record.job, decision.implementation, decision.allocation.request)
        if self.horizon.too_late(record.job, choice, decision.start, decision.allocation):
            return self._narrow(record.job, now, choice)
        promise = Promise(record.job, choice.implementation, decision.allocation, decision.start)
        old = self.promises.held.get(decision.job)
        if old is not None and old.start == promise.start and old.allocation == promise.allocation:
            return False
        if self.learned_bounds:
            self._expect()
        bound = self._learned_bound(record.job, choice.implementation, decision.allocation.request)
        wrong = self.promises.reserve(promise, now, bound)
        if wrong:
            raise self._wrong(decision.job, wrong)
        self.profiles.reserved(promise)
        return True

    def _renew(self, decision: Renew, now: Seconds) -> bool:
        if self.learned_bounds:
            self._expect()
        if self.horizon.end == inf and self.profiles.renewed(decision):
            return True
        changed = [self._reserve(promise, now) for promise in decision.promises]
        return any(changed)

    def _migrate(self, decision: Migrate, now: Seconds) -> None:
        """Checked like a start: the target is a gang of the job's request, free beside what it holds."""
        placed = self.running.get(decision.job)
        if placed is None:
            raise self._wrong(decision.job, "is migrated while it does not run")
        if decision.job in self.moving:
            raise self._wrong(decision.job, "is migrated while it is moving")
        if decision.job in self.occupancy.uncounted:
            raise self._wrong(decision.job, "is migrated while an outside scheduler runs it")
        target = decision.allocation
        if target.request != placed.allocation.request:
            raise self._wrong(decision.job, "is migrated to another request")
        choice = self._choice(placed.job, placed.implementation.name, target.request)
        fault = gang_fault(self.cluster, choice, target)
        if fault is not None:
            raise self._wrong(decision.job, f"is migrated and {fault}")
        try:
            if self.hold_moves or decision.held:
                self._change_place(placed, together(placed.allocation, target), now)
                self.moving[decision.job] = placed, target
                self.view.changes.moved.append(replace(placed, allocation=target))
            else:
                self._arrive(placed, placed, target, now)
                self.view.changes.moved.append(self.running[decision.job])
        except ValueError as error:
            raise self._wrong(decision.job, f"cannot be migrated: {error}") from None

    def _arrive(self, before: Placed, placed: Placed, target: Allocation, now: Seconds) -> None:
        """The work has moved: the old place is free, and what is expected of the job is renewed."""
        self._change_place(placed, target, now, expected=self._renewed(before, target, now))
        record = self.records[placed.job.id]
        record.migrations += max(0, len(before.allocation.donors) - len(target.donors))
        self.view.changes.migrated.append(self.running[placed.job.id])

    def _preempt(self, decision: Preempt, now: Seconds) -> bool:
        record = self._record(decision.job)
        if (self.phase(decision.job), Preempt) not in STEPS:
            raise self._wrong(decision.job, f"is preempted while it is {self.phase(decision.job).value}")
        if decision.job in self.preempted:
            return False
        self.preempted.add(decision.job)
        record.wait_reason = decision.reason
        return True

    def _hand_over(self, decision: Submit, now: Seconds) -> None:
        record = self._record(decision.job)
        if record.state is not State.PENDING or decision.job in self.handed_over:
            raise self._wrong(decision.job, f"is submitted to {decision.target} while {record.state}")
        choice = self._choice(record.job, decision.implementation, decision.request)
        self._withdraw(record.job)
        record.wait_reason = decision.reason
        known = [
            found.expected
            for device in self._classes_of(choice, None)
            if (found := self.predictions.predict(record.job, choice.implementation, choice.request, device))
        ]
        self.outside.hand_over(decision, record.job.walltime, now, known)

    def _intend(self, decision: Intend, now: Seconds) -> bool:
        record = self._record(decision.job)
        if (self.phase(decision.job), Intend) not in STEPS:
            raise self._wrong(decision.job, f"is planned while it is {self.phase(decision.job).value}")
        before = self.intended.pop(decision.job, None)  # they stand in the order in which a plan names them
        self.intended[decision.job] = decision
        record.wait_reason = decision.why
        return decision != before

    def _wait(self, decision: Wait, now: Seconds) -> bool:
        self._record(decision.job).wait_reason = decision.reason
        if decision.until is not None:
            self._wake_at(decision.until, now)
        return False

    def _wake_at(self, until: Seconds, now: Seconds) -> None:
        wakes = self.wake_times
        if now < until < inf:
            at = bisect_left(wakes, until)
            if at == len(wakes) or wakes[at] != until:
                wakes.insert(at, until)


_APPLY: dict[type, Callable[[Decisions, Any, Seconds], bool | None]] = {
    Start: Decisions._start,
    Wait: Decisions._wait,
    Reserve: Decisions._reserve,
    Renew: Decisions._renew,
    Enqueue: Decisions._enqueue,
    Dequeue: Decisions._dequeue,
    Intend: Decisions._intend,
    Migrate: Decisions._migrate,
    Preempt: Decisions._preempt,
    Submit: Decisions._hand_over,
    Inquire: Decisions._inquire,
}
"""What each decision does; ``False`` where that changed nothing that a policy sees."""
