"""What happened lately, for policies that think of what is to come: kept only for those that look back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from dovetail.model import Arrival, Job, Placed, Seconds

__all__ = ["Lately"]

RATIOS = 256
ARRIVALS = 256
HOURS = 12 * 3600.0


class Lately:
    """The last run times as parts of their bounds, and the submissions of the last twelve hours (256 each).

    Implements `dovetail.interfaces.Lately`.
    """

    def __init__(self) -> None:
        self.ratios: deque[float] = deque(maxlen=RATIOS)
        self.arrivals: deque[Arrival] = deque(maxlen=ARRIVALS)

    def submitted(self, job: Job, now: Seconds, bound: Seconds) -> None:
        """A job was submitted; one without a bound tells nothing."""
        while self.arrivals and self.arrivals[0].time < now - HOURS:
            self.arrivals.popleft()
        if bound < inf:
            self.arrivals.append(Arrival(now, job.choices[0].request, bound))

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A job ended."""
        bound = placed.bound - placed.start_time
        if 0 < bound < inf:
            self.ratios.append(min(1.0, (now - placed.start_time) / bound))

    def recall(self, ratios: Iterable[float], arrivals: Iterable[Arrival]) -> None:
        """Remember this and nothing else: go on where another engine stopped."""
        self.ratios.clear()
        self.arrivals.clear()
        self.ratios.extend(ratios)
        self.arrivals.extend(arrivals)
