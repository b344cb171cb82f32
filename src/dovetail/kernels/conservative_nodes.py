"""A whole simulation of rigid jobs that share like nodes under conservative backfilling, compiled.

The specification is `dovetail.policies.conservative`, run by the engine on nodes that are all alike, with
devices of one class or none, where every job has a bound above zero and none runs past it: then every
promise is kept. A promise names nodes and devices.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dovetail.kernels.compiler import njit
from dovetail.kernels.like_nodes import Demand, LikeNodes, PerNode, Placed, demand_of, no_places
from dovetail.kernels.node_steps import (
    Floats,
    Ints,
    Steps,
    all_free,
    before_fits,
    change,
    earliest,
    following,
    room_for_steps,
)
from dovetail.kernels.promised_line import SIZE, Line, in_order, line_up, nobody, take_due
from dovetail.kernels.rigid_world import (
    Outcome,
    Rigid,
    World,
    begin,
    end_next,
    new_world,
    next_end,
    next_instant,
    submitted_by,
)

__all__ = ["simulate_conservative_nodes"]


class _Slots(NamedTuple):
    """Where each job runs, or is promised to; ``version`` as of which nodes were last given something."""

    first: Ints
    node: Ints
    devices: Ints
    version: Ints
    given: Ints  # of each node the version
    firsts: Floats  # space, of each node
    space: Ints  # (2, nodes): a place that is tried


def simulate_conservative_nodes(jobs: Rigid, asked: PerNode, machine: LikeNodes) -> Placed:
    """Simulate jobs, each of which fits, on these nodes.

    O(jobs · (promises · nodes given something + moves · steps)).
    """
    return Placed(*_simulate(jobs, asked, machine))


@njit(cache=True)
def _simulate(jobs: Rigid, asked: PerNode, machine: LikeNodes) -> Outcome:
    count, nodes = jobs.submit.size, machine.nodes
    world = new_world(1, count, count + 1)
    steps = all_free(nodes, machine.cpus, machine.devices, machine.memory)
    line = nobody(jobs.by_rank)
    slots = _no_slots(jobs.nodes, nodes)
    starting = np.empty(count, np.int64)
    events, happened = np.empty(2 * count, np.int64), 0
    submitted, due = 0, np.inf
    while True:
        now = next_instant(jobs, world, submitted, due)
        if now == np.inf:
            break
        early = False
        while next_end(world) <= now:
            job = end_next(world, now)
            events[happened] = ~job
            happened += 1
            bound = world.start[job] + jobs.bound[job]
            if now < bound:
                early = True
                steps = room_for_steps(steps)
                _change(steps, slots, demand_of(jobs, asked, job), job, now, bound, now, 1)
                _note_given(slots, job)
        if early:
            steps, due = _renew(jobs, asked, world, line, steps, slots, now, machine.placement)
        chosen = 0
        if due <= now:
            chosen, due = take_due(line, now, starting)
        new, submitted = submitted, submitted_by(jobs, submitted, now)
        for job in in_order(line.rank, new, submitted):
            steps = room_for_steps(steps)
            start = _plan(
                steps, slots, demand_of(jobs, asked, job), job, jobs.bound[job], now, machine.placement
            )
            if start <= now:
                starting[chosen] = job
                chosen += 1
            else:
                world.promised[job] = start
                line_up(line, job, start, 0, slots.version[0])
                due = min(due, start)
        for at in range(chosen):
            begin(jobs, world, starting[at], now)
            events[happened] = starting[at]
            happened += 1
    return (
        world.start,
        world.end,
        world.promised,
        world.killed,
        slots.first,
        slots.node,
        slots.devices,
        events,
        0,  # no promise is broken
        0,
    )


@njit(cache=True)
def _no_slots(wanted: Ints, nodes: int) -> _Slots:
    """No job has a place yet."""
    places = no_places(wanted)
    return _Slots(
        places.first,
        places.node,
        places.devices,
        np.zeros(1, np.int64),
        np.zeros(nodes, np.int64),
        np.empty(nodes),
        np.empty((2, nodes), np.int64),
    )


@njit(cache=True)
def _change(
    steps: Steps, slots: _Slots, demand: Demand, job: int, start: float, end: float, now: float, sign: int
) -> None:
    """Take the job's place for this time (-1), or give it back (+1)."""
    begins, ends = slots.first[job], slots.first[job + 1]
    change(steps, demand, slots.node[begins:ends], slots.devices[begins:ends], start, end, now, sign)


@njit(cache=True)
def _note_given(slots: _Slots, job: int) -> None:
    """The job's nodes have been given something."""
    slots.version[0] += 1
    for at in range(slots.first[job], slots.first[job + 1]):
        slots.given[slots.node[at]] = slots.version[0]


@njit(cache=True)
def _plan(
    steps: Steps, slots: _Slots, demand: Demand, job: int, bound: float, now: float, placement: int
) -> float:
    """Find the first gap for a job, and take it."""
    begins, ends = slots.first[job], slots.first[job + 1]
    node, devices = slots.node[begins:ends], slots.devices[begins:ends]
    start: float = earliest(steps, demand, bound, now, np.inf, placement, slots.firsts, node, devices)
    _change(steps, slots, demand, job, start, start + bound, now, -1)
    return start


@njit(cache=True)
def _renew(
    jobs: Rigid,
    asked: PerNode,
    world: World,
    line: Line,
    steps: Steps,
    slots: _Slots,
    now: float,
    placement: int,
) -> tuple[Steps, float]:
    """Make every promise anew in turn; what is free then, and when the next promise is due."""
    due = np.inf
    for at in range(line.whole[SIZE]):
        job, start = line.job[at], line.start[at]
        if now < start and line.version[job] < slots.version[0]:
            demand, bound = demand_of(jobs, asked, job), jobs.bound[job]
            if _may_move(steps, slots, demand, job, bound, start, now, line.version[job]):
                steps = room_for_steps(steps)
                found = _pull(steps, slots, demand, job, bound, start, now, placement)
                if found < start:
                    line.start[at] = start = found
                    if found > now:
                        world.promised[job] = found
            line.version[job] = slots.version[0]
        due = min(due, start)
    return steps, due


@njit(cache=True)
def _may_move(
    steps: Steps,
    slots: _Slots,
    demand: Demand,
    job: int,
    bound: float,
    start: float,
    now: float,
    version: int,
) -> bool:
    """Whether a node that was given something since may have room earlier, or the job's own just before."""
    for node in range(slots.given.size):
        if slots.given[node] > version and following(steps, node, demand, bound, now, start) < start:
            return True
    for at in range(slots.first[job], slots.first[job + 1]):
        node = slots.node[at]
        if slots.given[node] > version and before_fits(steps, node, demand, start):
            return True
    return False


@njit(cache=True)
def _pull(
    steps: Steps,
    slots: _Slots,
    demand: Demand,
    job: int,
    bound: float,
    start: float,
    now: float,
    placement: int,
) -> float:
    """Move the job's slot to the first gap that begins earlier, if there is one; its start then."""
    begins, ends = slots.first[job], slots.first[job + 1]
    node, devices = slots.space[0], slots.space[1]
    _change(steps, slots, demand, job, start, start + bound, now, 1)
    found: float = earliest(steps, demand, bound, now, start, placement, slots.firsts, node, devices)
    if found < start:
        _note_given(slots, job)
        slots.node[begins:ends], slots.devices[begins:ends] = node[: demand.nodes], devices[: demand.nodes]
    else:
        found = start
    _change(steps, slots, demand, job, found, found + bound, now, -1)
    return found
