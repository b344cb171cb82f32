"""Max-min: the job that can end last is mapped first (Maheswaran et al. 1999, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dovetail.interfaces import View
from dovetail.model import Cluster, Decision, Job
from dovetail.policies.batch_mapping import Completions, map_batch
from dovetail.policies.devices import refuse_gangs

__all__ = ["MaxMin"]


@dataclass(frozen=True, slots=True)
class MaxMin:
    """Map first the job whose best completion is the latest, to the resource where it ends first.

    Long jobs go first, short ones fill up. Ignores priorities.
    """

    paper: ClassVar[str] = "Maheswaran, Ali, Siegel, Hensgen, Freund 1999, section 3.3"
    settles: ClassVar[bool] = True

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Map the whole queue, start what can start now."""
        return map_batch(view, latest)


def latest(completions: Completions) -> int:
    """The unmapped job with the greatest of the least completions."""
    return int(np.where(completions.unmapped, completions.best, -np.inf).argmax())
