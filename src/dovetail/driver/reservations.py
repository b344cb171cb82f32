"""Which waiting jobs stay off what is reserved: those of others that may still run when the time has come.

Before its start a reservation costs little: a job of another user may use the devices as long as it will
have ended by then. That is known of a job with a walltime, and expected by the prediction's upper bound of
one without. Of which nothing is known it stays off for `LEAD` before the start.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf

from dovetail.engine.state.books import Books
from dovetail.model import (
    Adopted,
    Ended,
    Event,
    Job,
    JobId,
    KeptOff,
    Requeued,
    Reservation,
    Reserved,
    Seconds,
    Updated,
    Withdrawn,
    avoids_of,
)

LEAD: Seconds = 12 * 3600.0
"""So long before a reservation no job starts on its devices of which it is not known how long it takes."""
MOST_RESERVATIONS = 63
"""Reservations that there may be at once: each has a bit."""


class Reservations:
    """The reservations of a run, and the moments at which waiting jobs come under them.

    ``limit`` is a job's walltime, or what stands for it; infinite: none.
    """

    def __init__(self, books: Books, limit: Callable[[Job], Seconds]) -> None:
        self._books, self._limit = books, limit
        self.known: tuple[Reservation, ...] = ()
        self.used = False
        """Whether there is one, or was: jobs that wait may have to be looked at."""
        self._renewed = False
        self._moments: list[tuple[Seconds, JobId]] = []  # a heap; some of them are out of date
        self._unlimited: dict[str, dict[JobId, None]] = {}  # by app: the end of a run makes them predictable

    def renew(self, event: Reserved) -> None:
        """These are all that there are from now on."""
        self.known, self.used, self._renewed = event.reservations, True, True

    def next_time(self) -> Seconds:
        """When the next one is over; infinite where there is none."""
        return min((one.end for one in self.known), default=inf)

    def over(self, now: Seconds, events: Sequence[Event] = ()) -> Iterator[Event]:
        """What is left of them, where one is over by now and no event has reported it."""
        if self.known and self.next_time() <= now and not any(isinstance(one, Reserved) for one in events):
            yield Reserved(tuple(one for one in self.known if one.end > now))

    def due(self, batch: Sequence[Event], new: Mapping[JobId, Job], now: Seconds) -> Iterator[KeptOff]:
        """Waiting jobs that are to stay off other reservations than before; ``new`` ones come in now.

        O(waiting jobs) where reservations have changed, else O(jobs to which something happens).
        """
        books = self._books
        jobs: dict[JobId, Job] = {}
        if self._renewed:
            self._renewed = False
            self._moments.clear()
            self._unlimited.clear()
            jobs |= {job.id: job for job in self._waiting()}
        names = list(self._moved(batch))
        while self._moments and self._moments[0][0] <= now:
            names.append(heapq.heappop(self._moments)[1])
        for name in names:
            if name in books.records:
                jobs[name] = books.records[name].job
        jobs |= new
        jobs |= {event.job: event.into for event in batch if isinstance(event, Updated)}
        runs = {event.job for event in batch if isinstance(event, Adopted)}
        of_nodes = any(one.nodes for one in self.known)
        for job in jobs.values():
            if job.foreign or job.id in runs:
                continue
            if not of_nodes and not any(choice.request.devices for choice in job.choices):
                if avoids_of(job):
                    yield KeptOff(job.id, 0)
                continue
            wanted = self._avoids(job, now)
            if wanted != avoids_of(job):
                yield KeptOff(job.id, wanted)

    def _waiting(self) -> Iterable[Job]:
        books = self._books
        yield from books.queue
        for fifo in books.device_queues.values():
            yield from (job for job, _ in fifo)
        yield from (books.records[job].job for job in books.held)

    def _moved(self, batch: Sequence[Event]) -> Iterator[JobId]:
        """Jobs that wait again, and those of apps of which a run has just ended."""
        for event in batch:
            if isinstance(event, Requeued | Withdrawn):
                yield event.job
            elif isinstance(event, Ended) and self._unlimited:
                record = self._books.records.get(event.job)
                if record is not None:
                    yield from self._unlimited.pop(record.job.app.name, ())

    def _avoids(self, job: Job, now: Seconds) -> int:
        """The reservations that the job stays off now; when that changes is noted."""
        found, following = 0, inf
        takes: Seconds | None = None
        for one in self.known:
            if job.user in one.users or now >= one.end:
                continue
            if takes is None:
                takes = self._takes(job)
            found |= one.planned
            if now + takes > one.start:
                found |= one.mask
            else:
                following = min(following, one.start - takes)
        if following < inf:
            heapq.heappush(self._moments, (following, job.id))
        return found

    def length_of(self, job: Job) -> Seconds | None:
        """How long the job takes at most: its limit, else the prediction's upper bound; ``None``: unknown."""
        limit = self._limit(job)
        if limit < inf:
            return limit
        books, longest = self._books, 0.0
        for choice in job.choices:
            uses = choice.request.devices or any(one.nodes for one in self.known)
            for device in books.classes_of(choice, None) if uses else ():
                # The model itself: what a policy has been given is on record, and this is no answer to it.
                known = books.predictions.model.predict(job, choice.implementation, choice.request, device)
                if known is None or known.upper == inf:
                    return None
                longest = max(longest, known.upper)
        return longest or None

    def _takes(self, job: Job) -> Seconds:
        """How long the job may hold a device: what it takes at most, or `LEAD` where that is unknown."""
        if self._limit(job) == inf:
            self._unlimited.setdefault(job.app.name, {})[job.id] = None
        length = self.length_of(job)
        return LEAD if length is None else length
