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

from dovetail.engine.state.books import Books
from dovetail.model import Allocation, Cluster, JobId, Placed, Prediction, Seconds, bit_indices

_NOBODY: frozenset[JobId] = frozenset()
_Unit = tuple[int, str, int]
"""Node, kind, number."""
CORE, DEVICE, CPUS, MEMORY = "core", "device", "cpus", "memory"

AHEAD: Seconds = 0.050
"""A job that is expected to end within this gives its place away."""
SHORTER: Seconds = 0.020
"""On the first core by so much less: its line ends first, and who decides runs there while others go on.

While new processes follow each other on a core, Linux gives hardly a turn to one that was there before. If
all lines ended at the same moment, all cores but one would wait for the next decisions.
"""
ALONG: Seconds = 0.005
"""So much later ends who comes along."""
SHORT: Seconds = 0.020
"""The upper end of a prediction that may be relied on so."""
SAMPLES = 4
"""Runs that it rests on, at least."""
PATIENCE: Seconds = 0.030
"""After which a job that should have ended is taken to go on."""
REMEMBERED = 4096
"""Places of which is remembered what units they are."""


class Prefill:
    """What a driver needs to know of jobs that begin after others; times are the driver's.

    Holds short jobs that have not ended: of jobs of a millisecond some thirty a unit.
    """

    def __init__(self, books: Books) -> None:
        self._books = books
        self._ending = books.ending
        cores = books.cluster.nodes[0].cores
        self._first = (0, CORE, cores[0]) if cores else None
        self._units_at: dict[object, tuple[_Unit, ...]] = {}
        self._takes: dict[JobId, Seconds] = {}  # short jobs that have not ended, in the order of their starts
        self._began: dict[JobId, Seconds] = {}  # those of them that wait for no other job
        self._ends: dict[JobId, Seconds] = {}  # when they are expected to end, as of the last look
        self._lines: dict[_Unit, list[JobId]] = {}  # who holds a unit and who will, in that order
        self._units: dict[JobId, tuple[_Unit, ...]] = {}
        self._before: dict[JobId, set[JobId]] = {}  # who has to have ended before a job begins
        self._behind: dict[JobId, set[JobId]] = {}  # the same seen from there
        self.recalled: set[JobId] = set()
        """Jobs that go on: the executor is being queried for followers that have not begun; no answer yet."""

    def after(self, job: JobId) -> Sequence[JobId]:
        """Jobs that have to have ended before this one begins; those before these need not be named."""
        before = self._before.get(job)
        return sorted(before) if before else ()

    def started(self, placed: Placed, prediction: Prediction | None, now: Seconds) -> bool:
        """A job was started; whether it begins at once, and not after others."""
        job, units = placed.job.id, self._units_of(placed.allocation)
        # Only among jobs that gave their place away: a free unit has no one before it.
        before = self._last_on(units) if self._ending else None
        if before:
            self._before[job] = before
            for one in before:
                self._behind.setdefault(one, set()).add(job)
        # Only short jobs with enough runs to go by: a wrong guess makes the follower wait for all of it.
        if prediction is not None and prediction.upper <= SHORT and prediction.samples >= SAMPLES:
            self._takes[job], self._units[job] = prediction.expected, units
            for unit in units:
                self._lines.setdefault(unit, []).append(job)
            if not before:
                self._began[job] = now
            self._ends[job] = self._expected_end(job, now)
        return not before

    def _last_on(self, units: Sequence[_Unit]) -> set[JobId]:
        """Jobs whose place another gets: of a core the last that gave it away, of what may be shared all."""
        found: set[JobId] = set()
        for unit in units:
            line = self._lines.get(unit)
            if line:
                # A core passes from hand to hand, so its last holder is enough; what is shared may be freed
                # by any.
                found.update(line[-1:] if unit[1] == CORE else line)
        return found & self._ending.keys()

    def _units_of(self, allocation: Allocation) -> tuple[_Unit, ...]:
        key = allocation.parts, tuple(allocation.cores.items())
        found = self._units_at.get(key)
        if found is None:
            # Cleared as a whole: places repeat within a run's phase, and are cheap to find again.
            if len(self._units_at) >= REMEMBERED:
                self._units_at.clear()
            found = self._units_at[key] = tuple(_units_of(allocation, self._books.cluster))
        return found

    def update_expected_ends(self, now: Seconds) -> None:
        """Expect anew when everybody ends: what has not ended by now does not end in the past."""
        # In order of starts, so that the ends of those before are known when one behind is looked at.
        self._ends.clear()
        for job in self._takes:
            self._ends[job] = self._expected_end(job, now)

    def _expected_end(self, job: JobId, now: Seconds) -> Seconds:
        before = self._before.get(job)
        if before is None:
            return max(now, self._began[job] + self._takes[job])
        return max([self._ends.get(one, now) for one in before]) + self._takes[job]

    def jobs_near_end(self, now: Seconds) -> Sequence[JobId]:
        """Jobs that will end in a moment and have not given their places away yet.

        If there is one, those that end little later come along: what follows them all is one decision.
        """
        given = self._ending
        found = [
            (end + SHORTER if self._first in self._units[job] else end, job)
            for job, end in self._ends.items()
            if job not in given
        ]
        if not found or min(found)[0] > now + AHEAD:
            return ()
        # Some more than needed: one decision of the policy for all costs little more than for one.
        soon = now + AHEAD + ALONG
        return [job for end, job in found if end <= soon]

    def remove_job(self, job: JobId, now: Seconds) -> Iterator[JobId]:
        """A job has ended, or has not begun and will not: those that begin now, since nothing is before them.

        Who was to follow one that has not begun follows those before it.
        """
        before, behind = self._before.pop(job, _NOBODY), self._behind.pop(job, _NOBODY)
        self._forget_job(job)
        # The line closes up: who followed the job now follows those before it.
        for one in before:
            self._behind[one].discard(job)
            self._behind[one] |= behind
        for other in sorted(behind):
            waits_for = self._before[other]
            waits_for.discard(job)
            waits_for |= before
            if not waits_for:
                del self._before[other]
                if other in self._takes:
                    self._began[other] = now
                yield other

    def goes_on(self, job: JobId) -> None:
        """A job has taken its place back, and is not expected to end soon any more."""
        self._forget_job(job)

    def _forget_job(self, job: JobId) -> None:
        for unit in self._units.pop(job, ()):
            self._lines[unit].remove(job)
        for book in (self._takes, self._began, self._ends):
            book.pop(job, None)
        self.recalled.discard(job)

    def next_time(self) -> Seconds:
        """When a job will be taken to go on; infinite if none will, or while an answer is outstanding."""
        if self.recalled or not self._ending:
            # One question at a time: its answer changes what is overdue.
            return inf
        return min((end for _, end in self._heads_of_lines()), default=inf) + PATIENCE

    def overdue_jobs(self, now: Seconds) -> Sequence[JobId]:
        """Jobs that should have ended by now: the executor is to report which followers have not begun."""
        if now < self.next_time():
            return ()
        late = [job for job, end in self._heads_of_lines() if end + PATIENCE <= now]
        self.recalled.update(late)
        return late

    def _heads_of_lines(self) -> Iterator[tuple[JobId, Seconds]]:
        """Jobs that have begun and given their places away, and when they should have ended."""
        return ((job, at + self._takes[job]) for job, at in self._began.items() if job in self._ending)


def _units_of(allocation: Allocation, cluster: Cluster) -> Iterator[_Unit]:
    """Cores, devices, memory of a place; all CPUs of a node whose cores have no numbers."""
    for part in allocation.parts:
        for n in bit_indices(part.nodes):
            for device in part.devices:
                yield n, DEVICE, device
            cores = allocation.cores_on(n, cluster.nodes[n])
            for core in cores:
                yield n, CORE, core
            if part.cpus and not cores:
                yield n, CPUS, 0
            if part.memory:
                yield n, MEMORY, 0
