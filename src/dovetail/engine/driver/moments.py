"""When jobs that run are to be signalled and killed, and when they really began and ended."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dovetail.engine.state.books import Books
from dovetail.model import Ended, Event, Job, JobId, Placed, Seconds, Started

INFINITE = float("inf")


class Deadlines:
    """The walltimes of running jobs, and the signals that they asked for before them.

    ``kill`` says whether jobs are killed at their walltime at all; ``default`` is that of jobs without one.
    """

    def __init__(self, *, kill: bool, default: Seconds | None) -> None:
        self._kill = kill
        self._default = default
        self._heap: list[tuple[Seconds, JobId, int, int]] = []  # attempt, signal (0: the end)

    def limit(self, job: Job) -> Seconds:
        """How long the job may run before it is killed; infinite where it is not."""
        if not self._kill:
            return INFINITE
        if job.walltime is not None:
            return job.walltime
        return INFINITE if self._default is None else self._default

    def watch(self, placed: Placed, since: Seconds, after: Seconds = -INFINITE) -> None:
        """A job has begun; nothing is due of it before a moment ``after`` this."""
        limit, launch = self.limit(placed.job), placed.job.launch
        if limit == INFINITE:
            return
        end = max(since + limit, math.nextafter(after, INFINITE))
        heapq.heappush(self._heap, (end, placed.job.id, placed.attempt, 0))
        if launch is not None and launch.signal is not None:
            notice = max(since, end - launch.notice, math.nextafter(after, INFINITE))
            heapq.heappush(self._heap, (notice, placed.job.id, placed.attempt, launch.signal))

    def forget(self, job: JobId) -> None:
        """Nothing is due of a job any more, until it is watched again. O(jobs that are watched)."""
        self._heap = [entry for entry in self._heap if entry[1] != job]
        heapq.heapify(self._heap)

    def next_time(self) -> Seconds:
        """When something is due; infinite if nothing is."""
        return self._heap[0][0] if self._heap else INFINITE

    def due(self, now: Seconds, running: Mapping[JobId, Placed]) -> Iterator[tuple[JobId, int]]:
        """Each running job to which something is to happen now: the number of the signal, 0 for its end."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, job, attempt, number = heapq.heappop(heap)
            placed = running.get(job)
            if placed is not None and placed.attempt == attempt:
                yield job, number


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
