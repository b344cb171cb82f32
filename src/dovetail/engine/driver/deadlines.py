"""When jobs that run are to be signalled and killed."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping

from dovetail.model import Job, JobId, Placed, Seconds

__all__ = ["Deadlines"]

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

    def watch(self, placed: Placed, since: Seconds) -> None:
        """A job has begun."""
        limit, launch = self.limit(placed.job), placed.job.launch
        if limit == INFINITE:
            return
        end = since + limit
        heapq.heappush(self._heap, (end, placed.job.id, placed.attempt, 0))
        if launch is not None and launch.signal is not None:
            notice = max(since, end - launch.notice)
            heapq.heappush(self._heap, (notice, placed.job.id, placed.attempt, launch.signal))

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
