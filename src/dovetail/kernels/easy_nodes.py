"""A whole simulation of rigid jobs that share like nodes, compiled: FCFS and EASY.

The specification is `dovetail.policies.fcfs` and `dovetail.policies.easy` with
`dovetail.engine.shadow.NodeShadow`, run by the engine on nodes that are all alike, with devices of one class
or none. Jobs that ask for the same share a line of the queue: where one does not fit, none does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit
from dovetail.kernels.free_nodes import (
    Nodes,
    States,
    all_free,
    change,
    change_states,
    has_room,
    how_many_fit,
    how_many_of,
    one_state,
    place,
)
from dovetail.kernels.like_nodes import Demand, LikeNodes, PerNode, Placed, Places, demand_of, no_places
from dovetail.kernels.node_bits import add, next_from, place_set, remove
from dovetail.kernels.rigid import EASY, FCFS
from dovetail.kernels.rigid_world import (
    BROKEN,
    BY_OVERRUN,
    OVERRAN,
    PROMISED,
    Outcome,
    Rigid,
    World,
    begin,
    end_next,
    new_world,
    next_end,
    next_instant,
    promise,
    settle,
    submitted_by,
)
from dovetail.kernels.waiting import (
    NOBODY,
    Room,
    Waiting,
    arrive,
    first_waiting,
    next_candidate,
    nobody_waits,
    part,
    place_after,
)

__all__ = ["EASY", "FCFS", "simulate_nodes"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Ends(NamedTuple):
    """Running jobs by when they end by their bounds, shape (most that run at once,); ``running`` of them."""

    times: Floats
    jobs: Ints
    running: Ints


class Shadow(NamedTuple):
    """What is free when the head starts, and the nodes ``planned`` for it; space for the job looked at."""

    free: Nodes
    planned: Flags
    ready: Ints  # how many nodes fit the head then
    nobody: Flags  # no node is
    node: Ints
    devices: Ints
    ranks: Ints


class Lines(NamedTuple):
    """The set of lines in which somebody waits; ``nowhere``: of each the last ``turn`` when nobody fitted."""

    waiting: Ints
    levels: Ints
    nowhere: Ints
    turn: Ints


class Turn(NamedTuple):
    """What one turn of backfilling is about: by ``end`` it is in time (-inf: nobody is), ``head`` waits."""

    now: float
    end: float
    head: Demand
    placement: int


class Machine(NamedTuple):
    """Everything that changes, beside the queue."""

    world: World
    free: Nodes
    states: States
    ends: Ends
    places: Places
    shadow: Shadow
    lines: Lines
    events: Ints
    happened: Ints


def simulate_nodes(
    jobs: Rigid, asked: PerNode, line: Ints, machine: LikeNodes, policy: int, skip: int
) -> Placed:
    """Simulate jobs, each of which fits, on these nodes under `FCFS` (with ``skip``) or `EASY`.

    ``line``, shape (jobs,), is the same number for jobs that ask for the same, from 0 on; each asks for CPUs
    or devices. O(jobs · (nodes of running jobs + kinds of waiting jobs · states of nodes)).
    """
    return Placed(*_simulate(jobs, asked, line, machine, policy, skip))


@njit(cache=True)
def _simulate(jobs: Rigid, asked: PerNode, line: Ints, like: LikeNodes, policy: int, skip: int) -> Outcome:
    waiting = nobody_waits(line, jobs.nodes, jobs.bound, jobs.by_rank)
    machine = _idle(jobs, like, waiting.counts.size)
    world, ends = machine.world, machine.ends
    submitted = 0
    while True:
        now = next_instant(jobs, world, submitted, np.inf)
        if now == np.inf:
            break
        while next_end(world) <= now:
            _end(jobs, asked, machine, now)
        new, submitted = submitted, submitted_by(jobs, submitted, now)
        for job in range(new, submitted):
            arrive(waiting, job)
            add(machine.lines.waiting, machine.lines.levels, line[job])
        if ends.running[0] and ends.times[0] < now:
            world.times[OVERRAN] = now
        if policy == FCFS:
            _fcfs(jobs, asked, waiting, machine, like.placement, now, skip)
        else:
            _easy(jobs, asked, waiting, machine, like.placement, now)
    places, whole = machine.places, world.whole
    return (
        world.start,
        world.end,
        world.promised,
        world.killed,
        places.first,
        places.node,
        places.devices,
        machine.events,
        whole[BROKEN],
        whole[BY_OVERRUN],
    )


@njit(cache=True)
def _idle(jobs: Rigid, like: LikeNodes, lines: int) -> Machine:
    """Nothing runs, nobody waits."""
    count, nodes = jobs.submit.size, like.nodes
    free = all_free(nodes, like.cpus, like.devices, like.memory)
    ends = Ends(np.empty(count + 1), np.empty(count + 1, np.int64), np.zeros(1, np.int64))
    shadow = Shadow(
        all_free(nodes, like.cpus, like.devices, like.memory),
        np.zeros(nodes, np.bool_),
        np.zeros(1, np.int64),
        np.zeros(nodes, np.bool_),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
        np.empty(nodes, np.int64),
    )
    in_line, line_levels = place_set(lines)
    return Machine(
        new_world(1, count, count + 1),
        free,
        one_state(free),
        ends,
        no_places(jobs.nodes),
        shadow,
        Lines(in_line, line_levels, np.zeros(lines, np.int64), np.zeros(1, np.int64)),
        np.empty(2 * count, np.int64),
        np.zeros(1, np.int64),
    )


# ------------------------------------------------------------------------------------ jobs start and end


@njit(cache=True)
def _note(machine: Machine, event: int) -> None:
    machine.events[machine.happened[0]] = event
    machine.happened[0] += 1


@njit(cache=True)
def _end(jobs: Rigid, asked: PerNode, machine: Machine, now: float) -> None:
    """The next running job ends."""
    world, ends, places = machine.world, machine.ends, machine.places
    job = end_next(world, now)
    _note(machine, ~job)
    begins = places.first[job]
    demand, node, devices = demand_of(jobs, asked, job), places.node[begins:], places.devices[begins:]
    change_states(machine.states, machine.free, demand, node, devices, 1)
    change(machine.free, demand, node, devices, 1)
    bound = world.start[job] + jobs.bound[job]
    if now > bound:
        world.times[OVERRAN] = now
    count = ends.running[0]
    at = np.searchsorted(ends.times[:count], bound)
    while ends.jobs[at] != job:
        at += 1
    ends.times[at : count - 1] = ends.times[at + 1 : count].copy()
    ends.jobs[at : count - 1] = ends.jobs[at + 1 : count].copy()
    ends.running[0] -= 1


@njit(cache=True)
def _start(jobs: Rigid, demand: Demand, waiting: Waiting, machine: Machine, job: int, now: float) -> None:
    """The job leaves the queue and runs where it was placed."""
    world, ends, places = machine.world, machine.ends, machine.places
    part(waiting, job)
    line = waiting.line[job]
    if not waiting.counts[line]:
        remove(machine.lines.waiting, machine.lines.levels, line)
    settle(world, job, now)
    begin(jobs, world, job, now)
    _note(machine, job)
    begins = places.first[job]
    node, devices = places.node[begins:], places.devices[begins:]
    change_states(machine.states, machine.free, demand, node, devices, -1)
    change(machine.free, demand, node, devices, -1)
    bound, count = now + jobs.bound[job], ends.running[0]
    at = np.searchsorted(ends.times[:count], bound, side="right")
    ends.times[at + 1 : count + 1] = ends.times[at:count].copy()
    ends.jobs[at + 1 : count + 1] = ends.jobs[at:count].copy()
    ends.times[at], ends.jobs[at] = bound, job
    ends.running[0] += 1


@njit(cache=True)
def _claim(
    jobs: Rigid, asked: PerNode, waiting: Waiting, machine: Machine, placement: int, job: int, now: float
) -> bool:
    """Start the job if it fits; whether it does."""
    places, shadow = machine.places, machine.shadow
    demand, begins = demand_of(jobs, asked, job), places.first[job]
    node, devices = places.node[begins:], places.devices[begins:]
    if not has_room(machine.states, demand):
        return False
    place(machine.free, demand, placement, shadow.nobody, node, devices, shadow.ranks)
    _start(jobs, demand, waiting, machine, job, now)
    return True


# -------------------------------------------------------------------------------------------- the policies


@njit(cache=True)
def _fcfs(
    jobs: Rigid, asked: PerNode, waiting: Waiting, machine: Machine, placement: int, now: float, skip: int
) -> None:
    """From the front of the queue, while jobs fit; so many that do not are passed over."""
    passed, job = 0, first_waiting(waiting, 0)
    while job != NOBODY:
        if not _claim(jobs, asked, waiting, machine, placement, job, now):
            passed += 1
            if passed > skip:
                return
        job = first_waiting(waiting, waiting.rank[job] + 1)


@njit(cache=True)
def _easy(
    jobs: Rigid,
    asked: PerNode,
    waiting: Waiting,
    machine: Machine,
    placement: int,
    now: float,
) -> None:
    """From the front while jobs fit; the head is promised its shadow time; who does not delay it may go."""
    whole = machine.world.whole
    head = whole[PROMISED] if whole[PROMISED] != NOBODY else first_waiting(waiting, 0)
    while head != NOBODY and _claim(jobs, asked, waiting, machine, placement, head, now):
        head = first_waiting(waiting, 0)
    if head == NOBODY:
        return
    demand = demand_of(jobs, asked, head)
    shadow = _first_fit(jobs, asked, machine, demand, now)
    _plan_head(machine.shadow, demand, placement)
    promise(machine.world, head, shadow, now)
    turn = Turn(now, shadow if shadow < np.inf else -np.inf, demand, placement)
    _backfill(jobs, asked, waiting, machine, turn)


@njit(cache=True)
def _first_fit(jobs: Rigid, asked: PerNode, machine: Machine, head: Demand, now: float) -> float:
    """When the head fits, as running jobs end by their bounds; what is free then is put into the shadow.

    What ends at that very time is free then too, and what should have ended is as good as free.
    """
    ends, places, free, then = machine.ends, machine.places, machine.free, machine.shadow.free
    then.cpus[:], then.devices[:], then.memory[:], then.whole[:] = (
        free.cpus,
        free.devices,
        free.memory,
        free.whole,
    )
    ready = how_many_fit(machine.states, head)
    time = now
    for at in range(ends.running[0]):
        when = max(ends.times[at], now)
        if when > time:
            if ready >= head.nodes:
                break
            time = when
        job = ends.jobs[at]
        demand, begins = demand_of(jobs, asked, job), places.first[job]
        node_of = places.node[begins : begins + demand.nodes]
        ready -= how_many_of(then, head, node_of)
        change(then, demand, node_of, places.devices[begins:], 1)
        ready += how_many_of(then, head, node_of)
    machine.shadow.ready[0] = ready
    return time


@njit(cache=True)
def _plan_head(shadow: Shadow, head: Demand, placement: int) -> None:
    """Note the nodes on which the head would start at its time."""
    shadow.planned[:] = False
    if place(shadow.free, head, placement, shadow.nobody, shadow.node, shadow.devices, shadow.ranks):
        for node in shadow.node[: head.nodes]:
            shadow.planned[node] = True


@njit(cache=True)
def _backfill(jobs: Rigid, asked: PerNode, waiting: Waiting, machine: Machine, turn: Turn) -> None:
    """In the order of the queue, each job that ends by the shadow time or leaves the head its nodes."""
    places, shadow, head = machine.places, machine.shadow, turn.head
    machine.lines.turn[0] += 1
    after = -1
    while True:
        best = _best(jobs, asked, waiting, machine, turn, after)
        if best == NOBODY:
            return
        after = waiting.rank[best]
        demand, begins = demand_of(jobs, asked, best), places.first[best]
        node, devices = places.node[begins:], places.devices[begins:]
        if turn.now + jobs.bound[best] <= turn.end:
            place(machine.free, demand, turn.placement, shadow.nobody, node, devices, shadow.ranks)
        else:
            _place_extra(machine, demand, turn, node, devices)
            taken = node[: demand.nodes]
            shadow.ready[0] -= how_many_of(shadow.free, head, taken)
            change(shadow.free, demand, node, devices, -1)
            shadow.ready[0] += how_many_of(shadow.free, head, taken)
            _plan_head(shadow, head, turn.placement)
        _start(jobs, demand, waiting, machine, best, turn.now)


@njit(cache=True)
def _best(jobs: Rigid, asked: PerNode, waiting: Waiting, machine: Machine, turn: Turn, after: int) -> int:
    """The first job of the queue behind a rank that may be backfilled.

    A line in which none fits is not looked at again in this turn: there is less room after every start.
    """
    best, lines = NOBODY, machine.lines
    node, devices = machine.shadow.node, machine.shadow.devices
    line = -1
    while True:
        line = next_from(lines.waiting, lines.levels, line + 1)
        if line < 0:
            return best
        if lines.nowhere[line] == lines.turn[0]:
            continue
        at = place_after(waiting, line, after)
        job = waiting.job_at[at] if at < waiting.begins[line + 1] else NOBODY
        if job == NOBODY or (best != NOBODY and waiting.rank[job] > waiting.rank[best]):
            continue  # none is left, or none before the best so far
        demand = demand_of(jobs, asked, job)
        if not has_room(machine.states, demand):
            lines.nowhere[line] = lines.turn[0]
            continue
        extra = -1
        if not (waiting.present[at] and turn.now + jobs.bound[job] <= turn.end) and _place_extra(
            machine, demand, turn, node, devices
        ):
            extra = demand.nodes
        at = next_candidate(waiting, line, at, Room(demand.nodes, extra, turn.now, turn.end))
        if at >= 0:
            job = waiting.job_at[at]
            if best == NOBODY or waiting.rank[job] < waiting.rank[best]:
                best = job


@njit(cache=True)
def _place_extra(machine: Machine, demand: Demand, turn: Turn, node_of: Ints, devices_of: Ints) -> bool:
    """Nodes for a job of any length, such that the head still fits at its time; whether there are.

    Tried are the normal placement, and nodes outside those planned for the head.
    """
    free, shadow, head, placement = machine.free, machine.shadow, turn.head, turn.placement
    if not place(free, demand, placement, shadow.nobody, node_of, devices_of, shadow.ranks):
        return False
    taken = node_of[: demand.nodes]
    if not np.any(shadow.planned[taken]):
        return True
    left = shadow.ready[0] - how_many_of(shadow.free, head, taken)
    change(shadow.free, demand, node_of, devices_of, -1)
    left += how_many_of(shadow.free, head, taken)
    change(shadow.free, demand, node_of, devices_of, 1)
    if left >= head.nodes:
        return True
    return bool(place(free, demand, placement, shadow.planned, node_of, devices_of, shadow.ranks))
