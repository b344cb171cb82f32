"""Intervals: between which times does nine runs out of ten end?"""

from __future__ import annotations

import math
from functools import lru_cache

from dovetail.history.base import Aggregate
from dovetail.model import Prediction
from dovetail.runtimes.base import TINY

LEVEL = 0.9
"""Share of runs that is to end inside the interval."""
GUESSED_SPREAD = 2.0
"""Upper and lower end as a factor, where a single run shows no spread."""


NORMAL = 1.6448536269514722
"""Two-sided standard normal quantile of `LEVEL`."""
EXACT = 300
"""Up to so many degrees of freedom `student_quantile` sums the distribution; beyond, its expansion is as
exact."""


@lru_cache(maxsize=1024)
def student_quantile(freedom: int) -> float:
    """Two-sided Student t quantile of `LEVEL` for that many degrees of freedom, to 13 digits.

    Here rather than from SciPy, whose import takes longer than most simulations. An expansion about the
    normal quantile (Abramowitz & Stegun 1964, 26.7.5), and for few degrees of freedom Newton's method from
    there on the finite sum of the distribution (26.7.3, 26.7.4). Raises `ValueError` below 1.

    >>> round(student_quantile(4), 4)
    2.1318
    """
    if freedom < 1:
        raise ValueError(f"found {freedom} degrees of freedom, expected at least 1")
    quantile = _quantile_expansion(freedom)
    if freedom > EXACT:
        return quantile
    log_scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    for _ in range(50):
        power = (freedom + 1) / 2 * math.log1p(quantile * quantile / freedom)
        step = (_probability_within(quantile, freedom) - LEVEL) / (2 * math.exp(log_scale - power))
        quantile -= step
        if abs(step) < 1e-13 * quantile:
            break
    return quantile


def _quantile_expansion(freedom: int) -> float:
    """The quantile in powers of 1 / freedom (Abramowitz & Stegun, 26.7.5)."""
    x, n = NORMAL, freedom
    return (
        x
        + (x**3 + x) / (4 * n)
        + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * n**2)
        + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * n**3)
        + (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / (92160 * n**4)
    )


def _probability_within(t: float, freedom: int) -> float:
    """Probability of -t to t (Abramowitz & Stegun, 26.7.3 for odd, 26.7.4 for even freedom). O(freedom)."""
    angle = math.atan2(t, math.sqrt(freedom))
    odd = freedom % 2
    square = math.cos(angle) ** 2
    term = total = (math.cos(angle) if freedom > 1 else 0.0) if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    share = math.sin(angle) * total
    return 2 / math.pi * (angle + share) if odd else share


def of_aggregate(aggregate: Aggregate, basis: str) -> Prediction:
    """Mean of one key, with the prediction interval for one more run of a normal distribution."""
    mean = max(aggregate.mean, TINY)
    if aggregate.count < 2:
        return Prediction(mean, mean * GUESSED_SPREAD, 1, basis, mean / GUESSED_SPREAD)
    half = (
        student_quantile(aggregate.count - 1)
        * aggregate.sample_deviation
        * math.sqrt(1 + 1 / aggregate.count)
    )
    return Prediction(mean, mean + half, aggregate.count, basis, max(mean - half, 0.0))
