"""What policies have in common under which each unit has a FIFO of its own (Gregg 2011, section 4.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from dovetail.interfaces import View
from dovetail.model import Decision
from dovetail.policies.parts.backlog import Backlog, start_heads
from dovetail.policies.parts.one_node import OneNode

__all__ = ["UnitFifos"]


class UnitFifos(OneNode, ABC):
    """What has reached the front of a FIFO starts (rule 1); else the main queue is looked at."""

    def decide(self, view: View) -> Iterable[Decision]:
        """Start the heads; where there are none, assign what is in the main queue."""
        heads = list(start_heads(view))
        if heads or not len(view.queue):
            return heads  # asked again once they run
        return self.assign(view, Backlog(view))

    @abstractmethod
    def assign(self, view: View, backlog: Backlog) -> Iterable[Decision]:
        """Where the jobs of the main queue go."""
