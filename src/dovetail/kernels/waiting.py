"""Waiting jobs of a closed simulation in a fixed order: who is first, and who is the next that may start.

Every job has a rank in the order of the queue from the beginning. Jobs of about the same width, or that ask
for the same, share a *line*, by rank; of every block of a line the least width and the least bound are known,
and of every two such blocks together and so on, so that jobs that cannot start are passed over together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit
from dovetail.kernels.node_bits import add, next_from, place_set, remove

__all__ = [
    "NOBODY",
    "Room",
    "Waiting",
    "arrive",
    "first_waiting",
    "lines_by_width",
    "may_start",
    "next_candidate",
    "nobody_waits",
    "part",
    "place_after",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BLOCK = 16
NOBODY = -1
WIDE = 1 << 62


class Waiting(NamedTuple):
    """Who waits; ``nodes``, ``bounds``, ``line`` and ``rank`` are those of each job, shape (jobs,).

    ``job_at`` is the job of each place, line after line, shape (places,), `NOBODY` in what fills a line up
    to whole blocks; ``place_of`` the place of each job, ``begins`` the first place of each line (and the end
    of the last one). ``present`` tells of each place whether its job waits. ``least_nodes`` and
    ``least_bounds`` are binary trees, one a line from ``trees`` on: its root at 1, the blocks' own from
    ``leaves`` on.
    ``counts`` is how many wait in each line. ``ranks`` are the waiting jobs' ranks as a set, ``by_rank`` the
    jobs in the order of the queue.
    """

    nodes: Ints
    bounds: Floats
    line: Ints
    rank: Ints
    job_at: Ints
    place_of: Ints
    begins: Ints
    present: npt.NDArray[np.bool_]
    least_nodes: Ints
    least_bounds: Floats
    trees: Ints
    leaves: Ints
    counts: Ints
    ranks: Ints
    rank_levels: Ints
    by_rank: Ints


@njit(cache=True)
def lines_by_width(nodes: Ints) -> Ints:
    """The line of each job: those whose width has the same logarithm to base 2, rounded up."""
    line = np.zeros(nodes.size, np.int64)
    for job in range(nodes.size):
        width = 1
        while width < nodes[job]:
            width *= 2
            line[job] += 1
    return line


@njit(cache=True)
def nobody_waits(line: Ints, nodes: Ints, bounds: Floats, by_rank: Ints) -> Waiting:
    """Jobs in these lines, of which none waits yet; ``by_rank`` are the jobs in the order of the queue."""
    rank = np.empty(nodes.size, np.int64)
    for place in range(nodes.size):
        rank[by_rank[place]] = place
    lines = 1 + (line.max() if line.size else 0)
    sizes = np.zeros(lines, np.int64)
    for job in range(nodes.size):
        sizes[line[job]] += 1
    begins = np.zeros(lines + 1, np.int64)
    trees = np.zeros(lines, np.int64)
    leaves = np.ones(lines, np.int64)
    nodes_of_trees = 0
    for number in range(lines):
        blocks = (sizes[number] + BLOCK - 1) // BLOCK
        while leaves[number] < blocks:
            leaves[number] *= 2
        begins[number + 1] = begins[number] + blocks * BLOCK
        trees[number] = nodes_of_trees
        nodes_of_trees += 2 * leaves[number]
    job_at = np.full(begins[-1], NOBODY, np.int64)
    place_of = np.zeros(nodes.size, np.int64)
    filled = begins[:-1].copy()
    for job in by_rank:
        place = filled[line[job]]
        filled[line[job]] += 1
        job_at[place] = job
        place_of[job] = place
    ranks, rank_levels = place_set(nodes.size)
    return Waiting(
        nodes,
        bounds,
        line,
        rank,
        job_at,
        place_of,
        begins,
        np.zeros(begins[-1], np.bool_),
        np.full(nodes_of_trees, WIDE),
        np.full(nodes_of_trees, np.inf),
        trees,
        leaves,
        np.zeros(lines, np.int64),
        ranks,
        rank_levels,
        by_rank,
    )


@njit(cache=True)
def arrive(waiting: Waiting, job: int) -> None:
    """A job comes into the queue. O(log jobs)."""
    add(waiting.ranks, waiting.rank_levels, waiting.rank[job])
    place, line = waiting.place_of[job], waiting.line[job]
    nodes, bound = waiting.nodes[job], waiting.bounds[job]
    waiting.present[place] = True
    waiting.counts[line] += 1
    tree = waiting.trees[line]
    at = waiting.leaves[line] + (place - waiting.begins[line]) // BLOCK
    while at > 0:
        few, soon = waiting.least_nodes[tree + at], waiting.least_bounds[tree + at]
        if soon <= bound and few <= nodes:
            return
        waiting.least_nodes[tree + at] = min(few, nodes)
        waiting.least_bounds[tree + at] = min(soon, bound)
        at //= 2


@njit(cache=True)
def part(waiting: Waiting, job: int) -> None:
    """A job leaves the queue. O(log jobs)."""
    remove(waiting.ranks, waiting.rank_levels, waiting.rank[job])
    place, line = waiting.place_of[job], waiting.line[job]
    waiting.present[place] = False
    waiting.counts[line] -= 1
    tree, begin = waiting.trees[line], waiting.begins[line]
    block = (place - begin) // BLOCK
    few, soon = WIDE, np.inf
    for other in range(begin + block * BLOCK, begin + (block + 1) * BLOCK):
        if waiting.present[other]:
            few = min(few, waiting.nodes[waiting.job_at[other]])
            soon = min(soon, waiting.bounds[waiting.job_at[other]])
    at = waiting.leaves[line] + block
    while True:
        if waiting.least_nodes[tree + at] == few and waiting.least_bounds[tree + at] == soon:
            return
        waiting.least_nodes[tree + at] = few
        waiting.least_bounds[tree + at] = soon
        at //= 2
        if at == 0:
            return
        left, right = tree + 2 * at, tree + 2 * at + 1
        few = min(waiting.least_nodes[left], waiting.least_nodes[right])
        soon = min(waiting.least_bounds[left], waiting.least_bounds[right])


@njit(cache=True, forceinline=True)
def first_waiting(waiting: Waiting, rank: int) -> int:
    """The waiting job with the least rank from ``rank`` on, `NOBODY` if there is none."""
    found = next_from(waiting.ranks, waiting.rank_levels, rank)
    return NOBODY if found < 0 else waiting.by_rank[found]


@njit(cache=True)
def place_after(waiting: Waiting, line: int, rank: int) -> int:
    """The first place of a line whose job, waiting or not, comes after a rank. O(log jobs)."""
    low: int = waiting.begins[line]
    high: int = waiting.begins[line + 1]
    while low < high:
        middle = (low + high) // 2
        job = waiting.job_at[middle]
        if job != NOBODY and waiting.rank[job] <= rank:
            low = middle + 1
        else:
            high = middle
    return low


class Room(NamedTuple):
    """Where a job may be backfilled: on ``idle`` nodes, and on the ``extra`` ones unless it ends in time.

    In time has ended who starts ``now`` and ends by ``end``, by its bound (-inf: nobody).
    """

    idle: int
    extra: int
    now: float
    end: float


@njit(cache=True, forceinline=True)
def may_start(nodes: int, bound: float, room: Room) -> bool:
    """Whether such a job may be backfilled; of least values: whether any job may be that has them or more."""
    return nodes <= room.idle and (nodes <= room.extra or room.now + bound <= room.end)


@njit(cache=True, forceinline=True)
def _hopeful(waiting: Waiting, at: int, room: Room) -> bool:
    hopeful: bool = may_start(waiting.least_nodes[at], waiting.least_bounds[at], room)
    return hopeful


@njit(cache=True)
def next_candidate(waiting: Waiting, line: int, place: int, room: Room) -> int:
    """The place of the first job of a line, from ``place`` on, that may be backfilled; -1 if there is none.

    O(log jobs) where no block holds a narrow job and another that ends in time.
    """
    leaves, begin, stop = waiting.leaves[line], waiting.begins[line], waiting.begins[line + 1]
    while place < stop:
        block = _next_block(waiting, line, (place - begin) // BLOCK, room)
        if block < 0:
            return -1
        if block >= leaves:  # nothing in the blocks before this one, though together they looked so
            place = begin + (block - leaves) * BLOCK
            continue
        place = max(place, begin + block * BLOCK)
        while place < begin + (block + 1) * BLOCK:
            job = waiting.job_at[place]
            if waiting.present[place] and may_start(waiting.nodes[job], waiting.bounds[job], room):
                return place
            place += 1
    return -1


@njit(cache=True)
def _next_block(waiting: Waiting, line: int, block: int, room: Room) -> int:
    """The first hopeful block from ``block`` on; -1 if there is none.

    Where a pair looked hopeful and neither of the two is: the block after both, plus the number of leaves.
    """
    tree: int = waiting.trees[line]
    leaves: int = waiting.leaves[line]
    at = leaves + block
    if _hopeful(waiting, tree + at, room):
        return block
    while True:  # up to the first neighbour to the right that is
        while at & 1:
            at //= 2
        if at == 0:
            return -1
        at += 1
        if _hopeful(waiting, tree + at, room):
            break
    while at < leaves:  # and down to its first block
        at *= 2
        if not _hopeful(waiting, tree + at, room):
            at += 1
            if not _hopeful(waiting, tree + at, room):
                while at < leaves:
                    at = 2 * at + 1
                return at + 1
    return at - leaves
