"""What waits to be handed over, by shape: as much at once as the batch system takes, the rest later.

A cluster limits how many jobs a user, an account, an array or the whole queue may have. What is refused for
that is not refused for good: an array is halved until it fits, a single job waits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from math import inf
from typing import Generic, TypeVar

from dovetail.model import Seconds
from dovetail.records import dataclass

FIRST, MOST = 2.0, 60.0
"""Seconds until a single job that was refused is offered again; twice as many each time, unless one ends."""

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


@dataclass(slots=True)
class _Line(Generic[Item]):
    """Jobs of one shape: so many at once, not before ``due``; ``why`` not, if they were refused."""

    items: list[Item] = field(default_factory=list)
    chunk: int = 1
    due: Seconds = 0.0
    pause: Seconds = FIRST
    why: str = ""


class Backlog(Generic[Key, Item]):
    """Lines of jobs; at most ``longest`` go at once."""

    def __init__(self, longest: int) -> None:
        self._longest = max(1, longest)
        self._lines: dict[Key, _Line[Item]] = {}

    def add(self, key: Key, item: Item) -> str:
        """At the end of its line; returns why that line is kept back, if it is."""
        line = self._lines.setdefault(key, _Line(chunk=self._longest))
        line.items.append(item)
        return line.why

    def take_out(self, unwanted: Callable[[Item], bool]) -> bool:
        """Whether there was such a job; it goes no more."""
        for line in self._lines.values():
            for at, item in enumerate(line.items):
                if unwanted(item):
                    del line.items[at]
                    return True
        return False

    def next(self, now: Seconds) -> tuple[Key, Sequence[Item]] | None:
        """What may be handed over now; answer with `accepted` or `refused`."""
        for key, line in self._lines.items():
            if line.items and line.due <= now:
                taken, line.items = line.items[: line.chunk], line.items[line.chunk :]
                return key, taken
        return None

    def due(self) -> Seconds:
        """When something may be handed over; infinite where nothing waits."""
        return min((line.due for line in self._lines.values() if line.items), default=inf)

    def accepted(self, key: Key) -> None:
        """They are in: the next may be twice as many."""
        line = self._lines[key]
        line.chunk, line.pause, line.why = min(self._longest, 2 * line.chunk), FIRST, ""
        if not line.items:
            del self._lines[key]

    def refused(self, key: Key, items: Sequence[Item], now: Seconds, why: str) -> Sequence[Item]:
        """There is no place for so many: back to the front; returns those that wait for that now."""
        line = self._lines[key]
        line.items = [*items, *line.items]
        if len(items) > 1:
            line.chunk = len(items) // 2
            return ()
        line.chunk, line.due, line.why = 1, now + line.pause, why
        line.pause = min(MOST, 2 * line.pause)
        return line.items

    def freed(self) -> None:
        """A job has ended: there may be a place."""
        for line in self._lines.values():
            line.due, line.pause = 0.0, FIRST
