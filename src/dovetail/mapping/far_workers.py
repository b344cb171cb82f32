"""A worker of a map that another system starts (a step of Slurm, an actor of Ray), as its crew sees it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import field

from dovetail.mapping.crew import Event, Lost, Slot, Unable
from dovetail.mapping.running import Failure
from dovetail.records import dataclass

FALSE_STARTS = 3
"""So many workers of a slot in a row may end before they are ready; then the slot is left out."""


@dataclass(eq=False, slots=True)
class FarWorker:
    """The worker of a slot, with the orders that it has.

    ``reason`` is why we have ended it, ``false_starts`` how many before it ended too early, ``knows`` the
    function that it was sent last.
    """

    slot: Slot
    orders: deque[int] = field(default_factory=deque)
    ready: bool = False
    reason: str = ""
    false_starts: int = 0
    knows: bytes | None = None

    def begin_map(self, shipped: Mapping[str, bytes]) -> bytes | None:
        """Forget the map before; the function that the worker is to be sent, where it can run it."""
        self.orders.clear()
        self.ready = False
        function = shipped.get(self.slot.kind)
        self.slot.warm = self.slot.warm and function == self.knows
        self.knows = function
        return function

    def note_loss(self, found: str) -> tuple[list[Event], int]:
        """Its end, for which ``found`` was the reason where we gave none: events, and false starts so far."""
        reason = self.reason or f"its worker was lost: {found}"
        if self.ready:
            return [Lost(self.slot, reason)], 0
        starts = self.false_starts + 1
        if starts < FALSE_STARTS:
            return [], starts
        return [Unable(self.slot, Failure(0, "WorkerLost", f"{reason} before it was ready", ""))], starts
