"""A profile in the hands of a policy, slot by slot: on any nodes, and where counting must be spelt out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from dovetail.model import Allocation, Promise, Renew, Request, Reserve, Seconds

__all__ = ["Change", "PlainPlan", "Slot", "SlotProfile", "change_of", "instants_first"]

Change = tuple[int, Seconds, Seconds, tuple[Any, ...]]
"""+1 for a slot that is taken, -1 for one that is given back; start, end, and what it holds."""


def change_of(sign: int, start: Seconds, end: Seconds, allocation: Allocation) -> Change:
    """A change, comparable: allocations are the same if they hold the same."""
    return sign, start, end, (allocation.request.nodes, allocation.parts, allocation.donors)


Slot = tuple[Seconds, Seconds, Allocation]
"""Start, duration, and what is held."""


def instants_first(slots: Iterable[Slot]) -> list[Slot]:
    """Slots of no length go before others of their time."""
    return sorted(slots, key=lambda slot: slot[1] > 0)


class SlotProfile(Protocol):
    """Free capacity over time in which slots are held; `NodeProfile` and `PlainCountProfile`."""

    now: Seconds

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first gap, and where."""
        ...

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        ...

    def pull(
        self, start: Seconds, duration: Seconds, allocation: Allocation
    ) -> tuple[Seconds, Allocation] | None:
        """Move a held slot to the first gap that begins earlier; where to, or ``None`` if it stays."""
        ...


class PlainPlan:
    """Implements `dovetail.interfaces.Profile` over slots; ``promises`` with their durations, in order."""

    def __init__(self, profile: SlotProfile, promises: Sequence[tuple[Promise, Seconds]]) -> None:
        self.profile = profile
        self.changes: Counter[Change] = Counter()
        self._promises = list(promises)

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first time from which the request fits for so long, and where."""
        return self.profile.earliest(request, duration)

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        if not self.profile.hold(start, duration, allocation):
            return False
        self.changes[change_of(1, start, start + duration, allocation)] += 1
        return True

    def renew(self) -> Renew | None:
        """The decision to make every promise anew, one by one, all others in place.

        Those that can start now are due, and promised nothing else.
        """
        now = self.profile.now
        moves: list[Reserve] = []
        for row, (promise, duration) in enumerate(self._promises):
            moved = self.profile.pull(promise.start, duration, promise.allocation)
            if moved is not None:
                start, allocation = moved
                self.changes[change_of(-1, promise.start, promise.start + duration, promise.allocation)] += 1
                self.changes[change_of(1, start, start + duration, allocation)] += 1
                anew = Promise(promise.job, promise.implementation, allocation, start)
                self._promises[row] = anew, duration
                if start > now:
                    moves.append(Reserve(promise.job.id, promise.implementation.name, allocation, start))
        return Renew(moves) if moves else None

    def due(self) -> list[Promise]:
        """The promises whose time has come, in order."""
        now = self.profile.now
        return [promise for promise, _ in self._promises if promise.start <= now]

    def next_due(self) -> Promise | None:
        """The promise whose time comes next; the first in order of equals."""
        now = self.profile.now
        later = (promise for promise, _ in self._promises if promise.start > now)
        return min(later, key=_start, default=None)


def _start(promise: Promise) -> Seconds:
    return promise.start
