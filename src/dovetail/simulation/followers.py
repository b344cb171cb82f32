"""Jobs that their user submits some time after the end of another one: the feedback of a log.

The Standard Workload Format calls these the preceding job and the think time (fields 17 and 18). A simulation
that ends the preceding job at another moment than the log moves the submission of the next one with it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf

from dovetail.model import Job, JobId, Record, Seconds, Workload


class Followers:
    """The jobs of a workload that wait for the end of another one before they are submitted at all."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._waiting: dict[JobId, list[tuple[Seconds, Job]]] = {}
        self._line: list[tuple[Seconds, int, Job]] = []
        self._there = {job.id for job in workload.jobs} if workload.follows else set()
        for job in workload.jobs if workload.follows else ():
            if self._is_follower(job):
                preceding, think = workload.follows[job.id]
                self._waiting.setdefault(preceding, []).append((think, job))

    def __bool__(self) -> bool:
        return bool(self._there)

    def _is_follower(self, job: Job) -> bool:
        return job.id in self._workload.follows and self._workload.follows[job.id][0] in self._there

    def iterate_leaders(self) -> Iterator[Job]:
        """The jobs that are submitted at their own time, in order."""
        return (job for job in self._workload.jobs if not self._is_follower(job))

    def ended(self, records: Iterable[Record], now: Seconds) -> None:
        """These have ended for good: the think times of their followers begin."""
        for record in records:
            for think, job in self._waiting.pop(record.job.id, ()):
                at = (now if record.end is None else record.end) + think
                heapq.heappush(self._line, (at, job.index, job))

    @property
    def next_time(self) -> Seconds:
        """When the next one is submitted; infinite while none is known."""
        return self._line[0][0] if self._line else inf

    def due(self, now: Seconds) -> Iterator[Job]:
        """Those that are submitted up to now, each with its own submit time."""
        while self._line and self._line[0][0] <= now:
            at, _, job = heapq.heappop(self._line)
            yield replace(job, submit_time=at)
