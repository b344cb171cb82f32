"""ASJF: Adaptive Shortest Job First (Ravi 2012, section III.A)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import ClassVar, Literal, NamedTuple

from dovetail.interfaces import Traits, View
from dovetail.model import CPU, Cluster, Decision, Job, Seconds, Unit, Way
from dovetail.policies.parts.idle_units import (
    Assignment,
    IdleUnits,
    unit_kinds,
    units_in_turn,
    ways_by_kind,
)
from dovetail.policies.parts.one_node import OneNode


class TimedJob(NamedTuple):
    """A waiting job with its best way on each kind of unit; what is unknown counts as 0 s: try it."""

    job: Job
    ways: dict[str, Way]
    preferred: str

    def seconds(self, kind: str) -> Seconds:
        """How long it takes on this kind."""
        return self.ways[kind].least_seconds

    def penalty(self, kind: str) -> Seconds:
        """How much longer it takes on this kind than on the one that it prefers."""
        return self.seconds(kind) - self.seconds(self.preferred)


@dataclass(frozen=True, slots=True)
class Asjf(OneNode):
    """Shortest job first on the unit where it is fastest; elsewhere only if that costs less than waiting.

    A unit takes the shortest of the jobs that are fastest on its kind. If there is none, it looks at the
    jobs of the other kinds. Each has a penalty: how much longer it takes here. The job with the least
    penalty is taken if its penalty is less than its wait for a unit of its own kind. ``wait`` chooses how
    that wait is reckoned: ``residual``, until the first such unit is free; ``queue``, until the jobs ahead
    of it have started as well; ``gain``, like ``queue``, but the job whose wait exceeds its penalty most
    is taken. Ignores priorities.

    Waiting 4 s for the GPU would cost the second job more than the 2 s that it loses on the CPU:

    >>> from dovetail.testing.examples import one_node
    >>> one_node(Asjf(), "1x1cpu+1gpu", [("a", {"cpu": 9.0, "gpu": 4.0}), ("b", {"cpu": 7.0, "gpu": 5.0})])
    a gpu 0 to 4, b cpu 0 to 7
    """

    wait: Literal["residual", "queue", "gain"] = "residual"

    paper: ClassVar[str] = "Ravi 2012, section III.A"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Offer every idle unit until nothing changes. O(n log n) in the waiting jobs and the units."""
        units = IdleUnits(view)
        if not units.open:
            return
        queues = _sorted_queues(view)

        def choose_job(unit: Unit) -> Assignment | None:
            kind = unit.kind
            # Jobs that were placed a moment ago leave the queues at the first look.
            own = queues[kind] = [entry for entry in queues[kind] if units.waits(entry.job)]
            if own:
                return units.first_fit(((entry.job, entry.ways[kind].choice) for entry in own), unit)
            entry = self._worth_moving(view.cluster, units, queues, kind)
            return entry and units.first_fit([(entry.job, entry.ways[kind].choice)], unit)

        yield from units.offer_units(choose_job)

    def _worth_moving(
        self, cluster: Cluster, units: IdleUnits, queues: dict[str, list[TimedJob]], kind: str
    ) -> TimedJob | None:
        """The job of another kind's queue that is better run here than kept waiting, if there is one."""
        candidates = [
            (entry, wait)
            for preferred, queue in queues.items()
            if preferred != kind
            for entry, wait in self._preferred_waits(cluster, units, queue, preferred)
            if kind in entry.ways
        ]
        if not candidates:
            return None
        if self.wait == "gain":
            entry, wait = max(candidates, key=lambda found: found[1] - found[0].penalty(kind))
        else:
            entry, wait = min(candidates, key=lambda found: found[0].penalty(kind))
        # Moved only if it loses less by the other device than it would by waiting (the paper's penalty).
        return entry if entry.penalty(kind) < wait else None

    def _preferred_waits(
        self, cluster: Cluster, units: IdleUnits, queue: Iterable[TimedJob], kind: str
    ) -> Iterator[tuple[TimedJob, Seconds]]:
        """The waiting jobs of a queue, and how long each would wait for a unit of its preferred kind."""
        ready = [units.seconds_until_free(unit) for unit in units_in_turn(cluster) if unit.kind == kind]
        heapify(ready)
        for entry in queue:
            if units.waits(entry.job):
                yield entry, ready[0]
                if self.wait != "residual":
                    # With `residual` only the unit counts, and not the jobs ahead.
                    heapreplace(ready, ready[0] + entry.seconds(kind))


def _sorted_queues(view: View) -> dict[str, list[TimedJob]]:
    """For each kind of unit the jobs that are fastest there, shortest first.

    Equally fast means: not on the CPU. Ties keep the order of submission.
    """
    queues: dict[str, list[TimedJob]] = {kind: [] for kind in unit_kinds(view.cluster)}
    for job in view.queue:
        ways = ways_by_kind(view, job)
        if ways:
            # Equally fast on both: the GPU, since CPUs are what most other jobs need.
            preferred = min(ways, key=lambda kind: (ways[kind].least_seconds, kind == CPU))
            queues[preferred].append(TimedJob(job, ways, preferred))
    for preferred, queue in queues.items():
        queue.sort(key=lambda entry: entry.seconds(preferred))
    return queues
