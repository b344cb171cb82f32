"""When jobs that run are to be signalled and killed, and when they really began and ended."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from dovetail.engine.state.books import Books
from dovetail.model import Ended, Event, Job, JobId, Placed, Seconds, Started

INFINITE = float("inf")


class Deadlines:
    """The walltimes of running jobs, and the signals that they requested before them.

    ``kill``: whether jobs are killed at their walltime at all; ``default`` is that of jobs without one.
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

    def forget_job(self, job: JobId) -> None:
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
    """Puts the moments on record at which jobs really began and ended, where their backend measures them.

    Between a decision and its process, and between an end and the driver's next instant, pass
    milliseconds, on a busy machine many: a run time is the process's own, without that latency. Where
    nothing is measured a job begins when that is decided, and ends when the driver takes its end in.
    """

    def __init__(self, books: Books) -> None:
        self._books = books

    def started(self, event: Started, now: Seconds, epoch: Seconds) -> Started:
        """A start by an outside scheduler, at its moment; ``epoch`` is the wall-clock time of time 0."""
        if event.started_at is None or event.job not in self._books.handed_over:
            return event
        return replace(event, at=min(now, max(0.0, event.started_at - epoch)))

    def ended(self, events: Sequence[Event], now: Seconds, epoch: Seconds) -> None:
        """Put the moments of ends that the engine has taken in on record."""
        for event in events:
            if not isinstance(event, Ended) or event.ended_at is None:
                continue
            record = self._books.records.get(event.job)
            if record is None:
                continue
            if record.end is not None and record.start is not None:
                moved = record.since  # a job that has moved began at its first place: that start stays
                if moved is not None:
                    record.end = max(moved, _clip_to_events(record.start, now, event, epoch)[1])
                else:
                    record.start, record.end = _clip_to_events(record.start, now, event, epoch)
            elif record.earlier and record.earlier[-1].end == now:  # it is to be tried again already
                *before, span = record.earlier
                if not (before and before[-1].state is None):
                    start, end = _clip_to_events(span.start, now, event, epoch)
                    record.earlier = (*before, replace(span, start=start, end=end))


def _clip_to_events(
    earliest: Seconds, latest: Seconds, event: Ended, epoch: Seconds
) -> tuple[Seconds, Seconds]:
    """When a job began and ended, after the decision to start it and before its end was taken in.

    The clock may be another machine's, or have been set meanwhile: then the run time counts, which is a
    difference, and the moments are shifted as little as that takes.
    """
    assert event.ended_at is not None
    end = event.ended_at - epoch
    if event.started_at is None:
        return earliest, max(earliest, min(latest, end))
    start = event.started_at - epoch
    if earliest <= start <= end <= latest:  # as it mostly is: no sum, so that who follows begins no earlier
        return start, end
    took = max(0.0, event.ended_at - event.started_at)
    start = max(earliest, min(latest, end) - took)
    return start, min(latest, start + took)
