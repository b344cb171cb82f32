"""What becomes of items: results go on, failed items are run again or given up, lost ones come back."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from dovetail.errors import ItemError, MapError
from dovetail.mapping.book import Task, Waiting
from dovetail.mapping.checking import Checker
from dovetail.mapping.crew import Finished, Lost
from dovetail.mapping.delivery import Delivery
from dovetail.mapping.folding import Fold
from dovetail.mapping.running import COMBINING, Failure, describe, split_failures, tried
from dovetail.mapping.summary import Tally

__all__ = ["DEATHS", "Outcomes"]

DEATHS = 3
"""Workers that an item may lose to signals before it is to blame."""


@dataclass(eq=False, slots=True)
class Outcomes:
    """Decides what a task's end means. ``retries``: how often an item that failed is run again."""

    waiting: Waiting
    delivery: Delivery
    tally: Tally
    checker: Checker
    fold: Fold | None
    retries: int

    def finished(self, task: Task, event: Finished, worker: str) -> None:
        """A worker has sent what came of a task. Raises `MapError` where the map cannot go on."""
        task.done = True
        whole = next((failure for failure in event.failures if failure.position < 0), None)
        if whole is not None:
            self._batch_failed(task, whole, worker)
            return
        if task.check is not None:
            self._checked(task, event)
            return
        self._deliver(task, event)
        for failure in event.failures:
            self._failed(task, failure.position, failure, worker)

    def lost(self, task: Task, event: Lost, *, timed_out: bool) -> None:
        """A worker has gone with a task, and nobody else runs it."""
        self.tally.lost += 1
        task.done = True
        if task.check is not None:
            task.check.check.dropped = True
            return
        low = event.position if event.position is not None else 0
        high = min(low + event.span, len(task)) if event.position is not None else len(task)
        self.again(task.part(high, len(task)))
        if high - low > 1:
            self._lost_somewhere(task.part(low, high))
        else:
            self._lost_at(task, low, event, timed_out=timed_out)
        self.again(task.part(0, low))

    def unsendable(self, task: Task, error: BaseException) -> None:
        """A task cannot be given to a worker: the item that is to blame is looked for."""
        if not isinstance(error, Exception):
            raise error
        if len(task) > 1:
            middle = len(task) // 2
            self.waiting.again(task.part(middle, len(task)))
            self.waiting.again(task.part(0, middle))
        elif task.check is not None:
            task.check.check.dropped = True
        else:
            self._give_up(task, describe(0, error), "")

    def again(self, task: Task) -> None:
        """Items whose results were lost are run again."""
        if len(task):
            self.tally.retried += len(task)
            self.waiting.again(task)

    def _deliver(self, task: Task, event: Finished) -> None:
        """Hand the results on."""
        size = event.size
        if task.start >= 0 and (self.fold is not None or not event.failures):
            if event.values:
                self.delivery.put(task.start, len(task) - len(event.failures), event.values, size)
            return
        for low, high in split_failures(len(task), event.failures):
            if task.start >= 0:
                self.delivery.put(task.start + low, high - low, event.values[low:high], size)
                size = 0
                continue
            for i in range(low, high):
                value, index = event.values[i], task.indices[i]
                alone = [value] if self.fold is None else self.fold.alone(index, value)
                self.delivery.put(index, 1, alone, size)
                size = 0

    def _batch_failed(self, task: Task, failure: Failure, worker: str) -> None:
        """Something about a whole batch: find out which item it is."""
        if failure.position == COMBINING:
            error = MapError(f"results cannot be combined: {failure}")
            error.add_note(f"In the worker:\n{failure.traceback.rstrip()}")
            raise error
        if task.check is not None:
            task.check.check.dropped = True
        elif len(task) == 1:
            self._failed(task, 0, failure, worker)
        else:
            self._halves(task)

    def _halves(self, task: Task) -> None:
        middle = len(task) // 2
        self.again(task.part(middle, len(task)))
        self.again(task.part(0, middle))

    def _failed(self, task: Task, position: int, failure: Failure, worker: str) -> None:
        """An item raised something, hung, or made its worker leave: once more, or not."""
        alone = task.part(position, position + 1)
        alone.tries += 1
        if alone.tries > self.retries:
            self._give_up(alone, failure, worker)
        else:
            self.again(alone)

    def _lost_at(self, task: Task, position: int, event: Lost, *, timed_out: bool) -> None:
        """It is known at which item the worker was."""
        worker = event.slot.name
        if timed_out or event.by_itself:
            kind = "TimeoutError" if timed_out else "SystemExit"
            self._failed(task, position, Failure(position, kind, event.reason, event.traceback), worker)
            return
        alone = task.part(position, position + 1)
        alone.deaths += 1
        if alone.deaths > DEATHS:
            self._give_up(alone, Failure(0, "WorkerLost", event.reason, event.traceback), worker)
        else:
            self.again(alone)

    def _lost_somewhere(self, task: Task) -> None:
        """It is not: the same items once more, then in halves."""
        task.deaths += 1
        if task.deaths > 1:
            self._halves(task)
        else:
            self.again(task)

    def _give_up(self, task: Task, failure: Failure, worker: str) -> None:
        """An item has failed for good."""
        error = ItemError(
            task.items[0],
            task.indices[0],
            str(failure),
            kind=failure.kind,
            worker=worker and f"{worker} worker",
            worker_traceback=failure.traceback,
            attempts=max(1, task.tries + task.deaths),
        )
        cause = tried(pickle.loads, failure.error) if failure.error else None
        if isinstance(cause, BaseException):
            error.__cause__ = cause
        self.tally.failed.append(error)
        self.delivery.put(task.indices[0], 1, error)

    def _checked(self, task: Task, event: Finished) -> None:
        """One of the runs of an item whose results are compared."""
        run = task.check
        if event.failures:
            run.check.dropped = True  # the item's own run says what is wrong with it
            return
        verdict = self.checker.compare(run, event.values[0])
        if verdict is not None:
            raise verdict
