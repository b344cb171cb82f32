"""What happened lately, for policies that learn from it: kept only for those that look back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from dovetail.model import Came, Job, Placed, Ran, Seconds

__all__ = ["Recent"]

ENDS, SUBMISSIONS = 256, 64


class Recent:
    """The last jobs that ended, and the last ones that came. Implements `dovetail.interfaces.Recent`."""

    def __init__(self) -> None:
        self.ran: deque[Ran] = deque(maxlen=ENDS)
        self.came: deque[Came] = deque(maxlen=SUBMISSIONS)

    def submitted(self, job: Job, bound: Seconds) -> None:
        """A job came to the queue; one without a bound tells nothing."""
        if 0 < bound < inf:
            self.came.append(Came(job.user, job.submit_time, job.choices[0].request, bound))

    def ended(self, placed: Placed, now: Seconds) -> None:
        """A job ended; one without a bound tells nothing."""
        bound = placed.bound - placed.start_time
        if 0 < bound < inf:
            self.ran.append(Ran(placed.job.user, bound, now - placed.start_time))

    def recall(self, ran: Iterable[Ran], came: Iterable[Came]) -> None:
        """Remember this and nothing else: go on where another engine stopped."""
        self.ran.clear()
        self.ran.extend(ran)
        self.came.clear()
        self.came.extend(came)
