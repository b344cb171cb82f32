"""Promised starts: held, checked when they change, and counted when they are broken."""

from __future__ import annotations

from dovetail.model import JobId, Promise, Seconds

TOLERANCE = 1e-9
"""Relative slack for sums of floats taken in another order."""


class PromiseBook:
    """The promises to waiting jobs.

    ``broken`` counts late starts, ``broken_by_overrun`` those among them after whose promise was made some
    job ran past its bound (walltime or learned), or started with a learned bound above one that was known
    while it was promised its own start: promises behind it may have rested on that.
    """

    def __init__(self) -> None:
        self.held: dict[JobId, Promise] = {}
        self.broken = 0
        self.broken_by_overrun = 0
        self._made: dict[JobId, tuple[Seconds, Seconds]] = {}  # when, and the job's least bound since
        self._late: set[JobId] = set()
        self._last_overrun = float("-inf")

    def reserve_promise(self, promise: Promise, now: Seconds, bound: Seconds = 0.0) -> str | None:
        """Hold a promise to a job of this bound; returns what is wrong with it, if anything."""
        old = self.held.get(promise.job.id)
        if promise.start < now:
            return f"a start at {promise.start:g} was promised at {now:g}"
        if old is not None:
            overdue = old.start < now
            if promise.start > old.start + TOLERANCE * max(1.0, abs(old.start)) and not overdue:
                return f"its promised start moved from {old.start:g} to {promise.start:g}, later"
            if overdue:
                self._late.add(promise.job.id)
        else:
            self._made[promise.job.id] = now, bound
        self.held[promise.job.id] = promise
        return None

    def update_bound(self, job: JobId, bound: Seconds) -> None:
        """What is known now of how long a promised job may take: promises to others rest on it."""
        made, least = self._made[job]
        self._made[job] = made, min(bound, least)

    def note_overrun(self, now: Seconds) -> None:
        """Some job is running past its bound, or will run past the one that was counted on."""
        self._last_overrun = now

    def settle(self, job: JobId, now: Seconds, bound: Seconds = 0.0) -> Seconds | None:
        """The job starts, with this bound; returns what was promised, and counts it if it was broken."""
        promise = self.held.pop(job, None)
        if promise is None:
            return None
        made, expected = self._made.pop(job)
        if job in self._late or now > promise.start + TOLERANCE * max(1.0, abs(promise.start)):
            self.broken += 1
            if self._last_overrun >= made:
                self.broken_by_overrun += 1
        self._late.discard(job)
        if bound > expected:
            self.note_overrun(now)
        return promise.start

    def drop_promise(self, job: JobId) -> None:
        """The job will not start."""
        if self.held.pop(job, None) is not None:
            del self._made[job]
        self._late.discard(job)

    def drop_all(self) -> None:
        """The machine has changed: nothing that was promised holds."""
        self.held.clear()
        self._made.clear()
        self._late.clear()
