"""Durations that were measured, in bounded memory: a service asks its policy for months."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

__all__ = ["Durations"]

MOST = 1 << 17


class Durations(Sequence[float]):
    """Seconds of calls, in order; of very many, every second, fourth, … is kept.

    Once ``MOST`` are kept every other one is dropped, and from then on every second call is kept, and so on:
    quantiles stay those of an even sample. `mean` is of all calls.
    """

    __slots__ = ("_kept", "_skip", "_stride", "calls", "total")

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._stride = 1
        self._skip = 0
        self.calls = 0
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """One call. O(1) in the mean."""
        self.calls += 1
        self.total += seconds
        if self._skip:
            self._skip -= 1
            return
        self._skip = self._stride - 1
        self._kept.append(seconds)
        if len(self._kept) >= MOST:
            del self._kept[1::2]
            self._stride *= 2

    @property
    def mean(self) -> float:
        """Mean of all calls; 0 without any."""
        return self.total / self.calls if self.calls else 0.0

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[float]:
        return iter(self._kept)

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | Sequence[float]:
        return self._kept[index]
