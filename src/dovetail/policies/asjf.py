"""ASJF: Adaptive Shortest Job First (Ravi 2012, section III.A)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar, Literal, NamedTuple

from dovetail.interfaces import View
from dovetail.model import CPU, Choice, Cluster, Decision, Job, Seconds, Unit
from dovetail.policies.devices import refuse_gangs
from dovetail.policies.resources import Placement, Resources, kinds_of, resources_of, ways

__all__ = ["Asjf"]


class Timed(NamedTuple):
    """A waiting job with its seconds on each kind of resource; what nobody knows counts as 0: try it."""

    job: Job
    choices: dict[str, Choice]
    seconds: dict[str, Seconds]
    preferred: str

    def penalty(self, kind: str) -> Seconds:
        """How much longer it takes on this kind than on the one that it prefers."""
        return self.seconds[kind] - self.seconds[self.preferred]


@dataclass(frozen=True, slots=True)
class Asjf:
    """Shortest job first on the resource where it is fastest; elsewhere only if that costs less than waiting.

    A resource without jobs of its own looks for the job that loses least by coming. It takes it if that
    penalty is smaller than the wait for the preferred resource. ``wait`` is how that wait is reckoned:
    ``residual``, until the first preferred resource is free; ``queue``, until the jobs ahead of it have
    started as well; ``gain``, like ``queue``, and of all jobs the one whose wait exceeds its penalty most
    is taken. Ignores priorities.
    """

    wait: Literal["residual", "queue", "gain"] = "residual"

    paper: ClassVar[str] = "Ravi 2012, section III.A"
    settles: ClassVar[bool] = True

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Ask every idle resource until nothing changes. O(n log n) in the waiting jobs and the resources."""
        resources = Resources(view)
        if not resources.open:
            return
        queues = _queues(view)

        def choose(unit: Unit) -> Placement | None:
            own = [entry for entry in queues[unit.kind] if resources.waits(entry.job)]
            queues[unit.kind] = own
            if own:
                return resources.first_fit(((e.job, e.choices[unit.kind]) for e in own), unit)
            entry = self._worth_moving(view.cluster, resources, queues, unit)
            return entry and resources.first_fit([(entry.job, entry.choices[unit.kind])], unit)

        yield from resources.offer(choose)

    def _worth_moving(
        self, cluster: Cluster, resources: Resources, queues: dict[str, list[Timed]], unit: Unit
    ) -> Timed | None:
        """The job of another queue that is better run here than kept waiting, if there is one."""
        kind = unit.kind
        candidates = [
            (entry, wait)
            for preferred, queue in queues.items()
            if preferred != kind
            for entry, wait in self._waits(cluster, resources, queue, preferred)
            if kind in entry.choices
        ]
        if not candidates:
            return None
        if self.wait == "gain":
            entry, wait = max(candidates, key=lambda found: found[1] - found[0].penalty(kind))
        else:
            entry, wait = min(candidates, key=lambda found: found[0].penalty(kind))
        return entry if entry.penalty(kind) < wait else None

    def _waits(
        self, cluster: Cluster, resources: Resources, queue: Iterable[Timed], kind: str
    ) -> Iterator[tuple[Timed, Seconds]]:
        """The waiting jobs of a queue, and how long each would wait for its preferred resource."""
        ready = [resources.ready(unit) for unit in resources_of(cluster) if unit.kind == kind]
        heapify(ready)
        for entry in queue:
            if resources.waits(entry.job):
                yield entry, ready[0]
                if self.wait != "residual":
                    heapreplace(ready, ready[0] + entry.seconds[kind])


def _queues(view: View) -> dict[str, list[Timed]]:
    """For each kind of resource the jobs that are fastest there, shortest first.

    Equally fast means: not on the CPU. Ties keep the order of submission.
    """
    queues: dict[str, list[Timed]] = {kind: [] for kind in kinds_of(view.cluster)}
    for job in view.queue:
        found = ways(view, job)
        if found:
            seconds = {kind: way[1] or 0.0 for kind, way in found.items()}
            preferred = min(seconds, key=lambda kind: (seconds[kind], kind == CPU))
            choices = {kind: way[0] for kind, way in found.items()}
            queues[preferred].append(Timed(job, choices, seconds, preferred))
    for preferred, queue in queues.items():
        queue.sort(key=lambda entry: entry.seconds[preferred])
    return queues
