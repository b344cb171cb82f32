"""Which workers may be given items: one that fails where another succeeds is suspended, and tried later.

A failure may be the item's or the worker's. It was the worker's if the item then succeeds elsewhere
(*confirmed*), the item's if it fails wherever it can be run (*excused*). After `IN_A_ROW` failures in a row
of which nothing is known yet, a worker gets only what has failed elsewhere. One of them confirmed, it is
suspended, and then tried with one item; this is how Hadoop treats nodes, but for the pause, which grows.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from enum import Enum, auto

from dovetail.errors import DovetailWarning
from dovetail.mapping.crew import Slot
from dovetail.mapping.running import IN_A_ROW, Failure
from dovetail.records import dataclass

_log = logging.getLogger(__name__)

__all__ = ["FIRST_PAUSE", "IN_A_ROW", "MOST_TRIES", "Blame", "Health", "Standing"]

FIRST_PAUSE, PAUSE_GROWTH, LONGEST_PAUSE = 5.0, 4.0, 3600.0
"""Seconds of the first suspension; each further one is longer by the factor, up to the longest."""
DEATHS_COUNT = 100
"""A worker that was lost is replaced, and begins well: its loss counts until so many items were done."""
MOST_TRIES = 2 * IN_A_ROW + 2
"""After so many failures in a row (or losses) a worker is left out for the rest of the map."""


class Standing(Enum):
    """What a worker may be given."""

    IN_SERVICE = auto()
    WATCHED = auto()  # only items that have failed elsewhere, until it is known whose fault its failures were
    ON_TRIAL = auto()  # one item
    SUSPENDED = auto()


@dataclass(frozen=True, slots=True)
class Blame:
    """A failure that is not explained yet: of this worker, in its row number ``row`` of failures.

    ``lost``: its process was lost with this very item.
    """

    slot: Slot
    row: int
    lost: bool = False


@dataclass(eq=False, slots=True)
class _Worker:
    """What is known of one. ``failures`` are those in a row, without the excused ones.

    ``tries`` are all that failed, ``alone`` those in a row whose items were tried nowhere else, ``deaths``
    the losses of its process that others explain, ``done`` items since the last of these. ``until`` is when
    a suspension ends, ``since`` when it began.
    """

    slot: Slot
    row: int = 0
    failures: int = 0
    confirmed: int = 0
    alone: int = 0
    deaths: int = 0
    done: int = 0
    tries: int = 0
    successes: int = 0
    until: float | None = None
    since: float = 0.0
    pauses: int = 0
    last: Failure | None = None


@dataclass(eq=False)
class Health:
    """The standing of all workers of one map. ``clock`` gives seconds."""

    clock: Callable[[], float] = time.monotonic
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _pauses: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def standing(self, slot: Slot) -> Standing:
        """What this worker may be given now."""
        worker = self._workers.get(slot.number)
        if worker is None or worker.until is None:
            watched = worker is not None and worker.failures >= IN_A_ROW
            return Standing.WATCHED if watched else Standing.IN_SERVICE
        return Standing.ON_TRIAL if self.clock() >= worker.until else Standing.SUSPENDED

    def is_doubtful(self, slot: Slot) -> bool:
        """Whether its last try failed: it gets no second task beside the one it has."""
        worker = self._workers.get(slot.number)
        return worker is not None and worker.failures > 0

    # -- what happens ----------------------------------------------------------------------------------

    def note_success(self, slot: Slot, blames: Iterable[Blame], items: int = 1) -> None:
        """A worker has done so many items, on which the blamed ones had failed."""
        worker = self._worker_of_slot(slot)
        worker.successes += 1
        worker.done += items
        # Losses long ago explain nothing any more.
        if worker.done >= DEATHS_COUNT:
            worker.deaths = 0
        if worker.failures or worker.alone or worker.until is not None:
            self._reinstate_worker(worker)
            worker.row += 1
            worker.confirmed = worker.alone = 0
        # Lost processes still count a little: a worker that dies now and then is watched sooner.
        worker.failures = min(worker.deaths, IN_A_ROW - 1)
        self.confirm_blames(blame for blame in blames if blame.slot is not slot)

    def failed(self, slot: Slot, failure: Failure, *, lost: bool = False) -> Blame:
        """A try on this worker has failed; whose fault it was is to be found out."""
        worker = self._worker_of_slot(slot)
        worker.failures += 1
        worker.tries += 1
        worker.last = failure
        if worker.until is not None:
            self._suspend_worker(worker)  # it was on trial
        else:
            self._judge_worker(worker)
        return Blame(slot, worker.row, lost)

    def confirm_blames(self, blames: Iterable[Blame]) -> None:
        """What failed on these workers has been done by another."""
        for blame in blames:
            worker = self._worker_of_slot(blame.slot)
            # The process is another one since: the loss counts all the same, the row does not.
            if blame.lost:
                worker.deaths, worker.done = worker.deaths + 1, 0
            if worker.row != blame.row and blame.lost:
                worker.failures += 1
            elif worker.row != blame.row or not worker.failures:
                continue
            worker.confirmed += 1
            self._judge_worker(worker)

    def excuse_blames(self, blames: Iterable[Blame]) -> None:
        """An item has failed wherever it could be run."""
        found = list(blames)
        alone = len({blame.slot.number for blame in found}) == 1
        for blame in found:
            worker = self._worker_of_slot(blame.slot)
            # Excused only within the same row: after a success the failures are forgiven already.
            if worker.row != blame.row or worker.until is not None or not worker.failures:
                continue
            worker.failures -= 1
            worker.alone += alone
            # No other worker tried its items; but others succeed, and it never has.
            others = sum(other.successes for other in self._workers.values())
            if worker.alone >= IN_A_ROW and not worker.successes and others >= IN_A_ROW:
                self._suspend_worker(worker)

    def note_unable(self, slot: Slot, failure: Failure) -> None:
        """A worker cannot load the function, or does not start: it is of no use in this map."""
        worker = self._worker_of_slot(slot)
        worker.last = failure
        worker.failures = MOST_TRIES
        self._suspend_worker(worker)

    def _judge_worker(self, worker: _Worker) -> None:
        if worker.until is None and worker.failures >= IN_A_ROW and worker.confirmed:
            self._suspend_worker(worker)

    # -- suspensions -----------------------------------------------------------------------------------

    def _suspend_worker(self, worker: _Worker) -> None:
        now = self.clock()
        pause = min(LONGEST_PAUSE, FIRST_PAUSE * PAUSE_GROWTH**worker.pauses)
        worker.pauses += 1
        if worker.until is None:
            worker.since = now
        # Without an end after so many tries: each trial costs an item's time.
        worker.until = math.inf if max(worker.failures, worker.deaths) >= MOST_TRIES else now + pause
        until = f"for {pause:g} s" if worker.until < math.inf else "for the rest of the map"
        _log.info("the %s worker is suspended %s: %s", worker.slot.name, until, worker.last)
        self._warn_once(worker)

    def _reinstate_worker(self, worker: _Worker) -> None:
        if worker.until is not None:
            worker.until = None
            self._pauses.setdefault(worker.slot.kind, []).append((worker.since, self.clock()))

    def lift_suspension(self, slots: Iterable[Slot]) -> bool:
        """No worker is in service: the one whose suspension ends first is tried now; whether there is one."""
        ends = [
            worker
            for slot in slots
            if (worker := self._workers.get(slot.number)) and worker.until is not None
        ]
        soonest = min(ends, key=lambda worker: worker.until or 0.0, default=None)
        if soonest is None or soonest.until == math.inf:
            return False
        soonest.until = self.clock()
        return True

    def is_hopeless(self, slots: Iterable[Slot]) -> bool:
        """Whether every worker that is not suspended has failed often, where nothing has succeeded yet."""
        workers = map(self._worker_of_slot, slots)
        return all(worker.until is not None or worker.tries >= IN_A_ROW for worker in workers)

    def _warn_once(self, worker: _Worker) -> None:
        """Once for each kind."""
        kind = worker.slot.kind
        if kind in self._told:
            return
        self._told.add(kind)
        if worker.until == math.inf:
            text = f"the {worker.slot.name} worker is left out, since it cannot run the function"
        else:
            text = f"the {worker.slot.name} worker is suspended, since it fails where others succeed"
        warnings.warn(f"{text}: {worker.last}", DovetailWarning, stacklevel=1)

    # -- for the summary -------------------------------------------------------------------------------

    def end(self) -> None:
        """The map has ended, and with it all suspensions."""
        for worker in self._workers.values():
            self._reinstate_worker(worker)

    def suspended_seconds(self) -> dict[str, float]:
        """Seconds during which any worker of the kind was suspended, so far."""
        now = self.clock()
        pauses = {kind: list(some) for kind, some in self._pauses.items()}
        for worker in list(self._workers.values()):
            if worker.until is not None:
                pauses.setdefault(worker.slot.kind, []).append((worker.since, now))
        found: dict[str, float] = {}
        for kind, some in pauses.items():
            seconds, last = 0.0, 0.0
            # Suspensions of several workers overlap: their union counts, not their sum.
            for begin, end in sorted(some):
                seconds += max(0.0, end - max(begin, last))
                last = max(last, end)
            found[kind] = seconds
        return found

    def failed_tries(self) -> dict[str, int]:
        """Tries that failed, by kind."""
        found: Counter[str] = Counter()
        for worker in list(self._workers.values()):
            found[worker.slot.kind] += worker.tries
        return {kind: count for kind, count in found.items() if count}

    def last_failures(self) -> Mapping[str, Failure]:
        """The last failure of each kind."""
        return {worker.slot.kind: worker.last for worker in self._workers.values() if worker.last}

    def _worker_of_slot(self, slot: Slot) -> _Worker:
        return self._workers.setdefault(slot.number, _Worker(slot))
