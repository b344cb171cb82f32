"""Who decides: policies and planners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, Protocol, runtime_checkable

from dovetail.interfaces.views import View
from dovetail.model import Decision, Plan
from dovetail.records import dataclass

__all__ = [
    "Planner",
    "Policy",
    "Traits",
    "traits_of",
]


@dataclass(frozen=True, slots=True)
class Traits:
    """What a policy or planner can and does, as its class attribute ``traits``; by default nothing of it.

    ``settles``: one call decides all, so the engine calls it once a batch of events and not until nothing
    new is returned. ``priorities``: jobs of higher priority go first; ``priorities_by_unit``: but only of
    those that wait for one unit. ``partitions``: requests are kept to their partition of nodes.
    ``each_unit``: every CPU pool and device is looked at by itself, which bounds the clusters it is for.
    ``looks_back``: it reads `View.recent`. ``borrows``: it lends jobs devices of other nodes;
    ``migrates``: it moves jobs while they run; ``forecasts``: it reads `View.forecast`; ``slows``: what
    shares a node with its jobs may run longer than expected. ``submits``: it hands jobs to an outside
    scheduler. ``shares``: it decides which jobs with ``gpus = "auto"`` share a device; under others each has
    one to itself. ``keeps_to``: what its name promises, "cpu" (every job that can runs on a CPU), "devices"
    (on anything else) or "optimal" (a plan that is proven).
    """

    settles: bool = False
    priorities: bool = False
    priorities_by_unit: bool = False
    partitions: bool = False
    each_unit: bool = False
    looks_back: bool = False
    borrows: bool = False
    migrates: bool = False
    forecasts: bool = False
    slows: bool = False
    submits: bool = False
    shares: bool = False
    keeps_to: Literal["", "cpu", "devices", "optimal"] = ""


NO_TRAITS = Traits()


def traits_of(policy: object) -> Traits:
    """The traits that a policy, or its class, declares."""
    declared = getattr(policy, "traits", NO_TRAITS)
    # A policy from a user's file may have an attribute of that name for something else.
    return declared if isinstance(declared, Traits) else NO_TRAITS


# Runtime-checkable, since a policy may come from a user's file: `load_policy` knows policies and planners by
# their methods, without a base class to import.
@runtime_checkable
class Policy(Protocol):
    """Decides who runs where. A frozen dataclass of its parameters; stateless.

    What it can and does beyond that is in a class attribute ``traits``, a `Traits`. A field
    ``placement`` ("pack", "spread" or "first") chooses the engine's placement rule, a field ``walltime``
    that is "learned" makes bounds the upper ends of predictions. A method ``refuses(jobs, cluster)`` may
    give the reason why jobs cannot be placed, before anything runs.
    """

    def decide(self, view: View) -> Iterable[Decision]:
        """Decisions for this instant; called again until there is nothing new.

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
