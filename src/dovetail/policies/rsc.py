"""RSC: Relative Speedup based policy with Conservative assignment (Ravi 2012, section III.A)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import Cluster, Decision, Job
from dovetail.policies.devices import refuse_gangs
from dovetail.policies.resources import Resources
from dovetail.policies.speedups import Difference, SpeedupQueues

__all__ = ["Rsc"]


@dataclass(frozen=True, slots=True)
class Rsc:
    """A free resource takes the job that gains most there; if no job prefers it, it stays idle.

    As RSA, but jobs only ever run where they are fastest. Ignores priorities.
    """

    difference: Difference = "speedup"

    paper: ClassVar[str] = "Ravi 2012, section III.A"
    settles: ClassVar[bool] = True

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Offer every resource with room a job of its own queue. O(n log n) in the waiting jobs."""
        resources = Resources(view)
        if not resources.open:
            return
        queues = SpeedupQueues(view, self.difference)
        own = {kind: queues.own(kind) for kind in queues.kinds}
        yield from resources.offer(lambda unit: resources.first_fit(own[unit.kind], unit))
