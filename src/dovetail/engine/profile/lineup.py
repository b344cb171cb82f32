"""Promises in the order of a queue, where nodes are counted: runs of like ones, in arrays."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any, overload

from dovetail.files.arrays import Floats, Ints, np
from dovetail.model import Allocation, Implementation, Job, JobId, Promise, Reserve, Seconds

NODES, JOBS, CLASS, VERSION = range(4)  # columns of the runs
START, DURATION = range(2)  # columns of the slots
LEAST_ROOM = 64


class PromiseInLine(Promise):
    """A promise whose start stands in the runs of a lineup, which move by the thousand."""

    __slots__ = ("_line", "key")

    def __init__(
        self, job: Job, implementation: Implementation, allocation: Allocation, line: Lineup, key: Any
    ) -> None:
        self.job = job  # type: ignore[misc]
        self.implementation = implementation  # type: ignore[misc]
        self.allocation = allocation  # type: ignore[misc]
        self.key = key
        self._line: Lineup | Seconds = line

    @property
    def left(self) -> bool:
        """Whether it moves no more with the line."""
        return isinstance(self._line, float)

    @property
    def start(self) -> Seconds:
        """The start as it is promised now."""
        return self._line if isinstance(self._line, float) else self._line.start_of(self)

    def leave(self, start: Seconds) -> None:
        """It moves no more with the line; that was its start."""
        self._line = float(start)


class Runs:
    """Runs of like promises, as `dovetail.native.steps` takes them, with room for more.

    ``shape`` int64 (nodes, jobs, class, version) and ``slot`` float64 (start, duration), ``count`` of each.
    """

    def __init__(self, room: int) -> None:
        self.shape: Ints = np.zeros((room, 4), np.int64)
        self.slot: Floats = np.zeros((room, 2))
        self.count = 0
        self._ends: Ints | None = None

    def ends(self) -> Ints:
        """For each run, how many promises there are up to its end."""
        if self._ends is None:
            self._ends = np.cumsum(self.shape[: self.count, JOBS])
        return self._ends

    def changed(self) -> None:
        """Look again where runs end."""
        self._ends = None

    def of(self, row: int) -> int:
        """The run of the promise in that row."""
        return int(self.ends().searchsorted(row, "right"))

    def starts(self) -> Floats:
        """The start of every run."""
        return self.slot[: self.count, START]


class Lineup:
    """Promises in the order of their keys. Rows are promises, runs are rows that follow each other."""

    def __init__(self) -> None:
        self._keys: list[Any] = []
        self._promises: list[PromiseInLine] = []
        self.of_job: dict[JobId, PromiseInLine] = {}
        self.runs = Runs(LEAST_ROOM)
        self._other = Runs(LEAST_ROOM)

    def __len__(self) -> int:
        return len(self._promises)

    def __iter__(self) -> Iterator[PromiseInLine]:
        return iter(self._promises)

    def start_of(self, promise: PromiseInLine) -> Seconds:
        """When the job is promised to start. O(log n) mostly."""
        run = self.runs.of(bisect_left(self._keys, promise.key))
        return float(self.runs.slot[run, START])

    def insert(
        self, promise: PromiseInLine, slot: tuple[Seconds, Seconds], shape: tuple[int, int, int, int]
    ) -> None:
        """Put a promise at its place: start, duration; what it takes, 1, class, version. O(runs)."""
        row = bisect_left(self._keys, promise.key)
        self._keys.insert(row, promise.key)
        self._promises.insert(row, promise)
        self.of_job[promise.job.id] = promise
        runs = self.runs
        if row == len(self._keys) - 1:
            run = runs.count
        else:
            run = runs.of(row)
            within = row - (int(runs.ends()[run]) - int(runs.shape[run, JOBS]))
            if within:
                self._split_run(run, within)
                run += 1
        before = run - 1
        if run and runs.shape[before, NODES] == shape[NODES] and tuple(runs.slot[before]) == slot:
            runs.shape[before, JOBS] += 1
            runs.shape[before, VERSION] = min(shape[VERSION], runs.shape[before, VERSION])
        else:
            self._make_room(runs.count + 1)
            self._shift_runs(run, 1)
            self.runs.shape[run], self.runs.slot[run] = shape, slot
        self.runs.changed()

    def remove_promise(self, promise: PromiseInLine) -> tuple[Seconds, Seconds]:
        """Take a promise out; its start and duration. O(runs)."""
        row = bisect_left(self._keys, promise.key)
        runs = self.runs
        run = runs.of(row)
        start, duration = runs.slot[run].tolist()
        del self._keys[row], self._promises[row], self.of_job[promise.job.id]
        runs.shape[run, JOBS] -= 1
        if not runs.shape[run, JOBS]:
            self._shift_runs(run + 1, -1)
        runs.changed()
        if not promise.left:
            promise.leave(start)
        return start, duration

    def _split_run(self, run: int, within: int) -> None:
        """Make two runs of one, the first with so many promises."""
        self._make_room(self.runs.count + 1)
        self._shift_runs(run + 1, 1)
        runs = self.runs
        runs.shape[run + 1], runs.slot[run + 1] = runs.shape[run], runs.slot[run]
        runs.shape[run, JOBS] = within
        runs.shape[run + 1, JOBS] -= within

    def _shift_runs(self, run: int, by: int) -> None:
        """Move the runs from one on; ``by`` is 1 or -1."""
        runs = self.runs
        for rows in (runs.shape, runs.slot):
            rows[run + by : runs.count + by] = rows[run : runs.count].copy()
        runs.count += by

    def _make_room(self, count: int) -> None:
        if count > len(self.runs.shape):
            larger = Runs(2 * count)
            larger.count = self.runs.count
            larger.shape[: larger.count] = self.runs.shape[: larger.count]
            larger.slot[: larger.count] = self.runs.slot[: larger.count]
            self.runs = larger

    def make_draft(self) -> Runs:
        """Runs without content, with room for one run a promise: what a renewal is written to."""
        if len(self._other.shape) < len(self):
            self._other = Runs(2 * len(self))
        return self._other

    def adopt_draft(self, draft: Runs, now: Seconds) -> None:
        """Take over what was written to the draft; promises that are due now keep the start that they had."""
        for promise in self._of_runs(draft, now):
            promise.leave(promise.start)
        self.runs, self._other = draft, self.runs

    def _of_runs(self, runs: Runs, when: Seconds) -> Iterator[PromiseInLine]:
        """The promises in the runs that start by then, in order."""
        ends = runs.ends()
        for run in np.flatnonzero(runs.starts() <= when).tolist():
            end = int(ends[run])
            yield from self._promises[end - int(runs.shape[run, JOBS]) : end]

    def promises_until(self, runs: Runs, when: Seconds) -> Iterator[Promise]:
        """The promises that start by then, in order, by these runs, as promises for that time."""
        for promise in self._of_runs(runs, when):
            yield Promise(promise.job, promise.implementation, promise.allocation, when)

    def first_after(self, runs: Runs, when: Seconds) -> Promise | None:
        """The promise with the first start after a time, by these runs; the first in order of equals."""
        starts = runs.starts()
        later = np.where(starts > when, starts, np.inf)
        if not len(later):
            return None
        run = int(later.argmin())
        if later[run] == np.inf:
            return None
        row = int(runs.ends()[run]) - int(runs.shape[run, JOBS])
        promise = self._promises[row]
        return Promise(promise.job, promise.implementation, promise.allocation, float(starts[run]))


class Renewal(Sequence[Reserve]):
    """What a renewal has moved, in order; spelt out only when it is read."""

    def __init__(self, line: Lineup, draft: Runs, now: Seconds) -> None:
        self.draft = draft
        self._now = now
        self._promises = list(line)
        self._before = _rows_of_runs(line.runs)
        self._after = _rows_of_runs(draft)
        self._moves: list[Reserve] | None = None

    def _spelt_out(self) -> list[Reserve]:
        if self._moves is None:
            before, after = (np.repeat(starts, jobs) for starts, jobs in (self._before, self._after))
            rows = np.flatnonzero((after < before) & (after > self._now))
            moved = zip(map(self._promises.__getitem__, rows.tolist()), after[rows].tolist(), strict=True)
            self._moves = [
                Reserve(promise.job.id, promise.implementation.name, promise.allocation, start)
                for promise, start in moved
            ]
        return self._moves

    def __len__(self) -> int:
        return len(self._spelt_out())

    def __iter__(self) -> Iterator[Reserve]:
        return iter(self._spelt_out())

    @overload
    def __getitem__(self, index: int) -> Reserve: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Reserve]: ...
    def __getitem__(self, index: int | slice) -> Reserve | Sequence[Reserve]:
        return self._spelt_out()[index]


def _rows_of_runs(runs: Runs) -> tuple[Floats, Ints]:
    """The start of each run, and how many promises it has."""
    return runs.starts().copy(), runs.shape[: runs.count, JOBS].copy()
