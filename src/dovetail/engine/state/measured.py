"""Durations that were measured, in bounded memory: a service asks its policy for months."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

__all__ = ["Durations"]

MOST = 1 << 17


class Durations(Sequence[float]):
    """Seconds of calls, in order; of very many, every second, fourth, … is kept.

    Once ``MOST`` are kept every other one is dropped, and from then on every second call is kept, and so on:
    mean and quantiles stay those of an even sample.
    """

    __slots__ = ("_kept", "_skip", "_stride")

    def __init__(self) -> None:
        self._kept: list[float] = []
        self._stride = 1
        self._skip = 0

    def add(self, seconds: float) -> None:
        """One call. O(1) in the mean."""
        if self._skip:
            self._skip -= 1
            return
        kept = self._kept
        kept.append(seconds)
        self._skip = self._stride - 1
        if len(kept) >= MOST:
            del kept[1::2]
            self._stride *= 2

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
