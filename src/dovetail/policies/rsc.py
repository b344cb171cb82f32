"""RSC: Relative Speedup based policy with Conservative assignment (Ravi 2012, section III.A)."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.model import Unit
from dovetail.policies.parts.idle_units import Assignment, IdleUnits
from dovetail.policies.rsa import RelativeSpeedup, SpeedupQueues


@dataclass(frozen=True, slots=True)
class Rsc(RelativeSpeedup):
    """A free unit takes the job that gains most there; if no job prefers it, it stays idle.

    As RSA, but jobs only ever run where they are fastest. Ignores priorities.
    """

    def choose_job(self, unit: Unit, units: IdleUnits, queues: SpeedupQueues) -> Assignment | None:
        """From the unit's own queue only."""
        return units.first_fit(queues.own[unit.kind], unit)
