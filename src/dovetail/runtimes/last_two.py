"""``last-two``: the average of the user's last two runs (Tsafrir, Etsion & Feitelson 2007).

Where job sizes mean nothing to a predictor, what the same user ran last is a good guess. Runs are those of
this app, implementation and class; without a user's own runs, anybody's.
"""

from __future__ import annotations

from dovetail.model import DeviceClass, Implementation, Job, Prediction, Request
from dovetail.runtimes.base import MAX_RUNS, TINY, HistoryModel, Query
from dovetail.runtimes.intervals import GUESSED_SPREAD


class LastTwoModel(HistoryModel):
    """Average of the last two completed runs of the user; inputs and request do not matter.

    A prediction above the walltime is cut to it: the job would be ended there.
    """

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The prediction, or ``None`` without any run of the app here. O(1) to O(`MAX_RUNS`)."""
        return self.last_two(job.app.name, implementation.name, device, job.user, job.walltime)

    def make_prediction(self, query: Query) -> Prediction | None:
        """The same for anybody's runs."""
        return self.last_two(query.app, query.implementation, query.device, None, query.walltime)

    def last_two(
        self, app: str, implementation: str, device: DeviceClass, user: str | None, walltime: float | None
    ) -> Prediction | None:
        """Average of the last two runs by plain names; ``user`` ``None``: anybody's."""
        runs = self.history.recent(app, implementation, device, MAX_RUNS)
        own = [run for run in runs if run.user == user] if user is not None else []
        last = (own or list(runs))[-2:]
        if not last:
            return None
        expected = max(sum(run.seconds for run in last) / len(last), TINY)
        upper = max(run.seconds for run in last) * GUESSED_SPREAD
        lower = min(run.seconds for run in last) / GUESSED_SPREAD
        whose = "the user's" if own else "anybody's"
        basis = f"{whose} last {'run' if len(last) == 1 else 'two runs'}"
        if walltime is not None and expected > walltime:
            expected, basis = walltime, f"{basis}, cut to the walltime"
        return Prediction(expected, max(upper, expected), len(last), basis, min(lower, expected))
