"""The queue of waiting jobs, kept in every order that a policy has asked for."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from dovetail.model import Job, JobId, Request, Seconds

__all__ = ["JobQueue"]


class _Ordered(Sequence[Job]):
    """A read-only, always current sequence of the waiting jobs in one order."""

    __slots__ = ("_entries",)

    def __init__(self, entries: list[tuple[Any, int, Job]]) -> None:
        self._entries = entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Job]:
        for entry in self._entries:
            yield entry[2]

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        if isinstance(index, slice):
            return [entry[2] for entry in self._entries[index]]
        return self._entries[index][2]


class JobQueue:
    """Waiting jobs; implements `dovetail.interfaces.Queue`.

    Every order is a sorted list: a change costs a binary search and a move of pointers. Jobs keep the
    place of their first submission, so that a dequeued job comes back where it was. ``limit`` gives the
    upper bound of a job's run time.
    """

    def __init__(self, limit: Callable[[Job], Seconds]) -> None:
        self._place: dict[JobId, int] = {}  # every job ever submitted
        self._waiting: list[tuple[int, Job]] = []
        self._inside: set[JobId] = set()
        self._orders: dict[Callable[..., Any], list[tuple[Any, int, Job]]] = {}
        self._bounded: set[Callable[..., Any]] = set()
        self._limit = limit
        self._requests: dict[Request, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Job]:
        for _, job in self._waiting:
            yield job

    def __contains__(self, job: object) -> bool:
        return (job.id if isinstance(job, Job) else job) in self._inside

    def add(self, job: Job) -> None:
        """Put a job at the end, or back at its old place."""
        place = self._place.setdefault(job.id, len(self._place))
        waiting = self._waiting
        if not waiting or place > waiting[-1][0]:
            waiting.append((place, job))
        else:
            waiting.insert(bisect_left(waiting, place, key=_place_of), (place, job))
        self._inside.add(job.id)
        for key, entries in self._orders.items():
            entry = (self._key(key, job), place, job)
            if not entries or entry > entries[-1]:
                entries.append(entry)
            else:
                insort(entries, entry)
        for choice in job.choices:
            self._requests[choice.request] = self._requests.get(choice.request, 0) + 1

    def remove(self, job: Job) -> None:
        """Take a waiting job out."""
        place = self._place[job.id]
        waiting = self._waiting
        at = 0 if waiting[0][0] == place else bisect_left(waiting, place, key=_place_of)
        del waiting[at]
        self._inside.remove(job.id)
        for key, entries in self._orders.items():
            if entries[0][1] == place:
                del entries[0]
            else:
                del entries[bisect_left(entries, (self._key(key, job), place))]
        for choice in job.choices:
            left = self._requests[choice.request] - 1
            if left:
                self._requests[choice.request] = left
            else:
                del self._requests[choice.request]

    def _key(self, key: Callable[..., Any], job: Job) -> Any:
        return key(job, self._limit(job)) if key in self._bounded else key(job)

    def by(self, key: Callable[..., Any], *, bounded: bool = False) -> Sequence[Job]:
        """The waiting jobs by ascending key, then submission; kept up to date from the first call on."""
        entries = self._orders.get(key)
        if entries is None:
            if bounded:
                self._bounded.add(key)
            entries = sorted((self._key(key, job), place, job) for place, job in self._waiting)
            self._orders[key] = entries
        return _Ordered(entries)

    def requests(self) -> Mapping[Request, int]:
        """How many waiting jobs ask for each request."""
        return self._requests


def _place_of(entry: tuple[int, Job]) -> int:
    return entry[0]
