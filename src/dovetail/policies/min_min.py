"""Min-min: the job that can end first is mapped first (Maheswaran et al. 1999, section 3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import Cluster, Decision, Job
from dovetail.policies.batch_mapping import Completions, map_batch
from dovetail.policies.devices import refuse_gangs

__all__ = ["MinMin"]


@dataclass(frozen=True, slots=True)
class MinMin:
    """Map first the job that can end first, to the resource where it ends first; again for the rest.

    Keeps everybody fast where they are fast, and leaves long jobs for last. Ignores priorities.
    """

    paper: ClassVar[str] = "Maheswaran, Ali, Siegel, Hensgen, Freund 1999, section 3.3"
    settles: ClassVar[bool] = True

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Map the whole queue, start what can start now."""
        return map_batch(view, soonest)


def soonest(completions: Completions) -> int:
    """The unmapped job with the least completion."""
    return int(completions.best.argmin())
