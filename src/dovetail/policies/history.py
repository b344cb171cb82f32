"""The dynamic scheduler that learns from recorded run times (Gregg 2011, section 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import ClassVar

from dovetail.interfaces import Traits
from dovetail.model import CPU, Job, Seconds
from dovetail.model.fitting import shares_device
from dovetail.policies.parts.backlog import Backlog, DynamicQueue, UnitChoice


@dataclass(frozen=True)
class History(DynamicQueue):
    """Run each job where it is predicted to end first; explore what was never tried (the paper's rules).

    Rules 1 to 4 of section 4.1, over any number of devices and nodes. A job whose best device is busy
    waits in that device's FIFO if it ends earlier so than on an idle, slower device. With
    ``explore=false`` no app that is known on one device is sent to another just to try it; the paper does.

    The first job of an app goes to the GPU, the next tries the idle CPU. From then on both are known:

    >>> from dovetail.testing.examples import one_node
    >>> jobs = [("a", {"cpu": 3.0, "gpu": 1.0})] * 2 + [("a", {"cpu": 3.0, "gpu": 1.0}, 10.0)] * 4
    >>> one_node(History(), "1x1cpu+1gpu", jobs, model="mean")
    a-1 gpu 0 to 1, a-2 cpu 0 to 3, a-3 gpu 10 to 11, a-4 gpu 11 to 12, a-5 gpu 12 to 13, a-6 cpu 10 to 13
    """

    explore: bool = True
    paper: ClassVar[str] = "Gregg 2011, section 4.1"
    traits: ClassVar[Traits] = Traits(each_unit=True, partitions=True, shares=True)

    def choose_place(self, backlog: Backlog, job: Job, places: Sequence[UnitChoice]) -> UnitChoice | None:
        """Exploration first (rule 2), then the earliest predicted end (rule 3), else what is idle (5.2)."""
        untried = [place for place in places if not has_been_tried(backlog, job, place)]
        if untried and all(backlog.idle):
            for place in places:
                if place.unit.kind != CPU and backlog.can_start(place):
                    return choose_tightest(backlog, place, places)
        if self.explore or len(untried) == len(places):
            for place in untried:
                if backlog.can_start(place):
                    return choose_tightest(backlog, place, untried)
        ends = [(end, place) for place in places if (end := predicted_end(backlog, job, place)) is not None]
        return min(ends, key=itemgetter(0))[1] if ends else whatever_is_idle(backlog, places)


def choose_tightest(backlog: Backlog, first: UnitChoice, places: Sequence[UnitChoice]) -> UnitChoice:
    """Of the places like the first one where the job can start, that with least room that suffices.

    The first one itself where the job has its devices to itself.
    """
    if first.unit.device is None or not shares_device(first.choice.request):
        return first
    alike = (
        place for place in places if place.choice is first.choice and place.device_class == first.device_class
    )
    able = [place for place in alike if backlog.can_start(place)]
    return min(able, key=lambda place: (backlog.tightness(place), place.unit.index))


def has_been_tried(backlog: Backlog, job: Job, place: UnitChoice) -> bool:
    """Whether the app has run on that class, or is assigned to it now, whatever the inputs (rule 2)."""
    return backlog.runs(job, place) > 0 or backlog.is_assigned(job, place)


def predicted_end(
    backlog: Backlog, job: Job, place: UnitChoice
) -> tuple[Seconds, Seconds, bool, int, int] | None:
    """When the job would end there, and what decides between equals: the faster class, then device order.

    A device whose job began without a prediction comes after the others: it may be due by what is known of
    the app since, but it is not free. Jobs that share devices go to the one with least room that suffices
    before that order.

    ``None`` where that cannot be predicted: nothing is known of the job there, or a job of unknown length
    is ahead of it.
    """
    if not backlog.runs(job, place):
        return None  # of a busy class without history nothing is known
    seconds, ahead = backlog.seconds_beside(job, place), backlog.work_ahead(place)
    if seconds is None or ahead.unknown:
        return None
    unsure = backlog.runs_unpredicted(place.unit)
    return ahead.seconds + seconds, seconds, unsure, backlog.tightness(place), place.unit.index


def whatever_is_idle(backlog: Backlog, places: Sequence[UnitChoice]) -> UnitChoice | None:
    """With limited information: an idle device, else an idle CPU; ``None`` where all are busy (5.2)."""
    idle = (place for place in places if backlog.can_start(place))
    return min(idle, key=lambda place: (place.unit.kind == CPU, backlog.tightness(place)), default=None)
