"""Sets of nodes, which allocations keep as bit masks, as runs of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MANY, WIDE = 32, 2048
"""Runs found one by one, and bits left, from which it is quicker to look at all bits at once."""


def bit_runs(mask: int) -> list[tuple[int, int]]:
    """The runs of set bits, ascending: the first bit of each, and the one after its last. O(bits).

    >>> bit_runs(0b1011100)
    [(2, 5), (6, 7)]
    """
    found: list[tuple[int, int]] = []
    place = 0
    while mask:
        if len(found) >= MANY and mask.bit_length() > WIDE:
            low, high, _ = runs_of_many([mask], mask.bit_length())
            return found + list(zip((place + low).tolist(), (place + high).tolist(), strict=True))
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        length = (~mask & (mask + 1)).bit_length() - 1
        found.append((place + gap, place + gap + length))
        mask >>= length
        place += gap + length
    return found


def runs_of_many(
    masks: Sequence[int], width: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The runs of masks of so many bits: first bits, those after the last ones, and how many runs each has.

    >>> runs_of_many([0b1011100, 0, 0b1], 7)
    (array([2, 6, 0]), array([5, 7, 1]), array([2, 0, 1]))
    """
    # Few need it: what is light stays so.
    import numpy as np

    size = width // 8 + 1
    edges = b"".join([(mask ^ mask << 1).to_bytes(size, "little") for mask in masks])
    raw = np.frombuffer(edges, np.uint8)
    # Of the edges of wide masks most bytes are empty.
    some = np.flatnonzero(raw)
    row, bit = np.nonzero(np.unpackbits(raw[some, None], axis=1, bitorder="little"))
    of, place = np.divmod(some[row] * 8 + bit, size * 8)
    return place[::2], place[1::2], np.bincount(of[::2], minlength=len(masks))
