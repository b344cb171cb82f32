"""Who decides: policies and planners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from dovetail.interfaces.views import View
from dovetail.model import Decision, Plan

__all__ = [
    "Planner",
    "Policy",
]


@runtime_checkable
class Policy(Protocol):
    """Decides who runs where. A frozen dataclass of its parameters; stateless.

    A policy of which one call decides all that it has to decide may say so with a class attribute
    ``settles = True``: the engine then asks it once for each batch of events, not until it returns
    nothing new. One that lends devices of other nodes says ``borrows = True``, one that moves running
    jobs ``migrates = True``, one that asks the view for its forecast ``forecasts = True``, one that asks
    for `View.lately` ``looks_back = True``, one that hands jobs to an outside scheduler ``submits =
    True``. One whose name promises it says ``keeps_to = "cpu"``, ``"devices"`` or ``"optimal"`` (a proven
    plan). A field ``placement`` ("pack", "spread" or "first") chooses the engine's placement rule, a
    field ``walltime`` that is "learned" makes bounds the upper ends of predictions.
    """

    def decide(self, view: View) -> Iterable[Decision]:
        """Decisions for this instant; asked again until there is nothing new.

        The view does not change while its decisions are collected: a policy that starts several jobs
        keeps its own ``free = view.free()`` and takes from it.
        """
        ...


@runtime_checkable
class Planner(Protocol):
    """Makes a `Plan` of all waiting jobs; may take its time; its plan is journalled, then followed."""

    def plan(self, view: View) -> Plan:
        """A plan for the queue of this view."""
        ...
