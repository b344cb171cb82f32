"""A time budget that algorithms check; the only clock in the package."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

MOST_BUSY = 8.0
"""Up to so many times as much wall time as CPU time is granted on a busy machine."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds`` from when it was made; ``None`` never ends.

    Of wall time; with ``cpu``, of this process's CPU time, so that a busy machine does not make an
    algorithm stop early.
    """

    seconds: float | None = None
    cpu: bool = False
    _since: tuple[float, float] = field(default_factory=lambda: (time.monotonic(), time.process_time()))

    @property
    def left(self) -> float:
        """Seconds left, not below 0; infinite without a limit."""
        if self.seconds is None:
            return math.inf
        wall, used = self._since
        spent = time.process_time() - used if self.cpu else time.monotonic() - wall
        return max(0.0, self.seconds - spent)

    @property
    def wall_left(self) -> float:
        """Seconds of wall time to give a solver that knows no other: more for CPU time on a busy machine."""
        if not self.cpu or self.seconds is None:
            return self.left
        wall, used = self._since
        busy = (time.monotonic() - wall) / max(time.process_time() - used, 1e-3)
        return self.left * min(max(busy, 1.0), MOST_BUSY)

    def has_passed(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0.0

    def at_most(self, seconds: float) -> Deadline:
        """A deadline that ends with this one, or ``seconds`` from now."""
        return Deadline(min(seconds, self.left), self.cpu)
