"""One policy to leave on: it plans ahead with what is known, in the way that suits the jobs that wait."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from dovetail.errors import InputError
from dovetail.interfaces import Traits, View
from dovetail.model import Decision, Job, Seconds
from dovetail.policies.lookahead_gangs import WINDOW, plan_gangs
from dovetail.policies.lookahead_order import go_on_with_easy
from dovetail.policies.lookahead_units import Objective, go_on, on_one_unit, plan_units

DAY = 86_400.0
EVALUATIONS = 20_000
"""Moves and swaps that a plan of one-node jobs looks at."""
DECODES = 1_000
"""Plans of gangs that are looked at."""
ROLL_OUTS = 11
"""Roll-outs of a queue of rigid jobs: one in each order, then one with each of the first jobs before all."""


@dataclass(frozen=True)
class Lookahead:
    """Tries its options over all that is known before it decides: the policy to leave on.

    One-node jobs on unlike units are planned as a whole, gangs that can be molded in order and molding, and
    of rigid jobs EASY's order is chosen by roll-outs. ``budget`` counts what is looked at in one plan: moves
    (default 20,000), plans of gangs (1,000), roll-outs (11). Who has waited for ``age`` seconds (90 days)
    goes first, the oldest before all others: whatever runs, is promised or is older then ends before.
    """

    objective: Objective = "makespan"
    budget: int | None = None
    age: Seconds = 90 * DAY

    paper: ClassVar[str] = "beyond the papers"
    traits: ClassVar[Traits] = Traits(
        settles=True,
        priorities=True,
        priorities_by_unit=True,
        partitions=True,
        each_unit=True,
        looks_back=True,
        shares=True,
    )

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 1:
            raise InputError(f"found {self.budget}, expected at least 1", where="policy lookahead: budget")
        if not 0 < self.age < inf:
            raise InputError(f"found {self.age:g}, expected seconds above 0", where="policy lookahead: age")

    def decide(self, view: View) -> Iterable[Decision]:
        """Plan in the way that suits the jobs that wait.

        One-node jobs are planned on units, rigid gangs are EASY's, all else is molded. What EASY promised
        while only rigid gangs waited is kept whatever comes then.
        """
        if not view.device_queues and (_has_rigid_queue(view) or _has_partitions(view)):
            return go_on_with_easy(view, self.objective, self.budget or ROLL_OUTS, self.age)
        if view.reservations or not all(map(on_one_unit, view.queue)):  # those in FIFOs are
            return plan_gangs(view, self.objective, self.budget or DECODES, self.age)
        decisions = go_on(view)
        if decisions is not None:
            return decisions
        return plan_units(view, self.objective, self.budget or EVALUATIONS, self.age)


def _has_rigid_queue(view: View) -> bool:
    """Whether the waiting jobs are a batch system's: one way to run each, with walltimes or as gangs.

    What is left of a mixture that was planned stays planned, as long as some have no walltime to promise by.
    """
    if not view.queue:
        return True
    # Each key puts the jobs in question first, so that one look at an index of the queue answers for all
    # jobs.
    if len(next(iter(view.queue.by(_one_way))).choices) > 1:
        return False
    if next(iter(view.queue.by(_has_walltime))).walltime is not None:
        return True
    if len(view.queue) <= WINDOW and any(job.id in view.intended for job in view.queue):
        return False
    return any(job.nodes > 1 or job.walltime is not None for job in view.queue) or any(
        placed.job.nodes > 1 for placed in view.running.values()
    )


def _one_way(job: Job) -> bool:
    """A key of the queue: jobs that can be run in several ways come first."""
    return len(job.choices) == 1


def _has_walltime(job: Job) -> bool:
    """A key of the queue: jobs without a walltime come first."""
    return job.walltime is not None


def _has_partitions(view: View) -> bool:
    """Whether some waiting job names a partition of the nodes: only EASY knows them."""
    return any(request.partition for request in view.queue.requests())
