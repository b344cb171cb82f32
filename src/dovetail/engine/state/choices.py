"""Choices that waiting jobs lose for a while: to the end of the cluster, and to suspended implementations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dovetail.engine.state.horizon import TOO_LATE, Horizon
from dovetail.engine.state.phases import Phase
from dovetail.engine.state.suspensions import PAUSED, Suspensions
from dovetail.model import Choice, Ended, Job, JobId, Record, Seconds, State

if TYPE_CHECKING:
    from dovetail.engine.state.books import Books

SUSPENDED = "no way to run it is in service"
"""How the reason begins of a job that waits for the end of a suspension."""


class ChoiceLimits:
    """Takes choices from the waiting jobs of a run and gives them back; a job without any is held back."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self.horizon = Horizon(books.predictions, books.classes_of)
        self.suspensions = Suspensions()

    def check_waiting_jobs(self, now: Seconds) -> None:
        """Before the policy decides: what waits may have become too late, or have come in meanwhile."""
        if now >= self.horizon.next_look and self.horizon.due(now):
            for job in self._waiting_jobs():
                self.narrow_choices(job, now)
        if self.suspensions.limits_choices or self.suspensions.changed:
            self.look_at_suspensions(now)

    def _waiting_jobs(self) -> list[Job]:
        books = self._books
        return [*books.queue, *(job for fifo in books.device_queues.values() for job, _ in fifo)]

    def narrow_choices(self, job: Job, now: Seconds, without: Choice | None = None) -> bool:
        """Leave a waiting job the choices that end before the cluster does; whether that changed anything."""
        left = self.horizon.narrow_choices(job, now, without)
        if left is job:
            # Withdrawn and put back in: queue orders and profiles go by the job as it is.
            return False
        record = self._books.records[job.id]
        self._books.withdraw(job)
        if left is None:
            self._books.hold_back(record, self.horizon.reason(job, now))
        else:
            record.job = left
            self._books.enter_queue(left)
        self._books.view.changes.incident = True
        return True

    def move_horizon(self, now: Seconds, left: Seconds | None) -> None:
        """The cluster's end has moved: everybody has all choices again, for now."""
        # Back to all choices first, then narrowed by the new end: a later one allows more than the old one
        # did.
        before, self.horizon.narrowed = self.horizon.narrowed, {}
        self.horizon.move_end(now, left)
        for name, job in before.items():
            if name in self._books.queue or name in self._books.bound_to:
                self._books.withdraw(self._books.records[name].job)
            elif not self._books.held.let_go(name):
                continue  # it runs, or has ended
            self._books.records[name].job = job
            self._books.records[name].wait_reason = ""
            self._books.enter_queue(job)

    def set_aside(self, job: JobId) -> bool:
        """Whether a job is held back here, for none of its choices is left."""
        reason = self._books.held.get(job, "")
        return reason.startswith((SUSPENDED, PAUSED, TOO_LATE))

    def forget_job(self, job: JobId) -> None:
        """A job is another one from now on: it has all its choices, until they are looked at again."""
        self.suspensions.narrowed.pop(job, None)
        if self.horizon.narrowed.pop(job, None) is not None:
            self.horizon.next_look = 0.0

    def whole(self, job: JobId) -> Job:
        """A job with all its choices."""
        found = self.suspensions.narrowed.get(job) or self.horizon.narrowed.get(job)
        return found or self._books.records[job].job

    def _suspensions_changed(self) -> None:
        """Waiting jobs have all their choices again but for those that are suspended now."""
        suspensions = self.suspensions
        # Taken over before the loop, which fills it again with what is suspended now.
        before, suspensions.narrowed, suspensions.changed = suspensions.narrowed, {}, False
        for name, job in before.items():
            phase = self._books.phase_of(name)
            if phase in (Phase.UNKNOWN, Phase.ENDED):
                continue
            record = self._books.records[name]
            if phase not in (Phase.QUEUED, Phase.BOUND, Phase.HELD):
                # A running job keeps the choice that it runs by; all come back if it is requeued.
                suspensions.narrowed[name] = job  # it has its choices again when it has ended
            elif phase is Phase.HELD and not self._books.held[name].startswith((SUSPENDED, PAUSED)):
                record.job = job
            else:
                if not self._books.held.let_go(name):
                    self._books.withdraw(record.job)
                # Of the two reasons a job may have lost choices by, the earlier one holds its whole form.
                self.horizon.narrowed.pop(name, None)
                record.job, record.wait_reason = job, ""
                self._books.enter_queue(job)
        if suspensions.limits_choices:
            for job in self._waiting_jobs():
                self.leave_out_suspended(job)
        self._books.view.changes.incident = True

    def leave_out_suspended(self, job: Job) -> bool:
        """Take from a waiting job what is suspended or paused; whether that changed anything.

        One that has nothing else waits until that ends, if the app is known to complete elsewhere.
        """
        left: list[Choice] = []
        reason = paused = ""
        for choice in job.choices:
            pause = self.suspensions.paused_for(choice.implementation.kind)
            if pause:
                paused = pause
                continue
            ways = [
                (job.app.name, choice.implementation.name, device)
                for device in self._books.classes_of(choice, None)
            ]
            blocked = [way for way in ways if self.suspensions.is_blocked(way)]
            if not blocked:
                left.append(choice)
            elif len(blocked) == len(ways):
                reason = self.suspensions.reason(blocked[0])
            else:  # only devices have models that a request can name
                models = tuple(way[2].model for way in ways if way not in blocked)
                left.append(
                    replace(choice, request=replace(choice.request, models=models))
                    if choice.request.devices
                    else choice
                )
        # Unproven: the app may be what fails. Then a job that has no other way is tried all the same.
        unproven = not left and not all(
            self.suspensions.is_proven((job.app.name, choice.implementation.name, device))
            for choice in job.choices
            if not self.suspensions.paused_for(choice.implementation.kind)
            for device in self._books.classes_of(choice, None)
        )
        if unproven or left == list(job.choices):
            return False
        record = self._books.records[job.id]
        self.suspensions.narrowed.setdefault(job.id, job)
        self._books.withdraw(job)
        if left:
            record.job = replace(job, choices=tuple(left))
            self._books.enter_queue(record.job)
        else:
            self._books.hold_back(record, paused or f"{SUSPENDED}: {reason}")
        return True

    def weigh_end(self, record: Record, event: Ended, now: Seconds) -> None:
        """What an end shows of the device: whether the app's implementation fails there at once, or works."""
        if record.implementation is not None and record.device_class is not None and record.start is not None:
            way = (record.job.app.name, record.implementation.name, record.device_class)
            if event.state is State.COMPLETED and not self.suspensions.active:
                self.suspensions.note_completion(way)
            else:
                self.suspensions.ended(
                    way,
                    event.job,
                    event.state,
                    now - record.start,
                    now,
                    known=lambda: self._completed_before(record),
                    elsewhere=lambda: self._could_run_elsewhere(record),
                )
        # The record shows the job as it was submitted, whatever was suspended while it waited.
        if self.suspensions.narrowed:
            record.job = self.suspensions.narrowed.pop(event.job, record.job)

    def _could_run_elsewhere(self, record: Record) -> bool:
        """Whether there is another class here on which the job could have run."""
        submitted = self.suspensions.narrowed.get(record.job.id, record.job)
        return any(
            device != record.device_class
            for choice in submitted.choices
            for device in self._books.classes_of(choice, None)
        )

    def _completed_before(self, record: Record) -> bool:
        """Whether the app is known to have completed on another class than the job's, in any run."""
        app = record.job.app
        return any(
            other != record.device_class and self._books.predictions.runs(app.name, one.name, other)
            for one in app.implementations
            for other in self._books.cluster.device_classes(one.kind)
        )

    def look_at_suspensions(self, now: Seconds) -> None:
        """Jobs that came in lose what is suspended; whose pause is over may be tried with one job."""
        self.suspensions.lapse_suspensions(now)
        if self.suspensions.changed:
            self._suspensions_changed()
        for job in self._books.view.changes.submitted:
            record = self._books.records.get(job.id)
            if record is not None and record.job in self._books.queue:
                self.leave_out_suspended(record.job)
        end = self.suspensions.next_end
        # No event announces the end of a pause: the policy must be woken for it.
        if end is not None:
            self._books.wake_at(end, now)
