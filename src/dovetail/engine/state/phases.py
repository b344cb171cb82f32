"""Where a job stands, and every step that it may take: the one table of transitions.

A phase is finer than the `State` that people see: PENDING jobs are held, queued, bound to a unit's FIFO or
handed over to an outside scheduler; RUNNING ones run or move. `Engine.phase_of` reads a job's phase from the
engine's books, `Engine.validate_books` holds the books to it.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType

from dovetail.model import (
    Adopted,
    Cancelled,
    ClusterEnds,
    Delayed,
    Dequeue,
    Ended,
    Ending,
    Enqueue,
    Held,
    Intend,
    KeptOff,
    Lingering,
    Migrate,
    Migrated,
    Moved,
    Preempt,
    Released,
    Requeued,
    Reserve,
    Signalled,
    Sized,
    Start,
    Started,
    Submit,
    Submitted,
    Updated,
    Withdrawn,
)


class Phase(Enum):
    """Where a job stands."""

    UNKNOWN = "unknown"
    HELD = "held"
    QUEUED = "queued"
    BOUND = "bound to a unit's FIFO"
    HANDED_OVER = "handed over"
    RUNNING = "running"
    MOVING = "moving"
    ENDING = "about to end"
    ENDED = "ended"


_P = Phase

AT_WORK = frozenset({_P.RUNNING, _P.MOVING, _P.ENDING, _P.HANDED_OVER})
"""Jobs that have been given to an executor, and have not ended."""

STEPS = MappingProxyType(
    {
        # What happens: events. A step that leads back to its own phase changes nothing of it.
        (_P.UNKNOWN, Submitted): _P.QUEUED,  # or HELD, if it is submitted so
        (_P.QUEUED, Adopted): _P.RUNNING,
        (_P.QUEUED, Held): _P.HELD,
        (_P.BOUND, Held): _P.HELD,
        (_P.HELD, Held): _P.HELD,
        (_P.HELD, Released): _P.QUEUED,
        (_P.HELD, Cancelled): _P.ENDED,
        (_P.QUEUED, Cancelled): _P.ENDED,
        (_P.BOUND, Cancelled): _P.ENDED,
        (_P.HANDED_OVER, Started): _P.RUNNING,
        (_P.RUNNING, Started): _P.RUNNING,  # our own start, confirmed
        (_P.HANDED_OVER, Ended): _P.ENDED,
        (_P.HANDED_OVER, Delayed): _P.HANDED_OVER,
        (_P.RUNNING, Ended): _P.ENDED,
        (_P.QUEUED, ClusterEnds): _P.HELD,  # where the job cannot end before that
        (_P.BOUND, ClusterEnds): _P.HELD,
        (_P.HELD, ClusterEnds): _P.QUEUED,  # where it now can
        (_P.MOVING, Ended): _P.ENDED,
        (_P.MOVING, Migrated): _P.RUNNING,
        (_P.RUNNING, Migrated): _P.RUNNING,  # which notes that it cannot move
        (_P.RUNNING, Ending): _P.ENDING,
        (_P.ENDING, Ended): _P.ENDED,
        (_P.ENDING, Lingering): _P.RUNNING,
        (_P.ENDING, Withdrawn): _P.QUEUED,
        (_P.RUNNING, Withdrawn): _P.QUEUED,
        (_P.ENDED, Requeued): _P.QUEUED,
        (_P.QUEUED, Sized): _P.QUEUED,
        (_P.HELD, Sized): _P.HELD,
        (_P.QUEUED, KeptOff): _P.QUEUED,
        (_P.HELD, KeptOff): _P.HELD,
        (_P.BOUND, KeptOff): _P.QUEUED,  # what it waits for may be reserved
        (_P.BOUND, Sized): _P.QUEUED,  # what it waits for may be too small for it
        (_P.QUEUED, Updated): _P.QUEUED,
        (_P.QUEUED, Moved): _P.QUEUED,
        (_P.HELD, Moved): _P.HELD,
        (_P.BOUND, Updated): _P.QUEUED,
        (_P.HELD, Updated): _P.HELD,  # or QUEUED, where it was set aside for what it was
        (_P.RUNNING, Updated): _P.RUNNING,
        (_P.RUNNING, Signalled): _P.RUNNING,
        (_P.MOVING, Signalled): _P.MOVING,
        (_P.ENDING, Signalled): _P.ENDING,
        # What the policy decides.
        (_P.QUEUED, Start): _P.RUNNING,
        (_P.BOUND, Start): _P.RUNNING,
        (_P.QUEUED, Enqueue): _P.BOUND,
        (_P.BOUND, Dequeue): _P.QUEUED,
        (_P.QUEUED, Intend): _P.QUEUED,
        (_P.BOUND, Intend): _P.BOUND,
        (_P.QUEUED, Reserve): _P.QUEUED,
        (_P.BOUND, Reserve): _P.BOUND,
        (_P.QUEUED, Submit): _P.HANDED_OVER,
        (_P.BOUND, Submit): _P.HANDED_OVER,
        (_P.RUNNING, Migrate): _P.MOVING,  # RUNNING at once where both phases fall in one instant
        (_P.HANDED_OVER, Preempt): _P.HANDED_OVER,  # until it is taken back, or has started
        (_P.HANDED_OVER, Withdrawn): _P.QUEUED,
        (_P.RUNNING, Preempt): _P.RUNNING,  # until it has ended and is requeued
    }
)
"""(phase, event or decision) -> phase. What is not here cannot happen: events of that kind are passed over,
since the world may be late with its news; decisions are errors of the policy."""
