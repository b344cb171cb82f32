"""Forecasts walked forward through a world: each from what was known when its job was submitted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

import numpy as np

from dovetail.starts.calibration import Calibration, spread_of, wait_of
from dovetail.starts.rolling import StartDraws, plan_starts, waits_as_logs
from dovetail_lab.starts.baselines import (
    Floats,
    QuantileRegression,
    last_wait,
    mean_wait_of_last_hour,
    moment_features,
)
from dovetail_lab.starts.world import Moment, World

LONG_QUEUE = 300
"""With more jobs waiting only the shown forecasts are made: each takes long, and all are alike."""
QUARTERS = 4
BASELINES = ("plan", "last_wait", "mean_wait_of_last_hour", "quantile_regression")


@dataclass(frozen=True, slots=True)
class Forecast:
    """A job that waits, at its submission: seconds from then; ``others`` are what baselines answer."""

    trace: str
    job: str
    asked_at: float
    lower: float
    median: float
    upper: float
    actual: float
    others: dict[str, float]
    raw_lower: float
    raw_upper: float

    @property
    def holds(self) -> bool:
        """Whether the job started within the interval."""
        return self.lower - 1e-6 <= self.actual <= self.upper + 1e-6


@dataclass(slots=True)
class Replayed:
    """The forecasts of a trace, and the CPU seconds that they took."""

    trace: str
    forecasts: list[Forecast] = field(default_factory=list)
    cpu_seconds: float = 0.0

    def interval_coverage(self) -> float | None:
        """The share of intervals that held."""
        return _mean_or_none([one.holds for one in self.forecasts])

    def raw_coverage(self) -> float | None:
        """The same without the correction: of the roll-outs' own quantiles."""
        return _mean_or_none([one.raw_lower <= one.actual <= one.raw_upper for one in self.forecasts])

    def coverage_by_quarter(self) -> list[float | None]:
        """Of the forecasts in four parts, in order."""
        count = len(self.forecasts)
        edges = [count * place // QUARTERS for place in range(QUARTERS + 1)]
        parts = [self.forecasts[a:b] for a, b in pairwise(edges)]
        return [_mean_or_none([one.holds for one in part]) for part in parts]

    def median_abs_error(self) -> dict[str, float | None]:
        """Seconds, of ours and of each baseline."""
        found = {"ours": _median_or_none([abs(one.median - one.actual) for one in self.forecasts])}
        for name in BASELINES:
            found[name] = _median_or_none([abs(one.others[name] - one.actual) for one in self.forecasts])
        return found


def _mean_or_none(values: list[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def _median_or_none(values: list[float]) -> float | None:
    return median(values) if values else None


def replay_world(world: World, every: int = 10, progress: Callable[[float], None] | None = None) -> Replayed:
    """Forecast each ``every``-th job that waits.

    The others that wait are forecast too, unseen, as their outcomes teach the correction. ``progress`` gets
    how far it is, from 0 to 1.
    """
    began = time.process_time()
    found = Replayed(world.trace)
    walk = _Walk(world.trace)
    for turn, moment in enumerate(world.walk()):
        shown = turn % every == 0
        forecast = walk.take_in(moment, shown=shown)
        if forecast is not None and shown:
            found.forecasts.append(forecast)
            if progress is not None:
                progress(moment.job.queued.seed / len(world.jobs))
    found.cpu_seconds = time.process_time() - began
    return found


class _Walk:
    def __init__(self, trace: str) -> None:
        self._trace = trace
        self._draws = StartDraws()
        self._calibration = Calibration()
        self._regression = QuantileRegression()
        self._rows: dict[object, Floats] = {}

    def take_in(self, moment: Moment, *, shown: bool) -> Forecast | None:
        """Take in what has happened; the forecast of the job that waits, where one is made."""
        # In the order of a live service: submissions, starts and ends are known before the forecast is made.
        for job in moment.submitted:
            self._draws.submit(job.submit, job.queued)
        for job in moment.started:
            self._calibration.start(job.queued.key, job.start)
            # An outcome teaches the regression only if a forecast was made for it.
            row = self._rows.pop(job.queued.key, None)
            if row is not None:
                self._regression.learn(row, job.start - job.submit)
        for job in moment.ended:
            self._draws.end(job.queued.key, job.queued.kind, job.end - job.start)
        # Long queues make roll-outs dear; those that are not shown can be left out.
        if not shown and len(moment.situation.waiting) > LONG_QUEUE:
            return None
        return self._forecast_start(moment, shown=shown)

    def _forecast_start(self, moment: Moment, *, shown: bool) -> Forecast:
        job, situation = moment.job, moment.situation
        target = len(situation.waiting) - 1
        starts = self._draws.starts(situation, target, seed=job.queued.seed)[:, target]
        low, middle, high = np.quantile(waits_as_logs(starts), (0.05, 0.5, 0.95)).tolist()
        made = self._calibration.make_forecast(
            job.queued.key, situation.now, middle, spread_of(low, high), counts=shown
        )
        plan = float(plan_starts(situation, target)[target])
        row = self._rows[job.queued.key] = moment_features(moment, plan)
        last = last_wait(moment)
        others = {
            "plan": plan,
            "last_wait": last,
            "mean_wait_of_last_hour": mean_wait_of_last_hour(moment),
            "quantile_regression": self._regression.predict(row, last),
        }
        return Forecast(
            self._trace,
            job.id,
            situation.now,
            wait_of(made.low),
            wait_of(middle),
            wait_of(made.high),
            job.start - job.submit,
            others,
            wait_of(low),
            wait_of(high),
        )
