"""Who may be seen by the policy: dependencies, holds, throttles. Every policy works with all of them.

A waiting job that may not start yet is held: it is in no queue, and its reason is on record. Nothing here
knows a time; what changes comes as events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field, replace

from dovetail.model import Cancelled, Dependency, Event, Held, Job, JobId, Released, State, Submitted
from dovetail.records import dataclass

HELD = "held"
"""Why a job waits that its user holds back."""


@dataclass(slots=True)
class _Waiting:
    """A job that is held back, and by what."""

    job: Job
    depends: list[Dependency] = field(default_factory=list)
    by_user: bool = False
    throttled: bool = False

    @property
    def reason(self) -> str:
        if self.by_user:
            return HELD
        if self.depends:
            return "depends on " + ", ".join(map(str, self.depends))
        return "throttled" if self.throttled else ""


class Admission:
    """Turns submissions, ends, holds and releases into the events that the engine gets.

    ``state_of`` tells the final state of a job that ended before, ``None`` where it has not ended (or will
    start again). A dependency that cannot come true cancels the job.
    """

    def __init__(self, state_of: Callable[[JobId], State | None]) -> None:
        self._state_of = state_of
        self._never: set[JobId] = set()  # came in at this instant, and can never start
        self._waiting: dict[JobId, _Waiting] = {}
        self._dependents: dict[JobId, list[JobId]] = {}
        self._through: dict[str, set[JobId]] = {}  # by key of a throttle
        self._throttled: dict[str, dict[JobId, None]] = {}  # in order of submission

    def begin(self) -> None:
        """A new instant: what became of the jobs of the last one is known to ``state_of``."""
        self._never.clear()

    def submitted(self, event: Submitted) -> Iterator[Event]:
        """The submission as the engine is to see it; and a cancellation where it can never start."""
        job = event.job
        if not (job.depends or job.throttles or event.held):
            yield event
            return
        waiting = _Waiting(job, by_user=bool(event.held))
        for depends in job.depends:
            state = State.CANCELLED if depends.job in self._never else self._state_of(depends.job)
            if state is None:
                waiting.depends.append(depends)
                self._dependents.setdefault(depends.job, []).append(job.id)
            elif _broken(depends, state):
                yield replace(event, held=str(depends))
                yield Cancelled(job.id, _why(depends, state))
                self._never.add(job.id)
                yield from self.ended(job, State.CANCELLED)  # who waits for it may have come before it
                return
        self._throttle(waiting)
        if waiting.reason:
            self._waiting[job.id] = waiting
        yield event if waiting.by_user or not waiting.reason else replace(event, held=waiting.reason)

    def again(self, job: Job) -> Iterator[Event]:
        """A job that had ended for good is to run once more: behind its throttles again."""
        waiting = _Waiting(job)
        self._throttle(waiting)
        if waiting.reason:
            self._waiting[job.id] = waiting
            yield Held(job.id, waiting.reason)

    def adopted(self, job: Job) -> None:
        """A job that runs already takes its places among the throttled."""
        for throttle in job.throttles:
            self._through.setdefault(throttle.key, set()).add(job.id)

    def _throttle(self, waiting: _Waiting) -> None:
        """Let the job through its throttles if nothing else holds it and all of them have room."""
        job = waiting.job
        if not job.throttles or waiting.by_user or waiting.depends:
            return
        through = self._through
        waiting.throttled = any(len(through.get(t.key, ())) >= t.limit for t in job.throttles)
        for throttle in job.throttles:
            if waiting.throttled:
                self._throttled.setdefault(throttle.key, {})[job.id] = None
            else:
                through.setdefault(throttle.key, set()).add(job.id)

    def _reconsider(self, waiting: _Waiting) -> Iterator[Event]:
        self._throttle(waiting)
        if waiting.reason:
            yield Held(waiting.job.id, waiting.reason)
        else:
            del self._waiting[waiting.job.id]
            yield Released(waiting.job.id)

    def ended(self, job: Job, state: State) -> Iterator[Event]:
        """The job has ended for good: who waited for it may go, or never will."""
        self._waiting.pop(job.id, None)
        for dependent in self._dependents.pop(job.id, ()):
            waiting = self._waiting.get(dependent)
            if waiting is None:
                continue
            broken = [d for d in waiting.depends if d.job == job.id and _broken(d, state)]
            if broken:
                yield Cancelled(dependent, _why(broken[0], state))
                yield from self.ended(waiting.job, State.CANCELLED)
                continue
            waiting.depends = [d for d in waiting.depends if d.job != job.id]
            if not waiting.depends:
                yield from self._reconsider(waiting)
        yield from self._free(job)

    def _free(self, job: Job) -> Iterator[Event]:
        """Give the job's places behind its throttles to those who wait for them, in order."""
        for throttle in job.throttles:
            self._throttled.get(throttle.key, {}).pop(job.id, None)
            through = self._through.get(throttle.key)
            if through is None or job.id not in through:
                continue
            through.discard(job.id)
            if not through:
                del self._through[throttle.key]
            for waiter in list(self._throttled.get(throttle.key, ())):
                if len(self._through.get(throttle.key, ())) >= throttle.limit:
                    break
                waiting = self._waiting[waiter]
                for other in waiting.job.throttles:
                    self._throttled.get(other.key, {}).pop(waiter, None)
                waiting.throttled = False
                yield from self._reconsider(waiting)

    def hold(self, job: Job) -> Iterator[Event]:
        """Somebody holds a waiting job back."""
        waiting = self._waiting.get(job.id)
        if waiting is None:
            waiting = self._waiting[job.id] = _Waiting(job)
        waiting.by_user = True
        yield Held(job.id, HELD)
        yield from self._free(job)

    def release(self, job: JobId) -> Iterator[Event]:
        """That hold is over; other reasons may remain."""
        waiting = self._waiting.get(job)
        if waiting is not None and waiting.by_user:
            waiting.by_user = False
            yield from self._reconsider(waiting)


def _broken(depends: Dependency, state: State) -> bool:
    completed = state is State.COMPLETED
    return (depends.kind == "afterok" and not completed) or (depends.kind == "afternotok" and completed)


def _why(depends: Dependency, state: State) -> str:
    return f"{depends} cannot come true: that job is {state}"
