"""The queue of waiting jobs, kept in every order that a policy has used."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

from dovetail.engine.state.like_jobs import ByRequest, Entry
from dovetail.interfaces import Deadlines
from dovetail.model import Job, JobId, Request, Seconds

INFINITE = float("inf")

Key = Callable[..., Any]


class Line(Sequence[Job]):
    """Waiting jobs in one order: read-only for policies, always current.

    A sorted list of (key, place, job): a change costs a binary search and a move of pointers, and next
    to nothing at either end: jobs that left at the front are cut off now and then only.
    """

    __slots__ = ("_entries", "_gone")

    def __init__(self, entries: list[tuple[Any, float, Job]]) -> None:
        self._entries = entries
        self._gone = 0

    def __len__(self) -> int:
        return len(self._entries) - self._gone

    def __bool__(self) -> bool:
        return len(self._entries) > self._gone

    def __iter__(self) -> Iterator[Job]:
        entries = self._entries
        for at in range(self._gone, len(entries)):
            yield entries[at][2]

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        if isinstance(index, slice):
            entries, gone = self._entries, self._gone
            return [entries[gone + at][2] for at in range(*index.indices(len(self)))]
        at = index + self._gone if index >= 0 else index
        if at < self._gone and len(self) + index < 0:
            raise IndexError(index)
        return self._entries[at][2]

    def add(self, entry: tuple[Any, float, Job]) -> None:
        """Put an entry at its place."""
        entries = self._entries
        if not entries or entry > entries[-1]:
            entries.append(entry)
        else:
            insort(entries, entry, lo=self._gone)

    def remove_entry(self, key: Any, place: float) -> None:
        """Take an entry out."""
        entries, gone = self._entries, self._gone
        if entries[gone][1] != place:
            del entries[bisect_left(entries, (key, place), lo=gone)]
            return
        gone += 1
        if gone == len(entries):
            entries.clear()
            gone = 0
        elif gone > 64 and gone > len(entries) >> 1:
            del entries[:gone]
            gone = 0
        self._gone = gone

    def has_place(self, place: float) -> bool:
        """Whether the entry of that place is there, in a line whose keys are all the same."""
        at = bisect_left(self._entries, place, lo=self._gone, key=_place_of)
        return at < len(self._entries) and self._entries[at][1] == place

    def entries(self) -> Iterator[tuple[Any, float, Job]]:
        """All entries in order."""
        return iter(self._entries[self._gone :])


class _Order:
    """One order: its line, or the value that the key has had for every job since the queue was empty.

    As long as there is only one value (no priorities are set), the order is that of submission.
    """

    __slots__ = ("bounded", "by_request", "constant", "key", "line")

    def __init__(self, key: Key, bounded: bool) -> None:
        self.key = key
        self.bounded = bounded
        self.line: Line | None = None
        self.constant: Any = None
        self.by_request: ByRequest | None = None


class JobQueue:
    """Waiting jobs; implements `dovetail.interfaces.Queue`.

    Jobs keep the place of their first submission, so that a dequeued job comes back where it was.
    ``limit`` gives the upper bound of a job's run time.
    """

    def __init__(self, limit: Callable[[Job], Seconds]) -> None:
        self._place: dict[JobId, float] = {}  # of every job that is not forgotten
        self._places = 0
        self._line = Line([])
        self._orders: dict[Key, _Order] = {}
        self._alike: dict[Callable[[Job], Any], dict[Any, Line]] = {}
        self._requests: dict[Request, int] | None = None
        self._limit = limit

    def __len__(self) -> int:
        return len(self._line._entries) - self._line._gone

    def __bool__(self) -> bool:
        return len(self._line._entries) > self._line._gone

    def __iter__(self) -> Iterator[Job]:
        return iter(self._line)

    def __contains__(self, job: object) -> bool:
        place = self._place.get(job.id if isinstance(job, Job) else job)  # type: ignore[call-overload]
        return place is not None and self._line.has_place(place)

    def add(self, job: Job) -> None:
        """Put a job at the end, or back at its old place. O(log n) and a move of pointers for each order."""
        line, place = self._line, self._place.get(job.id)
        empty = len(line._entries) == line._gone
        if place is None:
            place = self._place[job.id] = self._places
            self._places += 1
        entry = (0, place, job)
        line.add(entry)
        for of, lines in self._alike.items():
            value = of(job)
            alike = lines.get(value)
            if alike is None:
                alike = lines[value] = Line([])
            alike.add(entry)
        for order in self._orders.values():
            key = order.key(job, self._limit(job)) if order.bounded else order.key(job)
            if empty:
                order.line, order.constant = None, key
            elif order.line is not None:
                order.line.add((key, place, job))
            elif key != order.constant:
                order.line = self._sort_line(order)
            if order.by_request is not None:
                order.by_request.new[place] = job
        if self._requests is not None:
            for choice in job.choices:
                self._requests[choice.request] = self._requests.get(choice.request, 0) + 1

    @property
    def submitted(self) -> Sequence[Job]:
        """The waiting jobs in the order of their submission."""
        return self._line

    def group_alike(self, of: Callable[[Job], Any]) -> Mapping[Any, Sequence[Job]]:
        """The waiting jobs that have this in common, by what it is, each in the order of submission.

        Kept up to date from the first call on: O(log n) and a move of pointers for each job.
        """
        lines = self._alike.get(of)
        if lines is None:
            lines = self._alike[of] = {}
            for entry in self._line.entries():
                lines.setdefault(of(entry[2]), Line([])).add(entry)
        return lines

    def keep_place(self, job: Job) -> float:
        """The job's place in the order of submission, whether it is in the queue or not."""
        place = self._place.setdefault(job.id, self._places)
        self._places += place == self._places
        return place

    def move_job(self, job: Job, after: JobId | None) -> None:
        """Give a job that is not in the queue the place after another one, or the first. O(jobs known).

        Raises `ValueError` where nothing fits between two places any more.
        """
        places = [place for id, place in self._place.items() if id != job.id]
        if after is None:
            self._place[job.id] = min(places, default=0) - 1
            return
        before = self._place[after]
        behind = min((place for place in places if place > before), default=before + 1)
        place = (before + behind) / 2
        if not before < place < behind:
            raise ValueError(f"no place is left between job {after} and the next one")
        self._place[job.id] = place

    def forget_job(self, job: JobId) -> None:
        """A job that will not come back gives up its place."""
        self._place.pop(job, None)

    def remove_job(self, job: Job) -> None:
        """Take a waiting job out. O(log n) and a move of pointers for each order."""
        place = self._place[job.id]
        self._line.remove_entry(0, place)
        for of, lines in self._alike.items():
            value = of(job)
            lines[value].remove_entry(0, place)
            if not lines[value]:
                del lines[value]
        for order in self._orders.values():
            line, by_request = order.line, order.by_request
            key = order.constant if line is None else self._order_key(order, job)
            if line is not None:
                line.remove_entry(key, place)
            if by_request is not None and by_request.new.pop(place, None) is None:
                by_request.remove_job(key, place, job)
        if self._requests is not None:
            for choice in job.choices:
                left = self._requests[choice.request] - 1
                if left:
                    self._requests[choice.request] = left
                else:
                    del self._requests[choice.request]

    def _order_key(self, order: _Order, job: Job) -> Any:
        return order.key(job, self._limit(job)) if order.bounded else order.key(job)

    def _sort_line(self, order: _Order) -> Line:
        return Line(
            sorted((self._order_key(order, job), place, job) for _, place, job in self._line.entries())
        )

    def _find_order(self, key: Key, bounded: bool) -> _Order:
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = _Order(key, bounded)
            keys = {self._order_key(order, job) for job in self._line}
            if len(keys) == 1:
                order.constant = keys.pop()
            elif keys:
                order.line = self._sort_line(order)
        return order

    def by(self, key: Key, *, bounded: bool = False) -> Sequence[Job]:
        """The waiting jobs by ascending key, then submission; kept up to date from the first call on."""
        order = self._orders.get(key) or self._find_order(key, bounded)
        return order.line or self._line

    def place_in(self, key: Key, bounded: bool) -> Callable[[Job], Any]:
        """What a job of the queue is sorted by in this order: its key, then its place of submission."""
        order = self._find_order(key, bounded)
        return lambda job: (self._order_key(order, job), self._place[job.id])

    def in_time(
        self, key: Key, now: Seconds, deadlines: Deadlines, *, bounded: bool = False
    ) -> Iterator[Job]:
        """The jobs of an order that end by their request's deadline if they start now.

        Jobs with the same request are passed over at once. Jobs that could run in several ways come anyway.
        """
        order = self._orders.get(key) or self._find_order(key, bounded)
        by_request = order.by_request
        if by_request is None or by_request.new:
            by_request = self._by_request(order)
        if by_request.several:
            yield from order.line or self._line
            return
        after: Entry | None = None
        while True:
            found: Entry | None = None
            for request, end in deadlines(by_request):
                alike = by_request[request]
                entry = alike.first(after) if end == INFINITE else alike.first_in_time(after, now, end)
                if entry is not None and (found is None or entry < found):
                    found = entry
            if found is None:
                return
            yield found[3]
            after = found

    def _by_request(self, order: _Order) -> ByRequest:
        """The jobs of an order by their requests; kept up to date from the first call on."""
        if order.by_request is None:
            order.by_request = ByRequest()
            for _, place, job in self._line.entries():
                order.by_request.new[place] = job
        new = order.by_request.new
        for place, job in new.items():
            key = order.constant if order.line is None else self._order_key(order, job)
            order.by_request.insert(key, place, job, self._limit(job))
        new.clear()
        return order.by_request

    def requests(self) -> Mapping[Request, int]:
        """How many waiting jobs have each request; kept up to date from the first call on."""
        if self._requests is None:
            self._requests = {}
            for job in self._line:
                for choice in job.choices:
                    self._requests[choice.request] = self._requests.get(choice.request, 0) + 1
        return self._requests


def _place_of(entry: tuple[Any, float, Job]) -> float:
    return entry[1]
