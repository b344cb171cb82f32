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
from dovetail.engine.profile.plain_counts import PlainCountProfile
from dovetail.engine.state.view import EngineView
from dovetail.interfaces import Traits, View
from dovetail.model import Allocation, Cluster, Decision, Device, Node, Part, Request
from dovetail.policies.conservative import Conservative
from dovetail.simulation.simulate import SimulationOptions, simulate
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
                moved = profile.pull_slot(start, end - start, allocation)
                if expected is None or expected[0] >= start:
                    assert moved is None
                    slots.append((start, end, allocation))
                else:
                    assert moved is not None
                    assert (moved[0], set(moved[1].parts)) == expected
                    slots.append((moved[0], moved[0] + end - start, moved[1]))


NODES = 6


def counted_and_as_cpus() -> tuple[PlainCountProfile, NodeProfile]:
    """The same capacity twice: so many nodes, counted, and one node with as many CPUs."""
    layout = Layout(Cluster((Node("n", tuple(range(NODES)), ()),)))
    return PlainCountProfile(0.0, NODES, []), NodeProfile(layout, 0.0, dict(layout.full))


def test_counted_nodes_have_the_gaps_of_one_node_with_as_many_cpus() -> None:
    """Slots of some length, held and pulled forward at random."""
    for seed in range(full(1000, 60)):
        rng = random.Random(seed)
        counts, node = counted_and_as_cpus()
        slots: list[tuple[float, float, int, Allocation]] = []
        for _ in range(20):
            size, duration = rng.randint(1, NODES), float(rng.randint(1, 4))
            counted = counts.earliest(Request(size, 1), duration)
            named = node.earliest(Request(1, size), duration)
            assert counted is not None
            assert named is not None
            assert counted[0] == named[0]
            assert counts.hold(counted[0], duration, counted[1])
            assert node.hold(named[0], duration, named[1])
            slots.append((named[0], duration, size, named[1]))
            at = rng.randrange(len(slots))
            start, duration, size, allocation = slots[at]
            moved = counts.pull_slot(start, duration, Allocation(Request(size, 1), ()))
            other = node.pull_slot(start, duration, allocation)
            assert (moved and moved[0]) == (other and other[0])
            if other is not None:
                slots[at] = other[0], duration, size, other[1]


def test_only_counted_nodes_let_a_job_of_no_length_join_an_instant_before_a_full_step() -> None:
    """Where one is in an instant already, a second finds room there by counts; on a node's timeline it waits.

    So neither of the two can take the other's place.
    """
    counts, node = counted_and_as_cpus()
    for size, duration in ((1, 0.0), (NODES, 2.0)):
        assert counts.hold(0.0, duration, Allocation(Request(size, 1), ()))
        found = node.earliest(Request(1, size), duration)
        assert found is not None
        assert node.hold(0.0, duration, found[1])
    by_counts, by_node = counts.earliest(Request(5, 1), 0.0), node.earliest(Request(1, 5), 0.0)
    assert by_counts is not None
    assert by_node is not None
    assert (by_counts[0], by_node[0]) == (0.0, 2.0)


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
