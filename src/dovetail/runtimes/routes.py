"""Whether run times or CPU times lead to the better prediction, judged by past predictions of both.

The way of CPU times: a law of CPU times, times the app's own ratio of run time to CPU time, times the
slowdown at the moment. Judged are the app's newest runs, each by laws that do not know its inputs and by the
slowdown as it was known before it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dovetail.files.arrays import np
from dovetail.records import dataclass
from dovetail.runtimes.base import key_of
from dovetail.runtimes.drift import OWN, Timed, median_value
from dovetail.runtimes.fits import FEWEST, Fit

JUDGED = 4
"""Runs from which on the two ways are judged by what they would have predicted."""
COMPUTES = 0.4
"""Log ratio of run time to CPU time up to which an app is taken to compute all the time, before that …"""
STEADY = 0.35
"""… and the median deviation of it up to which the ratio is taken to be the app's own."""
USUAL = 0.05
"""Least spread of the ratio that is believed."""
NORMAL = 1.4826
"""Standard deviations in a median absolute deviation."""


@dataclass(frozen=True, slots=True)
class Route:
    """From CPU time to run time: log of the app's own ratio, and the spread of what remains of it."""

    ratio: float
    spread: float


def choose_route(timed: Sequence[Timed], fit: Fit, work: Fit) -> Route | None:
    """The way of CPU times, or ``None`` where that of run times would have been better. O(cells).

    ``fit`` is of run times, ``work`` of CPU times, ``timed`` the app's runs, of which the newest count.
    """
    newest = timed[-OWN:]
    rests = [one.ratio - one.before for one in newest]
    ratio = median_value(rests)
    deviation = median_value(abs(rest - ratio) for rest in rests)
    better = abs(ratio) <= COMPUTES and deviation <= STEADY
    by_time, by_work = _route_misses(newest, fit, work, ratio)
    if len(by_time) >= JUDGED:
        better = median_value(by_work) < median_value(by_time)
        deviation = max(deviation, median_value(by_work))
    return Route(ratio, max(USUAL, NORMAL * deviation)) if better else None


def _route_misses(
    timed: Sequence[Timed], fit: Fit, work: Fit, ratio: float
) -> tuple[list[float], list[float]]:
    """By how much, in log time, both ways would have missed each run; none where laws cannot be judged."""
    by_time: list[float] = []
    by_work: list[float] = []
    if min(len(fit.cells), len(work.cells)) < FEWEST:
        return by_time, by_work
    times, works = _left_out(fit), _left_out(work)
    for one in timed:
        key = key_of(one.run)
        at, there = fit.position.get(key), work.position.get(key)
        if at is not None and there is not None:
            seconds = math.log(one.run.seconds)
            by_time.append(abs(seconds - times[at]))
            by_work.append(abs(seconds - works[there] - ratio - one.before))
    return by_time, by_work


def _left_out(fit: Fit) -> list[float]:
    """The fit's prediction of each of its cells from all others."""
    shares = np.array(fit.shares)
    found: list[float] = (shares @ np.array([surface.loo for surface in fit.surfaces])).tolist()
    return found
