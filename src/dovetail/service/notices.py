"""Hooks of jobs that begin, end, fail or go back to the queue.

`Notices` turns what the driver has done into events, and gives each subscription those that it wants.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, get_args

from dovetail.driver.driver import Driver, Turn
from dovetail.model import EMPTY, JobId, Record, Seconds, State
from dovetail.records import dataclass
from dovetail.service.hooks import EventName, Hook, Hooks, JobEvent
from dovetail.service.rows import Row

PARTS: Mapping[EventName, float] = {"TIME_LIMIT_50": 0.5, "TIME_LIMIT_80": 0.8, "TIME_LIMIT_90": 0.9}
"""Parts of the walltime that have passed."""
OF_TURNS: Mapping[Turn, EventName] = {"begun": "BEGIN", "requeued": "REQUEUE"}
SUCCEEDED = (State.COMPLETED, State.CANCELLED)
assert set(PARTS) < set(get_args(EventName))


@dataclass(frozen=True, slots=True)
class Wanted:
    """An event as a subscription wants it: what it is called there, and what its document has besides.

    ``hook`` is the job's own, where the subscription has none.
    """

    event: EventName
    more: Mapping[str, Any] = field(default_factory=dict)
    hook: Hook | None = None


Wants = Callable[[Record, EventName], Wanted | None]


@dataclass(frozen=True, slots=True)
class Subscription:
    """A hook, and which events of which jobs it wants; of parts of a walltime it is called twice.

    Without a hook each event goes to that of its job (`Wanted.hook`).
    """

    hook: Hook | None
    wants: Wants


class Notices:
    """Events of a service's jobs. Without a subscription it costs nothing; it never waits."""

    def __init__(self, driver: Driver, row_of: Callable[[Record], Row]) -> None:
        self._driver, self._row_of = driver, row_of
        self._hooks = Hooks()
        # Apart, so that jobs' own hooks that hang hold up no hook of the site.
        self._hooks_of_jobs = Hooks()
        self._subscriptions: list[Subscription] = []
        self._timers: dict[JobId, list[asyncio.TimerHandle]] = {}

    def add_subscription(self, subscription: Subscription) -> None:
        """Deliver events to a hook from now on."""
        self._subscriptions.append(subscription)
        if self._driver.turns is None:
            self._driver.turns = []

    def close(self) -> None:
        """Deliver what waits, within a few seconds."""
        for timers in self._timers.values():
            for timer in timers:
                timer.cancel()
        self._timers.clear()
        self._hooks.close()
        self._hooks_of_jobs.close()

    def changed(self, ended: Sequence[Record], now: Seconds) -> None:
        """After an instant: events of what it has brought, first of what has begun, then of what ended."""
        if not self._subscriptions:
            return
        turns, self._driver.turns = self._driver.turns or [], []
        records = self._driver.engine.records
        for turn, job in turns:
            record = records.get(job)
            if record is None or record.job.foreign:
                continue
            if turn in OF_TURNS:
                self._post_event(record, OF_TURNS[turn])
            if turn == "requeued":
                self._cancel_timers(job)
            else:
                self._set_walltime_timers(record, now)
        for record in ended:
            if not record.job.foreign:
                self._cancel_timers(record.job.id)
                self._post_end(record)

    def _post_end(self, record: Record) -> None:
        if record.state is State.TIMEOUT:
            self._post_event(record, "TIME_LIMIT")
        self._post_event(record, "END" if record.state in SUCCEEDED else "FAIL")

    def idle(self, job: JobId, device: str, seconds: Seconds) -> None:
        """A job holds a device that it has not used for so long; nothing is done about it."""
        record = self._driver.engine.records.get(job)
        if record is not None and record.state is State.RUNNING:
            self._post_event(record, "GPU_IDLE", {"idle": {"device": device, "seconds": round(seconds)}})

    def _post_event(self, record: Record, event: EventName, about: Mapping[str, Any] = EMPTY) -> None:
        found = [(one.hook, one.wants(record, event)) for one in self._subscriptions]
        wanted = [(hook, one) for hook, one in found if one is not None]
        if wanted:
            row = self._row_of(record)
            for hook, one in wanted:
                found_event = JobEvent(one.event, row, time.time(), {**one.more, **about})
                if hook is not None:
                    self._hooks.post_event(hook, found_event)
                elif one.hook is not None:
                    self._hooks_of_jobs.post_event(one.hook, found_event)

    # ------------------------------------------------------------------------- parts of a walltime

    def _set_walltime_timers(self, record: Record, now: Seconds) -> None:
        """Set a timer for each part of the walltime for which an event is wanted."""
        job, began = record.job, record.start
        self._cancel_timers(job.id)
        if job.walltime is None or began is None:
            return
        loop = asyncio.get_running_loop()
        for event, part in PARTS.items():
            left = began + part * job.walltime - now
            if left > 0 and any(one.wants(record, event) is not None for one in self._subscriptions):
                timer = loop.call_later(left, self._post_walltime_part, job.id, record.attempts, event)
                self._timers.setdefault(job.id, []).append(timer)

    def _post_walltime_part(self, job: JobId, attempt: int, event: EventName) -> None:
        record = self._driver.engine.records.get(job)
        if record is not None and record.state is State.RUNNING and record.attempts == attempt:
            self._post_event(record, event)

    def _cancel_timers(self, job: JobId) -> None:
        for timer in self._timers.pop(job, ()):
            timer.cancel()
