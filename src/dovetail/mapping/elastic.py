"""Workers on this machine that come and go one by one, as calls wait and others need the cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.mapping.crew import Slot
from dovetail.mapping.local import LocalCrew, Process, send_calls
from dovetail.mapping.places import ThisMachine, Wanted
from dovetail.model import CPU


class ElasticCrew(LocalCrew):
    """A crew that begins with no worker. Each has a place of its own, which it can give back and get again.

    A worker that is laid off keeps its process, so that it is warm when it is recalled.
    """

    queued = False

    def __init__(
        self, units: ThisMachine, *, memory: int = 0, variables: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(units, (), memory=memory, kept=True, variables=variables)
        self._hired = 0
        self._resting: set[int] = set()

    def _take_places(self) -> None:
        """Each worker takes its own."""

    def hire_worker(self, some: Wanted, *, share: bool) -> Slot:
        """Start a worker; `Ready` follows. Raises `InUse` where there is no place for it."""
        place = self._units.add(some, sum(slot.kind == some.kind for slot in self.slots), share=share)
        if some.kind not in self._kinds:
            self._kinds.append(some.kind)
        slot = Slot(self._hired, place)
        self._hired += 1
        self.slots.append(slot)
        self._start_worker(slot)
        return slot

    def send_calls(
        self, slot: Slot, order: int, items: Sequence[Any], *, tickets: bool = False, again: bool = False
    ) -> None:
        """Give a worker calls; see `dovetail.mapping.local.send_calls`."""
        process = self._of_slot[slot.number]
        send_calls(process.connection, process, order, items, tickets=tickets, again=again)

    def take_back_calls(self, slot: Slot) -> int:
        """Take the calls with tickets that a worker has not begun away from it: how many, its last ones."""
        return self._of_slot[slot.number].take_back_tickets()

    def kept_outcomes(self, slot: Slot) -> dict[int, Any]:
        """Outcomes of calls that a worker has made and not sent yet, by their places in its first order."""
        return self._of_slot[slot.number].kept_outcomes()

    def lay_off(self, slot: Slot) -> None:
        """An idle worker gives its place back; one with a device ends, for it holds the device's memory."""
        if slot.kind != CPU:
            self.dismiss_worker(slot)
            return
        self._resting.add(slot.number)
        self._units.give(slot.place)
        self._of_slot[slot.number].connection.trim_rooms()

    def recall_worker(self, slot: Slot) -> bool:
        """A worker that was laid off has its place again; ``False`` where others have it now."""
        if slot not in self.slots or not self._units.add_again(slot.place):
            return False
        self._resting.remove(slot.number)
        return True

    def dismiss_worker(self, slot: Slot) -> None:
        """Let an idle worker go for good, one that was laid off too."""
        if slot not in self.slots:
            return  # it has ended
        if slot.number not in self._resting:
            super().dismiss_worker(slot)
        else:
            self.slots.remove(slot)
            self._running_supervisor.stop(self._of_slot[slot.number].uid)

    def _handle_exit(self, process: Process, status: int) -> None:
        """One that was laid off has nothing to lose, and none comes in its place."""
        slot = process.slot
        if slot.number not in self._resting:
            super()._handle_exit(process, status)
            return
        self._stop_listening(process)
        del self._processes[process.uid], self._of_slot[slot.number]
        self._resting.remove(slot.number)
        if slot in self.slots:
            self.slots.remove(slot)
        process.close()
