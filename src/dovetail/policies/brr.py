"""BRR: Blind Round Robin (Ravi 2012, section IV.C), static and dynamic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import (
    CPU,
    Choice,
    Cluster,
    Decision,
    Enqueue,
    Job,
    Unit,
    device_kind,
    fits_unit,
    one_node_choices,
)
from dovetail.policies.parts.backlog import start_heads
from dovetail.policies.parts.idle_units import IdleUnits
from dovetail.policies.parts.one_node import OneNode


def _choice_for(cluster: Cluster, job: Job, unit: Unit) -> Choice | None:
    """The job's first implementation for this unit; one that takes the CPUs as well if need be."""
    usable = [choice for choice in one_node_choices(job) if fits_unit(cluster, choice.request, unit)]
    return min(usable, key=lambda choice: choice.implementation.kind.startswith(f"{CPU}+"), default=None)


@dataclass(frozen=True, slots=True)
class Brr(OneNode):
    """Blind round robin: each job is assigned to the next unit in turn, first in first out there.

    Units are counted node by node, the CPU first; the count goes on from batch to batch, and passes over
    units for which the job has no implementation. Ignores run times and priorities.

    >>> from dovetail.testing.examples import one_node
    >>> one_node(Brr(), "1x1cpu+1gpu", [("a", {"cpu": 9.0, "gpu": 1.0})] * 3)
    a-1 cpu 0 to 9, a-2 gpu 0 to 1, a-3 cpu 9 to 18
    """

    paper: ClassVar[str] = "Ravi 2012, section IV.C"
    traits: ClassVar[Traits] = Traits()

    def decide(self, view: View) -> Iterable[Decision]:
        """Assign what has been submitted, and start what has reached the front of its unit."""
        if len(view.queue):
            yield from self._assign_round_robin(view)
        else:
            yield from start_heads(view)

    @staticmethod
    def _assign_round_robin(view: View) -> Iterator[Decision]:
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
class BrrDynamic(OneNode):
    """The next free unit takes the next job, whatever it is: list scheduling without knowledge.

    Units that are free at the same time take turns in the order of RSA: CPUs, then GPUs; an idle one on which
    an app never ran takes that first, devices before CPUs. Ignores run times and priorities.

    >>> from dovetail.testing.examples import one_node
    >>> one_node(BrrDynamic(), "1x1cpu+1gpu", [("a", {"cpu": 9.0, "gpu": 1.0})] * 3)
    a-1 cpu 0 to 9, a-2 gpu 0 to 1, a-3 gpu 1 to 2
    """

    paper: ClassVar[str] = "Ravi 2012, section IV.C, read as list scheduling"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Give each free unit the first job that it can run."""
        units = IdleUnits(view)
        if not units.open:
            return
        waiting = list(view.queue)
        runnable = {
            kind: [(j, c) for j in waiting for c in one_node_choices(j) if device_kind(c.request) == kind]
            for kind in {unit.kind for unit in units.open}
        }
        yield from units.offer_units(lambda unit: units.first_fit(runnable[unit.kind], unit))
