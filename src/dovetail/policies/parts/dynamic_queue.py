"""The main queue and the units' FIFOs of Gregg 2011, section 4.1: rules 1 and 4.

Which unit a job goes to (rules 2 and 3) is the policy's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from dovetail.interfaces import View
from dovetail.model import Decision, Job, Wait
from dovetail.policies.parts.backlog import NOWHERE, Backlog, Place, places_in_device_order, start_heads
from dovetail.policies.parts.one_node import OneNode

__all__ = ["DynamicQueue"]


class DynamicQueue(OneNode, ABC):
    """While a unit is idle, the next job of the main queue goes to a unit, or into its FIFO."""

    def decide(self, view: View) -> Iterable[Decision]:
        """Start what has reached the front of a FIFO (rule 1), else go through the queue once (rule 4)."""
        heads = list(start_heads(view))
        if heads or not len(view.queue):
            yield from heads
            return  # asked again once they run
        backlog = Backlog(view)
        for job in view.queue:
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
