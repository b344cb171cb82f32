"""RSA: Relative Speedup based policy with Aggressive assignment (Ravi 2012, section III.A)."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.model import Unit
from dovetail.policies.parts.idle_units import Assignment, IdleUnits
from dovetail.policies.parts.speedups import RelativeSpeedup, SpeedupQueues

__all__ = ["Rsa"]


@dataclass(frozen=True, slots=True)
class Rsa(RelativeSpeedup):
    """A free unit takes the job that gains most there, else the one that loses least by coming.

    Its own queue from the front while there is one, then the other queue from the back. Only relative
    speedups are needed. ``difference`` is that of the speedups, or their ratio. Ignores priorities.
    """

    def choose(self, unit: Unit, units: IdleUnits, queues: SpeedupQueues) -> Assignment | None:
        """From the unit's own queue while a job waits in it, else from the back of the others."""
        own = queues.own(unit.kind)
        if any(units.waits(job) for job, _ in own):
            return units.first_fit(own, unit)
        return units.first_fit(queues.others_from_back(unit.kind), unit)
