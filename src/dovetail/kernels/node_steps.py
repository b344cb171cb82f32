"""What like nodes have free over time, node by node: CPUs, memory and devices of one class.

A node's steps begin at ``times[node]``; a step lasts until the next one begins, the last for ever. The
readable twin is `dovetail.engine.profile` with `dovetail.engine.timeline`, where all jobs last a while.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit
from dovetail.kernels.like_nodes import Demand, devices_in, fits, of_least_rank

__all__ = [
    "Floats",
    "Ints",
    "Steps",
    "all_free",
    "before_fits",
    "change",
    "earliest",
    "following",
    "room_for_steps",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CPUS, DEVICES, MEMORY = range(3)


class Steps(NamedTuple):
    """``counts`` int64, shape (nodes,); ``times`` float64, (nodes, room); ``free`` int64, (nodes, room, 3).

    Free are CPUs, devices as bits, and bytes of memory (none where it is not counted).
    """

    counts: Ints
    times: Floats
    free: Ints


@njit(cache=True)
def all_free(nodes: int, cpus: int, devices: int, memory: int) -> Steps:
    """So many nodes on which nothing runs."""
    counts, times, free = np.ones(nodes, np.int64), np.empty((nodes, 8)), np.empty((nodes, 8, 3), np.int64)
    times[:, 0] = -np.inf
    free[:, 0, CPUS] = cpus
    free[:, 0, DEVICES] = (1 << devices) - 1
    free[:, 0, MEMORY] = memory
    return Steps(counts, times, free)


@njit(cache=True)
def room_for_steps(steps: Steps) -> Steps:
    """The same, with room for four more steps on each node."""
    room = steps.times.shape[1]
    if steps.counts.max() + 4 <= room:
        return steps
    nodes = steps.counts.size
    times, free = np.empty((nodes, 2 * room)), np.empty((nodes, 2 * room, 3), np.int64)
    times[:, :room] = steps.times
    free[:, :room] = steps.free
    return Steps(steps.counts, times, free)


@njit(cache=True, forceinline=True)
def _step(steps: Steps, node: int, when: float) -> int:
    """The step in force at a time; the first one for times before it."""
    low, high = 0, steps.counts[node]
    while low < high:
        middle = (low + high) >> 1
        if steps.times[node, middle] <= when:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@njit(cache=True)
def following(steps: Steps, node: int, demand: Demand, duration: float, after: float, before: float) -> float:
    """The first time, ``after`` or later and ``before`` another, from which a node fits for so long.

    Infinite if there is none. O(steps · those that differ in their devices).
    """
    times, free, count = steps.times, steps.free, steps.counts[node]
    step = _step(steps, node, after)
    while step < count:
        start = max(times[node, step], after)
        if start >= before:
            return np.inf
        cpus, devices, memory = free[node, step, CPUS], free[node, step, DEVICES], free[node, step, MEMORY]
        if not fits(cpus, devices, memory, demand):
            step += 1
            continue
        at, end, begin = step + 1, start + duration, step
        while at < count and times[node, at] < end:
            if not fits(free[node, at, CPUS], free[node, at, DEVICES], free[node, at, MEMORY], demand):
                step = at + 1  # whatever begins before that step and reaches it fails too
                break
            devices &= free[node, at, DEVICES]
            if devices_in(devices) < demand.devices:
                step += 1  # only not the same devices throughout
                break
            at += 1
        if step == begin:
            return float(start)
    return np.inf


@njit(cache=True)
def _least(steps: Steps, node: int, start: float, end: float) -> tuple[int, int]:
    """CPUs and devices that are free throughout."""
    step = _step(steps, node, start)
    cpus, devices = steps.free[node, step, CPUS], steps.free[node, step, DEVICES]
    step += 1
    while step < steps.counts[node] and steps.times[node, step] < end:
        cpus = min(cpus, steps.free[node, step, CPUS])
        devices &= steps.free[node, step, DEVICES]
        step += 1
    return cpus, devices


@njit(cache=True)
def before_fits(steps: Steps, node: int, demand: Demand, when: float) -> bool:
    """Whether the node fits just before a time."""
    step = _step(steps, node, when)
    if step > 0 and steps.times[node, step] >= when:
        step -= 1
    free = steps.free
    found: bool = fits(free[node, step, CPUS], free[node, step, DEVICES], free[node, step, MEMORY], demand)
    return found


@njit(cache=True)
def earliest(
    steps: Steps,
    demand: Demand,
    duration: float,
    now: float,
    before: float,
    placement: int,
    firsts: Floats,
    node_of: Ints,
    devices_of: Ints,
) -> float:
    """The first gap that begins before a time; infinite if there is none.

    Its nodes, by the placement rule, and their devices are written to ``node_of`` and ``devices_of``, shape
    (demanded nodes,). ``firsts`` is space of shape (nodes,).
    """
    nodes, wanted = steps.counts.size, demand.nodes
    firsts[:] = now
    start = now
    while start < before:
        until, ready = before, 0
        for node in range(nodes):
            if firsts[node] <= start:
                first = following(steps, node, demand, duration, start, until)
                firsts[node] = first
                if wanted == 1 and first < until:
                    until = np.nextafter(first, np.inf)  # later ones are of no use, others of that time are
            if firsts[node] == start:
                ready += 1
        if ready >= wanted:
            _place(steps, demand, start, duration, placement, firsts, node_of, devices_of)
            return start
        later = np.sort(firsts[(firsts > start) & (firsts < before)])
        if later.size < wanted - ready:
            return np.inf
        start = later[wanted - ready - 1]  # no earlier than this are there enough
    return np.inf


@njit(cache=True)
def _place(
    steps: Steps,
    demand: Demand,
    start: float,
    duration: float,
    placement: int,
    firsts: Floats,
    node_of: Ints,
    devices_of: Ints,
) -> None:
    """The nodes of least rank of those that are ready at the start, then those of lowest index."""
    ranks = np.empty(demand.nodes, np.int64)
    found = 0
    for node in range(firsts.size):
        if firsts[node] != start:
            continue
        cpus, devices = _least(steps, node, start, start + duration)
        found = of_least_rank(demand, placement, cpus, devices, node, found, ranks, node_of, devices_of)


@njit(cache=True)
def change(
    steps: Steps,
    demand: Demand,
    node_of: Ints,
    devices_of: Ints,
    start: float,
    end: float,
    now: float,
    sign: int,
) -> None:
    """Take a slot (``sign`` -1) or give it back (+1); steps that are over by ``now`` are forgotten.

    There must be `room_for_steps`.
    """
    for at in range(demand.nodes):
        node, devices = node_of[at], devices_of[at]
        _forget(steps, node, now)
        _split(steps, node, end)
        first = _split(steps, node, start)
        step = first
        while step < steps.counts[node] and steps.times[node, step] < end:
            steps.free[node, step, CPUS] += sign * demand.cpus
            steps.free[node, step, DEVICES] ^= devices
            steps.free[node, step, MEMORY] += sign * demand.memory
            step += 1
        _join(steps, node, step)
        _join(steps, node, first)


@njit(cache=True)
def _forget(steps: Steps, node: int, now: float) -> None:
    over = _step(steps, node, now)
    if over:
        count = steps.counts[node] - over
        for step in range(count):
            steps.times[node, step] = steps.times[node, step + over]
            steps.free[node, step] = steps.free[node, step + over]
        steps.counts[node] = count


@njit(cache=True)
def _split(steps: Steps, node: int, when: float) -> int:
    """The step that begins at a time, which is made if there is none."""
    step: int = _step(steps, node, when)
    if steps.times[node, step] >= when:
        return step
    step += 1
    for at in range(steps.counts[node], step, -1):
        steps.times[node, at] = steps.times[node, at - 1]
        steps.free[node, at] = steps.free[node, at - 1]
    steps.times[node, step] = when
    steps.free[node, step] = steps.free[node, step - 1]
    steps.counts[node] += 1
    return step


@njit(cache=True)
def _join(steps: Steps, node: int, step: int) -> None:
    """Make one step of two that are alike."""
    if (
        step == 0
        or step >= steps.counts[node]
        or np.any(steps.free[node, step] != steps.free[node, step - 1])
    ):
        return
    for at in range(step, steps.counts[node] - 1):
        steps.times[node, at] = steps.times[node, at + 1]
        steps.free[node, at] = steps.free[node, at + 1]
    steps.counts[node] -= 1
