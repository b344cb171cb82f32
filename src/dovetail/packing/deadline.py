"""A time budget that algorithms ask; the only clock in the package."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

__all__ = ["Deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """``seconds`` of wall time from when it was made; ``None`` never ends."""

    seconds: float | None = None
    _since: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds left, not below 0; infinite without a limit."""
        if self.seconds is None:
            return math.inf
        return max(0.0, self.seconds - (time.monotonic() - self._since))

    def passed(self) -> bool:
        """Whether the time is up."""
        return self.left <= 0.0

    def at_most(self, seconds: float) -> Deadline:
        """A deadline that ends with this one, or ``seconds`` from now."""
        return Deadline(min(seconds, self.left))
