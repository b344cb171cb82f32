"""By how much jobs live shorter than under the first policy: the measure of Markthub 2015."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.model import Result
from dovetail.report.columns import columns_of

__all__ = ["median_lifetime_decrease", "median_lifetime_decreases"]


def median_lifetime_decrease(result: Result, first: Result) -> float | None:
    """Percent by which the median job lives shorter (from submission to end) than in the first result.

    Of jobs that say what they communicate and that ended in both; ``None`` where there are none. O(jobs).
    """
    before = _lifetimes(first)
    pairs = [(before[job], life) for job, life in _lifetimes(result).items() if before.get(job, 0) > 0]
    if not pairs:
        return None
    lives = np.array(pairs)
    return float(np.median(100 * (lives[:, 0] - lives[:, 1]) / lives[:, 0]))


def _lifetimes(result: Result) -> dict[str, float]:
    columns = columns_of(result)
    lives = zip(columns.jobs, columns.ran.tolist(), columns.response.tolist(), strict=True)
    return {job.id: life for job, ran, life in lives if ran and job.communication is not None}


def median_lifetime_decreases(results: Sequence[Result]) -> list[float | None]:
    """Of each result against the first one on the same cluster with the same seed, replicate and load."""
    firsts: dict[tuple[str, int | None, int, float | None], Result] = {}
    found = []
    for result in results:
        case = result.cluster.label, result.seed, result.replicate.number, result.load
        first = firsts.setdefault(case, result)
        found.append(median_lifetime_decrease(result, first))
    return found
