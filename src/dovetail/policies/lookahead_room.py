"""Looking ahead with rigid jobs: room is kept for short ones that are likely to come, where slowdowns count.

Most of the mean slowdown of a busy machine is that of jobs of seconds that came while all was taken by jobs
of hours. How many come, how wide and how long, is told by the last ones that came. A long job that fits now
waits for the next end if the slowdowns that this spares them are more than those it costs: its own, and, as
what is left free delays the whole line, that of everybody who waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dovetail.files.arrays import Floats, Ints, np
from dovetail.kernels.backfilling import worth_keeping
from dovetail.model import Came, Job, JobId, Seconds

__all__ = ["Coming", "Guess", "RoomForShortJobs"]


ENOUGH = 16
"""So many jobs must have come before they tell who will."""


@dataclass(frozen=True, slots=True)
class Guess:
    """What is thought of a waiting job: its part of the capacity, and how long it runs.

    ``harmonic``: seconds in which its slowdown is expected to grow by one.
    """

    width: int
    long: Seconds
    harmonic: Seconds


@dataclass(frozen=True, slots=True)
class Coming:
    """Jobs that are likely to come: the last ones that came, and how many of each kind come a second."""

    width: Ints
    long: Floats
    rate: float

    @classmethod
    def like(cls, came: list[Came], width: Ints, long: Floats, now: Seconds) -> Coming:
        """Those that came at one moment are one event, after which as many may come again, or nobody."""
        if len(came) < ENOUGH:
            return cls(width[:0], long[:0], 0.0)
        moments = {one.submit_time for one in came}
        return cls(width, long, (1 - 1 / len(moments)) / max(1.0, now - min(moments)))


class RoomForShortJobs:
    """Whom to keep waiting while EASY decides. Implements `dovetail.policies.easy.Room`.

    ``front`` are the first jobs of the queue, with what is thought of each in ``guesses``; ``other`` tells
    that of one behind them. ``ends`` and ``widths`` are those of the running jobs, from now. ``promised``
    starts as soon as it fits, and so does who has a higher priority than another one: nobody passes it.
    """

    def __init__(
        self,
        front: Sequence[Job],
        guesses: Sequence[Guess],
        other: Callable[[Job], Guess],
        coming: Coming,
        promised: Job | None,
        free: int,
        capacity: int,
        ends: Floats,
        widths: Ints,
    ) -> None:
        self._guesses = {job.id: guess for job, guess in zip(front, guesses, strict=True)}
        self._least_priority = min(job.priority for job in front)
        self._other = other
        self._coming, self._promised = coming, promised
        self._free = free
        self.first_kept_from: JobId | None = None
        self.next_end = float(ends.min()) if len(ends) else 0.0
        """When the first of the running jobs is expected to end, from now."""
        order = np.argsort(ends)
        self._ends, self._widths = ends[order], widths[order]
        self._price = sum(1 / guess.harmonic for guess in guesses) / capacity
        """What a second costs in which one part of the capacity is free."""

    def is_kept_from(self, job: Job) -> bool:
        """Whether the job fits now and had better wait for the next end; the first such one is noted."""
        guess = self._guesses.get(job.id)
        if guess is None:  # nobody behind the front goes before those who wait there for room
            return self.first_kept_from is not None
        if guess.width > self._free or job is self._promised or job.priority > self._least_priority:
            return False
        second = 1 / guess.harmonic + self._price * guess.width
        kept: bool = worth_keeping(
            guess.width, guess.long, second, self._free, self._ends, self._widths,
            self._coming.width, self._coming.long, self._coming.rate,
        )  # fmt: skip
        if kept and self.first_kept_from is None:
            self.first_kept_from = job.id
        return kept

    def started(self, job: Job) -> None:
        """It runs from now on."""
        guess = self._guesses.get(job.id) or self._other(job)
        self._free -= guess.width
        at = int(np.searchsorted(self._ends, guess.long))
        self._ends = np.insert(self._ends, at, guess.long)
        self._widths = np.insert(self._widths, at, guess.width)
