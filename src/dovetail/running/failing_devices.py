"""Devices on which jobs of several apps fail at once: they take no job for a while, lest one eat a queue.

The rule is that of apps on classes (`dovetail.engine.state.suspensions`), for one device: after `APPS`
different apps have failed within moments of their start it is left alone for a minute, then tried again;
while jobs go on failing the pause doubles, up to an hour. An app that fails so elsewhere too, and has
completed nowhere, is itself to blame.
"""

from __future__ import annotations

from dataclasses import field
from typing import Generic, TypeVar

from dovetail.engine.state.suspensions import AT_ONCE, FIRST_PAUSE, LONGEST_PAUSE
from dovetail.model import Seconds, State
from dovetail.records import dataclass

APPS = 3
Place = TypeVar("Place")


@dataclass(slots=True)
class _Suspect:
    """Apps that have failed there since one last did not. ``until``: it is suspended; ``why`` for people."""

    apps: set[str] = field(default_factory=set)
    pause: Seconds = FIRST_PAUSE
    until: Seconds | None = None
    why: str = ""


@dataclass(slots=True)
class FailingDevices(Generic[Place]):
    """All devices of one machine; times are those of the driver's clock."""

    _suspects: dict[Place, _Suspect] = field(default_factory=dict)
    _completed: set[str] = field(default_factory=set)

    def ended(self, place: Place, app: str, state: State, ran: Seconds, now: Seconds) -> None:
        """A job of this app that used the device has ended after ``ran`` seconds."""
        if state is State.COMPLETED:
            self._completed.add(app)
        if state is State.FAILED and ran <= AT_ONCE:
            self._note_failure(place, app, now)
        elif state in (State.COMPLETED, State.FAILED, State.TIMEOUT):
            # It works, whatever ails the job.
            self._suspects.pop(place, None)

    def _note_failure(self, place: Place, app: str, now: Seconds) -> None:
        suspect = self._suspects.setdefault(place, _Suspect())
        suspect.apps.add(app)
        if suspect.until is not None:
            if now >= suspect.until:  # it was a trial
                suspect.pause = min(LONGEST_PAUSE, 2 * suspect.pause)
                self._suspend_device(suspect, now)
            return
        elsewhere = {
            one
            for other, others in self._suspects.items()
            if other != place
            for one in others.apps - self._completed
        }
        if len(suspect.apps - elsewhere) >= APPS:
            self._suspend_device(suspect, now)

    @staticmethod
    def _suspend_device(suspect: _Suspect, now: Seconds) -> None:
        suspect.until = now + suspect.pause
        names = ", ".join(sorted(suspect.apps)[:APPS])
        suspect.why = (
            f"suspended for {suspect.pause:g} s: jobs of {len(suspect.apps)} apps ({names}) failed there "
            f"within {AT_ONCE:g} s of their start"
        )

    def note_fault(self, place: Place, why: str, now: Seconds) -> None:
        """The driver has reported an error of the device."""
        suspect = self._suspects.setdefault(place, _Suspect())
        if suspect.until is not None:
            suspect.pause = min(LONGEST_PAUSE, 2 * suspect.pause)
        suspect.until, suspect.why = now + suspect.pause, f"suspended for {suspect.pause:g} s: {why}"

    def suspended_devices(self, now: Seconds) -> dict[Place, tuple[str, Seconds]]:
        """Why each device takes no job now, and until when."""
        return {
            place: (suspect.why, suspect.until)
            for place, suspect in self._suspects.items()
            if suspect.until is not None and suspect.until > now
        }
