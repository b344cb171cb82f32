"""RSA: Relative Speedup based policy with Aggressive assignment (Ravi 2012, section III.A)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import Cluster, Decision, Job, Unit
from dovetail.policies.devices import refuse_gangs
from dovetail.policies.resources import Placement, Resources
from dovetail.policies.speedups import Difference, SpeedupQueues

__all__ = ["Rsa"]


@dataclass(frozen=True, slots=True)
class Rsa:
    """A free resource takes the job that gains most there, else the one that loses least by coming.

    Its own queue from the front while there is one, then the other queue from the back. Only relative
    speedups are needed. ``difference`` is that of the speedups, or their ratio. Ignores priorities.
    """

    difference: Difference = "speedup"

    paper: ClassVar[str] = "Ravi 2012, section III.A"
    settles: ClassVar[bool] = True

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Offer every resource with room a job until nothing changes. O(n log n) in the waiting jobs."""
        resources = Resources(view)
        if not resources.open:
            return
        queues = SpeedupQueues(view, self.difference)
        own = {kind: queues.own(kind) for kind in queues.kinds}

        def choose(unit: Unit) -> Placement | None:
            if any(resources.waits(job) for job, _ in own[unit.kind]):
                return resources.first_fit(own[unit.kind], unit)
            return resources.first_fit(queues.others_from_back(unit.kind), unit)

        yield from resources.offer(choose)
