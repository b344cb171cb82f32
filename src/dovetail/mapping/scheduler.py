"""The loop of a map: calls the rule, gives items to workers, takes in events. Runs in its own thread."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from dovetail.errors import MapError
from dovetail.history.sqlite import SqliteHistory
from dovetail.mapping.checking import Checker
from dovetail.mapping.crew import Crew, Event, Finished, Lost, Ready, Slot, Unable
from dovetail.mapping.delivery import Delivery
from dovetail.mapping.function import Function
from dovetail.mapping.health import Health, Standing
from dovetail.mapping.hiring import Workers
from dovetail.mapping.outcomes import Outcomes
from dovetail.mapping.pace import Pace
from dovetail.mapping.running import Caught, Failure, try_call
from dovetail.mapping.summary import Tally
from dovetail.mapping.waiting import Items, Task, Waiting
from dovetail.splitting.rules import Rule, SplitState

BATCH_SECONDS, MOST_BATCH_SECONDS = 0.02, 0.2
"""Tiny items go to a worker together, until they take about so long; longer where giving them out is slow."""
LAG_SHARE = 8
"""A batch takes so many times what it takes to give one out (while the user's thread keeps Python busy)."""
LEAST_BATCH_SECONDS = 0.001
"""Near the end batches become smaller, but not smaller than this."""
GROWTH = 8
"""A batch may have so many times the items of the last one of its kind."""
MOST_ITEMS = 200_000
AHEAD_SECONDS = 2 * MOST_BATCH_SECONDS
"""A worker whose task takes no longer gets the next one before it has ended with it."""
FAR_SECONDS = 0.4
"""So long before the end, or less, nothing is given out in advance."""
BEAT = 0.2
"""Seconds between two looks at timeouts, stragglers and the progress bar."""
WORTH = 0.05
"""Seconds that a second copy of a straggler must be expected to save."""


Errors = Literal["raise", "return", "skip"]
HistoryLike = str | os.PathLike[str] | SqliteHistory | Literal[False] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The whole request of a map; see `dovetail.map`."""

    function: Function
    items: Iterable[Any]
    workers: Workers
    ordered: bool
    common: Mapping[str, Any]
    cost: Callable[[Any], float] | Sequence[float] | None
    rule: Rule
    retries: int
    timeout: float | None
    batch: int | None
    errors: Errors
    duplicate: bool
    verify: float
    agree: Callable[[Any, Any], bool] | None
    progress: bool | None
    history: HistoryLike


@dataclass(eq=False, slots=True)
class _Copy:
    """A task with a worker. ``began``: when it was given out, or the task before it had ended.

    ``expected`` are its seconds, ``None`` where nothing is known. ``position`` is the item that runs,
    ``since`` when that was seen first.
    """

    order: int
    task: Task
    slot: Slot
    began: float
    expected: float | None
    position: int | None = None
    since: float = 0.0
    timed_out: bool = False


@dataclass(eq=False)
class MapScheduler:
    """One map on its way. ``clock`` gives seconds.

    ``queues`` has, for each worker that is ready, the tasks that it has: the first one runs.
    """

    crew: Crew
    waiting: Waiting
    source: Items
    delivery: Delivery
    pace: Pace
    tally: Tally
    plan: Plan
    checker: Checker
    health: Health
    outcomes: Outcomes
    shown: Sequence[Callable[[MapScheduler], None]]
    clock: Callable[[], float] = time.monotonic
    queues: dict[int, deque[_Copy]] = field(default_factory=dict)
    _numbers: int = 0
    _sizes: dict[str, int] = field(default_factory=dict)
    _places: dict[int, int] = field(default_factory=dict)
    _beat: float = 0.0
    _lag: float = 0.0

    def run(self) -> None:
        """Until all items are done, or the consumer has gone. Raises what ends the map early."""
        while not self.delivery.closed and not self._is_over():
            self._assign_tasks()
            for event in self.crew.wait(self._wait_seconds()):
                self._take_event(event)
            now = self.clock()
            if now >= self._beat:
                self._beat = now + BEAT
                if self.plan.timeout is not None:
                    self._look_at_times(now)
                for show in self.shown:
                    show(self)

    def running(self) -> list[_Copy]:
        """The tasks that run, one for each busy worker."""
        return [queue[0] for queue in self.queues.values() if queue]

    def count_unfinished(self) -> int:
        """Items that workers have and that are not done."""
        given = sum(len(copy.task) for queue in self.queues.values() for copy in queue if not copy.task.done)
        return given + self.outcomes.count_pending

    def predicted_end(self) -> float | None:
        """When all will be done, by what is known; ``None`` while that is too little."""
        at = self._split_state(self.clock())
        if not at.ready or not at.is_known or math.isinf(at.left):
            return None
        busy = max(float(moments.max()) for moments in at.ready.values())
        return max(self.waiting.finish(at), busy) if at.left else busy

    def _is_over(self) -> bool:
        """Whether nothing waits and nothing that matters runs."""
        return self.waiting.left == 0 and not self.count_unfinished()

    def _wait_seconds(self) -> float | None:
        """Seconds to wait for something to happen."""
        return BEAT if any(self.queues.values()) or self.shown else None

    # -- who does what ---------------------------------------------------------------------------------

    def _assign_tasks(self) -> None:
        """Give workers what they should do now, the fastest kind first."""
        now = self.clock()
        self.outcomes.settle()
        self._look_whether_anybody_is_left()
        idle = [slot for slot in self.crew.slots if self._is_idle(slot)]
        able = idle or [slot for slot in self.crew.slots if self._has_room(slot)]
        at: SplitState | None = None
        for slot in sorted(able, key=lambda slot: self.pace.seconds(slot.kind) or 0.0):
            bound = self.outcomes.bound_for(slot)
            if bound is not None:
                self._send_task(slot, bound, now)
                continue
            standing = self.health.standing(slot)
            if standing is Standing.WATCHED or self.waiting.at_hand == 0:
                continue
            # Results that are not fetched hold memory: then only what others wait for goes on.
            if not (self.delivery.room or self.waiting.has_returned_items):
                continue
            if standing is Standing.ON_TRIAL:
                self._try_one(slot, now)
                continue
            at = at or self._split_state(now)
            # Near the end the rule decides which worker takes the rest: nothing is given out in advance.
            if self.queues[slot.number] and not self._far_from_the_end(at):
                break
            quota = self.waiting.quota_of_slot(slot.kind, self._places[slot.number], self.plan.rule, at)
            if quota < 1:
                self._spare_worker(slot)
                continue
            task = self._task_for(slot, quota, at)
            if task is not None:
                at.left -= len(task)
                for kind, run in self.checker.choose_runs(task):
                    self.outcomes.checks.setdefault(kind, deque()).append(run)
                self._send_task(slot, task, now)
        if idle and self.waiting.left == 0:
            self._help_stragglers(now)

    def _is_idle(self, slot: Slot) -> bool:
        """Whether a worker is ready, has nothing to do, and may be given something."""
        queue = self.queues.get(slot.number)
        return queue is not None and not queue and self.health.standing(slot) is not Standing.SUSPENDED

    def _try_one(self, slot: Slot, now: float) -> None:
        """One item for a worker that was suspended, unless the others are about to end."""
        # Near the end a trial that fails would cost more than the worker could bring.
        if self.waiting.left > sum(self.health.standing(s) is Standing.IN_SERVICE for s in self.crew.slots):
            task = self.waiting.take(slot, 1, 1.0)
            if task is not None:
                self._send_task(slot, task, now)

    def _look_whether_anybody_is_left(self) -> None:
        """Where all workers are suspended one is tried at once. Raises `MapError` if there is none."""
        slots = self.crew.slots
        if not slots or any(self.health.standing(slot) is not Standing.SUSPENDED for slot in slots):
            return
        if not any(self.queues.values()) and not self.health.lift_suspension(slots):
            reasons = "; ".join(f"{kind}: {failure}" for kind, failure in self.health.last_failures().items())
            raise MapError(f"no worker is left that succeeds ({reasons})")

    def _has_room(self, slot: Slot) -> bool:
        """Whether a busy worker should have its next task beside it: what it has is soon done."""
        queue = self.queues.get(slot.number)
        if queue is None or len(queue) != 1 or self.health.is_doubtful(slot):
            return False
        expected = queue[0].expected
        return expected is not None and expected <= AHEAD_SECONDS

    def _far_from_the_end(self, at: SplitState) -> bool:
        """Whether so much waits that the rule has nothing to decide for a while."""
        if not at.is_known:
            return False
        speed = sum(len(slots) / at.seconds[kind] for kind, slots in at.ready.items())
        return at.left / speed > FAR_SECONDS

    def _split_state(self, now: float) -> SplitState:
        """What the rule may know now, of the workers in service."""
        ready: dict[str, list[float]] = {}
        self._places = {}
        for slot in self.crew.slots:
            if self.health.standing(slot) is not Standing.IN_SERVICE:
                continue
            queue = self.queues.get(slot.number) or ()
            # A task that takes longer than expected ends now, as far as the rule can know.
            free = max(now, queue[0].began + (queue[0].expected or 0.0)) if queue else now
            free += sum(copy.expected or 0.0 for copy in list(queue)[1:])
            slots = ready.setdefault(slot.kind, [])
            self._places[slot.number] = len(slots)
            slots.append(free)
        arrays = {kind: np.array(moments) for kind, moments in ready.items()}
        return SplitState(now, self.waiting.left, arrays, self.pace.known_seconds(ready))

    def _task_for(self, slot: Slot, quota: float, at: SplitState) -> Task | None:
        """Items for a worker: about `BATCH_SECONDS` of them, fewer near the end."""
        kind, plan = slot.kind, self.plan
        seconds = at.seconds.get(kind)
        # In the first phase a task is a batch.
        quota = quota if at.is_known else math.inf
        if plan.batch is not None:
            most, cost = plan.batch, float(plan.batch)
        elif seconds is None or (plan.timeout is not None and not self.crew.tells_position):
            most, cost = 1, 1.0
        else:
            speed = sum(len(slots) / at.seconds[k] for k, slots in at.ready.items() if k in at.seconds)
            # Half of a fair share: batches shrink towards the end, so that all workers end together.
            fair = at.left / seconds / speed / 2 if math.isfinite(at.left) else math.inf
            long = min(MOST_BATCH_SECONDS, max(BATCH_SECONDS, LAG_SHARE * self._lag))
            cost = min(long / seconds, max(fair, LEAST_BATCH_SECONDS / seconds))
            # By a bounded factor each time: one quick item must not bring a batch of minutes.
            before = self._sizes.get(kind, MOST_ITEMS if kind in self.tally.learned else 1)
            most = min(MOST_ITEMS, GROWTH * before)
            self.source.set_readahead(int(min(MOST_ITEMS, 4 * len(self.crew.slots) * cost)) + 2)
        task = self.waiting.take(slot, max(1, int(min(most, quota))), max(1.0, cost))
        if task is not None:
            self._sizes[kind] = max(len(task), 1)
        return task

    def _send_task(self, slot: Slot, task: Task, now: float) -> None:
        """Give a worker a task; an item that cannot be sent has failed."""
        self._numbers += 1
        plain = task.check is not None
        sent = try_call(
            partial(self.crew.send_items, slot, self._numbers, task.items, task.start, plain=plain)
        )
        if isinstance(sent, Caught):
            self.outcomes.take_unsendable(task, sent.error)
            # Perhaps nothing else happens: look at what waits, and at the end, again.
            self.crew.end_wait()
            return
        # After the send: an order that could not be sent is no copy.
        task.copies += 1
        pace = self.pace.seconds(slot.kind)
        expected = None if pace is None else pace * task.cost_on_kind(slot.kind)
        self.queues[slot.number].append(_Copy(self._numbers, task, slot, now, expected, since=now))

    # -- near the end ----------------------------------------------------------------------------------

    def _spare_worker(self, slot: Slot) -> None:
        """The rule has nothing for this worker: others end sooner. Its place can serve another map."""
        known = self.pace.known_seconds({slot.kind for slot in self.crew.slots})
        fastest = min(known, key=lambda kind: known[kind], default=slot.kind)
        if slot.kind != fastest and self.waiting.left < math.inf:
            self._dismiss_worker(slot)

    def _dismiss_worker(self, slot: Slot) -> None:
        """A worker is of no more use, unless items are to be compared.

        One of each kind stays: what fails on another kind is tried on it.
        """
        last = not any(other.kind == slot.kind for other in self.crew.slots if other is not slot)
        if not (last or self.checker.is_active or self.crew.kept):
            self.crew.dismiss_worker(slot)
            del self.queues[slot.number]

    def _help_stragglers(self, now: float) -> None:
        """Nothing waits: run a straggler a second time where that is predicted to help; let others go.

        One worker stays while something runs: it may help later.
        """
        idle = [slot for slot in self.crew.slots if self._is_idle(slot)]
        idle = [slot for slot in idle if self.health.standing(slot) is Standing.IN_SERVICE]
        helpers = 0
        for slot in sorted(idle, key=lambda slot: self.pace.seconds(slot.kind) or math.inf):
            copy = self._find_straggler(slot, now) if self.plan.duplicate else None
            if copy is not None:
                copy.task.doubled = True
                # Marked, since a third copy would not help.
                self.tally.duplicated += len(copy.task)
                self._send_task(slot, copy.task, now)
            elif helpers:
                self._dismiss_worker(slot)
            else:
                helpers = 1

    def _find_straggler(self, slot: Slot, now: float) -> _Copy | None:
        """What this worker is predicted to end well before the one that runs it."""
        pace = self.pace.seconds(slot.kind)
        if pace is None:
            return None
        best, saved = None, 0.0
        for copy in self.running():
            task = copy.task
            if task.done or task.doubled or task.check is not None:
                continue
            spent = now - copy.began
            own_pace = self.pace.seconds(copy.slot.kind)
            expected = 0.0 if own_pace is None else own_pace * task.cost_on_kind(copy.slot.kind)
            # What takes longer than expected is taken to need as long again as it is late.
            rest = abs(expected - spent)
            gain = rest - pace * task.cost_on_kind(slot.kind)
            if gain > max(saved, WORTH, 0.1 * rest):
                best, saved = copy, gain
        return best

    # -- what happens ----------------------------------------------------------------------------------

    def _take_event(self, event: Event) -> None:
        if isinstance(event, Ready):
            if event.slot in self.crew.slots:
                self.queues[event.slot.number] = deque()
        elif isinstance(event, Finished):
            self._finished(event)
        elif isinstance(event, Lost):
            self._handle_lost(event)
        else:
            self._handle_unable(event)

    def _handle_unable(self, event: Unable) -> None:
        """A worker is of no use. Raises `MapError` if it was the last one."""
        self.queues.pop(event.slot.number, None)
        others = [slot for slot in self.crew.slots if slot is not event.slot]
        if any(self.health.standing(slot) is not Standing.SUSPENDED for slot in others):
            self.health.note_unable(event.slot, event.failure)
            return
        error = MapError(f"a {event.slot.kind} worker cannot run the function: {event.failure}")
        if event.failure.traceback:
            error.add_note(f"In the worker:\n{event.failure.traceback.rstrip()}")
        raise error

    def _finished(self, event: Finished) -> None:
        queue, now = self.queues[event.slot.number], self.clock()
        copy = queue.popleft()
        assert copy.order == event.order
        if queue:
            queue[0].began = queue[0].since = now
        task, kind = copy.task, event.slot.kind
        task.copies -= 1
        # Another worker was faster, or may do it yet.
        if task.done or (event.failures and task.copies):
            self.outcomes.copy_failed(task, event.slot, event.failures)
            return
        first, event.slot.warm = not event.slot.warm, True
        # What lies between both clocks is the cost of handing out, which decides how large batches are.
        spent = now - copy.began
        self._lag += 0.1 * (max(0.0, spent - event.seconds) - self._lag)
        if not event.failures:
            counted = self.pace.note_batch(kind, task.cost_on_kind(kind), spent, event.seconds, first=first)
            if task.check is None:
                self.tally.learn(event.slot.place, task, counted, first=first)
        if task.check is None:
            self.tally.done(kind, max(0, event.ran - len(event.failures)), spent, event.seconds)
        self.outcomes.take_results(task, event)

    def _handle_lost(self, event: Lost) -> None:
        """A worker has gone: the task that ran is lost, those behind it were not begun."""
        event.slot.warm = False
        # Only the first had begun: the others go back without a blame.
        for place, copy in enumerate(self.queues.pop(event.slot.number, ())):
            copy.task.copies -= 1
            # Another worker has done it, or will.
            if copy.task.done or copy.task.copies:
                failure = Failure(0, "WorkerLost", event.reason, event.traceback)
                self.outcomes.copy_failed(copy.task, event.slot, [failure] if place == 0 else [], lost=True)
            elif place == 0:
                self.outcomes.lost(copy.task, event, timed_out=copy.timed_out)
            else:
                self.outcomes.put_back(copy.task, event.slot)

    def _look_at_times(self, now: float) -> None:
        """End workers whose item has run for longer than it may."""
        timeout = self.plan.timeout
        assert timeout is not None
        for copy in self.running():
            # Workers report each item by a page of memory: the time of an item counts from its own start.
            position = self.crew.item_position(copy.slot)
            if position != copy.position:
                copy.position, copy.since = position, now
            elif position is not None and now - copy.since > timeout and not copy.timed_out:
                copy.timed_out = True
                self.crew.kill(copy.slot, f"still running after {timeout:g} s", trace=True)
