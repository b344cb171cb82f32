"""What a driver wants carried out: by a simulation, an executor, an outside scheduler.

Orders that would begin something wait while they are not on record (the disk is full).
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.model import Allocation, Job, JobId, Placed, Recipients, Seconds, Shape, State, Submit
from dovetail.model.frozen import frozen


@frozen(frozen=True, slots=True)
class Stop:
    """End a job; its `Ended` follows with this state, unless it has ended in the engine already."""

    job: JobId
    attempt: int
    state: State
    detail: str = ""


@frozen(frozen=True, slots=True)
class Signal:
    """Send a job a signal: the one that it has for the time before its walltime, or a user's."""

    job: JobId
    number: int
    to: Recipients = "all"


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
class AskStart:
    """Query the outside scheduler for the start of such jobs; `Foreseen` follows."""

    shape: Shape


@frozen(frozen=True, slots=True)
class Withdraw:
    """Take back the starts that were to follow this job; `Withdrawn` of each and `Lingering` of it follow."""

    job: JobId


Order = Placed | Stop | Signal | Move | HandOver | AskStart | Withdraw
"""What is to be carried out; a `Placed` is to be started."""


INFINITE = float("inf")
PATIENCE: Seconds = 1.0
"""Between attempts to keep what could not be kept."""


class UnrecordedOrders:
    """They are given as soon as they are on record; ``retry`` is when that is to be tried again."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.retry: Seconds = INFINITE

    def keep_back(self, orders: Sequence[Order], now: Seconds) -> list[Order]:
        """Keep those that would begin something; returns the others, which may be given."""
        begins = (Placed, HandOver, Move)
        self.orders += [order for order in orders if isinstance(order, begins)]
        if self.retry == INFINITE:
            self.postpone_retry(now)
        return [order for order in orders if not isinstance(order, begins)]

    def postpone_retry(self, now: Seconds) -> None:
        """They are not on record yet."""
        self.retry = now + PATIENCE

    def let_go(self) -> list[Order]:
        """They are on record: give them."""
        self.retry = INFINITE
        orders, self.orders = self.orders, []
        return orders

    def drop_start(self, job: JobId) -> bool:
        """Whether the order that would have begun the job was kept back; it will not be given then."""
        left = [one for one in self.orders if not isinstance(one, Placed | HandOver) or one.job.id != job]
        found = len(left) < len(self.orders)
        self.orders = left
        return found
