"""What a driver wants carried out: by a simulation, an executor, an outside scheduler."""

from __future__ import annotations

from dovetail.model import Allocation, Job, JobId, Placed, Shape, State, Submit
from dovetail.model.frozen import frozen

__all__ = ["Ask", "HandOver", "Move", "Order", "Signal", "Stop", "Withdraw"]


@frozen(frozen=True, slots=True)
class Stop:
    """End a job; its `Ended` follows with this state, unless it has ended in the engine already."""

    job: JobId
    attempt: int
    state: State
    detail: str = ""


@frozen(frozen=True, slots=True)
class Signal:
    """Send a job the signal that it asked for before its walltime."""

    job: JobId
    number: int


@frozen(frozen=True, slots=True)
class Move:
    """Move a running job's work to ``target``; `Migrated` follows, and it holds both places until then."""

    placed: Placed
    target: Allocation


@frozen(frozen=True, slots=True)
class HandOver:
    """Hand a job to an outside scheduler, as the ``attempt``-th start; `Started` and `Ended` follow."""

    job: Job
    decision: Submit
    attempt: int


@frozen(frozen=True, slots=True)
class Ask:
    """Ask the outside scheduler when it would start such jobs; `Foreseen` follows."""

    shape: Shape


@frozen(frozen=True, slots=True)
class Withdraw:
    """Take back the starts that were to follow this job; `Withdrawn` of each and `Lingering` of it follow."""

    job: JobId


Order = Placed | Stop | Signal | Move | HandOver | Ask | Withdraw
"""What is to be carried out; a `Placed` is to be started."""
