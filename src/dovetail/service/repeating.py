"""Jobs that run again and again: each run submits the next one when it starts, so a chain survives a kill.

The next run is a job of its own. It begins a whole number of periods after this one was to begin, and not
before this one has ended; periods that have passed meanwhile are left out. Cancelling a run that has not
started ends the chain; cancelling one that runs also cancels the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from dovetail.engine.state.core import Engine
from dovetail.errors import InputError
from dovetail.model import Dependency, Job, JobId, Seconds
from dovetail.model.job import TURN

EVERY = "every"
"""The option of a job that has its period in seconds."""
FOLLOWS = "follows"
"""The option of a next run that names the run before it."""
LEAST = 1.0
"""Seconds of a period."""
MOST = 1000
"""Chains of one queue: each is looked at after every instant."""


def check_period(every: float | None, array: str | None, where: str) -> None:
    """Refuse what cannot be repeated. Raises `InputError`."""
    if every is None:
        return
    if every < LEAST:
        raise InputError(f"every: found {every:g} s, expected at least {LEAST:g} s", where=where)
    if array is not None:
        raise InputError("every: found an array, expected one job that runs again", where=where)


def next_begin(job: Job, now: Seconds, epoch: Seconds) -> Seconds:
    """When the next run begins, in seconds since the epoch: the first whole period after ``now`` (likewise).

    >>> from dovetail.testing.builders import rigid
    >>> daily = replace(rigid([(0.0, 1, 1.0, None)]).jobs[0], options={"every": 100.0}, begin=1000.0)
    >>> next_begin(daily, 1003.0, 0.0), next_begin(daily, 1250.0, 0.0)
    (1100.0, 1300.0)
    """
    every = float(job.options[EVERY])
    planned = epoch + job.submit_time if job.begin is None else job.begin
    # By whole periods from the planned time, not from now: the hour of a nightly job must not drift.
    return planned + every * (math.floor(max(0.0, now - planned) / every) + 1)


class RepeatingJobs:
    """The last runs of all chains, of which the next is not submitted yet."""

    def __init__(self, has_next: Callable[[JobId], bool]) -> None:
        self._has_next = has_next  # whether the ledger has a job that follows this one
        self._last: set[JobId] = set()
        self._next: dict[JobId, JobId] = {}

    def __len__(self) -> int:
        return len(self._last)

    def add(self, jobs: Iterable[Job], *, known: bool = False) -> None:
        """Jobs come in; ``known``: an earlier service had them, and may have submitted their next runs."""
        for job in jobs:
            if EVERY not in job.options:
                continue
            if FOLLOWS in job.options:
                self._next[str(job.options[FOLLOWS])] = job.id
            if not (known and self._has_next(job.id)):
                self._last.add(job.id)

    def started(self, engine: Engine) -> Iterator[Job]:
        """The runs that have started, whose next ones are due to be submitted. O(chains)."""
        for id in list(self._last):
            record = engine.records.get(id)
            if record is None:
                continue  # it is still to be taken in
            # By attempts, not by state: a run may have started and ended between two looks.
            if record.attempts:
                yield record.job if record.end is not None else engine.choices.whole(id)
            elif record.end is not None:  # it was cancelled before it ran: the chain has ended
                self._last.discard(id)

    def next_run(self, job: Job, into: JobId, now: Seconds, epoch: Seconds) -> Job:
        """The next run of a job, with the id ``into``, submitted ``now`` by the driver's clock."""
        # Its turn was a place among jobs that have started since.
        kept = {name: value for name, value in job.options.items() if name != TURN}
        return replace(
            job,
            id=into,
            submit_time=now,
            begin=next_begin(job, epoch + now, epoch),
            depends=(Dependency("afterany", job.id),),
            options={**kept, FOLLOWS: job.id},
        )

    def done(self, job: JobId, into: JobId) -> None:
        """The next run of a job is on record."""
        self._last.discard(job)
        self._last.add(into)
        self._next[job] = into

    def next_of(self, job: JobId) -> JobId | None:
        """The run that follows a job, as far as it is known here."""
        return self._next.get(job)

    def forget_job(self, job: JobId) -> None:
        """A job has left memory."""
        self._next.pop(job, None)
