"""How running jobs progress in a simulation: piecewise constant rates between events, one-time stalls."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from operator import itemgetter

from dovetail.engine.state.recent import InstantChanges
from dovetail.interfaces import ExpectedWork, RateModel, SeesProgress
from dovetail.model import Ended, JobId, Placed, Seconds, State
from dovetail.records import dataclass

INFINITE = float("inf")
COMPLETED, TIMEOUT = State.COMPLETED, State.TIMEOUT  # an enum's members are looked up slowly


# Time, 1 for a time limit (an end at the limit is an end), order of start, version, end
_Entry = tuple[Seconds, int, int, int, Ended]


@dataclass(slots=True)
class RemainingWork:
    """Seconds of work left (at rate 1) as of ``since``, which lies ahead while the job is stalled."""

    total: Seconds
    left: Seconds
    since: Seconds
    rate: float
    order: int
    version: int = 0


class Progress:
    """End times of running jobs. Without a rate model a job ends its true time after its start, exactly.

    ``limit`` is the absolute time at which the job is killed (infinite: never).
    """

    def __init__(self, rates: RateModel | None) -> None:
        self._rates = rates
        source: object = rates
        if isinstance(source, SeesProgress):
            source.watch(self.done)
        self._work: dict[JobId, RemainingWork] = {}
        self._heap: list[_Entry] = []
        self._count = 0
        self._now: Seconds = 0.0

    def start(self, job: JobId, now: Seconds, seconds: Seconds, limit: Seconds) -> None:
        """A job starts that needs ``seconds`` alone."""
        count = self._count = self._count + 1
        end = now + seconds
        if self._rates is None:
            if end <= limit:
                heappush(self._heap, (end, 0, count, 0, Ended(job, COMPLETED, 0)))
            else:
                heappush(self._heap, (limit, 0, count, 0, Ended(job, TIMEOUT, None)))
            return
        self._work[job] = RemainingWork(seconds, seconds, now, 1.0, count)
        heappush(self._heap, (end, 0, count, 0, Ended(job, COMPLETED, 0)))
        if limit != INFINITE:
            heappush(self._heap, (limit, 1, count, 0, Ended(job, TIMEOUT, None)))

    def next_end(self) -> Seconds:
        """The next time at which a job ends; infinite if none runs."""
        heap = self._heap
        if self._rates is None:
            return heap[0][0] if heap else INFINITE
        while heap:
            if self._is_current_entry(heap[0]):
                return heap[0][0]
            heappop(heap)
        return INFINITE

    def _is_current_entry(self, entry: _Entry) -> bool:
        work = self._work.get(entry[4].job)
        if work is None or entry[2] != work.order:
            return False  # it has ended, or been started anew
        return entry[1] == 1 or entry[3] == work.version

    def ended(self, now: Seconds) -> list[Ended]:
        """Jobs that end at ``now``, in order of their start."""
        heap, rates = self._heap, self._rates
        ends: list[_Entry] = []
        while heap and heap[0][0] <= now:
            entry = heappop(heap)
            if rates is None:
                ends.append(entry)
            elif self._is_current_entry(entry):
                del self._work[entry[4].job]
                ends.append(entry)
        if len(ends) > 1:
            ends.sort(key=itemgetter(2))
        return [entry[4] for entry in ends]

    def stop(self, job: JobId) -> None:
        """A job was ended from outside (its node was lost, it was cancelled)."""
        if self._rates is None:
            self._heap = [entry for entry in self._heap if entry[4].job != job]
            heapify(self._heap)
        else:
            self._work.pop(job, None)

    def remaining_work(self, job: JobId) -> RemainingWork | None:
        """What is left of a running job, where there is a rate model."""
        return self._work.get(job)

    def done(self, job: JobId) -> float:
        """The fraction of its work that a running job has done by the instant that is shifted to."""
        work = self._work[job]
        left = work.left - max(0.0, self._now - work.since) * work.rate
        return 1.0 - max(0.0, left) / work.total if work.total > 0 else 1.0

    def shift_rates(
        self, now: Seconds, started: list[Placed], ended: list[Placed], migrated: list[Placed]
    ) -> Mapping[JobId, Seconds]:
        """Have the rate model apply the changes of this instant to the rates; returns the new stalls."""
        if self._rates is None or not (started or ended or migrated):
            return {}
        self._now = now
        rates, stalls = self._rates.changed(started, ended, migrated)
        for job in rates.keys() | stalls.keys():
            work = self._work.get(job)
            if work is None:
                continue
            if now > work.since:
                work.left = max(0.0, work.left - (now - work.since) * work.rate)
                work.since = now
            work.rate = rates.get(job, work.rate)
            work.since += stalls.get(job, 0.0)
            work.version += 1
            end = work.since + work.left / work.rate if work.rate > 0 else float("inf")
            if end != INFINITE:
                heappush(self._heap, (end, 0, work.order, work.version, Ended(job, COMPLETED, 0)))
        return stalls


class UnseenChanges:
    """What is new in an engine's changes since the last look: they grow until its policy has decided."""

    def __init__(self) -> None:
        self._looked: tuple[int, tuple[int, int, int]] = (0, (0, 0, 0))

    def of(self, changes: InstantChanges) -> tuple[list[Placed], list[Placed], list[Placed]]:
        """Who started, ended and moved (as it will be) since then."""
        lists = changes.started, changes.ended, changes.moved
        before = self._looked[1] if self._looked[0] == changes.instant else (0, 0, 0)
        self._looked = changes.instant, (len(lists[0]), len(lists[1]), len(lists[2]))
        return lists[0][before[0] :], lists[1][before[1] :], lists[2][before[2] :]


class Expectations:
    """Implements `Forecast`: running jobs progress at a rate model's rates over their predicted times."""

    def __init__(self, rates: RateModel) -> None:
        self.rates = rates
        self._progress = Progress(rates)
        self._news = UnseenChanges()

    def note_changes(self, now: Seconds, changes: InstantChanges) -> None:
        """What an instant has changed. O(what changed)."""
        started, ended, moved = self._news.of(changes)
        for placed in ended:
            self._progress.stop(placed.job.id)
        for placed in started:
            if placed.predicted is not None:
                self._progress.start(placed.job.id, placed.start_time, placed.predicted, float("inf"))
        self._progress.shift_rates(now, started, ended, moved)

    def expected(self, job: JobId) -> ExpectedWork | None:
        """What is left of a running job; ``None`` where nothing was predicted."""
        work = self._progress.remaining_work(job)
        return None if work is None else ExpectedWork(work.total, work.left, work.since, work.rate)
