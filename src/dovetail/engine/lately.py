"""What happened lately, for policies that learn from it: kept only for those that look back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from dovetail.model import Placed, Ran, Seconds

__all__ = ["Lately"]

REMEMBERED = 256


class Lately:
    """The last jobs that ended. Implements `dovetail.interfaces.Lately`."""

    def __init__(self) -> None:
        self.ran: deque[Ran] = deque(maxlen=REMEMBERED)

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A job ended; one without a bound tells nothing."""
        bound = placed.bound - placed.start_time
        if 0 < bound < inf:
            self.ran.append(Ran(placed.job.user, bound, now - placed.start_time))

    def recall(self, ran: Iterable[Ran]) -> None:
        """Remember this and nothing else: go on where another engine stopped."""
        self.ran.clear()
        self.ran.extend(ran)
