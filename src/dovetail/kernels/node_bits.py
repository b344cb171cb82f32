"""Sets of nodes and of places as words of bits, so that a wide machine costs words, not nodes.

A word holds 32 bits in a signed 64-bit number: no operation on it overflows. Sets of places have a bit for
every word that is not empty, and so on upwards, so that the next member is found in a few steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dovetail.kernels.compiler import njit

__all__ = ["WIDTH", "add", "give", "next_from", "node_set", "place_set", "remove", "take_lowest"]

Ints = npt.NDArray[np.int64]

WIDTH = 32
FULL = (1 << WIDTH) - 1


@njit(cache=True, forceinline=True)
def ones(word: int) -> int:
    """How many bits are set."""
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) & 0xFFFFFFFF) >> 24


@njit(cache=True, forceinline=True)
def lowest(word: int) -> int:
    """The place of the lowest bit of a word that is not empty."""
    found: int = ones((word & -word) - 1)
    return found


# ---------------------------------------------------------------------------------------- sets of nodes


@njit(cache=True)
def node_set(count: int) -> Ints:
    """All of so many nodes, shape (words,)."""
    words = np.full((count + WIDTH - 1) // WIDTH, FULL, np.int64)
    if count % WIDTH:
        words[-1] = (1 << (count % WIDTH)) - 1
    return words


@njit(cache=True)
def take_lowest(words: Ints, first: int, count: int, low: Ints, high: Ints, at: int) -> tuple[int, int]:
    """Take the ``count`` lowest nodes, which must be there, out of a set.

    ``first`` is a word before which the set is empty. The runs of neighbours taken are written to ``low``
    and ``high`` (the one after the last) from ``at`` on, which must have room for ``count``. Returns the
    place after the last run, and such a word for the next call. O(words + runs).
    """
    begin = at
    word = first
    while count > 0:
        there = words[word]
        if there == 0:
            word += 1
            continue
        size = ones(there)
        taken = there
        while size > count:  # leave the highest ones
            taken &= ~(1 << highest(taken))
            size -= 1
        words[word] = there & ~taken
        count -= size
        place = word * WIDTH
        while taken:
            gap = lowest(taken)
            taken >>= gap
            place += gap
            length = lowest(~taken)
            if at > begin and high[at - 1] == place:
                high[at - 1] = place + length
            else:
                low[at] = place
                high[at] = place + length
                at += 1
            taken >>= length
            place += length
    return at, word


@njit(cache=True, forceinline=True)
def highest(word: int) -> int:
    """The place of the highest bit of a word that is not empty."""
    word |= word >> 1
    word |= word >> 2
    word |= word >> 4
    word |= word >> 8
    word |= word >> 16
    found: int = ones(word) - 1
    return found


@njit(cache=True)
def give(words: Ints, low: int, high: int) -> None:
    """Put a run of nodes into a set. O(words)."""
    word = low // WIDTH
    last = (high - 1) // WIDTH
    while word <= last:
        bits = FULL
        if word * WIDTH < low:
            bits &= FULL << (low - word * WIDTH)
        if (word + 1) * WIDTH > high:
            bits &= (1 << (high - word * WIDTH)) - 1
        words[word] |= bits
        word += 1


# --------------------------------------------------------------------------------------- sets of places


@njit(cache=True)
def place_set(count: int) -> tuple[Ints, Ints]:
    """An empty set of places below ``count``: its words, level after level, and where each level begins."""
    levels = 1
    size = max(1, (count + WIDTH - 1) // WIDTH)
    total = size
    while size > 1:
        size = (size + WIDTH - 1) // WIDTH
        total += size
        levels += 1
    starts = np.zeros(levels, np.int64)
    size = max(1, (count + WIDTH - 1) // WIDTH)
    for level in range(1, levels):
        starts[level] = starts[level - 1] + size
        size = (size + WIDTH - 1) // WIDTH
    return np.zeros(total, np.int64), starts


@njit(cache=True)
def add(words: Ints, starts: Ints, place: int) -> None:
    """Put a place in. O(levels)."""
    for level in range(starts.size):
        word = starts[level] + place // WIDTH
        before = words[word]
        words[word] = before | (1 << (place % WIDTH))
        if before:
            return
        place //= WIDTH


@njit(cache=True)
def remove(words: Ints, starts: Ints, place: int) -> None:
    """Take a place out. O(levels)."""
    for level in range(starts.size):
        word = starts[level] + place // WIDTH
        words[word] &= ~(1 << (place % WIDTH))
        if words[word]:
            return
        place //= WIDTH


@njit(cache=True)
def next_from(words: Ints, starts: Ints, place: int) -> int:
    """The first place from ``place`` on, -1 if there is none. O(levels)."""
    level = 0
    while True:
        end = words.size if level == starts.size - 1 else starts[level + 1]
        word = starts[level] + place // WIDTH
        if word >= end:
            return -1
        rest = words[word] & (FULL << (place % WIDTH)) & FULL
        if rest:
            place = (place // WIDTH) * WIDTH + lowest(rest)
            while level > 0:
                level -= 1
                place = place * WIDTH + lowest(words[starts[level] + place])
            return place
        if level == starts.size - 1:
            return -1
        place = place // WIDTH + 1
        level += 1
