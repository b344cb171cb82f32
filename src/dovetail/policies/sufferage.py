"""Sufferage: the job that would suffer most is mapped first (Maheswaran et al. 1999, section 3.3)."""

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
class Sufferage(OneNode):
    """Map first the job that would lose most if it did not get its best unit.

    Its sufferage is its second best completion less its best one, over all units. One job is mapped at
    a time, and the sufferages taken anew (the paper maps at most one job to each unit before it does
    so). Ignores priorities.
    """

    paper: ClassVar[str] = "Maheswaran, Ali, Siegel, Hensgen, Freund 1999, section 3.3"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Map the whole queue, start what can start now."""
        return map_batch(view, suffers_most)


def suffers_most(completions: Completions) -> int:
    """The unmapped job with the greatest sufferage; infinite where no second unit will do."""
    suffers = np.full(len(completions.best), -np.inf)
    at = completions.unmapped
    suffers[at] = completions.second[at] - completions.best[at]
    return int(suffers.argmax())
