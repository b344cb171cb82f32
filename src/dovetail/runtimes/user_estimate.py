"""``user-estimate``: the walltime, taken as the run time (what plain backfilling does)."""

from __future__ import annotations

from dovetail.model import DeviceClass, Implementation, Job, Prediction, Request
from dovetail.runtimes.base import HistoryModel, Query


class UserEstimateModel(HistoryModel):
    """Predicts a job's walltime; nothing for a job without one. History is counted, not used."""

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The walltime as expected time and upper bound. O(1)."""
        return _walltime_prediction(job.walltime)

    def make_prediction(self, query: Query) -> Prediction | None:
        """The same for plain names."""
        return _walltime_prediction(query.walltime)


def _walltime_prediction(walltime: float | None) -> Prediction | None:
    return None if walltime is None else Prediction(walltime, walltime, 0, "walltime", 0.0)
