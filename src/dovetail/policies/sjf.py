"""Shortest job first, by walltime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.interfaces import Traits, View
from dovetail.model import Decision, Job, Seconds, Start, fastest_choice
from dovetail.policies.parts.orders import by_walltime
from dovetail.policies.parts.trials import Trials


@dataclass(frozen=True, slots=True)
class Sjf:
    """Shortest job first: jobs start by ascending walltime, then submission; the head blocks.

    A job without a walltime counts with the default one, or comes last. Priorities are ignored. Of
    several implementations a job takes the one predicted to be fastest, and waits for it. With
    ``walltime=learned`` the upper end of the prediction counts where something is known; what is known
    changes with every run, so the queue is then sorted at each decision.
    """

    walltime: Literal["user", "learned"] = "user"
    placement: Literal["pack", "spread", "first"] = "pack"

    paper: ClassVar[str] = "Conway, Maxwell and Miller 1967, Theory of Scheduling"
    traits: ClassVar[Traits] = Traits(settles=True, partitions=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Start the shortest while they fit. O(jobs started); O(n log n) with learned walltimes."""
        decisions: list[Decision] = []
        free, trials = view.free(), Trials(view)
        for job in self._ordered_queue(view):
            choice = trials.preferred_choice(job, free)
            allocation = free.claim(choice.request)
            if allocation is None:
                break
            decisions.append(Start(job.id, choice.implementation.name, allocation))
        return decisions

    def _ordered_queue(self, view: View) -> Sequence[Job]:
        if self.walltime == "user":
            return view.queue.by(by_walltime, bounded=True)

        def learned_seconds(job: Job) -> Seconds:
            choice = fastest_choice(view, job)
            return view.bound(job, choice.implementation, choice.request)

        return sorted(view.queue, key=learned_seconds)
