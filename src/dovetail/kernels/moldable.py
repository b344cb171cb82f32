"""The compiled rule of `dovetail.policies.fms`, which shows it: the best way to place a pair of gangs.

``ready``: float64, shape ``(nodes, 1 + devices)``, the absolute second at which a node's CPU pool (column
0) and each of its devices will be free, never before now, and infinite for a device that is not there. A
*shape* is what a gang asks of each node: ``pool[s]``, ``count[s]`` devices out of ``eligible[s, node]``
(bool, shape ``(shapes, nodes, 1 + devices)``), on nodes that are ``able[s]``.

A node's whole CPU pool is one lane of `dovetail.kernels.gangs`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.compiler import lazily
from dovetail.kernels.gangs import node_ready, occupy, place

__all__ = ["best_pair", "warm_up"]

POOL = 1
"""Lanes of a node: its pool is given to one gang at a time."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MICROSECOND = 1e6
"""Scores are compared in whole microseconds: sums of the same times in another order are ties."""


@lazily()
def _sort_nodes(
    ready: Floats, pool: bool, count: int, eligible: Bools, able: Bools, order: Ints, keys: Floats
) -> int:
    """Write the nodes to ``order`` by the time at which they can give their share, then index; how many."""
    known = 0
    at = np.full(ready.shape[0], np.inf)
    for node in range(ready.shape[0]):
        if able[node]:
            at[node] = node_ready(ready[node], POOL, pool, count, eligible[node])
            if at[node] < np.inf:
                known += 1
    by_time = np.argsort(at, kind="mergesort")
    for k in range(known):
        order[k] = by_time[k]
        keys[k] = at[by_time[k]]
    return known


@lazily()
def _put_back(order: Ints, keys: Floats, known: int, wanted: int, nodes: Ints, times: Floats) -> None:
    """Take the first ``wanted`` nodes out of the sorted list, and put them back with their new times."""
    for k in range(1, wanted):  # insertion sort: few, and mostly in order
        node, time = nodes[k], times[k]
        i = k
        while i > 0 and (times[i - 1] > time or (times[i - 1] == time and nodes[i - 1] > node)):
            nodes[i], times[i] = nodes[i - 1], times[i - 1]
            i -= 1
        nodes[i], times[i] = node, time
    write, new = 0, 0
    for read in range(wanted, known):  # merge in place: writing never overtakes reading
        while new < wanted and (
            times[new] < keys[read] or (times[new] == keys[read] and nodes[new] < order[read])
        ):
            order[write], keys[write] = nodes[new], times[new]
            write += 1
            new += 1
        order[write], keys[write] = order[read], keys[read]
        write += 1
    while new < wanted:
        order[write], keys[write] = nodes[new], times[new]
        write += 1
        new += 1


@lazily()
def _roll_out(
    ready: Floats,
    pool: Bools,
    count: Ints,
    eligible: Bools,
    able: Bools,
    jobs: Ints,
    seconds: Floats,
    latest: float,
    enough: float,
) -> float:
    """The last end if the jobs follow in order, each on the nodes that are ready first.

    Stops as soon as the end is later than ``enough``. The nodes are kept sorted as long as jobs of one
    shape follow each other: O(nodes) plain steps a job, O(nodes log nodes) where the shape changes.
    """
    order = np.empty(ready.shape[0], np.int64)
    keys = np.empty(ready.shape[0], np.float64)
    nodes = np.empty(ready.shape[0], np.int64)
    times = np.empty(ready.shape[0], np.float64)
    shape, known = -1, 0
    for j in range(len(jobs)):
        s, wanted = jobs[j, 0], jobs[j, 1]
        if s != shape:
            shape = s
            known = _sort_nodes(ready, pool[s], count[s], eligible[s], able[s], order, keys)
        if known < wanted:
            continue
        start = keys[wanted - 1]
        end = start + seconds[j]
        if end > latest:
            latest = end
            if latest > enough:
                return latest
        nodes[:wanted] = order[:wanted]
        occupy(ready, POOL, pool[s], count[s], eligible[s], nodes, wanted, start, end)
        for k in range(wanted):
            times[k] = node_ready(ready[nodes[k]], POOL, pool[s], count[s], eligible[s, nodes[k]])
        _put_back(order, keys, known, wanted, nodes, times)
    return latest


@lazily()
def _put(
    ready: Floats,
    pool: Bools,
    count: Ints,
    eligible: Bools,
    able: Bools,
    s: int,
    wanted: int,
    seconds: float,
    chosen: Ints,
    keys: Floats,
    at: Floats,
) -> float:
    """Place a gang of shape ``s`` and let it hold its nodes; returns its end (infinite: nowhere)."""
    start = place(ready, POOL, pool[s], count[s], eligible[s], able[s], wanted, True, chosen, keys, at)
    if start == np.inf:
        return np.inf
    end = start + seconds
    occupy(ready, POOL, pool[s], count[s], eligible[s], chosen, wanted, start, end)
    return float(end)


@lazily()
def best_pair(
    ready: Floats,
    latest: float,
    pool: Bools,
    count: Ints,
    eligible: Bools,
    able: Bools,
    first: Ints,
    first_seconds: Floats,
    second: Ints,
    second_seconds: Floats,
    rest: Ints,
    rest_seconds: Floats,
    roll_out: bool,
) -> tuple[int, int, bool]:
    """The best way to place two jobs: (option of the first, of the second, is the second placed first).

    ``first`` and ``second`` hold (shape, nodes) of each option, shape ``(options, 2)``, ``rest`` the
    (shape, nodes) of each job that follows; no ``second`` means the first job alone. The least (last end,
    device-seconds of the pair, sum of the pair's ends) wins, the earliest option where equal; the last end
    counts the jobs that follow if ``roll_out``, and what runs already (``latest``).
    """
    alone = len(second) == 0
    best, best_end, best_area, best_sum = -1, np.inf, np.inf, np.inf
    width = 1 if alone else len(second)
    led, state = np.empty_like(ready), np.empty_like(ready)
    chosen = np.empty(ready.shape[0], np.int64)
    keys, at = np.empty(ready.shape[0]), np.empty(ready.shape[0])
    for swapped in range(1 if alone else 2):
        lead, lead_seconds = (second, second_seconds) if swapped else (first, first_seconds)
        tail, tail_seconds = (first, first_seconds) if swapped else (second, second_seconds)
        for x in range(len(lead)):
            led[:] = ready  # what the leading option makes of the nodes serves all that follow it
            lead_end = _put(
                led, pool, count, eligible, able, lead[x, 0], lead[x, 1], lead_seconds[x], chosen, keys, at
            )
            lead_area = ((1 if pool[lead[x, 0]] else 0) + count[lead[x, 0]]) * lead[x, 1] * lead_seconds[x]
            for y in range(1 if alone else len(tail)):
                state[:] = led
                end, area, total = max(latest, lead_end), lead_area, lead_end
                if not alone:
                    s, wanted, seconds = tail[y, 0], tail[y, 1], tail_seconds[y]
                    tail_end = _put(state, pool, count, eligible, able, s, wanted, seconds, chosen, keys, at)
                    end, total = max(end, tail_end), total + tail_end
                    area += ((1 if pool[s] else 0) + count[s]) * wanted * seconds
                if roll_out and end != np.inf:
                    enough = (best_end + 1.0) / MICROSECOND
                    end = _roll_out(state, pool, count, eligible, able, rest, rest_seconds, end, enough)
                end = np.rint(end * MICROSECOND)
                area = np.rint(area * MICROSECOND)
                total = np.rint(total * MICROSECOND)
                place_in_order = ((y * width + x) if swapped else (x * width + y)) * 2 + swapped
                better = end < best_end
                if end == best_end:
                    better = area < best_area
                    if area == best_area:
                        better = total < best_sum or (total == best_sum and place_in_order < best)
                if better or best < 0:
                    best, best_end, best_area, best_sum = place_in_order, end, area, total
    option = best // 2
    return option // width, -1 if alone else option % width, best % 2 == 1


def warm_up() -> None:
    """Compile the kernels, or load them from the cache, on one idle node: no decision then waits for it."""
    ready, seconds = np.zeros((1, 2)), np.ones(1)
    pool, count = np.array([True]), np.array([1], np.int64)
    eligible, able = np.array([[[False, True]]]), np.array([[True]])
    option = np.array([[0, 1]], np.int64)
    best_pair(
        ready, 0.0, pool, count, eligible, able, option, seconds, option, seconds, option, seconds, True
    )
    place(ready, POOL, 1, 1, eligible[0], able[0], 1, False, np.empty(1, np.int64), np.empty(1), np.empty(1))
