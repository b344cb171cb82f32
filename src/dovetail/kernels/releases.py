"""When running jobs end by their bounds, ascending, with the nodes that come free: a list in blocks.

A change moves one block's entries, a question adds up the blocks: with 40,000 running jobs that is some
hundred steps where a sorted array would take as many thousands.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit

__all__ = ["Releases", "enter", "extra_at", "first_release", "leave", "no_releases"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ROOM = 128


class Releases(NamedTuple):
    """Blocks of entries; ``order`` lists the blocks in use, of which ``sizes[0]`` are in use.

    ``times`` and ``nodes`` have shape (blocks, `ROOM`); ``counts`` and ``sums`` (entries and nodes of each)
    have shape (blocks,); ``spare`` lists unused blocks, ``sizes[1]`` of them.
    """

    times: Floats
    nodes: Ints
    counts: Ints
    sums: Ints
    order: Ints
    spare: Ints
    sizes: Ints


@njit(cache=True)
def no_releases(most: int) -> Releases:
    """An empty list with room for ``most`` entries."""
    blocks = 4 + 4 * (most // ROOM)
    spare = np.arange(blocks - 1, -1, -1)
    sizes = np.array([0, blocks])
    return Releases(
        np.zeros((blocks, ROOM)),
        np.zeros((blocks, ROOM), np.int64),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.int64),
        np.zeros(blocks, np.int64),
        spare,
        sizes,
    )


@njit(cache=True, forceinline=True)
def _block_of(kept: Releases, time: float) -> int:
    """The place of the first block whose last entry is not before ``time``, or of the last block."""
    low, high = 0, kept.sizes[0] - 1
    while low < high:
        middle = (low + high) // 2
        block = kept.order[middle]
        if kept.times[block, kept.counts[block] - 1] < time:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, forceinline=True)
def _new_block(kept: Releases, place: int) -> int:
    """An empty block at this place of the order."""
    kept.sizes[1] -= 1
    block: int = kept.spare[kept.sizes[1]]
    for at in range(kept.sizes[0], place, -1):
        kept.order[at] = kept.order[at - 1]
    kept.order[place] = block
    kept.sizes[0] += 1
    kept.counts[block] = 0
    kept.sums[block] = 0
    return block


@njit(cache=True)
def enter(kept: Releases, time: float, nodes: int) -> None:
    """A job runs that frees so many nodes at ``time``. O(blocks + ROOM) at worst."""
    if kept.sizes[0] == 0:
        _new_block(kept, 0)
    place = _block_of(kept, time)
    block = kept.order[place]
    if kept.counts[block] == ROOM:
        half = ROOM // 2
        after = _new_block(kept, place + 1)
        for at in range(half, ROOM):
            kept.times[after, at - half] = kept.times[block, at]
            kept.nodes[after, at - half] = kept.nodes[block, at]
            kept.sums[after] += kept.nodes[block, at]
        kept.counts[after] = ROOM - half
        kept.counts[block] = half
        kept.sums[block] -= kept.sums[after]
        if kept.times[block, half - 1] < time:
            block = after
    at = kept.counts[block]
    while at > 0 and kept.times[block, at - 1] > time:
        kept.times[block, at] = kept.times[block, at - 1]
        kept.nodes[block, at] = kept.nodes[block, at - 1]
        at -= 1
    kept.times[block, at] = time
    kept.nodes[block, at] = nodes
    kept.counts[block] += 1
    kept.sums[block] += nodes


@njit(cache=True)
def leave(kept: Releases, time: float, nodes: int) -> None:
    """A job that was entered so has ended. O(blocks + ROOM), and more where many end by one bound."""
    place = _block_of(kept, time)
    while True:
        block = kept.order[place]
        count = kept.counts[block]
        for at in range(count):
            if kept.times[block, at] == time and kept.nodes[block, at] == nodes:
                for after in range(at, count - 1):
                    kept.times[block, after] = kept.times[block, after + 1]
                    kept.nodes[block, after] = kept.nodes[block, after + 1]
                kept.counts[block] -= 1
                kept.sums[block] -= nodes
                if kept.counts[block] == 0:
                    _drop_block(kept, place)
                return
        place += 1


@njit(cache=True, forceinline=True)
def _drop_block(kept: Releases, place: int) -> None:
    kept.spare[kept.sizes[1]] = kept.order[place]
    kept.sizes[1] += 1
    kept.sizes[0] -= 1
    for at in range(place, kept.sizes[0]):
        kept.order[at] = kept.order[at + 1]


@njit(cache=True, forceinline=True)
def first_release(kept: Releases) -> float:
    """The earliest time; infinite where nothing runs."""
    return np.inf if kept.sizes[0] == 0 else kept.times[kept.order[0], 0]


@njit(cache=True)
def extra_at(kept: Releases, extra: int, now: float) -> tuple[float, int]:
    """When enough nodes have come free, and how many more than enough there are then.

    ``extra`` is below 0: so many nodes are missing now. All that ends at that time counts. Infinite, and
    what has come free by then, where nothing that is known to end frees enough. O(blocks + ROOM).
    """
    place, blocks = 0, kept.sizes[0]
    while place < blocks:
        block = kept.order[place]
        if extra + kept.sums[block] >= 0:
            break
        extra += kept.sums[block]
        place += 1
    start = np.inf
    while place < blocks:
        block = kept.order[place]
        for at in range(kept.counts[block]):
            time = kept.times[block, at]
            if extra >= 0 and time > start:
                return start, extra
            extra += kept.nodes[block, at]
            if extra >= 0:
                start = max(time, now)
        place += 1
    return start, extra
