"""Plans: what solvers and packing algorithms return, carried out by the policy ``follow-plan``."""

from __future__ import annotations

from typing import Literal

from dovetail.model.job import JobId, Request, Seconds
from dovetail.records import dataclass

__all__ = ["Plan", "PlanItem"]


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One job of a plan.

    ``unit`` binds it to one CPU pool or device (`Cluster.units` index); without it the job takes nodes or
    CPUs by its request, wherever it fits. Jobs of one ``pack`` start together, after every job of
    the packs before has ended; without packs, jobs start in the order of ``start`` as soon as what they
    need is free.
    """

    job: JobId
    implementation: str
    request: Request
    start: Seconds
    duration: Seconds
    unit: int | None = None
    pack: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """Items in execution order, and how good the plan is.

    ``objective`` and ``bound`` are seconds of makespan (or of summed pack times), ``gap`` is
    objective / bound - 1, ``seconds`` is what the planner took.
    """

    items: tuple[PlanItem, ...]
    objective: Seconds
    status: Literal["optimal", "feasible"]
    bound: Seconds | None = None
    seconds: Seconds = 0.0

    @property
    def gap(self) -> float | None:
        """Relative distance to the bound; ``None`` without one."""
        if self.bound is None:
            return None
        return self.objective / self.bound - 1 if self.bound > 0 else 0.0
