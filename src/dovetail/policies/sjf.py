"""Shortest job first, by walltime."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.interfaces import View
from dovetail.model import Decision, Start
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import shortest

__all__ = ["Sjf"]


@dataclass(frozen=True, slots=True)
class Sjf:
    """Shortest job first: jobs start by ascending walltime, then submission; the head blocks.

    A job without a walltime counts with the default one, or comes last. Priorities are ignored. Of
    several implementations a job takes the one predicted to be fastest, and waits for it.
    """

    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = "Conway, Maxwell and Miller 1967, Theory of Scheduling"
    settles: ClassVar[bool] = True

    def decide(self, view: View) -> Iterable[Decision]:
        """Start the shortest while they fit. O(jobs started)."""
        decisions: list[Decision] = []
        free = view.free()
        for job in view.queue.by(shortest, bounded=True):
            choice = fastest(view, job)
            allocation = free.fit(choice.request)
            if allocation is None:
                break
            free.take(allocation)
            decisions.append(Start(job.id, choice.implementation.name, allocation))
        return decisions
