"""Min-min: the job that can end first is mapped first (Maheswaran et al. 1999, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import Decision
from dovetail.policies.parts.batch_mapping import Completions, map_batch
from dovetail.policies.parts.one_node import OneNode


@dataclass(frozen=True, slots=True)
class MinMin(OneNode):
    """Map first the job that can end first, to the unit where it ends first; again for the rest.

    Keeps everybody fast where they are fast, and leaves long jobs for last. Ignores priorities.
    """

    paper: ClassVar[str] = "Maheswaran, Ali, Siegel, Hensgen, Freund 1999, section 3.3"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Map the whole queue, start what can start now."""
        return map_batch(view, soonest_job)


def soonest_job(completions: Completions) -> int:
    """The unmapped job with the least completion."""
    return int(completions.best.argmin())
