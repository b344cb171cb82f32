"""A time budget that algorithms ask; the only clock in the package."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

__all__ = ["Deadline"]


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

    def passed(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0.0

    def at_most(self, seconds: float) -> Deadline:
        """A deadline that ends with this one, or ``seconds`` from now."""
        return Deadline(min(seconds, self.left), self.cpu)
