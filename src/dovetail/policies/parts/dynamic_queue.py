"""The main queue and the units' FIFOs of Gregg 2011, section 4.1: rules 1 and 4.

Which unit a job goes to (rules 2 and 3) is the policy's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence

from dovetail.interfaces import View
from dovetail.model import Decision, Job, Request, Wait, units_for
from dovetail.policies.parts.backlog import NOWHERE, Backlog, Place, places_in_device_order
from dovetail.policies.parts.unit_fifos import UnitFifos

__all__ = ["DynamicQueue"]


class DynamicQueue(UnitFifos):
    """While a unit is idle, the next job of the main queue goes to a unit, or into its FIFO."""

    def assign(self, view: View, backlog: Backlog) -> Iterable[Decision]:
        """Go through the queue once (rule 4); through what is new where the rest cannot run here anyway."""
        jobs: Iterable[Job] = view.queue
        if not view.changes.incident and not any(_fits(view, request) for request in view.queue.requests()):
            jobs = [job for job in view.changes.submitted if job in view.queue]
        for job in jobs:
            places = places_in_device_order(view, job)
            if not places:
                yield Wait(job.id, NOWHERE)
                continue
            if not any(backlog.idle) and not any(backlog.can_start(place) for place in places):
                return
            place = self.place(backlog, job, places)
            if place is not None:
                yield backlog.assign(job, place)

    @abstractmethod
    def place(self, backlog: Backlog, job: Job, places: Sequence[Place]) -> Place | None:
        """Where the next job goes: started there if it can be, else into the FIFO; ``None``: it waits."""


def _fits(view: View, request: Request) -> bool:
    """Whether a job that asks for this can run on a unit of a node that is there. O(1) mostly."""
    return request.nodes == 1 and bool(units_for(view.cluster, request))
