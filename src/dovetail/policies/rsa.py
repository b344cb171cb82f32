"""RSA: Relative Speedup based policy with Aggressive assignment (Ravi 2012, section III.A).

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

Difference = Literal["speedup", "ratio"]
"""What "difference in performance" means: of the speedups, or how many times one is the other."""


def speedups_by_kind(job: Job, found: dict[str, Way]) -> dict[str, float]:
    """Speedup by kind of unit, of the kinds on which the job can run.

    A kind about which nothing is known counts as no better and no worse than the best known one.
    """
    cpu = found.get(CPU)
    seconds = [way.seconds for way in found.values() if way.seconds is not None]
    sequential = job.sequential
    # The base of speedups: a job's own sequential time, else that of the CPU, else the slowest known one, so
    # that none is below 1.
    if sequential is None:
        sequential = cpu.seconds if cpu is not None else None
        if sequential is None:
            sequential = max(seconds, default=None)
    known: dict[str, float] = {}
    for kind, (choice, predicted) in found.items():
        speedup = job.speedup.get(choice.implementation.name)
        if speedup is not None:
            known[kind] = speedup
        elif predicted is not None and sequential is not None:
            # No time at all is infinitely faster, and must not divide by 0.
            known[kind] = sequential / predicted if predicted > 0 else inf
    best = max(known.values(), default=1.0)
    return {kind: known.get(kind, best) for kind in found}


class Relative(NamedTuple):
    """A waiting job with its speedups."""

    job: Job
    choices: dict[str, Choice]
    speedup: dict[str, float]
    preferred: str

    def loss_on(self, kind: str, difference: Difference) -> float:
        """How much better the job runs on its preferred kind than on this one (0: does not run there)."""
        best, other = self.speedup[self.preferred], self.speedup.get(kind, 0.0)
        if best == other:
            return 1.0 if difference == "ratio" else 0.0
        if difference == "ratio":
            return best / other if other > 0 else inf
        return best - other


class SpeedupQueues:
    """CJQ and GJQ: for each kind of unit the jobs that run fastest there, greatest difference first.

    ``own`` are by kind the jobs that prefer it, front first; ``others`` those that prefer another but run
    on this one too, from the back: least loss first. Equally fast on both means GJQ, ties keep the order of
    submission. O(n log n) in the waiting jobs.
    """

    def __init__(self, view: View, difference: Difference) -> None:
        kinds = unit_kinds(view.cluster)
        queues: dict[str, list[Relative]] = {kind: [] for kind in kinds}
        for job in view.queue:
            found = ways_by_kind(view, job)
            if not found:
                continue
            speedup = speedups_by_kind(job, found)
            # Ties go to a device, then to the kind that the cluster names first.
            preferred = max(speedup, key=lambda kind: (speedup[kind], kind != CPU, -kinds.index(kind)))
            choices = {kind: way.choice for kind, way in found.items()}
            queues[preferred].append(Relative(job, choices, speedup, preferred))

        def to_next_best(entry: Relative) -> float:
            losses = (entry.loss_on(kind, difference) for kind in kinds if kind != entry.preferred)
            return min(losses, default=0.0)

        for queue in queues.values():
            queue.sort(key=to_next_best, reverse=True)
        self.own: dict[str, list[tuple[Job, Choice]]] = {}
        self.others: dict[str, list[tuple[Job, Choice]]] = {}
        for kind in kinds:
            self.own[kind] = [(entry.job, entry.choices[kind]) for entry in queues[kind]]
            able = [e for k, queue in queues.items() if k != kind for e in queue if kind in e.choices]
            able.sort(key=lambda entry: entry.loss_on(kind, difference), reverse=True)
            # From the back of the other queues: those jobs lose least by running here.
            self.others[kind] = [(entry.job, entry.choices[kind]) for entry in reversed(able)]


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
            queues = SpeedupQueues(view, self.difference)
            yield from units.offer_units(lambda unit: self.choose_job(unit, units, queues))

    @abstractmethod
    def choose_job(self, unit: Unit, units: IdleUnits, queues: SpeedupQueues) -> Assignment | None:
        """The job that this unit takes, if any."""


@dataclass(frozen=True, slots=True)
class Rsa(RelativeSpeedup):
    """A free unit takes the job that gains most there, else the one that loses least by coming.

    Its own queue from the front while there is one, then the other queue from the back. Only relative
    speedups are needed. ``difference`` is that of the speedups, or their ratio. Ignores priorities.
    """

    def choose_job(self, unit: Unit, units: IdleUnits, queues: SpeedupQueues) -> Assignment | None:
        """From the unit's own queue while a job waits in it, else from the back of the others."""
        own = queues.own[unit.kind]
        waits = any(units.waits(job) for job, _ in own)
        return units.first_fit(own if waits else queues.others[unit.kind], unit)
