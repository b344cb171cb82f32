"""First come, first served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.interfaces import View
from dovetail.model import Decision, Start
from dovetail.policies.choosing import fastest
from dovetail.policies.orders import priority_first

__all__ = ["Fcfs"]


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: jobs start in order of priority, then submission; the head blocks.

    Of several implementations a job takes the one predicted to be fastest, and waits for it.
    """

    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = "Feitelson and Rudolph 1995, Parallel job scheduling: issues and approaches"
    settles: ClassVar[bool] = True
    priorities: ClassVar[bool] = True

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front of the queue while jobs fit. O(jobs started)."""
        decisions: list[Decision] = []
        if not view.queue:
            return decisions
        free, allocation = view.free(), None
        for job in view.queue.by(priority_first):
            if allocation is not None:
                free.take(allocation)
            choice = fastest(view, job)
            allocation = free.fit(choice.request)
            if allocation is None:
                break
            decisions.append(Start(job.id, choice.implementation.name, allocation))
        return decisions
