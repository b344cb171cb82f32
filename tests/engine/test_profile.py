"""Profiles: gaps against a search through every instant, and what is kept against what is made anew."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from capacities import meet
from random_instances import cluster_of, workload_of

from dovetail.engine.capacity.free import FreeCapacity, Layout
from dovetail.engine.profile.nodes import NodeProfile
from dovetail.engine.simulation.simulate import SimulationOptions, simulate
from dovetail.engine.state.view import EngineView
from dovetail.interfaces import Traits, View
from dovetail.model import Allocation, Cluster, Decision, Device, Node, Part, Request
from dovetail.policies.conservative import Conservative
from dovetail.testing.builders import TrueTimesModel, full

Held = list[tuple[float, float, Allocation]]


def free_throughout(layout: Layout, slots: Held, start: float, end: float) -> FreeCapacity:
    """What is free in all of [start, end), found slot by slot; slots of no length count inside only."""
    least = FreeCapacity(layout)
    for moment in {start, *(begin for begin, _, _ in slots if start < begin < end)}:
        free = FreeCapacity(layout)
        for begin, finish, allocation in slots:
            if begin <= moment < finish or (begin == finish == moment and moment > start):
                free.take(allocation)
        least = meet(layout, least, free)
    return least


def first_gap(
    layout: Layout, slots: Held, request: Request, duration: float
) -> tuple[float, set[Part]] | None:
    """The first time from which the request fits for so long, and where."""
    for start in sorted({0.0, *(end for _, end, _ in slots)}):
        where = free_throughout(layout, slots, start, start + duration).fit(request)
        if where is not None:
            return start, set(where.parts)
    return None


@pytest.mark.parametrize("block", range(4))
def test_the_first_gap_is_the_first(block: int) -> None:
    """Random slots held and given back on unlike nodes: every answer is that of the plain search."""
    for seed in range(block, full(2000, 160), 4):
        rng = random.Random(seed)
        nodes = [
            Node(f"n{n}", tuple(range(rng.randint(1, 3))), tuple(Device("gpu", "", g) for g in range(gpus)))
            for n, gpus in enumerate(rng.choices([0, 1, 2], k=rng.randint(1, 4)))
        ]
        layout = Layout(Cluster(tuple(nodes)))
        slots: Held = []
        profile = NodeProfile(layout, 0.0, dict(layout.full))
        for _ in range(25):
            gpus = rng.choice([0, 0, 0.5, 1, 2])
            request = Request(
                rng.choice([1, 1, 2]), rng.randint(0 if gpus else 1, 2), (("gpu", gpus),) if gpus else ()
            )
            duration = float(rng.randint(1, 6))
            kept = profile.copy()
            found = profile.earliest(request, duration)
            expected = first_gap(layout, slots, request, duration)
            assert (found and (found[0], set(found[1].parts))) == expected
            if found is not None:
                assert profile.hold(found[0], duration, found[1])
                slots.append((found[0], found[0] + duration, found[1]))
                assert kept.earliest(request, duration) == found  # the copy knows nothing of it
            if slots and rng.random() < 0.4:
                start, end, allocation = slots.pop(rng.randrange(len(slots)))
                profile.give(start, end, allocation)
            if slots:
                start, end, allocation = slots.pop(rng.randrange(len(slots)))
                expected = first_gap(layout, slots, allocation.request, end - start)
                moved = profile.pull(start, end - start, allocation)
                if expected is None or expected[0] >= start:
                    assert moved is None
                    slots.append((start, end, allocation))
                else:
                    assert moved is not None
                    assert (moved[0], set(moved[1].parts)) == expected
                    slots.append((moved[0], moved[0] + end - start, moved[1]))


@dataclass(frozen=True)
class Forgetful(Conservative):
    """The same policy on profiles that are made anew each time."""

    traits: ClassVar[Traits] = Traits(settles=True)

    def decide(self, view: View) -> Iterable[Decision]:
        assert isinstance(view, EngineView)
        view._engine.profiles.let_go()
        return super().decide(view)


@pytest.mark.parametrize("overrun", ["kill", "run"])
def test_what_is_kept_is_what_would_be_made_anew(overrun: str) -> None:
    for seed in range(full(2000, 60)):
        rng = np.random.Generator(np.random.PCG64(70_000 + seed))
        cluster = cluster_of(rng)
        workload = workload_of(rng, cluster)
        options = SimulationOptions(overrun=overrun)  # type: ignore[arg-type]
        found = [
            simulate(workload, cluster, policy, TrueTimesModel(workload.truth), options=options)
            for policy in (Conservative(), Forgetful())
        ]
        starts = [[(r.start, r.promised, r.allocation) for r in result.records] for result in found]
        assert starts[0] == starts[1], seed
