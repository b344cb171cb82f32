"""RSC: Relative Speedup based policy with Conservative assignment (Ravi 2012, section III.A)."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.model import Unit
from dovetail.policies.resources import Placement, Resources
from dovetail.policies.speedups import RelativeSpeedup, SpeedupQueues

__all__ = ["Rsc"]


@dataclass(frozen=True, slots=True)
class Rsc(RelativeSpeedup):
    """A free resource takes the job that gains most there; if no job prefers it, it stays idle.

    As RSA, but jobs only ever run where they are fastest. Ignores priorities.
    """

    def choose(self, unit: Unit, resources: Resources, queues: SpeedupQueues) -> Placement | None:
        """From the unit's own queue only."""
        return resources.first_fit(queues.own(unit.kind), unit)
