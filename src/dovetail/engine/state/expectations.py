"""What a rate model expects of running jobs, over predicted times: what policies may ask about sharing.

The same model as a simulation's, fed with what the engine has seen and predicted, never with true times. A
replay of the journal has the same expectations, since it has the same events and predictions.
"""

from __future__ import annotations

from dovetail.engine.state.changes import InstantChanges
from dovetail.engine.state.progress import Progress
from dovetail.interfaces import Expected, RateModel
from dovetail.model import JobId, Placed, Seconds

__all__ = ["Expectations", "News"]


class News:
    """What is new in an engine's changes since the last look: they grow until its policy has been asked."""

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
        self._news = News()

    def shift(self, now: Seconds, changes: InstantChanges) -> None:
        """What an instant has changed. O(what changed)."""
        started, ended, moved = self._news.of(changes)
        for placed in ended:
            self._progress.stop(placed.job.id)
        for placed in started:
            if placed.predicted is not None:
                self._progress.start(placed.job.id, placed.start_time, placed.predicted, float("inf"))
        self._progress.shift(now, started, ended, moved)

    def expected(self, job: JobId) -> Expected | None:
        """What is left of a running job; ``None`` where nothing was predicted."""
        work = self._progress.work(job)
        return None if work is None else Expected(work.total, work.left, work.since, work.rate)
