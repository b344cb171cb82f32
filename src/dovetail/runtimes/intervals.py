"""Intervals: between which times does nine runs out of ten end?"""

from __future__ import annotations

import math
from functools import lru_cache

from scipy import stats

from dovetail.history.base import Aggregate
from dovetail.model import Prediction
from dovetail.runtimes.base import TINY

__all__ = ["GUESSED_SPREAD", "LEVEL", "of_aggregate", "student"]

LEVEL = 0.9
"""Share of runs that is to end inside the interval."""
GUESSED_SPREAD = 2.0
"""Upper and lower end as a factor, where a single run says nothing about the spread."""


@lru_cache(maxsize=1024)
def student(freedom: int) -> float:
    """Two-sided Student t quantile of `LEVEL` for that many degrees of freedom."""
    return float(stats.t.ppf(0.5 + LEVEL / 2, freedom))


def of_aggregate(aggregate: Aggregate, basis: str) -> Prediction:
    """Mean of one key, with the prediction interval for one more run of a normal distribution."""
    mean = max(aggregate.mean, TINY)
    if aggregate.count < 2:
        return Prediction(mean, mean * GUESSED_SPREAD, 1, basis, mean / GUESSED_SPREAD)
    half = student(aggregate.count - 1) * aggregate.stdev * math.sqrt(1 + 1 / aggregate.count)
    return Prediction(mean, mean + half, aggregate.count, basis, max(mean - half, 0.0))
