"""A policy of one's own: what fits starts, the shortest predicted time first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from dovetail.interfaces import View
from dovetail.model import Choice, Decision, Job, Start


@dataclass(frozen=True)
class Shortest:
    """Start what fits, the shortest predicted time first; what is not predicted comes last."""

    def decide(self, view: View) -> Iterable[Decision]:
        """Start as many as fit now. O(n log n) for n waiting jobs."""
        options = [
            (self._seconds(view, job, choice), job.index, job, choice)
            for job in view.queue
            for choice in job.asked or job.choices
        ]
        free, started = view.free(), set()
        for _, _, job, choice in sorted(options, key=lambda option: option[:2]):
            allocation = None if job.id in started else free.fit(choice.request)
            if allocation is not None:
                free.take(allocation)
                started.add(job.id)
                yield Start(job.id, choice.implementation.name, allocation)

    @staticmethod
    def _seconds(view: View, job: Job, choice: Choice) -> float:
        """The least predicted time on any class of device that can run it."""
        found = [
            view.predict(job, choice.implementation, choice.request, device)
            for device in view.cluster.device_classes(choice.implementation.kind)
        ]
        return min((prediction.expected for prediction in found if prediction is not None), default=inf)
