"""Sets of nodes, which allocations keep as bit masks, as runs of neighbours."""

from __future__ import annotations

__all__ = ["runs"]

MANY, WIDE = 32, 2048
"""Runs found one by one, and bits left, from which it is quicker to look at all bits at once."""


def runs(mask: int) -> list[tuple[int, int]]:
    """The runs of set bits, ascending: the first bit of each, and the one after its last. O(bits).

    >>> runs(0b1011100)
    [(2, 5), (6, 7)]
    """
    found: list[tuple[int, int]] = []
    place = 0
    while mask:
        if len(found) >= MANY and mask.bit_length() > WIDE:
            return found + [(place + low, place + high) for low, high in _all_at_once(mask)]
        gap = (mask & -mask).bit_length() - 1
        mask >>= gap
        length = (~mask & (mask + 1)).bit_length() - 1
        found.append((place + gap, place + gap + length))
        mask >>= length
        place += gap + length
    return found


def _all_at_once(mask: int) -> list[tuple[int, int]]:
    import numpy as np  # few need it: what is light stays so

    raw = np.frombuffer(mask.to_bytes(mask.bit_length() // 8 + 1, "little"), np.uint8)
    bits = np.unpackbits(raw, bitorder="little")
    edges = np.flatnonzero(np.diff(bits, prepend=np.uint8(0), append=np.uint8(0)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
