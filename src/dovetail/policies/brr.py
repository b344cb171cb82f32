"""BRR: Blind Round Robin (Ravi 2012, section IV.C), static and dynamic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import CPU, Choice, Cluster, Decision, Enqueue, Job, Unit
from dovetail.policies.devices import one_node_choices, refuse_gangs, start_heads
from dovetail.policies.resources import Resources, could_run, kind_of

__all__ = ["Brr", "BrrDynamic"]


def _choice_for(cluster: Cluster, job: Job, unit: Unit) -> Choice | None:
    """The job's first implementation for this resource; one that takes the CPUs as well if need be."""
    usable = [choice for choice in one_node_choices(job) if could_run(cluster, choice, unit)]
    return min(usable, key=lambda choice: choice.implementation.kind.startswith(f"{CPU}+"), default=None)


@dataclass(frozen=True, slots=True)
class Brr:
    """Blind round robin: each job is bound to the next resource in turn, first in first out there.

    Resources are counted node by node, the CPU first; the count goes on from batch to batch, and passes
    over resources for which the job has no implementation. Ignores run times and priorities.
    """

    paper: ClassVar[str] = "Ravi 2012, section IV.C"

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Bind what has been submitted, and start what has reached the front of its resource."""
        if len(view.queue):
            yield from self._bind(view)
        else:
            yield from start_heads(view)

    @staticmethod
    def _bind(view: View) -> Iterator[Decision]:
        units = view.cluster.units
        last = -1 if view.enqueued is None else view.enqueued
        for job in view.queue:
            for step in range(1, len(units) + 1):
                unit = units[(last + step) % len(units)]
                choice = _choice_for(view.cluster, job, unit)
                if choice is not None:
                    yield Enqueue(job.id, choice.implementation.name, unit.index)
                    last = unit.index
                    break


@dataclass(frozen=True, slots=True)
class BrrDynamic:
    """The next free resource takes the next job, whatever it is: list scheduling without knowledge.

    Resources that are free at the same time are asked in the order of RSA: CPUs, then GPUs. Ignores run
    times and priorities.
    """

    paper: ClassVar[str] = "Ravi 2012, section IV.C, read as list scheduling"
    settles: ClassVar[bool] = True

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Gangs are refused."""
        return refuse_gangs(jobs)

    def decide(self, view: View) -> Iterable[Decision]:
        """Give each free resource the first job that it can run."""
        resources = Resources(view)
        if not resources.open:
            return
        waiting = list(view.queue)
        runnable = {
            kind: [(j, c) for j in waiting for c in one_node_choices(j) if kind_of(c.request) == kind]
            for kind in {unit.kind for unit in resources.open}
        }
        yield from resources.offer(lambda unit: resources.first_fit(runnable[unit.kind], unit))
