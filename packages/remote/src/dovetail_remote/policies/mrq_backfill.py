"""Remote-GPU queueing with migration and EASY backfilling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from dovetail.interfaces import Free, Traits, View
from dovetail.model import Allocation, Decision, Placed, join_allocations
from dovetail.policies.parts.lending import going_home
from dovetail_remote.policies.rq_backfill import lend_and_backfill


@dataclass(frozen=True, slots=True)
class MrqBackfill:
    """As ``mrq``, with EASY (see ``rq-backfill``): work goes home where the head's promise is kept.

    ``local``, ``held``: see ``mrq``.
    """

    local: int = 0
    held: bool = False
    walltime: Literal["user", "learned"] = "user"

    paper: ClassVar[str] = "Markthub 2015, section 3; Lifka 1995"
    traits: ClassVar[Traits] = Traits(settles=True, priorities=True, migrates=True, slows=True)

    def decide(self, view: View) -> Iterable[Decision]:
        """First what may go home; then start from the front, promise and backfill."""
        free = view.free()
        promise = _Promise(view, free, self.held)
        home = list(going_home(view, free, held=self.held, keeps=promise.is_kept_with))
        moves = {move.job: move.allocation for move in home}
        if self.held:
            moves = {job: join_allocations(view.running[job].allocation, home) for job, home in moves.items()}
        return [*home, *lend_and_backfill(view, free, local=self.local, moves=moves)]


class _Promise:
    """The head's promise, if there is one, and what is free at its time by the walltimes."""

    def __init__(self, view: View, free: Free, held: bool) -> None:
        self._held = held
        self._promise = next(iter(view.reservations.values()), None)
        if self._promise is None:
            return
        self._then = free.copy()
        for placed in view.running.values():
            if self._ends_before(placed) and placed.job.id not in view.elsewhere:
                self._then.give(placed.allocation)

    def _ends_before(self, placed: Placed) -> bool:
        assert self._promise is not None
        return placed.bound <= self._promise.start

    def is_kept_with(self, placed: Placed, before: Allocation, home: Allocation) -> bool:
        """Whether the head still fits at its time when this job has moved; if so, that is counted with."""
        if self._promise is None or self._ends_before(placed):
            return True
        then = self._then.copy()
        then.give(before)
        then.take(join_allocations(before, home) if self._held else home)
        if then.fit(self._promise.allocation.request) is None:
            return False
        self._then = then
        return True
