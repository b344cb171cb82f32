"""The calls of an executor, and the thread that gives them to workers."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import field
from typing import Any, Protocol

import cloudpickle

from dovetail.errors import DovetailError
from dovetail.mapping.calls import (
    MOST_KNOWN,
    Item,
    Runner,
    Sealed,
    Shipped,
    read_outcome,
    run_call,
)
from dovetail.mapping.crew import Event, Finished, Lost, Ready, Slot, Unable
from dovetail.mapping.places import InUse, Wanted
from dovetail.mapping.running import Failure, Work
from dovetail.records import dataclass

IDLE = 1.0
"""Seconds after which a worker without calls gives its cores and devices back."""
FORGOTTEN = 60.0
"""Seconds after which one that has none ends."""
POLL = 0.25
"""Seconds between looks whether others have given back what a worker needs."""
SHORT = 0.002
"""Calls that take less, in seconds, travel several at once, and wait at a worker for those before them."""
AT_ONCE = 0.004
"""Seconds that calls take which travel together."""
MOST_AT_ONCE, MOST_BYTES = 16, 1 << 20
"""Calls, and bytes of their arguments, which travel together; a worker reports which one of so many runs."""
STUCK = 0.01
"""Seconds of a call that was to be short after which those that wait behind it go to other workers."""
LOOK_AHEAD = 64
"""Calls, from the first that waits, among which a worker finds one of its kind."""
FADING = 0.2
"""Weight of the newest time of a function in its mean."""
_log = logging.getLogger(__name__)


class WorkerLost(BrokenProcessPool):
    """The worker of this call has gone while it ran. Other calls, and the executor, go on.

    Programs expect of a worker that was killed what `ProcessPoolExecutor` raises.
    """


class Crew(Protocol):
    """Workers that come and go one by one."""

    slots: list[Slot]
    queued: bool
    """Whether a worker may wait for long until it comes, so that calls may be done before."""

    def begin_map(self, shipped: Mapping[str, bytes], work: Work) -> None:
        """What all workers run."""

    def hire_worker(self, some: Wanted, *, share: bool) -> Slot:
        """One more worker; `Ready` follows. Raises `InUse`."""

    def lay_off(self, slot: Slot) -> None:
        """An idle worker gives back what it holds."""

    def recall_worker(self, slot: Slot) -> bool:
        """A worker that was laid off has it again, if it could keep its process."""

    def dismiss_worker(self, slot: Slot) -> None:
        """A worker goes for good."""

    def send_calls(
        self, slot: Slot, order: int, items: Sequence[Any], *, tickets: bool = False, again: bool = False
    ) -> None:
        """Give a worker calls, which may be taken back if they have ``tickets``.

        ``again``: they may be there, and are then not made twice. Raises `OSError`.
        """

    def take_back_calls(self, slot: Slot) -> int:
        """Take the calls with tickets that a worker has not begun away from it: how many, its last ones."""

    def kept_outcomes(self, slot: Slot) -> dict[int, Any]:
        """Outcomes of calls that a worker has made and not sent yet, by their places in its first order."""

    def await_news(self, seconds: float | None) -> Sequence[Any]:
        """Wait for something; other threads may send calls meanwhile."""

    def take_news(self, ready: Sequence[Any]) -> list[Event]:
        """What has happened."""

    def end_wait(self) -> None:
        """End a wait; from any thread."""

    def close(self) -> None:
        """End all workers."""


@dataclass(eq=False, slots=True)
class Call:
    """A call that waits, or runs."""

    future: Future[Any]
    function: Shipped
    arguments: Sealed
    kinds: Sequence[str]
    begun: bool = False

    def begin_call(self) -> bool:
        """It is to be made, unless it was cancelled; also where its worker has gone before it came to it."""
        self.begun = self.begun or self.future.set_running_or_notify_cancel()
        return self.begun


@dataclass(eq=False, slots=True)
class Order:
    """Calls that went to a worker at once. ``given`` is how many of the first have their outcomes."""

    number: int
    calls: list[Call]
    given: int = 0

    @property
    def left(self) -> int:
        """Calls without an outcome."""
        return len(self.calls) - self.given


@dataclass(eq=False, slots=True)
class Member:
    """A worker as the pool sees it.

    ``since``: when it began to have nothing to do; ``began``: when its first order became that (monotonic
    clock). ``robbed``: calls of its orders were taken back; it gets no other order until these are done.
    ``looked``: when its outcomes that were not sent were looked at.
    """

    slot: Slot
    ready: bool = False
    resting: bool = False
    since: float = 0.0
    began: float = 0.0
    robbed: bool = False
    looked: float = 0.0
    orders: deque[Order] = field(default_factory=deque)
    knows: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Seats:
    """Workers of a kind that an executor may have: so ``many`` at most, each with ``cores``."""

    most: int
    cores: int


class Pool:
    """Calls and their workers. `submit` and `stop` may be used in any thread; all else is the pool's own.

    A call for which a worker is free is sent to it by the thread that submits it, which saves the way through
    the pool's thread: that holds ``_state`` whenever it does not wait.

    ``seats`` are the workers that there may be, by kind. ``alone``: where no worker can be had the calls are
    made in this process, since who holds the cores may wait for them; ``deep``: they are made here always.
    """

    def __init__(
        self,
        crew: Crew,
        seats: Mapping[str, Seats],
        runner: Runner,
        *,
        alone: bool = False,
        deep: bool = False,
    ) -> None:
        self._deep = deep
        self._crew, self._seats, self._runner, self._alone = crew, dict(seats), runner, alone
        self._calls: deque[Call] = deque()
        self._members: dict[int, Member] = {}
        self._means: dict[tuple[str, str], float] = {}  # by function and kind, in seconds
        self._orders = 0
        self._submitted = 0
        self._retry_at = 0.0
        self._asleep = False
        self._lock = threading.Lock()
        self._state = threading.RLock()
        self._unsure: list[Member] = []
        self._outcomes: list[tuple[Future[Any], Any]] = []  # the last ones are not delivered yet
        self._stopping = self._abandoned = False
        self._broken: BaseException | None = None
        self._began_alone = False
        self._process = os.getpid()
        # No daemon: calls that wait at the end of the program are made before it ends.
        self.thread = threading.Thread(target=self._work_in_thread, name="dovetail-pool", daemon=False)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()
        _end_with_the_program(self)

    # -- from any thread --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raises `RuntimeError` where no call can be submitted any more; a `BrokenExecutor` is one."""
        if self._broken is not None:
            raise BrokenProcessPool(str(self._broken)) from self._broken
        if self._stopping:
            raise RuntimeError("cannot schedule new futures after shutdown")
        if os.getpid() != self._process:
            raise RuntimeError("an executor cannot be used in a process that was forked off")

    def submit(self, call: Call) -> None:
        """Have a call made. Raises `RuntimeError`."""
        # The state is never waited for: the pool's thread holds it also while callbacks run, which submit.
        if not self._calls and len(call.kinds) == 1 and not self._holds_state():
            try:
                if self._state.acquire(blocking=False) and self._send_at_once(call):
                    return
            finally:
                # Whether it was acquired a variable would not show: Ctrl-C may come before it is set.
                if self._holds_state():
                    self._state.release()
        with self._lock:
            self.check()
            self._calls.append(call)
            self._submitted += 1
        # The flag is read without the lock: a lost wake costs nothing, since `_wait_for_news` compares the
        # count.
        if self._asleep:
            self._asleep = False
            self._crew.end_wait()

    def stop(self, *, cancel: bool = False, abandon: bool = False) -> None:
        """End when all calls are done; on request those that wait are cancelled, and those that run ended."""
        # Ctrl-C may have come just before `submit` released it.
        if self._holds_state() and threading.current_thread() is not self.thread:
            self._state.release()
        with self._lock:
            self._stopping = True
            self._abandoned = self._abandoned or abandon
        # The pool's thread passes over them.
        if cancel:
            for call in list(self._calls):
                call.future.cancel()
        if self.thread.is_alive():
            self._crew.end_wait()

    def _holds_state(self) -> bool:
        return bool(self._state._is_owned())  # type: ignore[attr-defined]

    def _send_at_once(self, call: Call) -> bool:
        """Send a call to a worker without any, if there is one. The pool's thread waits meanwhile."""
        free = [m for m in self._members.values() if not m.orders and self._can_take(m)]
        free = [m for m in free if m.slot.kind == call.kinds[0]]
        if not free or self._calls or self._stopping or self._broken is not None:
            return False
        if not call.begin_call():
            return True
        member = max(free, key=lambda member: member.since)
        sent = False
        try:
            self._send_calls(member, [call])
            sent = True
        finally:
            # Ctrl-C, anywhere in between: the pool's thread sends it once more.
            if not sent:
                self._unsure.append(member)
                self._crew.end_wait()
        return True

    # -- the pool's own thread --------------------------------------------------------------------------

    def _work_in_thread(self) -> None:
        with self._state:
            self._work_to_the_end()

    def _work_to_the_end(self) -> None:
        try:
            shipped = cloudpickle.dumps(self._runner, protocol=5)
            if not self._deep:
                self._crew.begin_map(dict.fromkeys(self._seats, shipped), Work({}, None))
            while not (self._stopping and not self._calls and not self._has_orders()):
                if self._abandoned:
                    raise BrokenExecutor("the program was interrupted")
                # Read before the look at the calls, so that one submitted in between ends the wait at once.
                known = self._submitted
                if self._unsure:
                    self._send_again()
                self._look_at_long_orders()
                self._take_back_stuck()
                if self._calls:
                    self._pass_over_cancelled()
                    self._assign_calls()
                    self._staff_workers()
                self._rest_idle_workers()
                self._wait_for_news(known)
            self._deliver_outcomes()
        except BaseException as error:  # noqa: BLE001 - the futures have it
            self._break_pool(error)
        finally:
            self._crew.close()

    def _pass_over_cancelled(self) -> None:
        """No worker need come for the first calls if they were cancelled; at the end all such are dropped."""
        while self._calls and self._calls[0].future.cancelled():
            self._calls.popleft().future.set_running_or_notify_cancel()
        if self._stopping:
            for call in [call for call in self._calls if call.future.cancelled()]:
                self._calls.remove(call)
                call.future.set_running_or_notify_cancel()

    def _has_orders(self) -> bool:
        return any(member.orders for member in self._members.values())

    def _wait_for_news(self, known: int) -> None:
        """Wait for something, unless more was submitted than is known."""
        seconds = self._pause_seconds()
        # As late as this: workers have their next calls, and who waits for a result need not wait for us.
        self._deliver_outcomes()
        self._asleep = True
        done = self._stopping and not self._calls and not self._has_orders()
        if self._submitted != known or done or (self._calls and self._is_alone()):
            seconds = 0.0
        self._state.release()
        try:
            ready = self._crew.await_news(seconds)
        finally:
            self._state.acquire()
        self._asleep = False
        for event in self._crew.take_news(ready):
            self._take_in(event)

    def _pause_seconds(self) -> float | None:
        """Seconds until something is to be done though nothing happens."""
        now = time.monotonic()
        moments = [self._retry_at] if self._calls and self._retry_at else []
        for member in self._members.values():
            waited_for = not member.ready and bool(self._calls or not self._crew.queued)
            if member.orders:
                moments += [at for at in (self._look_at(member), self._stuck_at(member)) if at is not None]
            elif not waited_for:
                moments.append(member.since + (FORGOTTEN if member.resting else IDLE))
        return max(0.0, min(moments) - now) if moments else None

    def _take_in(self, event: Event) -> None:
        member = self._members.get(event.slot.number)
        if member is None:
            return
        if isinstance(event, Ready):
            member.ready, member.since = True, time.monotonic()
        elif isinstance(event, Unable):
            failure = event.failure
            error = BrokenExecutor(f"a worker cannot be prepared: {failure}")
            if failure.traceback:
                error.add_note(f"In the worker:\n{failure.traceback.rstrip()}")
            raise error
        elif isinstance(event, Finished):
            self._finished(member, event)
        else:
            self._handle_lost(member, event)

    def _finished(self, member: Member, event: Finished) -> None:
        order = member.orders[0]
        assert order.number == event.order
        member.looked = time.monotonic()
        if event.last:
            member.orders.popleft()
            member.since = member.began = member.looked
            member.robbed = member.robbed and bool(member.orders)
        # What came cannot be read at all.
        if event.failures:
            why = "; ".join(map(str, event.failures))
            for call in order.calls[order.given : event.ran]:
                call.future.set_exception(RuntimeError(f"the result cannot be read: {why}"))
            order.given = event.ran
            return
        if event.ran:
            self._learn_duration(order.calls[0].function.name, member.slot.kind, event.seconds / event.ran)
        self._give_outcomes(order, dict(enumerate(event.values, event.first)))

    def _deliver_outcomes(self) -> None:
        """Give futures their results; callbacks run here, and may submit calls."""
        outcomes, self._outcomes = self._outcomes, []
        for future, outcome in outcomes:
            # Not by the function: memory may be short.
            if isinstance(outcome, Failure):
                future.set_exception(RuntimeError(str(outcome)))
                continue
            value, error = read_outcome(outcome)
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
                # Its traceback will hold this frame.
                error = None

    def _learn_duration(self, name: str, kind: str, seconds: float) -> None:
        key = name, kind
        before = self._means.get(key)
        self._means[key] = seconds if before is None else before + FADING * (seconds - before)

    def _handle_lost(self, member: Member, event: Lost) -> None:
        """A call that had begun is never made twice: it fails. What had not begun waits again, first."""
        begun = event.begun
        again: list[Call] = []
        if member.orders:
            self._give_outcomes(member.orders[0], event.outcomes or {})
        _log.info("the %s worker of an executor is lost: %s", event.slot.name, event.reason)
        for order in member.orders:
            for call in order.calls[order.given : begun]:
                call.future.set_exception(WorkerLost(event.reason))
                if event.traceback and (error := call.future.exception()) is not None:
                    error.add_note(f"In the worker:\n{event.traceback.rstrip()}")
            again += order.calls[max(begun, order.given) :]
            begun = 0
        member.orders.clear()
        member.knows.clear()
        member.ready = member.robbed = False
        self._calls.extendleft(reversed(again))
        if event.slot not in self._crew.slots:
            del self._members[event.slot.number]

    # -- who makes which call ---------------------------------------------------------------------------

    def _can_take(self, member: Member) -> bool:
        return member.ready and not member.resting and len(member.orders) < 2 and not member.robbed

    def _assign_calls(self) -> None:
        """Give waiting calls to workers: to those without any, those first that had one last."""
        # First those without work; a second call queued at a worker saves it the wait for our answer.
        for most in (0, 1):
            some = [m for m in self._members.values() if self._can_take(m) and len(m.orders) == most]
            for member in sorted(some, key=lambda member: -member.since):
                while (calls := self._calls_for_worker(member)) is not None:
                    if calls:
                        self._send_calls(member, calls)
                        break

    def _calls_for_worker(self, member: Member) -> list[Call] | None:
        """Calls for a worker: one, or several short ones of a function; none where they were cancelled.

        ``None``: there is nothing for it.
        """
        kind = member.slot.kind
        for index, call in enumerate(_first_calls(self._calls, LOOK_AHEAD if len(self._seats) > 1 else 1)):
            if kind not in call.kinds or not self._is_soonest(call, kind, index):
                continue
            mean = self._means.get((call.function.name, kind))
            short = mean is not None and mean < SHORT
            if member.orders and not (short and self._is_short(member)):
                return None
            del self._calls[index]
            # Half of a fair share at most: the last calls should not all wait at one worker.
            many = 1
            if short:
                workers = max(1, sum(m.ready and not m.resting for m in self._members.values()))
                share = len(self._calls) // (2 * workers)
                many = max(1, min(MOST_AT_ONCE, share, int(AT_ONCE / max(mean or 0.0, 1e-6))))
            return self._with_its_like(call, index, many)
        return None

    def _is_short(self, member: Member) -> bool:
        """Whether a worker will soon be done with what it has."""
        names = {call.function.name for order in member.orders for call in order.calls}
        return all(self._means.get((name, member.slot.kind), SHORT) < SHORT for name in names)

    def _with_its_like(self, call: Call, index: int, many: int) -> list[Call]:
        """A call that was taken from this place, and those that follow there of the same function."""
        found = [call] if call.begin_call() else []
        size = call.arguments.size
        while index < len(self._calls) and len(found) < many and size < MOST_BYTES:
            following = self._calls[index]
            if following.function.name != call.function.name:
                break
            del self._calls[index]
            if following.begin_call():
                found.append(following)
                size += following.arguments.size
        return found

    def _is_soonest(self, call: Call, kind: str, before: int) -> bool:
        """Whether a call ends first where a worker of this kind takes it now, as far as that is known."""
        if len(call.kinds) == 1:
            return True
        mean = self._means.get((call.function.name, kind))
        if mean is None:
            return True  # to know it
        for other in call.kinds:
            there = self._means.get((call.function.name, other))
            workers = [m for m in self._members.values() if m.slot.kind == other and not m.resting]
            if other == kind or there is None or not workers:
                continue
            busy = sum(bool(member.orders) for member in workers)
            if there * (1 + (before + busy) // len(workers)) < mean:
                return False
        return True

    def _send_calls(self, member: Member, calls: list[Call]) -> None:
        self._orders += 1
        # Those behind another one may be taken back.
        tickets = bool(member.orders) or len(calls) > 1
        if not member.orders:
            member.began = member.looked = time.monotonic()
        member.orders.append(Order(self._orders, calls))
        try:
            items = _items_for_worker(member, calls)
            self._crew.send_calls(member.slot, self._orders, items, tickets=tickets)
        except Exception as error:  # noqa: BLE001 - shared memory may be short: the calls have the error
            member.orders.pop()
            member.knows.clear()
            for call in calls:
                call.future.set_exception(error)

    def _send_again(self) -> None:
        """Send what another thread was sending when it was interrupted; the worker makes it once."""
        members, self._unsure = self._unsure, []
        for member in members:
            member.knows.clear()
            if member.orders and member.ready:
                order = member.orders[0]
                items = _items_for_worker(member, order.calls)
                self._crew.send_calls(member.slot, order.number, items, again=True)

    # -- calls that others wait behind ------------------------------------------------------------------

    def _look_at(self, member: Member) -> float | None:
        """When to look for outcomes that are not sent; ``None`` where there cannot be any."""
        if not member.orders or member.orders[0].left < 2:
            return None
        return member.looked + max(STUCK, (member.looked - member.began) / 4)

    def _look_at_long_orders(self) -> None:
        """Outcomes of calls whose worker is at a long one, which they travelled with, are not waited for."""
        now = time.monotonic()
        for member in self._members.values():
            look_at = self._look_at(member)
            if look_at is not None and now >= look_at:
                member.looked = now
                self._give_outcomes(member.orders[0], self._crew.kept_outcomes(member.slot))

    def _give_outcomes(self, order: Order, outcomes: Mapping[int, Any]) -> None:
        """Give calls of an order their outcomes, in turn, as far as they are there."""
        while order.left and order.given in outcomes:
            self._outcomes.append((order.calls[order.given].future, outcomes[order.given]))
            order.given += 1

    def _take_back_stuck(self) -> None:
        """Calls behind one that takes longer than it was expected to wait here again, for other workers.

        Perhaps it waits for one of them.
        """
        now = time.monotonic()
        again: list[Call] = []
        for member in self._members.values():
            stuck_at = self._stuck_at(member)
            if stuck_at is None or now < stuck_at:
                continue
            running = member.orders[0].calls[0].function.name
            for _ in range(self._crew.take_back_calls(member.slot)):
                order = next(order for order in reversed(member.orders) if order.left)
                again.append(order.calls.pop())
            member.robbed = True
            # It is long: its like travels one by one until it is known to be short again.
            key = running, member.slot.kind
            self._means[key] = max(self._means.get(key, 0.0), now - member.began)
        self._calls.extendleft(again)

    def _stuck_at(self, member: Member) -> float | None:
        """When calls that wait at a worker may go to others; ``None`` where there are none for them."""
        if member.robbed or sum(order.left for order in member.orders) < 2:
            return None
        kind = member.slot.kind
        others = [m for m in self._members.values() if m.slot.kind == kind and not m.resting]
        if any(other.ready and not other.orders for other in others):
            return member.began + STUCK
        if len(others) < self._seats[kind].most:
            return max(member.began + STUCK, self._retry_at)
        return None

    # -- how many workers there are ---------------------------------------------------------------------

    def _staff_workers(self) -> None:
        """Have workers for the calls that wait."""
        if self._calls and time.monotonic() >= self._retry_at and not self._deep:
            self._hire_workers()
        if self._calls and self._is_alone():
            self._make_here()

    def _is_alone(self) -> bool:
        """Whether there is no worker, nor may one be waited for."""
        return self._alone and all(member.resting for member in self._members.values())

    def _hire_workers(self) -> None:
        self._retry_at = 0.0
        wanted: Counter[str] = Counter()
        for call in _first_calls(self._calls, sum(seats.most for seats in self._seats.values())):
            wanted.update(call.kinds)
        for kind, waiting in wanted.items():
            coming = sum(
                not (member.ready or member.resting) and member.slot.kind == kind
                for member in self._members.values()
            )
            for _ in range(waiting - coming):
                if not self._one_more(kind):
                    break

    def _one_more(self, kind: str) -> bool:
        """Recall a worker, or hire one; whether there is one more."""
        seats = self._seats[kind]
        mine = [member for member in self._members.values() if member.slot.kind == kind]
        active = [member for member in mine if not member.resting]
        if len(active) >= seats.most:
            return False
        for member in mine:
            if not member.resting:
                continue
            if self._crew.recall_worker(member.slot):
                member.resting, member.since = False, time.monotonic()
                return True
            self._crew.dismiss_worker(member.slot)
            del self._members[member.slot.number]
        # First cores of its own; shared ones only without any worker yet, or where more are wanted than fit.
        for share in (False, True):
            try:
                slot = self._crew.hire_worker(Wanted(kind, 1, seats.cores), share=share)
            except InUse as busy:
                _log.debug("no further worker: %s", busy)
            else:
                self._members[slot.number] = Member(slot, since=time.monotonic())
                _log.info("an executor has one more worker: %s", slot.name)
                return True
            if active and not self._shares_cores(kind):
                break
        self._retry_at = time.monotonic() + POLL
        return False

    def _shares_cores(self, kind: str) -> bool:
        """Whether workers share cores: more are wanted than there are, and no other process is there."""
        return self._seats[kind].most > len(os.sched_getaffinity(0)) // self._seats[kind].cores

    def _make_here(self) -> None:
        """Make a call in this process."""
        if not self._began_alone:
            self._began_alone = True
            self._runner.load()
        call = self._calls.popleft()
        if not call.begin_call():
            return
        kind = call.kinds[0]
        item = (b"", call.function.pickles[kind], *call.arguments)
        value, error = read_outcome(run_call(item))
        if error is None:
            call.future.set_result(value)
        else:
            call.future.set_exception(error)

    def _rest_idle_workers(self) -> None:
        """Workers without calls give back what they hold, and end after a while."""
        now = time.monotonic()
        for member in list(self._members.values()):
            if member.orders:
                continue
            if not member.ready:
                if self._crew.queued and not self._calls and now >= member.since + IDLE:
                    self._crew.dismiss_worker(member.slot)
                    del self._members[member.slot.number]
                continue
            if member.resting and now >= member.since + FORGOTTEN:
                _log.info("the %s worker of an executor had no calls, and ends", member.slot.name)
                self._crew.dismiss_worker(member.slot)
                del self._members[member.slot.number]
            elif not member.resting and now >= member.since + IDLE:
                self._crew.lay_off(member.slot)
                if member.slot in self._crew.slots:
                    member.resting, member.since = True, now
                else:
                    del self._members[member.slot.number]

    # -- the end ----------------------------------------------------------------------------------------

    def _break_pool(self, error: BaseException) -> None:
        """No call can be made any more; all that are not done have the reason."""
        self._deliver_outcomes()
        with self._lock:
            self._broken = error
            calls, self._calls = list(self._calls), deque()
        orders = [order for member in self._members.values() for order in member.orders]
        running = [call for order in orders for call in order.calls[order.given :]]
        if not isinstance(error, BrokenExecutor | DovetailError):
            _log.error("an executor has ended: %s", error, exc_info=error)
        running += [call for call in calls if call.begin_call()]
        for call in running:
            # One exception for each: futures add their tracebacks to it.
            broken = BrokenProcessPool(str(error))
            broken.__cause__ = error
            for note in getattr(error, "__notes__", ()):
                broken.add_note(note)
            call.future.set_exception(broken)


def _items_for_worker(member: Member, calls: Sequence[Call]) -> list[Item]:
    """Calls as they travel, with the functions that the worker does not have."""
    items: list[Item] = []
    for call in calls:
        digest = call.function.digests[member.slot.kind]
        text = None if digest and digest in member.knows else call.function.pickles[member.slot.kind]
        if digest and text is not None:
            if len(member.knows) >= MOST_KNOWN:
                member.knows.clear()  # as the worker does
            member.knows.add(digest)
        items.append((digest, text, *call.arguments))
    return items


def _first_calls(calls: deque[Call], most: int) -> list[Call]:
    return [calls[index] for index in range(min(most, len(calls)))]


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
_ENDING = threading.Lock()
_ender: threading.Thread | None = None


def _end_with_the_program(pool: Pool) -> None:
    """When the main thread has ended, the pools do what they were given, and end."""
    global _ender
    with _ENDING:
        _POOLS.add(pool)
        if _ender is None or not _ender.is_alive():
            _ender = threading.Thread(target=_end_all, name="dovetail-ender", daemon=False)
            _ender.start()


def _end_all() -> None:
    threading.main_thread().join()
    # Ctrl-C reaches the program alone: who hits it wants no call made any more.
    interrupted = getattr(sys, "last_type", None) is KeyboardInterrupt
    for pool in list(_POOLS):
        pool.stop(cancel=interrupted, abandon=interrupted)
