"""What people want of jobs, from when it comes in until it is applied, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType

from dovetail.engine.state.phases import AT_WORK, Phase
from dovetail.model import (
    Cancelled,
    Decision,
    Event,
    Held,
    JobId,
    Moved,
    Released,
    Requeued,
    Signalled,
    Submitted,
    Updated,
)
from dovetail.records import dataclass

WishEvent = Cancelled | Requeued | Held | Released | Updated | Moved | Signalled
WISHES = (Cancelled, Requeued, Held, Released, Updated, Moved, Signalled)
WISH_EVENTS: Mapping[str, Callable[[JobId], WishEvent]] = MappingProxyType(
    {"cancel": Cancelled, "requeue": Requeued, "hold": Held, "release": Released}
)
"""By what a person wants of a job: the event that stands for it."""
WALLTIME = "walltime"
"""The only field that can change while a job runs."""
_WAITS = (Phase.HELD, Phase.QUEUED, Phase.BOUND)


@dataclass(slots=True, eq=False)
class Wish:
    """One request of a person; `applied` or `refused` once an instant has taken it in."""

    event: WishEvent | Submitted
    applied: bool = False
    refused: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether it has had its answer."""
        return self.applied or bool(self.refused)


def refusal_of(event: WishEvent, phase: Phase, *, new: bool) -> str:
    """Why a wish cannot be fulfilled as its job stands; empty where it can.

    ``new``: the job comes in at this very instant, and waits.
    """
    if phase is Phase.UNKNOWN and not new:
        return "no such job is known any more"
    if phase is Phase.ENDED:
        return "" if isinstance(event, Requeued) else "it has ended"
    if isinstance(event, Cancelled):
        return ""
    waits = new or phase in _WAITS
    if isinstance(event, Signalled):
        return "it does not run" if waits or phase is Phase.HANDED_OVER else ""
    if isinstance(event, Updated) and phase is Phase.RUNNING:
        return "" if event.fields == (WALLTIME,) else "it runs: only its walltime can change"
    if isinstance(event, Requeued):
        return "it waits already" if waits else ""
    if isinstance(event, Moved) and phase is Phase.BOUND:
        return "it waits in the line of a device already"
    if phase is Phase.HANDED_OVER:
        return "it is in the hands of another scheduler" if isinstance(event, Updated) else "it runs"
    return "" if waits or phase not in AT_WORK else "it runs"


def subject_of(event: Event | Decision) -> JobId | None:
    """The job that an event is about; ``None`` where it is about none."""
    if isinstance(event, Submitted):
        return event.job.id
    job = getattr(event, "job", None)
    return job if isinstance(job, str) else None


@dataclass(slots=True)
class Wishes:
    """Wishes that have come in and wait for their answer, by the event that stands for each."""

    _waiting: dict[int, Wish] = field(default_factory=dict)  # by identity, which the wish itself secures

    def add(self, event: WishEvent | Submitted) -> Wish:
        """A wish has come in."""
        wish = self._waiting[id(event)] = Wish(event)
        return wish

    def answer_wish(self, event: Event | Decision, refused: str = "") -> None:
        """The wish for which an event stands, if it does, was applied, or ``refused``."""
        wish = self._waiting.pop(id(event), None) if self._waiting else None
        if wish is not None:
            wish.applied, wish.refused = not refused, refused
