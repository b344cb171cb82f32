"""What happened at this instant and before it: changes, jobs that came and ended, how long decisions took."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from dovetail.model import Job, JobId, PastJob, PastStretch, Placed, RecentEnd, RecentSubmission, Seconds
from dovetail.records import dataclass

ENDS, SUBMISSIONS = 256, 64
PERIOD, PERIODS = 256, 8
"""A stretch of the past is `PERIODS` periods of so many submissions, and looked back on after each period."""


@dataclass(slots=True)
class _PastJob:
    """A job that was submitted: when it started and how long it ran, as soon as that is known."""

    job: Job
    bound: Seconds
    start: Seconds | None = None
    seconds: Seconds | None = None


class Recent:
    """The last jobs that ended, and the last that came; implements `dovetail.interfaces.Recent`."""

    def __init__(self) -> None:
        self.ran: deque[RecentEnd] = deque(maxlen=ENDS)
        self.came: deque[RecentSubmission] = deque(maxlen=SUBMISSIONS)
        self.stretch: PastStretch | None = None
        """What was last looked back on: it stays as it is until the next period is over."""
        self._past: dict[JobId, _PastJob] = {}
        self._begins: deque[Seconds] = deque(maxlen=PERIODS)
        """When the last periods began."""
        self._submissions = 0

    def submitted(self, job: Job, bound: Seconds) -> None:
        """A job came to the queue; one without a bound is left out."""
        if 0 < bound < inf:
            self.came.append(RecentSubmission(job.user, job.submit_time, job.choices[0].request, bound))
            if self._submissions % PERIOD == 0:
                if self._submissions:
                    self._look_back(job.submit_time)
                self._begins.append(job.submit_time)
            self._submissions += 1
            self._past[job.id] = _PastJob(job, bound)

    def started(self, placed: Placed) -> None:
        """A job started."""
        past = self._past.get(placed.job.id)
        if past is not None:
            past.start = placed.start_time

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A job ended; one without a bound is left out."""
        bound = placed.bound - placed.start_time
        if 0 < bound < inf:
            self.ran.append(RecentEnd(placed.job.user, bound, now - placed.start_time))
        past = self._past.get(placed.job.id)
        if past is not None:
            past.start, past.seconds = placed.start_time, now - placed.start_time

    def note_withdrawal(self, job: JobId) -> None:
        """A job was cancelled before it started."""
        self._past.pop(job, None)

    def forget_past(self) -> None:
        """Look back on nothing that came before now: a replay from a checkpoint does not know it."""
        self.stretch = None
        self._past.clear()
        self._begins.clear()
        self._submissions = 0

    def _look_back(self, now: Seconds) -> None:
        """A period is over: keep what is known of the stretch that ends now, forget what ended before it."""
        origin = self._begins[0]
        for job, past in list(self._past.items()):
            if past.seconds is not None and past.start is not None and past.start + past.seconds <= origin:
                del self._past[job]
        jobs = (PastJob(one.job, one.bound, one.start, one.seconds) for one in self._past.values())
        submissions = len(self._begins) * PERIOD
        self.stretch = PastStretch(origin, now, submissions, tuple(jobs))

    def recall_state(self, ran: Iterable[RecentEnd], came: Iterable[RecentSubmission]) -> None:
        """Remember this and nothing else: go on where another engine stopped."""
        self.ran.clear()
        self.ran.extend(ran)
        self.came.clear()
        self.came.extend(came)


class InstantChanges:
    """What happened since the policy's last call, as of the first call after it happened."""

    __slots__ = ("ended", "incident", "instant", "migrated", "moved", "started", "submitted", "withdrawn")

    def __init__(self) -> None:
        self.instant = 0
        """Another number for every instant."""
        self.submitted: list[Job] = []
        self.ended: list[Placed] = []
        self.started: list[Placed] = []
        self.moved: list[Placed] = []
        """As they will be, at the decision."""
        self.migrated: list[Placed] = []
        """When they have arrived."""
        self.incident = self.withdrawn = False

    @property
    def otherwise(self) -> bool:
        """Whether anything changed that the lists do not hold."""
        return self.incident or self.withdrawn

    def begin_instant(self) -> None:
        """Another instant: lists of the last one that a policy has kept stay as they are."""
        self.instant += 1
        if self.submitted:
            self.submitted = []
        if self.ended:
            self.ended = []
        if self.started:
            self.started = []
        if self.moved:
            self.moved = []
        if self.migrated:
            self.migrated = []
        self.incident = self.withdrawn = False


MOST = 1 << 17


class Durations(list[float]):
    """Seconds of calls, in order; of very many, every second, fourth, … is kept.

    Once ``MOST`` are kept every other one is dropped, and from then on every second call is kept, and so on:
    mean and quantiles stay those of an even sample.
    """

    __slots__ = ("_skip", "_stride")

    def __init__(self) -> None:
        super().__init__()
        self._stride = 1
        self._skip = 0

    def add(self, seconds: float) -> None:
        """One call. O(1) in the mean."""
        if self._skip:
            self._skip -= 1
            return
        self.append(seconds)
        self._skip = self._stride - 1
        if len(self) >= MOST:
            del self[1::2]
            self._stride *= 2
