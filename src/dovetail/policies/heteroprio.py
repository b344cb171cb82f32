"""HeteroPrio: one list of jobs by acceleration, taken from both ends (Agullo et al. 2014)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from dovetail.interfaces import Traits, View
from dovetail.model import Choice, Decision, Job, Seconds
from dovetail.policies.parts.idle_units import IdleUnits, unit_kinds, ways_by_kind
from dovetail.policies.parts.one_node import OneNode


@dataclass(frozen=True, slots=True)
class Heteroprio(OneNode):
    """A free GPU takes the job that a GPU accelerates most, a free CPU the one that it accelerates least.

    Never leaves a unit idle while a waiting job could run there, and never takes a job back once it
    has started (no spoliation). With several kinds of device, the acceleration on one is measured against
    the best of the others. Ignores priorities.
    """

    paper: ClassVar[str] = "Agullo, Bramas, Coulaud, Darve, Messner, Takahashi 2014; Beaumont et al. 2017"
    traits: ClassVar[Traits] = Traits(settles=True, each_unit=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """Offer every unit with room the job with the greatest acceleration there. O(n log n)."""
        units = IdleUnits(view)
        if not units.open:
            return
        waiting = [(job, ways_by_kind(view, job)) for job in view.queue]
        by_acceleration: dict[str, list[tuple[Job, Choice]]] = {}
        for kind in unit_kinds(view.cluster):
            able = [(job, found) for job, found in waiting if kind in found]
            seconds = [{k: way.seconds for k, way in found.items()} for _, found in able]
            order = sorted(range(len(able)), key=lambda i: -acceleration_on(seconds[i], kind))
            by_acceleration[kind] = [(able[i][0], able[i][1][kind].choice) for i in order]
        yield from units.offer_units(lambda unit: units.first_fit(by_acceleration[unit.kind], unit))


def acceleration_on(seconds: dict[str, Seconds | None], kind: str) -> float:
    """How many times faster the job is on this kind than on the best other one.

    Infinite where no other will do, 1 where one of the two times is unknown.
    """
    others = [other for other in seconds if other != kind]
    if not others:
        return inf
    here = seconds[kind]
    known = [time for other in others if (time := seconds[other]) is not None]
    if here is None or not known:
        return 1.0
    if here > 0:
        return min(known) / here
    return inf if min(known) > 0 else 1.0
