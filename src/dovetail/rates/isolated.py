"""No contention: a job runs as fast beside others as alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.model import EMPTY, JobId, Placed, Seconds


@dataclass(frozen=True, slots=True)
class Isolated:
    """Every job runs at its own speed, whatever runs beside it (what a simulation without rates does)."""

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """Nothing ever changes."""
        return EMPTY, EMPTY
