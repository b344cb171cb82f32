"""Static placement: each job is assigned to a device when it is submitted, and never moved.

Three baselines of Gregg 2011, section 5: everything on the CPU, everything on the GPU, and each job on
the device that runs it fastest ("static").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import CPU, Decision, Job, Seconds, Wait
from dovetail.policies.parts.backlog import NOWHERE, Backlog, UnitChoice, UnitFifos, is_gang, places_for
from dovetail.policies.parts.trials import Trials, never_tried, nothing_known


class _Static(UnitFifos):
    """Each job goes on submission to the least loaded device of those that it wants; FIFO there."""

    def assign_queue(self, view: View, backlog: Backlog) -> Iterable[Decision]:
        """All that has been submitted."""
        for job in view.queue:
            if is_gang(job):
                yield self.gang_decision(backlog, job)
                # A gang at the front holds up those behind it, or it would never find its nodes free
                # together.
                return  # the policy is called again once it runs
            places = places_for(view, job)
            if not places:
                yield Wait(job.id, NOWHERE)
                continue
            wanted = self.wanted_places(backlog, job, places)
            if not wanted:
                continue
            yield backlog.assign_job(
                job, min(wanted, key=lambda place: (backlog.work_ahead(place), place.unit.index))
            )

    @abstractmethod
    def wanted_places(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> Sequence[UnitChoice]:
        """The places of the class that the job is to run on; none where it waits until something is idle."""


@dataclass(frozen=True)
class CpuOnly(_Static):
    """Every job on a CPU pool, first in first out; a job without a CPU implementation uses what it has.

    >>> from dovetail.testing.examples import one_node
    >>> one_node(CpuOnly(), "1x1cpu+1gpu", [("a", {"cpu": 3.0, "gpu": 1.0}), ("b", {"cpu": 5.0, "gpu": 1.0})])
    a cpu 0 to 3, b cpu 3 to 8
    """

    paper: ClassVar[str] = "Gregg 2011, section 5"
    traits: ClassVar[Traits] = Traits(each_unit=True, partitions=True, keeps_to="cpu")

    def wanted_places(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> Sequence[UnitChoice]:
        """CPU pools, with the fastest CPU implementation."""
        return _fastest_kind(backlog, job, [p for p in places if _kind_of_place(p) == CPU] or places)


@dataclass(frozen=True)
class GpuOnly(_Static):
    """Every job on the fastest kind of device that is not a CPU, first in first out.

    >>> from dovetail.testing.examples import one_node
    >>> one_node(GpuOnly(), "1x1cpu+1gpu", [("a", {"cpu": 3.0, "gpu": 1.0}), ("b", {"cpu": 5.0, "gpu": 1.0})])
    a gpu 0 to 1, b gpu 1 to 2
    """

    paper: ClassVar[str] = "Gregg 2011, section 5"
    traits: ClassVar[Traits] = Traits(each_unit=True, partitions=True, keeps_to="devices")

    def wanted_places(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> Sequence[UnitChoice]:
        """Devices of the fastest kind that is not a CPU; the CPU if there is none."""
        return _fastest_kind(backlog, job, [p for p in places if _kind_of_place(p) != CPU] or places)


@dataclass(frozen=True)
class BestDevice(_Static):
    """Every job on the class that is predicted to run it fastest, first in first out ("static").

    With nothing predicted it takes the first idle device, else an idle CPU, else waits; while a class is
    idle on which its app was never tried, one job of the app is tried there. Until its app was tried on all,
    a job is assigned only to what is idle.

    >>> from dovetail.testing.examples import one_node
    >>> jobs = [("a", {"cpu": 3.0, "gpu": 1.0}), ("b", {"cpu": 5.0, "gpu": 9.0})]
    >>> one_node(BestDevice(), "1x1cpu+1gpu", jobs)
    a gpu 0 to 1, b cpu 0 to 5
    """

    paper: ClassVar[str] = "Gregg 2011, section 5"

    def wanted_places(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> Sequence[UnitChoice]:
        """Units of the fastest class; of equally fast ones, not the CPU."""
        trials = Trials(backlog.view)
        idle = sorted(
            (place for place in places if backlog.can_start(place)),
            key=lambda place: _kind_of_place(place) == CPU,
        )
        for place in idle if len({place.device_class for place in places}) > 1 else ():
            if trials.untried(job, place.choice, place.device_class) and not backlog.is_assigned(job, place):
                return [place]
        if nothing_known(backlog.view, job):
            return idle[:1]
        best = min(
            places,
            key=lambda place: (_seconds_or_infinity(backlog, job, place), _kind_of_place(place) == CPU),
        )
        # Not the whole class of unit alone: another implementation there may be slower.
        same = [
            p for p in places if p.choice is best.choice and p.unit.device_class == best.unit.device_class
        ]
        # While a class is untried, an assignment to a busy unit could turn out wrong: only what is idle is
        # taken.
        if any(never_tried(backlog.view, job, place.choice, place.device_class) for place in places):
            return [place for place in same if backlog.can_start(place)]
        return same


def _kind_of_place(place: UnitChoice) -> str:
    return place.choice.implementation.kind


def _seconds_or_infinity(backlog: Backlog, job: Job, place: UnitChoice) -> Seconds:
    seconds = backlog.seconds(job, place)
    return inf if seconds is None else seconds


def _fastest_kind(backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> Sequence[UnitChoice]:
    """The units of the fastest kind, whatever their models, each with its fastest implementation."""
    kind = _kind_of_place(min(places, key=lambda place: _seconds_or_infinity(backlog, job, place)))
    fastest: dict[int, UnitChoice] = {}
    for place in sorted(
        (p for p in places if _kind_of_place(p) == kind), key=lambda p: _seconds_or_infinity(backlog, job, p)
    ):
        fastest.setdefault(place.unit.index, place)
    return list(fastest.values())
