"""Perfect knowledge: the true times, for simulations that leave prediction out of the question."""

from __future__ import annotations

from dovetail.model import DeviceClass, Implementation, Job, Prediction, Request, Truth


class PerfectModel:
    """Predicts the true time of every job.

    Every app counts as having run everywhere, so that no policy explores: there is nothing to learn.
    """

    version = 0
    """Constant: nothing is learned."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    @property
    def truth(self) -> Truth:
        """Where the times come from."""
        return self._truth

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The true time as an interval of no width; ``None`` where the truth is unknown. O(1)."""
        seconds = self._truth.seconds(job, implementation, request)
        return None if seconds is None else Prediction(seconds, seconds, 1, "true time", seconds)

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Always 1."""
        return 1
