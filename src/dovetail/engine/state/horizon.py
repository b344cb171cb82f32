"""When the whole cluster goes away, and which jobs can still end before that.

An allocation on a cluster has an end. A way to run a job that is expected to end after it is no choice
of the job any more; a job without any is set aside, and no policy sees it until a later end is known.
What is expected is the prediction, else the walltime; a job of which nothing is known may start until
the last moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from dovetail.engine.state.predictions import Predictions
from dovetail.model import Allocation, Choice, DeviceClass, Job, JobId, Seconds

TOO_LATE = "cannot end before the cluster does"
"""How the reason begins of a job that was set aside."""
SHRUNK = 0.9
"""The queue is looked through again when so much of the time is left that was left the last time."""


class Horizon:
    """The cluster's end, and the jobs that it keeps from starting, as they were submitted."""

    def __init__(
        self, predictions: Predictions, classes: Callable[[Choice, Allocation | None], Iterable[DeviceClass]]
    ) -> None:
        self.end: Seconds = inf
        self.narrowed: dict[JobId, Job] = {}
        self._predictions = predictions
        self._classes = classes
        self.next_look = inf

    def move_end(self, now: Seconds, left: Seconds | None) -> None:
        """The end is ``left`` seconds away, or not known."""
        self.end = inf if left is None else now + left
        self.next_look = now

    def due(self, now: Seconds) -> bool:
        """Whether to look through the queue again: after the end always, for what is lost late."""
        self.next_look = now + (1 - SHRUNK) * max(0.0, self.end - now)
        return True

    def expected(self, job: Job, choice: Choice, place: Allocation | None = None) -> Seconds:
        """How long the job is expected to take so: on this place, or on the best that there is."""
        known = [
            found.expected
            for device in self._classes(choice, place)
            if (found := self._predictions.predict(job, choice.implementation, choice.request, device))
        ]
        if known:
            return min(known)
        return 0.0 if job.walltime is None else job.walltime

    def too_late(self, job: Job, choice: Choice, start: Seconds, place: Allocation | None = None) -> bool:
        """Whether the job, started then, is expected to be cut short by the end."""
        if self.end == inf:
            return False
        return start >= self.end or start + self.expected(job, choice, place) > self.end

    def narrow_choices(self, job: Job, now: Seconds, without: Choice | None = None) -> Job | None:
        """The job with those of its choices that are left, now or ``without`` one; ``None`` if none is."""
        left = tuple(c for c in job.choices if c is not without and not self.too_late(job, c, now))
        if len(left) == len(job.choices):
            return job
        self.narrowed.setdefault(job.id, job)
        return replace(job, choices=left) if left else None

    def reason(self, job: Job, now: Seconds) -> str:
        """Why the job was set aside."""
        least = min(self.expected(job, choice) for choice in job.choices)
        left = max(0.0, self.end - now)
        return f"{TOO_LATE}: expected to take {least:.3g} s, {left:.3g} s are left"
