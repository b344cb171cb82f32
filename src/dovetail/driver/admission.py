"""Who may be seen by the policy: dependencies, begins, holds, throttles, GPU hours; under any policy.

A waiting job that may not start yet is held: it is in no queue, and its reason is on record. Nothing here
reads a clock: what changes comes as events, each with its moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import field, replace

from dovetail.driver.gpu_hours import GpuHours
from dovetail.model import (
    Cancelled,
    Dependency,
    Event,
    Held,
    Job,
    JobId,
    Placed,
    Released,
    Seconds,
    State,
    Submitted,
    Throttle,
)
from dovetail.records import dataclass

HELD = "held"
"""Why a job waits that its user holds back."""
BEGINS_LATER = "begins later"
"""Why a job waits that may not begin yet."""
GPU_HOURS = "GPU hours are used up"
"""Why a job waits whose user has used, or claims, as many as one may."""
INFINITE = float("inf")
_HOURS = ""
"""Stands among the gates for the moment at which hours are to be looked at: no job has this id."""


@dataclass(slots=True)
class _Waiting:
    """A job that is held back, and by what."""

    job: Job
    depends: list[Dependency] = field(default_factory=list)
    by_user: bool = False
    throttled: bool = False
    spent: bool = False
    until: Seconds | None = None

    @property
    def reason(self) -> str:
        if self.by_user:
            return HELD
        if self.depends:
            return "depends on " + ", ".join(map(str, self.depends))
        if self.until is not None:
            return BEGINS_LATER
        return "throttled" if self.throttled else GPU_HOURS if self.spent else ""


class Admission:
    """Turns submissions, starts, ends, holds, releases and moments into the events that the engine gets.

    ``state_of`` gives the final state of a job that ended before, ``None`` where it has not ended (or will
    start again); ``has_begun`` whether it runs, ``job_of`` the job of an id. A dependency that cannot come
    true cancels the job. Moments are those of the driver.
    """

    def __init__(
        self,
        state_of: Callable[[JobId], State | None],
        has_begun: Callable[[JobId], bool] = lambda job: False,
        job_of: Callable[[JobId], Job | None] = lambda job: None,
    ) -> None:
        self._state_of = state_of
        self._has_begun = has_begun
        self._job_of = job_of
        self._never: set[JobId] = set()  # came in at this instant, and can never start
        self._waiting: dict[JobId, _Waiting] = {}
        self._dependents: dict[JobId, list[JobId]] = {}
        self._through: dict[str, dict[JobId, float]] = {}  # by key of a throttle, with their weights
        self._throttled: dict[str, dict[JobId, None]] = {}  # in order of submission
        self.gates: list[tuple[Seconds, JobId]] = []
        """When jobs may begin, as a heap; some of these moments are out of date."""
        self.hours: GpuHours | None = None
        """The limit on GPU hours, where there is one."""
        self._now: Seconds = 0.0
        self._looks: dict[str, Seconds] = {}  # by user: when their hours are looked at next

    def next_time(self) -> Seconds:
        """When the next job may begin that waits for its moment; infinite if none does."""
        return self.gates[0][0] if self.gates else INFINITE

    def begin_instant(self, now: Seconds = 0.0) -> None:
        """A new instant: what became of the jobs of the last one is known to ``state_of``."""
        self._never.clear()
        self._now = now

    def submitted(self, event: Submitted, now: Seconds = 0.0, epoch: Seconds = 0.0) -> Iterator[Event]:
        """The submission as the engine is to see it; and a cancellation where it can never start.

        ``epoch`` is the wall-clock time of the driver's time 0.
        """
        job = event.job
        plain = not (job.depends or job.throttles or event.held or job.begin is not None)
        if plain and self.hours is None:
            yield event
            return
        waiting = _Waiting(job, by_user=bool(event.held))
        if job.begin is not None:
            self._wait_until(waiting, job.begin - epoch, now)
        # A copy: dependencies leave this list as they come true, and the job itself stays as it was
        # submitted.
        waiting.depends = list(job.depends)
        for other in dict.fromkeys(depends.job for depends in job.depends):
            state = State.CANCELLED if other in self._never else self._state_of(other)
            begun = state is None and self._has_begun(other)
            broken = (
                self._settle_dependency(waiting, other, state, now) if state is not None or begun else None
            )
            # Submitted first, then cancelled: every job that came in has a record with its reason.
            if broken is not None:
                yield replace(event, held=str(broken))
                yield Cancelled(job.id, _explain_broken_dependency(broken, state))
                # Known at this instant already, before the engine has its record: later jobs of it may depend
                # on this one.
                self._never.add(job.id)
                yield from self.ended(job, State.CANCELLED, now)  # who waits for it may have come before it
                return
        for depends in waiting.depends:
            self._dependents.setdefault(depends.job, []).append(job.id)
        self._pass_throttles(waiting)
        if waiting.reason:
            self._waiting[job.id] = waiting
        yield event if waiting.by_user or not waiting.reason else replace(event, held=waiting.reason)

    def _wait_until(self, waiting: _Waiting, moment: Seconds, now: Seconds) -> None:
        """The job may not begin before a moment."""
        # The latest moment counts, of a begin time and of delays after other jobs.
        if moment > now and moment > (waiting.until or now):
            waiting.until = moment
            heapq.heappush(self.gates, (moment, waiting.job.id))

    def _settle_dependency(
        self, waiting: _Waiting, other: JobId, state: State | None, now: Seconds
    ) -> Dependency | None:
        """Another job has begun (no ``state``) or ended: what depends on it comes true.

        Returns a dependency that cannot come true any more.
        """
        for depends in [one for one in waiting.depends if one.job == other]:
            if state is None and depends.kind != "after":
                continue
            broken = state is not None and _is_broken_dependency(depends, state)
            if depends not in waiting.depends:
                continue  # another alternative has come true
            if broken:
                waiting.depends.remove(depends)
                # One alternative (`?`) may fail as long as another is left.
                if not depends.alternative or not any(one.alternative for one in waiting.depends):
                    return depends
                continue
            self._wait_until(waiting, now + depends.delay, now)
            # With one alternative all are met; a dependency without one is met alone.
            gone = [depends] if not depends.alternative else [d for d in waiting.depends if d.alternative]
            waiting.depends = [one for one in waiting.depends if one not in gone]
        return None

    def readmit_job(self, job: Job) -> Iterator[Event]:
        """A job that had ended for good is to run once more: behind its throttles again."""
        waiting = _Waiting(job)
        self._pass_throttles(waiting)
        if waiting.reason:
            self._waiting[job.id] = waiting
            yield Held(job.id, waiting.reason)

    def count_adopted_job(self, job: Job) -> None:
        """A job that runs already takes its places among the throttled."""
        for throttle in job.throttles:
            self._through.setdefault(throttle.key, {})[job.id] = throttle.weight

    def _has_room(self, throttle: Throttle) -> bool:
        through = self._through.get(throttle.key)
        # A little more than the limit, for weights that are fractions and do not add up exactly.
        return throttle.weight + (sum(through.values()) if through else 0.0) <= throttle.limit + 1e-9

    def _pass_throttles(self, waiting: _Waiting) -> None:
        """Let the job through its throttles if nothing else holds it and all of them have room."""
        job = waiting.job
        # A place behind a throttle is only taken by a job that could start: a held one would block the
        # others.
        limited = bool(job.throttles) or self.hours is not None
        if not limited or waiting.by_user or waiting.depends or waiting.until is not None:
            return
        waiting.throttled = not all(map(self._has_room, job.throttles))
        hours = self.hours
        waiting.spent = hours is not None and not waiting.throttled and not hours.admits(job, self._now)
        if hours is not None and waiting.spent:
            hours.wait(job)
            self._look_again(job.user or "")
            return
        if hours is not None and not waiting.throttled:
            hours.admit(job)
        for throttle in job.throttles:
            if waiting.throttled:
                self._throttled.setdefault(throttle.key, {})[job.id] = None
            else:
                self._through.setdefault(throttle.key, {})[job.id] = throttle.weight

    def _reconsider_job(self, waiting: _Waiting) -> Iterator[Event]:
        self._pass_throttles(waiting)
        if waiting.reason:
            yield Held(waiting.job.id, waiting.reason)
        else:
            del self._waiting[waiting.job.id]
            yield Released(waiting.job.id)

    def due(self, now: Seconds) -> Iterator[Event]:
        """Jobs whose moment has come."""
        looks = False
        while self.gates and self.gates[0][0] <= now:
            _, job = heapq.heappop(self.gates)
            if job == _HOURS:
                looks = True
                continue
            waiting = self._waiting.get(job)
            # Moments in the heap may be out of date: the job's own one decides.
            if waiting is not None and waiting.until is not None and waiting.until <= now:
                waiting.until = None
                yield from self._reconsider_job(waiting)
        if looks:
            yield from self._look_at_hours()

    def begun(self, job: JobId, now: Seconds) -> bool:
        """The job has started; whether others wait for that, which are then `due`."""
        waits = False
        for dependent in self._dependents.get(job, ()):
            waiting = self._waiting.get(dependent)
            if waiting is None or not any(d.job == job and d.kind == "after" for d in waiting.depends):
                continue
            self._settle_dependency(waiting, job, None, now)
            # Through the heap, so it is let go at the next instant: a start is ordered in the middle of one.
            if waiting.until is None:
                waiting.until = now
                heapq.heappush(self.gates, (now, dependent))
            waits = True
        return waits

    # On a trial copy, since settling changes a job's dependencies.
    def why_never(self, job: Job, now: Seconds) -> str:
        """Why a job could never start that waited for what this one depends on; empty where it could."""
        trial = _Waiting(job, depends=list(job.depends))
        for other in dict.fromkeys(depends.job for depends in job.depends):
            state = self._state_of(other)
            broken = None if state is None else self._settle_dependency(trial, other, state, now)
            if broken is not None:
                return _explain_broken_dependency(broken, state)
        # A chain of dependencies must not lead back: nothing in it would ever start.
        seen: set[JobId] = set()
        left = [one.job for one in trial.depends]
        while left:
            other = left.pop()
            if other == job.id:
                return "it would wait for itself"
            if other not in seen and other in self._waiting:
                seen.add(other)
                left += [one.job for one in self._waiting[other].depends]
        return ""

    def changed(self, before: Job, job: Job, now: Seconds, epoch: Seconds) -> Iterator[Event]:
        """A waiting job is another one from now on: what holds it back may be something else."""
        same = job.depends == before.depends and job.begin == before.begin
        if same and job.throttles == before.throttles:
            if job.id in self._waiting:
                self._waiting[job.id].job = job
            if self.hours is not None and job.walltime != before.walltime and not self._has_begun(job.id):
                yield from self._change_claim(job)
            return
        waiting = self._waiting.get(job.id)
        if waiting is None:
            waiting = self._waiting[job.id] = _Waiting(job)
        waiting.job, waiting.throttled = job, False
        if not same:
            self._depend_on_others(waiting, now, epoch)
        # Its old places are given on after it has taken its new ones: it goes first where both are one.
        freed = list(self._free_throttles(before))
        if self.hours is not None:
            self.hours.drop(job.id)
        yield from self._reconsider_job(waiting)
        yield from freed

    def _depend_on_others(self, waiting: _Waiting, now: Seconds, epoch: Seconds) -> None:
        """A job waits for what it depends on now, and for nothing that it did before."""
        job = waiting.job
        for one in waiting.depends:
            if job.id in self._dependents.get(one.job, ()):
                self._dependents[one.job].remove(job.id)
        waiting.until = None
        if job.begin is not None:
            self._wait_until(waiting, job.begin - epoch, now)
        waiting.depends = list(job.depends)
        for other in dict.fromkeys(depends.job for depends in job.depends):
            state = self._state_of(other)
            if state is not None or self._has_begun(other):
                self._settle_dependency(waiting, other, state, now)
        for depends in waiting.depends:
            self._dependents.setdefault(depends.job, []).append(job.id)

    def ended(self, job: Job, state: State, now: Seconds = 0.0) -> Iterator[Event]:
        """The job has ended for good: who waited for it may go, or never will."""
        self._waiting.pop(job.id, None)
        for dependent in self._dependents.pop(job.id, ()):
            waiting = self._waiting.get(dependent)
            if waiting is None:
                continue
            broken = self._settle_dependency(waiting, job.id, state, now)
            if broken is not None:
                yield Cancelled(dependent, _explain_broken_dependency(broken, state))
                # Depth first: a cancelled job's own dependents are lost with it, at the same instant.
                yield from self.ended(waiting.job, State.CANCELLED, now)
                continue
            if not waiting.depends:
                yield from self._reconsider_job(waiting)
        yield from self._free_throttles(job)
        yield from self._give_back_hours(job.id)

    def _free_throttles(self, job: Job) -> Iterator[Event]:
        """Give the job's places behind its throttles to those who wait for them, in order."""
        for throttle in job.throttles:
            self._throttled.get(throttle.key, {}).pop(job.id, None)
            through = self._through.get(throttle.key)
            if through is None or job.id not in through:
                continue
            del through[job.id]
            if not through:
                del self._through[throttle.key]
            for waiter in list(self._throttled.get(throttle.key, ())):
                waiting = self._waiting[waiter]
                # In order of submission, and stop at the first without room: a small job must not pass a
                # large one for ever.
                if not all(self._has_room(one) for one in waiting.job.throttles if one.key == throttle.key):
                    break
                for other in waiting.job.throttles:
                    self._throttled.get(other.key, {}).pop(waiter, None)
                waiting.throttled = False
                yield from self._reconsider_job(waiting)

    def hold(self, job: Job) -> Iterator[Event]:
        """A person holds a waiting job back."""
        waiting = self._waiting.get(job.id)
        if waiting is None:
            waiting = self._waiting[job.id] = _Waiting(job)
        waiting.by_user = True
        yield Held(job.id, HELD)
        # A held job gives its place behind a throttle away, or it would block others while a person thinks.
        yield from self._free_throttles(job)
        yield from self._give_back_hours(job.id)

    # ------------------------------------------------------------------ GPU hours

    def run_started(self, placed: Placed, now: Seconds, since: Seconds | None = None) -> None:
        """The job runs, for all we know ``since`` a moment before: its user's hours are charged."""
        if self.hours is not None:
            user = self.hours.started(placed, now, since)
            if user is not None:
                self._look_again(user)

    def run_stopped(self, job: JobId, at: Seconds) -> None:
        """The job runs no more, for the time being or for good."""
        if self.hours is not None:
            self.hours.stopped(job, at)

    def run_updated(self, job: Job) -> None:
        """A job that runs may take longer, or less long, than before."""
        if self.hours is not None:
            self.hours.change_claim(job)
            self._look_again(job.user or "")

    def _look_again(self, user: str) -> None:
        assert self.hours is not None
        moment = self.hours.next_look(user, self._now)
        # A look before it finds the later one by itself.
        if moment < self._looks.get(user, INFINITE):
            self._looks[user] = moment
            heapq.heappush(self.gates, (moment, _HOURS))

    def _give_back_hours(self, job: JobId) -> Iterator[Event]:
        """The job claims no hours any more: who waits for hours of its user may have room."""
        user = None if self.hours is None else self.hours.drop(job)
        if user is not None:
            yield from self._let_into_hours(user)

    def _change_claim(self, job: Job) -> Iterator[Event]:
        """A waiting job claims as many hours as it takes from now on, and may have to wait for them."""
        assert self.hours is not None
        waiting = self._waiting.get(job.id)
        if waiting is not None and not waiting.spent:
            return  # something else holds it back, and it claims nothing yet
        user = self.hours.drop(job.id)
        if user is None:
            return
        if self.hours.admits(job, self._now) and waiting is None:
            self.hours.admit(job)
        elif waiting is None:
            yield from self._hold_for_hours(job)
        else:
            self.hours.wait(job)
        yield from self._let_into_hours(user)

    def _hold_for_hours(self, job: Job) -> Iterator[Event]:
        """A job that was let through waits for hours, before those of its user that do."""
        assert self.hours is not None
        self._waiting[job.id] = _Waiting(job, spent=True)
        self.hours.wait_first(job)
        yield Held(job.id, GPU_HOURS)
        yield from self._free_throttles(job)

    def _let_into_hours(self, user: str) -> Iterator[Event]:
        """Jobs of the user that wait for hours and have room, in order."""
        hours = self.hours
        assert hours is not None
        while (job := hours.next_waiting(user, self._now)) is not None:
            waiting = self._waiting.get(job)
            hours.drop(job)
            if waiting is not None and waiting.spent:
                waiting.spent = False
                yield from self._reconsider_job(waiting)
        self._look_again(user)

    def _look_at_hours(self) -> Iterator[Event]:
        """Time has passed: hours have come back, or jobs have outrun what they claimed."""
        hours = self.hours
        assert hours is not None
        self._looks = {user: moment for user, moment in self._looks.items() if moment > self._now}
        for user in hours.users:
            for job in list(hours.put_back(user, self._now)):
                found = self._job_of(job)
                if found is not None:
                    yield from self._hold_for_hours(found)
            yield from self._let_into_hours(user)

    def release(self, job: JobId) -> Iterator[Event]:
        """That hold is over; other reasons may remain."""
        waiting = self._waiting.get(job)
        if waiting is not None and waiting.by_user:
            waiting.by_user = False
            yield from self._reconsider_job(waiting)


def _is_broken_dependency(depends: Dependency, state: State) -> bool:
    completed = state is State.COMPLETED
    return (depends.kind == "afterok" and not completed) or (depends.kind == "afternotok" and completed)


def _explain_broken_dependency(depends: Dependency, state: State | None) -> str:
    return f"{depends} cannot come true: that job is {state}"
