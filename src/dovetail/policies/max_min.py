"""Max-min: the job that can end last is mapped first (Maheswaran et al. 1999, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from dovetail.files.arrays import np
from dovetail.interfaces import Traits, View
from dovetail.model import Decision
from dovetail.policies.parts.batch_mapping import Completions, map_batch
from dovetail.policies.parts.one_node import OneNode


@dataclass(frozen=True, slots=True)
class MaxMin(OneNode):
    """Map first the job whose best completion is the latest, to the unit where it ends first.

    Long jobs go first, short ones fill up. Ignores priorities.
    """

    paper: ClassVar[str] = "Maheswaran, Ali, Siegel, Hensgen, Freund 1999, section 3.3"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Map the whole queue, start what can start now."""
        return map_batch(view, latest_job)


def latest_job(completions: Completions) -> int:
    """The unmapped job with the greatest of the least completions."""
    return int(np.where(completions.unmapped, completions.best, -np.inf).argmax())
