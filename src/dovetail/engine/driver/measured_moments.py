"""Starts and ends that were measured where they happened, in a driver's time; news of them may come late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from dovetail.engine.state.books import Books
from dovetail.model import Ended, Event, JobId, Seconds, Started

__all__ = ["MeasuredMoments"]


class MeasuredMoments:
    """Jobs of which not the instant counts at which they were heard of, but when they began and ended.

    That are those which an outside scheduler starts, those that follow each other in one place, and those
    that were adopted: they may have ended before this driver was there to hear of it. All others begin when
    they are decided and end when they are heard of. ``epoch`` is the wall-clock time of time 0.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._jobs: set[JobId] = set()

    def add(self, jobs: Iterable[JobId]) -> None:
        """The moments of these are measured."""
        self._jobs.update(jobs)

    def discard(self, job: JobId) -> None:
        """It has not begun after all."""
        self._jobs.discard(job)

    def started(self, event: Started, now: Seconds, epoch: Seconds) -> Started:
        """A start by an outside scheduler, at its moment."""
        if event.started_at is None or event.job not in self._books.handed_over:
            return event
        self._jobs.add(event.job)
        return replace(event, at=min(now, max(0.0, event.started_at - epoch)))

    def ended(self, events: Sequence[Event], now: Seconds, epoch: Seconds) -> None:
        """Put the moments of ends that the engine has taken in on record."""
        for event in events if self._jobs else ():
            if not isinstance(event, Ended) or event.job not in self._jobs:
                continue
            self._jobs.discard(event.job)
            record = self._books.records[event.job]
            if event.ended_at is None or record.start is None or record.end is None:
                continue
            record.end = min(now, max(record.start, event.ended_at - epoch))
            if event.started_at is not None:
                record.start = min(record.end, max(record.start, event.started_at - epoch))
