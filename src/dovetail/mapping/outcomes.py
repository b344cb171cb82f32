"""What becomes of items: results go on, failed items are run again or given up, lost ones come back."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from dataclasses import field

from dovetail.errors import ItemError, MapError
from dovetail.mapping.checking import Check, Checker
from dovetail.mapping.crew import Crew, Finished, Lost, Slot
from dovetail.mapping.delivery import Delivery
from dovetail.mapping.folding import Fold
from dovetail.mapping.health import MOST_TRIES, Blame, Health, Standing
from dovetail.mapping.running import COMBINING, Failure, describe_failure, split_failures, try_call
from dovetail.mapping.summary import Tally
from dovetail.mapping.waiting import Task, Waiting
from dovetail.records import dataclass

DEATHS = 3
"""Workers that an item may lose to signals before it is to blame."""
NOTHING_ALONE = 32
"""Items that fail before a map of one kind ends early; where several kinds agree `MOST_TRIES` are enough."""


@dataclass(eq=False, slots=True)
class Outcomes:
    """Decides what a task's end means. ``retries``: how often an item that failed everywhere is run again.

    An item that failed on one kind of worker is tried once on each other kind that is in service; only then
    do its retries count. ``failed`` are such items, each alone, that wait for a worker.
    """

    crew: Crew
    waiting: Waiting
    delivery: Delivery
    tally: Tally
    health: Health
    checker: Checker
    fold: Fold | None
    retries: int
    failed: deque[Task] = field(default_factory=deque)
    checks: dict[str, deque[Task]] = field(default_factory=dict)
    """Runs whose results are compared, by the kind that they are for."""

    # -- what waits for one kind of worker -------------------------------------------------------------

    @property
    def count_pending(self) -> int:
        """Items that failed and runs to be compared that wait for a worker."""
        return len(self.failed) + sum(map(len, self.checks.values()))

    def bound_for(self, slot: Slot) -> Task | None:
        """What is to be run by this very worker, or by one of its kind."""
        standing = self.health.standing(slot)
        if standing is Standing.IN_SERVICE and self.checks.get(slot.kind):
            return self.checks[slot.kind].popleft()
        if self.failed and standing in (Standing.IN_SERVICE, Standing.WATCHED):
            usable = self._usable_slots()
            for place, task in enumerate(self.failed):
                if slot in self._slots_for_retry(task, usable):
                    del self.failed[place]
                    return task
        return None

    def put_back(self, task: Task, slot: Slot) -> None:
        """A task that a worker had and did not begin."""
        if task.check is not None:
            self.checks[slot.kind].appendleft(task)
        elif task.blames and len(task) == 1:
            self.failed.appendleft(task)
        else:
            self.waiting.take_back(task)

    def settle(self) -> None:
        """Look again at what waits for a kind of which no worker is left in service."""
        if not self.count_pending:
            return
        kinds = {slot.kind for slot in self._usable_slots()}
        # A check of which no worker is left in service would keep the map from its end.
        for kind, runs in self.checks.items():
            if not any(self.health.standing(s) is not Standing.SUSPENDED for s in self._slots_of_kind(kind)):
                for run in runs:
                    self._drop_check(run.check)
                runs.clear()
        for _ in range(len(self.failed)):
            task = self.failed.popleft()
            if task.elsewhere and kinds <= task.errors.keys():
                self._tried_everywhere(task)
            else:
                self.failed.append(task)

    def _slots_of_kind(self, kind: str) -> list[Slot]:
        return [slot for slot in self.crew.slots if slot.kind == kind]

    def _usable_slots(self) -> list[Slot]:
        """Workers that items may be given to, now or when they are ready."""
        good = (Standing.IN_SERVICE, Standing.WATCHED)
        return [slot for slot in self.crew.slots if self.health.standing(slot) in good]

    @staticmethod
    def _slots_for_retry(task: Task, usable: list[Slot]) -> list[Slot]:
        """Those of a kind on which the item was not tried, else those on which it did not fail, else all."""
        untried = [slot for slot in usable if slot.kind not in task.errors]
        failed_on = {blame.slot for blame in task.blames}
        # On an untried kind first: only that shows whether the item or the worker is to blame.
        return untried or [slot for slot in usable if slot not in failed_on] or usable

    # -- what a worker reports -------------------------------------------------------------------------

    def take_results(self, task: Task, event: Finished) -> None:
        """A worker has sent what came of a task. Raises `MapError` where the map cannot go on."""
        task.done = True
        whole = next((failure for failure in event.failures if failure.position < 0), None)
        if whole is not None:
            self._batch_failed(task, whole, event.slot)
        elif task.check is not None:
            self._take_check(task.check, event)
        else:
            # A batch may end early, after several failures in a row: the rest goes to another worker.
            if event.ran < len(task):
                self.waiting.take_back(task.part(event.ran, len(task)))
                task = task.part(0, event.ran)
            self._deliver_results(task, event)
            ended = 0
            for failure in event.failures:
                if failure.position > ended:
                    self.health.note_success(event.slot, task.blames, failure.position - ended)
                self._take_failure(task, failure.position, failure, event.slot)
                ended = failure.position + 1
            if ended < len(task):
                self.health.note_success(event.slot, task.blames, len(task) - ended)

    def copy_failed(self, task: Task, slot: Slot, failures: Sequence[Failure], *, lost: bool = False) -> None:
        """One of two workers that run a task has failed; what the other does counts."""
        for failure in failures:
            blame = self.health.failed(slot, failure, lost=lost and len(task) == 1)
            if task.done:
                self.health.confirm_blames([blame])
            elif len(task) == 1:
                task.blames = (*task.blames, blame)

    def lost(self, task: Task, event: Lost, *, timed_out: bool) -> None:
        """A worker has gone with a task that no other worker runs."""
        self.tally.lost += 1
        task.done = True
        if task.check is not None:
            self._check_failed(task.check, event.slot, Failure(0, "WorkerLost", event.reason, ""))
            return
        low = event.position if event.position is not None else 0
        high = min(low + event.span, len(task)) if event.position is not None else len(task)
        # In this order, since each goes before all others: the front part is then run first.
        self.run_again(task.part(high, len(task)))
        if high - low > 1:
            self._lost_somewhere(task.part(low, high), event)
        else:
            self._lost_at(task, low, event, timed_out=timed_out)
        self.run_again(task.part(0, low))

    def take_unsendable(self, task: Task, error: BaseException) -> None:
        """A task cannot be given to a worker: the item that is to blame is looked for."""
        if not isinstance(error, Exception):
            raise error
        # By halves: the one item that cannot travel is found in log2 steps, and the others are run.
        if len(task) > 1:
            middle = len(task) // 2
            self.waiting.take_back(task.part(middle, len(task)))
            self.waiting.take_back(task.part(0, middle))
        elif task.check is not None:
            self._drop_check(task.check)
        else:
            self._give_up(task, describe_failure(0, error), None)

    def run_again(self, task: Task) -> None:
        """Items whose results were lost are run again."""
        if len(task):
            self.tally.retried += len(task)
            self.waiting.take_back(task)

    def _deliver_results(self, task: Task, event: Finished) -> None:
        """Hand the results on."""
        size = event.size
        # Neighbours travel as one segment; others are delivered one by one, at their own places.
        if task.start >= 0 and (self.fold is not None or not event.failures):
            if event.values:
                self.delivery.put(task.start, len(task) - len(event.failures), event.values, size)
            return
        for low, high in split_failures(len(task), event.failures):
            if task.start >= 0:
                self.delivery.put(task.start + low, high - low, event.values[low:high], size)
                # Bytes are counted once, with the first piece.
                size = 0
                continue
            for i in range(low, high):
                value, index = event.values[i], task.indices[i]
                alone = [value] if self.fold is None else [(0, index, value)]
                self.delivery.put(index, 1, alone, size)
                size = 0

    # -- failures --------------------------------------------------------------------------------------

    def _batch_failed(self, task: Task, failure: Failure, slot: Slot) -> None:
        """Something about a whole batch: find out which item it is."""
        if failure.position == COMBINING:
            error = MapError(f"results cannot be combined: {failure}")
            error.add_note(f"In the worker:\n{failure.traceback.rstrip()}")
            raise error
        if task.check is not None:
            self._check_failed(task.check, slot, failure)
        elif len(task) == 1:
            self._take_failure(task, 0, failure, slot)
        else:
            self._run_halves(task)

    def _run_halves(self, task: Task) -> None:
        middle = len(task) // 2
        self.run_again(task.part(middle, len(task)))
        self.run_again(task.part(0, middle))

    def _take_failure(
        self, task: Task, position: int, failure: Failure, slot: Slot, *, lost: bool = False
    ) -> None:
        """An item raised something, hung, or lost its worker: on another kind, once more, or not."""
        alone = task.part(position, position + 1)
        alone.add_blame(self.health.failed(slot, failure, lost=lost), failure)
        alone.killed = failure.kind == "WorkerLost"
        if any(other.kind not in alone.errors for other in self._usable_slots()):
            alone.elsewhere = True
            self._queue_retry(alone)
        else:
            self._tried_everywhere(alone)

    def _tried_everywhere(self, alone: Task) -> None:
        """No kind is left on which an item was not tried: its retries count."""
        alone.elsewhere = False
        # Kills have a count of their own: the kernel may have chosen the worker for another's memory.
        if alone.killed:
            alone.deaths += 1
        else:
            alone.tries += 1
        if alone.deaths > DEATHS or alone.tries > self.retries:
            blame = alone.blames[-1]
            self._give_up(alone, alone.errors[blame.slot.kind], blame)
        else:
            self._queue_retry(alone)

    def _queue_retry(self, alone: Task) -> None:
        self.tally.retried += 1
        self.failed.append(alone)

    def _lost_at(self, task: Task, position: int, event: Lost, *, timed_out: bool) -> None:
        """It is known at which item the worker was."""
        kind = "TimeoutError" if timed_out else "SystemExit" if event.by_itself else "WorkerLost"
        failure = Failure(position, kind, event.reason, event.traceback)
        self._take_failure(task, position, failure, event.slot, lost=True)

    def _lost_somewhere(self, task: Task, event: Lost) -> None:
        """It is not: the same items once more, then in halves."""
        failure = Failure(0, "WorkerLost", event.reason, event.traceback)
        task.blames = (*task.blames, self.health.failed(event.slot, failure))
        task.deaths += 1
        if task.deaths > 1:
            self._run_halves(task)
        else:
            self.run_again(task)

    def _give_up(self, task: Task, failure: Failure, blame: Blame | None) -> None:
        """An item has failed for good. Raises `MapError` where no item has been done, and none will be."""
        several = len(task.errors) > 1
        reason = "; ".join(f"{kind}: {one}" for kind, one in task.errors.items()) if several else str(failure)
        error = ItemError(
            task.items[0],
            task.indices[0],
            reason,
            kind=failure.kind,
            worker="" if blame is None or several else f"{blame.slot.name} worker",
            worker_traceback=failure.traceback,
            attempts=max(1, len(task.blames)),
        )
        cause = try_call(pickle.loads, failure.error) if failure.error else None
        if isinstance(cause, BaseException):
            error.__cause__ = cause
        self.tally.failed.append(error)
        self.delivery.put(task.indices[0], 1, error)
        self.health.excuse_blames(task.blames)
        self._look_whether_anything_succeeds()

    def _look_whether_anything_succeeds(self) -> None:
        """End a map that does nothing but fail: every worker, at many items."""
        reasons = self.health.last_failures()
        enough = MOST_TRIES if len(reasons) > 1 else NOTHING_ALONE
        if len(self.tally.failed) < enough or any(self.tally.tasks.values()):
            return
        # While nothing waits the items that run decide; they may yet succeed.
        if self.health.is_hopeless(self.crew.slots) and self.waiting.left:
            raise MapError(
                f"nothing has succeeded: {len(self.tally.failed)} items failed, and the map has ended early "
                f"({'; '.join(f'{kind}: {failure}' for kind, failure in reasons.items())})"
            )

    # -- comparing -------------------------------------------------------------------------------------

    def _take_check(self, check: Check, event: Finished) -> None:
        """One of the runs of an item whose results are compared."""
        # The item's own run reports what is wrong with it.
        if event.failures:
            self._check_failed(check, event.slot, event.failures[0])
            return
        check.left -= 1
        self.health.note_success(event.slot, check.blames)
        verdict = self.checker.compare_result(check, event.slot.kind, event.values[0])
        if verdict is not None:
            raise verdict

    def _check_failed(self, check: Check, slot: Slot, failure: Failure) -> None:
        blame = self.health.failed(slot, failure, lost=failure.kind == "WorkerLost")
        if check.results:
            self.health.confirm_blames([blame])
        else:
            check.blames.append(blame)
        self._drop_check(check)

    def _drop_check(self, check: Check) -> None:
        """One of its runs gave no result: nothing is compared."""
        check.dropped = True
        check.left -= 1
        if not check.left and not check.results:
            self.health.excuse_blames(check.blames)
