"""How long an outside scheduler lets jobs wait in truth, as a part of what it foresees."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple

from dovetail.model import TimeUsed

QUANTILE = 1.2816
"""Of the normal distribution: four waits of five are to be within the bounds."""
UNKNOWN_SHARE, UNKNOWN_SPREAD = 0.4, 0.888
"""Waits as a part of what was foreseen before any is known, and the spread of its logarithm: from 0.08 to 2.

In published traces (KTH SP2, HPC2N, Theta) jobs used 0.65, 0.42 and 0.66 of their walltimes, all together.
"""
ENOUGH = 20
"""Jobs of the accounting from which on it counts how much of their walltimes they used."""


class Delay(NamedTuple):
    """How long jobs wait, as a part of what was foreseen: expected, and bounds that hold four of five."""

    expected: float
    low: float
    high: float
    seen: int  # own starts and the accounting, from which it was learned

    @staticmethod
    def learn_delay(logs: Sequence[float], used: TimeUsed | None) -> Delay:
        """From logarithms of what was seen; what jobs ``used`` of their walltimes counts as one of them.

        Where the accounting has no times that one is `UNKNOWN_SHARE`. The bounds are those of a normal
        distribution's next value, with the spread that was assumed counted like a value.
        """
        known = used is not None and used.jobs >= ENOUGH and used.share > 0.0
        first, spread = (
            (log(used.share), used.spread)
            if used is not None and known
            else (log(UNKNOWN_SHARE), UNKNOWN_SPREAD)
        )
        n = len(logs) + 1
        mean = (first + sum(logs)) / n
        off = [(one - mean) ** 2 for one in (first, *logs)]
        width = QUANTILE * sqrt((max(spread, 0.1) ** 2 + sum(off)) / n * (1.0 + 1.0 / n))
        return Delay(exp(mean), exp(mean - width), exp(mean + width), len(logs) + known)
