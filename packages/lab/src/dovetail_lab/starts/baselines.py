"""What else could be answered: the plan, waits of late, and quantile regression on what is known."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import numpy.typing as npt

from dovetail.starts.calibration import log_wait, wait_of
from dovetail_lab.starts.world import Moment

Floats = npt.NDArray[np.float64]

REMEMBERED = 1000
"""Outcomes that the regression is fitted to, the last ones."""
REFIT = 25
"""Outcomes after which it is fitted anew."""
ENOUGH = 40
"""Outcomes below which it predicts nothing: then the last wait is taken."""
STEPS = 30
RIDGE = 1e-3
DAY = 86_400.0


def last_wait(moment: Moment) -> float:
    """What the user's last started job waited, else the last one of all."""
    recent = moment.recent
    if recent.of_user is not None:
        return recent.of_user
    return 0.0 if recent.of_all is None else recent.of_all


def mean_wait_of_last_hour(moment: Moment) -> float:
    """The mean wait of the jobs that started in the last hour, else the last wait."""
    return last_wait(moment) if moment.recent.of_hour is None else moment.recent.of_hour


def moment_features(moment: Moment, plan: float) -> Floats:
    """What a regression knows: plan, queue, machine, job, waits of late, hour of the day."""
    situation, kind = moment.situation, moment.job.queued.kind
    # As an angle, so that 23 h and 0 h are neighbours.
    hour = 2 * math.pi * (situation.now % DAY) / DAY
    ahead = sum(job.nodes * job.bound for job in situation.waiting)
    left = sum(job.nodes * max(job.bound - job.spent, 0.0) for job in situation.running)
    return np.array(
        [
            *(1.0, log_wait(plan), math.log1p(len(situation.waiting)), math.log1p(len(situation.running))),
            *(math.log1p(ahead), math.log1p(left), math.log1p(situation.nodes.idle)),
            *(math.log1p(kind.width), math.log1p(moment.job.queued.bound)),
            *(log_wait(last_wait(moment)), log_wait(mean_wait_of_last_hour(moment))),
            *(math.sin(hour), math.cos(hour)),
        ]
    )


def median_regression(rows: Floats, targets: Floats) -> Floats:
    """Coefficients of least absolute error, by iteratively reweighted least squares. O(steps · rows)."""
    # Columns differ by orders of magnitude; unscaled the ridge would act on some of them only.
    scale = np.maximum(np.abs(rows).mean(axis=0), 1e-9)
    scaled = rows / scale
    ridge = RIDGE * len(rows) * np.eye(rows.shape[1])
    weights = np.ones(len(rows))
    found = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        weighted = scaled * weights[:, None]
        found = np.linalg.solve(weighted.T @ scaled + ridge * weights.mean(), weighted.T @ targets)
        # Bounded from below, or a point that is met exactly would take all weight.
        weights = 1.0 / np.maximum(np.abs(targets - scaled @ found), 1e-3)
    result: Floats = found / scale
    return result


class QuantileRegression:
    """Linear in what is known, on the log scale; fitted to the last outcomes known by then."""

    def __init__(self) -> None:
        self._rows: deque[Floats] = deque(maxlen=REMEMBERED)
        self._targets: deque[float] = deque(maxlen=REMEMBERED)
        self._new = 0
        self._fitted: Floats | None = None

    def learn(self, row: Floats, wait: float) -> None:
        """An outcome is known."""
        self._rows.append(row)
        self._targets.append(log_wait(wait))
        self._new += 1

    def predict(self, row: Floats, otherwise: float) -> float:
        """The median wait, seconds."""
        if len(self._rows) < ENOUGH:
            return otherwise
        if self._fitted is None or self._new >= REFIT:
            self._fitted = median_regression(np.array(self._rows), np.array(self._targets))
            self._new = 0
        # Capped: an extrapolation of the log scale can overflow.
        return wait_of(min(float(row @ self._fitted), 20.0))
