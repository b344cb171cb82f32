"""``least-squares``: the paper's predictions (Gregg 2011, section 4.2).

Same inputs: their average. Two or more other sizes: a straight line of time over size, each size weighted
by its number of runs. One other size, on which the paper is silent: in proportion to the size. "Size" is
one number, the product of the numeric inputs (`scalar_size`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from functools import lru_cache

from dovetail.files.arrays import np
from dovetail.history.base import Aggregate, InputsKey
from dovetail.model import DeviceClass, Prediction, Seconds
from dovetail.records import dataclass
from dovetail.runtimes.base import TINY, HistoryModel, Query, shape_and_size
from dovetail.runtimes.intervals import GUESSED_SPREAD, student_quantile
from dovetail.runtimes.mean import same_inputs

MANY = 24
"""Points from which on array operations are quicker."""


@dataclass(frozen=True, slots=True)
class Line:
    """time = intercept + slope * size, from ``runs`` runs of ``sizes`` different sizes.

    ``variance`` is the residual variance of one run, ``centre`` and ``spread`` the weighted mean of the
    sizes and their weighted sum of squares about it: what a prediction interval needs.
    """

    intercept: Seconds
    slope: float
    runs: int
    sizes: int
    variance: float
    centre: float
    spread: float

    def at(self, size: float) -> Seconds:
        """The line at this size; may be negative."""
        return self.intercept + self.slope * size

    def half_width(self, size: float) -> Seconds | None:
        """Half of the 90 % prediction interval; ``None`` where two points leave no residual."""
        freedom = self.runs - 2
        if freedom < 1:
            return None
        leverage = 1 / self.runs + (size - self.centre) ** 2 / self.spread
        return student_quantile(freedom) * math.sqrt(self.variance * (1 + leverage))


def fit_line(points: Sequence[tuple[float, Aggregate]]) -> Line | None:
    """Least squares of mean time over size, weighted by count; ``None`` for fewer than two sizes.

    Weighting averages by their counts gives the line through all raw runs. The residual variance takes in
    the spread within each key (``m2``). O(points).
    """
    runs = sum([a.count for _, a in points])
    sizes = len({size for size, _ in points})
    if sizes < 2:
        return None
    if len(points) > MANY:
        return _fit_many(points, runs, sizes)
    # fsum: sizes of 10^9 squared would lose the small ones.
    figures = [(a.count, size, a.mean, a.m2) for size, a in points]
    centre = math.fsum([count * size for count, size, _, _ in figures]) / runs
    mean = math.fsum([count * y for count, _, y, _ in figures]) / runs
    spread = math.fsum([count * (size - centre) ** 2 for count, size, _, _ in figures])
    if not 0 < spread < math.inf:
        return None
    slope = math.fsum([count * (size - centre) * (y - mean) for count, size, y, _ in figures]) / spread
    intercept = mean - slope * centre
    residual = math.fsum([m2 + count * (y - intercept - slope * x) ** 2 for count, x, y, m2 in figures])
    return Line(intercept, slope, runs, sizes, residual / max(runs - 2, 1), centre, spread)


def _fit_many(points: Sequence[tuple[float, Aggregate]], runs: int, sizes: int) -> Line | None:
    """The same as array operations, quicker for many points; sums may differ in their last digit."""
    size = np.array([size for size, _ in points])
    figures = np.array([(a.count, a.mean, a.m2) for _, a in points])
    count, mean, m2 = figures[:, 0], figures[:, 1], figures[:, 2]
    centre = float((count * size).sum()) / runs
    average = float((count * mean).sum()) / runs
    away, above = size - centre, mean - average
    spread = float((count * away**2).sum())
    if not 0 < spread < math.inf:
        return None
    slope = float((count * away * above).sum()) / spread
    residual = float((m2 + count * (above - slope * away) ** 2).sum())
    return Line(average - slope * centre, slope, runs, sizes, residual / max(runs - 2, 1), centre, spread)


@lru_cache(maxsize=1 << 15)
def _shape_and_size(inputs: InputsKey) -> tuple[Hashable, float | None]:
    """Kept: a line is drawn anew after every run, over the same inputs."""
    return shape_and_size(inputs)


class LeastSquaresModel(HistoryModel):
    """The paper's model. Never negative: the line is clamped above zero."""

    def untried(self, app: str, implementation: str, device: DeviceClass) -> bool:
        """Never: under the paper's model policies are the papers', which are silent about this."""
        return False

    def make_prediction(self, query: Query) -> Prediction | None:
        """Mean, line or proportion; ``None`` where no run can be compared with this one."""
        same = same_inputs(self, query)
        if same is not None:
            return same
        size = _shape_and_size(query.inputs)[1]
        if size is None:
            return None
        fit = self._fit_line(query)
        if isinstance(fit, Line):
            expected = max(fit.at(size), TINY)
            half = fit.half_width(size)
            # Two sizes give a line without a residual: the interval is a guess then.
            if half is None:
                lower, upper = expected / GUESSED_SPREAD, expected * GUESSED_SPREAD
            else:
                lower, upper = max(expected - half, 0.0), max(expected + half, TINY)
            return Prediction(
                expected, upper, fit.runs, f"least squares over {fit.sizes} sizes ({fit.runs} runs)", lower
            )
        if fit is None:
            return None
        known, seconds, runs = fit
        expected = max(seconds * size / known, TINY)
        # Time that is constant, or goes with the square of the size, bounds what is plausible.
        ratio = max(size / known, known / size) * GUESSED_SPREAD
        return Prediction(
            expected,
            expected * ratio,
            runs,
            f"in proportion to size {known:g} ({runs} runs)",
            expected / ratio,
        )

    def _fit_line(self, query: Query) -> Line | tuple[float, Seconds, int] | None:
        """The line through all sizes, or the one known size with its mean time and runs."""
        averages = self.read_sample(query).sample_averages
        request, form = key = (query.request, _shape_and_size(query.inputs)[0])
        if key not in averages.fits:
            points = []
            for a in averages.aggregates:
                own, size = _shape_and_size(a.inputs)
                if size is not None and own == form and a.request == request:
                    points.append((size, a))
            found: Line | tuple[float, Seconds, int] | None = fit_line(points)
            if found is None and points:
                runs = sum(a.count for _, a in points)
                found = (points[0][0], sum(a.count * a.mean for _, a in points) / runs, runs)
            averages.fits[key] = found
        fit = averages.fits[key]
        assert fit is None or isinstance(fit, (Line, tuple))
        return fit
