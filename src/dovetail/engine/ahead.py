"""Looking ahead: which jobs will have ended in a moment, and who begins in their places.

From the end of a job to the start of the next one on the same cores there are two processes to wake, an
instant and a transaction: some milliseconds. Jobs that take no longer themselves would leave a machine half
idle. So the place of a job whose end is near is given away before it has ended: the policy decides as ever,
what it starts there goes to the executor at once, and begins there as soon as the place is free. Where the
job goes on against all expectation, who was to follow it is withdrawn and waits again.

HyperQueue prefills its workers, Ray pipelines calls to a worker, for the same reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

from dovetail.engine.books import Books
from dovetail.model import Allocation, Cluster, JobId, Placed, Prediction, Seconds, bits

__all__ = ["Ahead"]

_NOBODY: frozenset[JobId] = frozenset()
_Unit = tuple[int, str, int]
"""Node, kind, number."""

AHEAD: Seconds = 0.020
"""A job that is expected to end within this gives its place away."""
SHORT: Seconds = 0.020
"""The upper end of a prediction that may be relied on so."""
SAMPLES = 4
"""Runs that it rests on, at least."""
PATIENCE: Seconds = 0.030
"""After which a job that should have ended is taken to go on."""
REMEMBERED = 4096
"""Places of which is remembered what units they are."""


class Ahead:
    """What a driver needs to know of jobs that begin after others; times are the driver's.

    Holds short jobs that have not ended, some ten a unit at most.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._ending = books.ending
        self._units: dict[JobId, frozenset[_Unit]] = {}
        self._units_at: dict[object, frozenset[_Unit]] = {}
        self._takes: dict[JobId, Seconds] = {}  # short jobs that have not ended, in the order of their starts
        self._began: dict[JobId, Seconds] = {}  # those of them that wait for nobody
        self._ends: dict[JobId, Seconds] = {}  # when they are expected to end, as of the last look
        self._before: dict[JobId, set[JobId]] = {}  # who has to have ended before a job begins
        self.recalled: set[JobId] = set()
        """Jobs that go on: the executor has been asked who has not begun after them, and has not answered."""

    def after(self, job: JobId) -> Sequence[JobId]:
        """Jobs that have to have ended before this one begins."""
        return sorted(self._before.get(job, ()))

    def withdrawn(self, job: JobId) -> None:
        """A job has not begun, and will not: who waited for it waits for those before it."""
        before = self._before.pop(job, set())
        for other in self._before.values():
            if job in other:
                other.discard(job)
                other |= before
        self._forget(job)

    def started(self, placed: Placed, prediction: Prediction | None, now: Seconds) -> bool:
        """A job was started; whether it begins at once, and not after others."""
        job, units = placed.job.id, self._held(placed.allocation)
        before = {one for one in self._ending if not units.isdisjoint(self._units[one])}
        if before:
            for one in list(before):  # who has to have ended before one of them need not be named
                before -= self._before.get(one, _NOBODY)
            self._before[job] = before
        if prediction is not None and prediction.upper <= SHORT and prediction.samples >= SAMPLES:
            self._takes[job], self._units[job] = prediction.expected, units
            if not before:
                self._began[job] = now
            self._ends[job] = self._end(job, now)
        return not before

    def _held(self, allocation: Allocation) -> frozenset[_Unit]:
        key = allocation.parts, tuple(allocation.cores.items())
        found = self._units_at.get(key)
        if found is None:
            if len(self._units_at) >= REMEMBERED:
                self._units_at.clear()
            found = self._units_at[key] = _units_of(allocation, self._books.cluster)
        return found

    def look(self, now: Seconds) -> None:
        """Expect anew when everybody ends: what has not ended by now does not end in the past."""
        self._ends.clear()
        for job in self._takes:
            self._ends[job] = self._end(job, now)

    def _end(self, job: JobId, now: Seconds) -> Seconds:
        before = self._before.get(job)
        if before is None:
            return max(now, self._began[job] + self._takes[job])
        return max(self._ends.get(one, now) for one in before) + self._takes[job]

    def near(self, now: Seconds) -> Sequence[JobId]:
        """Jobs that will end in a moment and have not given their places away yet."""
        soon, given = now + AHEAD, self._ending
        return [job for job, end in self._ends.items() if end <= soon and job not in given]

    def gone(self, job: JobId, now: Seconds) -> Iterator[JobId]:
        """A job has ended: those that begin now, since they waited for nobody else."""
        known = job in self._takes
        self._before.pop(job, None)
        self._forget(job)
        if not known:
            return
        for other, before in list(self._before.items()):
            before.discard(job)
            if not before:
                del self._before[other]
                if other in self._takes:
                    self._began[other] = now
                yield other

    def goes_on(self, job: JobId) -> None:
        """A job has taken its place back, and is not expected to end soon any more."""
        self._forget(job)

    def _forget(self, job: JobId) -> None:
        for book in (self._takes, self._began, self._ends, self._units):
            book.pop(job, None)
        self.recalled.discard(job)

    def next_time(self) -> Seconds:
        """When a job will be taken to go on; infinite if none will, or while an answer is outstanding."""
        if self.recalled or not self._ending:
            return inf
        return min((end for _, end in self._heads()), default=inf) + PATIENCE

    def overdue(self, now: Seconds) -> Sequence[JobId]:
        """Jobs that should have ended by now: the executor is to be asked who has not begun after them."""
        if now < self.next_time():
            return ()
        late = [job for job, end in self._heads() if end + PATIENCE <= now]
        self.recalled.update(late)
        return late

    def _heads(self) -> Iterator[tuple[JobId, Seconds]]:
        """Jobs that have begun and given their places away, and when they should have ended."""
        return ((job, at + self._takes[job]) for job, at in self._began.items() if job in self._ending)


def _units_of(allocation: Allocation, cluster: Cluster) -> frozenset[_Unit]:
    """What only one job can hold: cores, devices, memory; all CPUs of a node whose cores have no ids."""
    units: set[_Unit] = set()
    for part in allocation.parts:
        for n in bits(part.nodes):
            units.update((n, "device", device) for device in part.devices)
            cores = allocation.cores_on(n, cluster.nodes[n])
            units.update((n, "core", core) for core in cores)
            if part.cpus and not cores:
                units.add((n, "cpus", 0))
            if part.memory:
                units.add((n, "memory", 0))
    return frozenset(units)
