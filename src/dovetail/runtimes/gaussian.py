"""Linear Gaussian models about fitted laws, with a smooth local correction; exact leave-one-out.

Log times are y ~ N(law(θ), N + K): θ has its prior, N is the noise of each cell, and K a squared
exponential covariance over the columns, by which times near a measured size follow that size where the law
is a little off (caches, block sizes). Leave-one-out means and variances come from the inverse covariance
(Rasmussen & Williams 2006, section 5.4.2), so no model is fitted n times.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail.files.arrays import Floats, np
from dovetail.records import dataclass
from dovetail.runtimes.laws import Law

Form = tuple[float, float, float]
ALONE = ((0.0, 1.0, 0.01), (0.0, 1.0, 0.06), (0.0, 1.0, 0.25))
CORRECTED = ((0.15, 1.0, 0.01), (0.15, 1.0, 0.06), (0.4, 1.5, 0.01), (0.4, 1.5, 0.06), (0.4, 1.5, 0.25))
"""Forms (amplitude, length, nugget) that are tried. Amplitude: standard deviation of log time of the local
correction, 0 for the law alone; length: over how much log size it carries; nugget: standard deviation by
which a single key differs from its neighbours for no known reason."""
DOUBTFUL = 6.0
"""Squared leave-one-out residual, in its own variance, from which on a cell is doubted."""
CLIP = 100.0
SCALE_PRIOR = 3.0
"""The noise level assumed counts as this many leave-one-out residuals when its scale is set."""


@dataclass(frozen=True, slots=True)
class Surface:
    """A law with its local correction, conditioned on the cells.

    ``score`` is its mean leave-one-out log density, ``loo`` and ``loo_spread`` (n,) the leave-one-out means
    and standard deviations of log time, ``scale`` what all standard deviations are multiplied with so that
    the leave-one-out residuals fit them. ``solved``, ``inverse`` and ``weighted`` (the law's Jacobian times
    its prior variances) make predictions one product each.
    """

    law: Law
    amplitude: float
    length: float
    nugget: float
    score: float
    loo: Floats
    loo_spread: Floats
    scale: float
    solved: Floats
    inverse: Floats
    weighted: Floats

    def at(self, row: Floats) -> tuple[float, float]:
        """Mean and standard deviation of log time (noise of a run not included) at one row (q,)."""
        values, jacobian = self.law.at(row[None])
        cross = self.weighted @ jacobian[0]
        prior = float(jacobian[0] ** 2 @ self.law.spread**2)
        if self.amplitude:
            cross = cross + self.amplitude**2 * _row_nearness(row[None], self.law.rows, self.length)[0]
            prior += self.amplitude**2
        start = float(values[0]) + float(jacobian[0] @ (self.law.mean - self.law.theta))
        mean = start + float(cross @ self.solved)
        spread = prior - float(cross @ self.inverse @ cross)
        return mean, self.scale * math.sqrt(max(spread, 0.0) + self.nugget**2)


def _row_nearness(a: Floats, b: Floats, length: float) -> Floats:
    """exp(-distance² / 2 length²) between rows, the intercept left out: (m, n)."""
    distance = ((a[:, None, 1:] - b[None, :, 1:]) ** 2).sum(axis=2)
    near: Floats = np.exp(-0.5 * distance / length**2)
    return near


def fit_surfaces(
    laws: Sequence[Law], y: Floats, noise: Floats, corrected: bool, alone: Sequence[Form] = ALONE
) -> list[Surface]:
    """Every law alone and, if ``corrected``, with each local correction. ``noise`` (n,) is a variance.

    Cells far from where the others put them (in units of their leave-one-out spread) are doubted and
    everything is done once more: one disturbed run neither bends the correction nor widens every interval.
    """
    forms = [(law, *form) for law in laws for form in alone]
    if corrected:
        forms += [(law, *form) for law in laws if law.is_correctable for form in CORRECTED]
    n = len(y)
    covariance = np.empty((len(forms), n, n))
    start = np.empty((len(forms), n))
    prepared: dict[int, tuple[Floats, Floats, Floats]] = {}
    near: dict[tuple[int, float], Floats] = {}
    diagonal = np.arange(n)
    for i, (law, amplitude, length, nugget) in enumerate(forms):
        if id(law) not in prepared:
            values, jacobian = law.at(law.rows)
            weighted = jacobian * law.spread**2
            linear = weighted @ jacobian.T
            # Law and Jacobian are those of the law, whatever its correction: worked out once.
            prepared[id(law)] = (linear, values + jacobian @ (law.mean - law.theta), weighted)
        linear, start[i], _ = prepared[id(law)]
        covariance[i] = linear
        if amplitude:
            key = (id(law), length)
            if key not in near:
                near[key] = _row_nearness(law.rows, law.rows, length)
            covariance[i] += amplitude**2 * near[key]
        covariance[i, diagonal, diagonal] += nugget**2
    doubt = np.ones(n)
    found = _leave_one_out(covariance, y - start, noise, doubt)
    # Cells are doubted by the best surface alone, and for all: scores of different data cannot be compared.
    if n >= 4:
        best = int(np.argmax(found.score))
        deviation = found.residual[best] ** 2 * found.precision[best] / found.scale[best]
        doubt = np.maximum(1.0, deviation / DOUBTFUL) ** 2
        if doubt.max() > 1.0:
            found = _leave_one_out(covariance, y - start, noise, doubt)
    return [
        Surface(
            law,
            amplitude,
            length,
            nugget,
            float(found.score[i]),
            y - found.residual[i],
            np.sqrt(found.scale[i] / found.precision[i]),
            math.sqrt(found.scale[i]),
            found.solved[i],
            found.inverse[i],
            prepared[id(law)][2],
        )
        for i, (law, amplitude, length, nugget) in enumerate(forms)
    ]


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Leave-one-out figures of a batch: scores and scales (B,), the rest (B, n) and (B, n, n)."""

    score: Floats
    scale: Floats
    residual: Floats
    precision: Floats
    solved: Floats
    inverse: Floats


def _leave_one_out(covariance: Floats, target: Floats, noise: Floats, doubt: Floats) -> _LeftOut:
    """Residuals of each cell from the others, and how well their spreads fit them. O(B n³)."""
    full = covariance.copy()
    diagonal = np.arange(len(noise))
    full[:, diagonal, diagonal] += noise * doubt
    inverse = np.asarray(np.linalg.inv(full), dtype=np.float64)
    solved = np.asarray(np.einsum("bij,bj->bi", inverse, target), dtype=np.float64)
    # Leave-one-out from the inverse covariance: residual = solved / precision (the book's equation 5.12).
    precision = np.maximum(inverse[:, diagonal, diagonal], 1e-12)
    residual = solved / precision
    # Clipped: one disturbed run must not decide which law is best.
    square = np.minimum(residual**2 * precision, CLIP)
    weight = 1.0 / doubt
    scale = (SCALE_PRIOR + (square * weight).sum(axis=1)) / (SCALE_PRIOR + weight.sum())
    density = -0.5 * (square / scale[:, None] + np.log(scale)[:, None] - np.log(precision))
    score = (density * weight).sum(axis=1) / weight.sum()
    return _LeftOut(score, scale, residual, precision, solved, inverse)
