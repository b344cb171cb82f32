"""Whether the kinds of workers give the same results: a sample of the items is run on each, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from dovetail.errors import MapError
from dovetail.mapping.health import Blame
from dovetail.mapping.waiting import Task
from dovetail.records import dataclass

TOLERANCE = 1e-5
"""Of the greatest absolute value: single precision, summed in another order."""


@dataclass(eq=False, slots=True)
class Check:
    """One item that is run on every kind. ``dropped``: it could not be, for a reason noted elsewhere.

    ``left`` runs have not ended; ``blames`` are those that failed.
    """

    index: int
    kinds: Sequence[str]
    results: dict[str, Any] = field(default_factory=dict)
    dropped: bool = False
    left: int = 0
    blames: list[Blame] = field(default_factory=list)


class Checker:
    """Chooses the sample (a ``share`` of the items, the first one always) and compares.

    Which items are chosen depends on their places only. ``equal`` decides, by default `results_agree`.
    """

    def __init__(
        self, share: float, kinds: Sequence[str], equal: Callable[[Any, Any], bool] | None = None
    ) -> None:
        self._share = share if len(kinds) > 1 else 0.0
        self._kinds = kinds
        self._equal = equal or results_agree
        self.compared = 0

    @property
    def is_active(self) -> bool:
        """Whether there is anything to compare."""
        return self._share > 0

    def choose_runs(self, task: Task) -> Iterator[tuple[str, Task]]:
        """The runs of the items of this task that are to be compared, and the kind for each."""
        if not self._share or task.tries or task.deaths:
            return
        indices = np.asarray(task.indices, dtype=np.uint64)
        # Knuth's multiplicative hash: spread evenly, and the same in every run.
        spread = (indices * np.uint64(2654435761) % np.uint64(1 << 32)).astype(float) / 2**32
        for place in np.flatnonzero(spread < self._share).tolist():
            index, item = task.indices[place], task.items[place]
            check = Check(index, self._kinds, left=len(self._kinds))
            yield from ((kind, Task([index], [item], check=check)) for kind in self._kinds)

    def compare_result(self, check: Check, kind: str, value: Any) -> MapError | None:
        """Take one result in; the error if it differs from that of another kind."""
        check.results[kind] = value
        if len(check.results) < len(check.kinds) or check.dropped:
            return None
        self.compared += 1
        first, *others = check.kinds
        for other in others:
            ours, theirs = check.results[first], check.results[other]
            if not self._equal(ours, theirs):
                return MapError(
                    f"item {check.index}: the results of {first} and {other} differ: {_short_text(ours)} and "
                    f"{_short_text(theirs)}"
                )
        return None


def _short_text(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 100 else f"{text[:97]}…"


def results_agree(one: Any, other: Any) -> bool:
    """Whether two results are the same but for rounding.

    Numbers and arrays may differ by `TOLERANCE` of the greatest absolute value in them; lists, tuples and
    mappings agree if all that is in them does; anything else must be equal.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(results_agree(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(results_agree, one, other))
    if isinstance(one, str | bytes) or isinstance(other, str | bytes):
        return bool(one == other)
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return False
    if first.dtype.kind not in "biufc" or second.dtype.kind not in "biufc":
        return bool(np.all(first == second))
    largest = max((float(np.max(np.abs(a))) for a in (first, second) if a.size), default=0.0)
    if not np.isfinite(largest):
        return bool(np.allclose(first, second, rtol=TOLERANCE, equal_nan=True))
    return bool(np.all(np.abs(first.astype(complex) - second) <= TOLERANCE * largest))
