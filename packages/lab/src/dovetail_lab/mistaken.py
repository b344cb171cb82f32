"""A runtime model that errs by a known amount: the true time times an error."""

from __future__ import annotations

import math
from collections.abc import Callable

from dovetail import Job, Workload
from dovetail.model import DeviceClass, Implementation, JobId, Prediction, Request


class MistakenModel:
    """Predicts the true time times an error, drawn once for each job and way of running it.

    ``draw`` gives the logarithm of an error. A prediction's interval reaches ``reach`` times up and down;
    ``runs`` is how many runs it claims to stand on, so that nothing is explored.
    """

    version = 0

    def __init__(
        self, workload: Workload, draw: Callable[[], float], *, reach: float = 1.0, runs: int = 1, source: str
    ) -> None:
        self._truth = workload.truth
        self._reach, self._runs, self._source = reach, runs, source
        self._errors: dict[tuple[JobId, str, int], float] = {
            (job.id, choice.implementation.name, choice.request.nodes): math.exp(draw())
            for job in workload.jobs
            for choice in job.choices
        }

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The true time times its error."""
        seconds = self._truth.seconds(job, implementation, request)
        if seconds is None:
            return None
        wrong = seconds * self._errors[job.id, implementation.name, request.nodes]
        return Prediction(wrong, wrong * self._reach, self._runs, self._source, wrong / self._reach)

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Something is known of everything: nothing is explored."""
        return self._runs
