"""Relative speedups, and the queues that RSA and RSC make of them (Ravi 2012, section III.A).

MP is a job's speedup on all CPUs of a node over one core, GP that on a GPU; both are the job's own
(``speedup`` in the job file), or its sequential time over its predicted times. Where no sequential time is
known the predicted CPU time stands in, so that MP = 1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal, NamedTuple

from dovetail.interfaces import Traits, View
from dovetail.model import CPU, Choice, Decision, Job, Unit, Way
from dovetail.policies.parts.idle_units import Assignment, IdleUnits, unit_kinds, ways_by_kind
from dovetail.policies.parts.one_node import OneNode
from dovetail.policies.parts.trials import idle_trials

__all__ = ["Difference", "RelativeSpeedup", "SpeedupQueues", "speedups"]

Difference = Literal["speedup", "ratio"]
"""What "difference in performance" means: of the speedups, or how many times one is the other."""


def speedups(job: Job, found: dict[str, Way]) -> dict[str, float]:
    """Speedup by kind of unit, of the kinds on which the job can run.

    A kind about which nothing is known counts as no better and no worse than the best known one.
    """
    cpu = found.get(CPU)
    seconds = [way.seconds for way in found.values() if way.seconds is not None]
    sequential = job.sequential
    if sequential is None:
        sequential = cpu.seconds if cpu is not None else None
        if sequential is None:
            sequential = max(seconds, default=None)
    known: dict[str, float] = {}
    for kind, (choice, predicted) in found.items():
        told = job.speedup.get(choice.implementation.name)
        if told is not None:
            known[kind] = told
        elif predicted is not None and sequential is not None:
            known[kind] = sequential / predicted if predicted > 0 else inf
    best = max(known.values(), default=1.0)
    return {kind: known.get(kind, best) for kind in found}


class Relative(NamedTuple):
    """A waiting job with its speedups."""

    job: Job
    choices: dict[str, Choice]
    speedup: dict[str, float]
    preferred: str

    def loss(self, kind: str, difference: Difference) -> float:
        """How much better the job runs on its preferred kind than on this one (0: does not run there)."""
        best, other = self.speedup[self.preferred], self.speedup.get(kind, 0.0)
        if best == other:
            return 1.0 if difference == "ratio" else 0.0
        if difference == "ratio":
            return best / other if other > 0 else inf
        return best - other


class SpeedupQueues:
    """CJQ and GJQ: for each kind of unit the jobs that run fastest there, greatest difference first.

    Equally fast on both means GJQ, ties keep the order of submission. O(n log n) in the waiting jobs.
    """

    def __init__(self, view: View, difference: Difference) -> None:
        self.kinds = unit_kinds(view.cluster)
        self._difference: Difference = difference
        self._queues: dict[str, list[Relative]] = {kind: [] for kind in self.kinds}
        for job in view.queue:
            found = ways_by_kind(view, job)
            if not found:
                continue
            speedup = speedups(job, found)
            preferred = max(speedup, key=lambda kind: (speedup[kind], kind != CPU, -self.kinds.index(kind)))
            choices = {kind: way.choice for kind, way in found.items()}
            self._queues[preferred].append(Relative(job, choices, speedup, preferred))
        for queue in self._queues.values():
            queue.sort(key=self._least_loss, reverse=True)
        self._own = {kind: self._in_order(kind) for kind in self.kinds}
        self._stolen = {kind: self._by_loss(kind) for kind in self.kinds}

    def _least_loss(self, entry: Relative) -> float:
        """The difference to the next best kind."""
        others = (kind for kind in self.kinds if kind != entry.preferred)
        return min((entry.loss(kind, self._difference) for kind in others), default=0.0)

    def _in_order(self, kind: str) -> list[tuple[Job, Choice]]:
        return [(entry.job, entry.choices[kind]) for entry in self._queues[kind]]

    def _by_loss(self, kind: str) -> list[tuple[Job, Choice]]:
        others = [
            entry
            for preferred, queue in self._queues.items()
            if preferred != kind
            for entry in queue
            if kind in entry.choices
        ]
        others.sort(key=lambda entry: entry.loss(kind, self._difference), reverse=True)
        return [(entry.job, entry.choices[kind]) for entry in reversed(others)]

    def own(self, kind: str) -> list[tuple[Job, Choice]]:
        """The jobs that prefer this kind, front first."""
        return self._own[kind]

    def others_from_back(self, kind: str) -> list[tuple[Job, Choice]]:
        """The jobs that prefer another kind but run on this one too, least loss first: the back first."""
        return self._stolen[kind]


@dataclass(frozen=True, slots=True)
class RelativeSpeedup(OneNode, ABC):
    """What RSA and RSC share: every unit with room is offered a job; they differ in which."""

    difference: Difference = "speedup"

    paper: ClassVar[str] = "Ravi 2012, section III.A"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Offer every unit with room a job until nothing changes. O(n log n) in the waiting jobs."""
        units = IdleUnits(view)
        if units.open:
            yield from idle_trials(view, units)
            queues = SpeedupQueues(view, self.difference)
            yield from units.offer(lambda unit: self.choose(unit, units, queues))

    @abstractmethod
    def choose(self, unit: Unit, units: IdleUnits, queues: SpeedupQueues) -> Assignment | None:
        """The job that this unit takes, if any."""
