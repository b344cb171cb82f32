"""First come, first served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.interfaces import Traits, View
from dovetail.model import Decision, Start
from dovetail.policies.parts.orders import priority_first
from dovetail.policies.parts.trials import Trials


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: jobs start in order of priority, then submission; the head blocks.

    Of several implementations a job takes the one predicted to be fastest, and waits for it. With ``skip`` so
    many jobs behind a head that does not fit may go first.
    """

    placement: Literal["pack", "spread", "first"] = "pack"
    skip: int = 0

    paper: ClassVar[str] = "Feitelson and Rudolph 1995, Parallel job scheduling: issues and approaches"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, partitions=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start from the front of the queue while jobs fit. O(jobs started)."""
        decisions: list[Decision] = []
        if not view.queue:
            return decisions
        free, passed, trials = view.free(), 0, Trials(view)
        for job in view.queue.by(priority_first):
            choice = trials.preferred_choice(job, free)
            allocation = free.claim(choice.request)
            if allocation is None:
                passed += 1
                if passed > self.skip:
                    break
                continue
            decisions.append(Start(job.id, choice.implementation.name, allocation))
        return decisions
