"""How long items take on each kind of worker, as far as is known: what was learned, what is measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from dovetail.records import dataclass

LEARNED_WEIGHT = 2.0
"""A mean from the history weighs at first as much as so many batches measured now."""
LEAST_MEMORY = 8.0
"""Batches that a mean remembers at least; older ones fade."""
SHORTEST = 1e-9


@dataclass(slots=True)
class _Kind:
    """A fading mean over batches, beside what was learned before; first batches of workers are apart."""

    memory: float
    learned: float | None = None
    learned_weight: float = 0.0
    weight: float = 0.0
    seconds: float = 0.0
    cost: float = 0.0
    cold_seconds: float = 0.0
    cold_cost: float = 0.0
    dispatch: float = math.inf

    def mean(self) -> float | None:
        """Seconds of one unit of cost."""
        if self.learned is not None:
            measured = self.seconds / self.cost if self.cost else 0.0
            whole = self.learned_weight + self.weight
            return (self.learned_weight * self.learned + self.weight * measured) / whole
        if self.cost:
            return self.seconds / self.cost
        return self.cold_seconds / self.cold_cost if self.cold_cost else None


class Pace:
    """Seconds per unit of cost, by kind; the cost of an item is 1 where nothing else is known.

    The paper takes the mean of all tasks that have ended; this one fades, so that it follows a machine that
    becomes busier. The first batch of each worker (imports, kernels that are built) counts only while
    there is no other, and nothing was learned.
    """

    def __init__(self, slots: Mapping[str, int], learned: Mapping[str, float]) -> None:
        self._kinds = {
            kind: _Kind(
                max(LEAST_MEMORY, 2.0 * count), learned.get(kind), LEARNED_WEIGHT if kind in learned else 0.0
            )
            for kind, count in slots.items()
        }

    def note_batch(self, kind: str, cost: float, seconds: float, own: float, *, first: bool) -> float:
        """A batch of this cost has taken so many seconds, ``own`` of them the function's.

        ``first``: it was its worker's first. What it takes to give out any batch, the least that was seen,
        is no part of its items' time: a batch of one tiny item would predict nothing of a batch of many.
        Returns the seconds that count.
        """
        mean = self._kinds.setdefault(kind, _Kind(LEAST_MEMORY))
        mean.dispatch = min(mean.dispatch, max(0.0, seconds - own))
        seconds -= mean.dispatch
        if first:
            mean.cold_seconds += seconds
            mean.cold_cost += cost
            return seconds
        keep = 1 - 1 / mean.memory
        mean.learned_weight *= keep
        mean.weight = mean.weight * keep + 1
        mean.seconds = mean.seconds * keep + seconds
        mean.cost = mean.cost * keep + cost
        return seconds

    def seconds(self, kind: str) -> float | None:
        """Of one unit of cost; ``None`` if nothing is known."""
        found = self._kinds[kind].mean() if kind in self._kinds else None
        return None if found is None else max(found, SHORTEST)

    def known_seconds(self, kinds: Iterable[str]) -> dict[str, float]:
        """Those of these kinds of which something is known."""
        found = {kind: self.seconds(kind) for kind in kinds}
        return {kind: seconds for kind, seconds in found.items() if seconds is not None}
