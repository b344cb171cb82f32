"""Whether one of two starts is sooner: both are rolled out over the same futures, draw by draw."""

from __future__ import annotations

from collections.abc import Sequence

MOMENT, MOST_OF_THEM = 60.0, 0.5
"""A job starts sooner where it does by so many seconds in so much larger a share of the draws."""


def starts_sooner(draws: Sequence[float], others: Sequence[float]) -> bool:
    """Whether most draws agree that the first of two starts sooner; draw by draw, the same futures.

    >>> starts_sooner([10.0, 20.0, 900.0], [500.0, 600.0, 900.0])
    True
    >>> starts_sooner([10.0, 900.0], [500.0, 600.0])
    False
    """
    pairs = list(zip(draws, others, strict=False))
    sooner = sum(one < other - MOMENT for one, other in pairs)
    later = sum(one > other + MOMENT for one, other in pairs)
    return sooner - later > MOST_OF_THEM * len(pairs)
