"""Carries out a plan that a planner has made and the journal holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from dovetail.interfaces import View
from dovetail.model import Cluster, Decision, Job, Plan, PlanItem, Start


@dataclass(frozen=True)
class FollowPlan:
    """Start the jobs of the plan in force in its order; jobs that no plan names wait."""

    paper: ClassVar[str] = ""

    def refuses(self, jobs: Sequence[Job], cluster: Cluster) -> str | None:
        """Whether a plan suits the jobs is for its planner to decide."""
        return None

    def decide(self, view: View) -> Iterable[Decision]:
        """The next jobs whose turn it is: per unit, per pack, or as soon as they fit, in plan order."""
        plan = view.plan
        if plan is None or not len(view.queue):
            return
        waiting = [item for item in plan.items if item.job in view.queue]
        free = view.free()
        for item in list(_current_pack(waiting, plan, view)):
            if item.unit is not None:
                allocation = free.fit_unit(item.request, view.cluster.units[item.unit])
            else:
                allocation = free.fit(item.request)
            if allocation is not None:
                free.take(allocation)
                yield Start(item.job, item.implementation, allocation)
            elif item.unit is None and item.pack is None:
                return  # list order: no job overtakes


def _current_pack(waiting: Sequence[PlanItem], plan: Plan, view: View) -> Iterator[PlanItem]:
    """The items whose turn it is, each unit's first item only."""
    packs = [item.pack for item in waiting if item.pack is not None]
    if packs:
        current = min(packs)
        before = {item.job for item in plan.items if item.pack is not None and item.pack < current}
        if any(job in view.running for job in before):
            return  # the barrier between packs
        yield from (item for item in waiting if item.pack == current)
        return
    seen: set[int] = set()
    for item in waiting:
        if item.unit is None:
            yield item
        elif item.unit not in seen:
            seen.add(item.unit)
            yield item
