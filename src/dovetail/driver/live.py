"""Real time: the same driver, fed by an executor's events and the loop's clock.

Only the event loop's clock is used, so that the very same code runs in virtual time under test.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf
from signal import SIGKILL
from typing import Literal, Protocol

from dovetail.driver.driver import Driver
from dovetail.driver.orders import AskStart, HandOver, Move, Order, Signal, Stop, Withdraw
from dovetail.engine.state.core import Engine
from dovetail.errors import ExecutorError, UnsupportedWorkload
from dovetail.files.shortage import lack_of
from dovetail.interfaces import (
    AnswersForJobs,
    Executor,
    ExplainsSilence,
    FailsByItself,
    HearsEvents,
    LacksResources,
    LeavesJobs,
    MigratesJobs,
    SignalsJobs,
    StartsAfter,
    SubmitsJobs,
    TakenAway,
    TakesBack,
    traits_of,
)
from dovetail.model import (
    Ended,
    Event,
    Foreseen,
    Job,
    JobId,
    Migrated,
    Placed,
    Seconds,
    State,
    Submitted,
    Withdrawn,
    Woken,
)

_log = logging.getLogger(__name__)
PAUSE: Seconds = 2.0
"""Between two tries to start something where that failed for want of room, processes or memory."""
TWICE: Seconds = 0.3
"""Signals that come closer together than this are one press of Ctrl-C."""
ENDS_WITHIN: Seconds = 5.0
"""So long jobs that were stopped may take to end, where their executor does not give that time."""
STILL: Seconds = 2.0
"""Beyond that time, what has brought no news for so long is stuck; what brings news is waited for."""
MOST_BEYOND: Seconds = 30.0
"""So long, and no longer: by then a batch system, too, has killed what it was to end (Slurm's KillWait)."""
LOOKS: Seconds = 0.5
"""Between two looks whether it is stuck by now."""
TURNS = 20
"""Turns of the loop between two parts of what one end has brought."""
CLOSES_WITHIN: Seconds = 3.0
"""So much longer an executor may take to close."""
LEAVES_WITHIN: Seconds = 5.0
"""So long whatever is under way may take when a service is to end: containers are given 10 s in all."""


def check_executor(policy: object, name: str, executor: object, backend: str) -> None:
    """Refuse a policy that decides what the executor cannot do, before anything runs.

    A policy's `Traits` declare what it may decide. Raises `UnsupportedWorkload`.
    """
    traits = traits_of(policy)
    for does, what in (
        (traits.migrates, "moves jobs between devices while they run"),
        (traits.borrows, "lends jobs the devices of other nodes"),
    ):
        if does and not isinstance(executor, MigratesJobs):
            raise UnsupportedWorkload(
                f"policy {name} {what}, which executor {backend} cannot do; "
                "'lent', 'slurm?lend=DEVICE' and 'ray?lend=DEVICE' can"
            )
    if traits.submits and not isinstance(executor, SubmitsJobs):
        raise UnsupportedWorkload(
            f"policy {name} hands jobs to an outside scheduler, and executor {backend} has none"
        )
    if isinstance(executor, SubmitsJobs) and not traits.submits:
        raise UnsupportedWorkload(
            f"executor {backend} leaves it to the cluster's own scheduler when and where jobs start, which "
            f"policy {name} decides itself; --policy earliest-completion is made for it"
        )


class Sharing(Protocol):
    """Keeps apart those who use one machine (`dovetail.running.neighbours`)."""

    due: Seconds

    def before(self, driver: Driver, now: Seconds) -> None:
        """Something is about to be decided: give the driver what others use."""
        ...

    def after(self, driver: Driver) -> None:
        """It was decided, and carried out."""
        ...


class Watch(Protocol):
    """Sees how long instants take (`dovetail.running.watchdog`)."""

    def begin_instant(self) -> None:
        """An instant begins."""
        ...

    def end(self, events: Sequence[Event]) -> None:
        """It is over; these it took in."""
        ...


class LiveRun:
    """Carries out a driver's orders with an executor, in real time.

    ``arrivals`` are jobs (or their submissions) by submit time, counted from the start of `run`. ``stays``
    keeps it going when nothing is left to do (a service), until `stop`. ``changed`` is called after every
    instant, ``tell`` with each sentence that its user should read now; ``neighbours`` are others here.
    ``halts`` sees the events of each instant before the policy does: ``soon`` cancels what waits,
    ``now`` also stops what runs. ``elapsed`` is what the driver's clock shows when `run` begins,
    ``watch`` sees how long instants take.
    """

    def __init__(
        self,
        driver: Driver,
        executor: Executor,
        arrivals: Sequence[Job | Submitted] = (),
        *,
        stays: bool = False,
        changed: Callable[[Engine], None] | None = None,
        tell: Callable[[str], None] | None = None,
        neighbours: Sharing | None = None,
        halts: Callable[[Sequence[Event]], Literal["soon", "now"] | None] | None = None,
        elapsed: Callable[[], Seconds] = lambda: 0.0,
        watch: Watch | None = None,
    ) -> None:
        self.driver = driver
        self._watch = watch
        self.executor = executor
        # Looked at once: to compare an object with a protocol costs more than the look at what it lacks.
        self._may_lack = executor if isinstance(executor, LacksResources) else None
        self.arrivals = [one if isinstance(one, Submitted) else Submitted(one) for one in arrivals]
        self.stopped = False
        self.place_is_taken = False  # with all jobs, to which the one that takes it gives their time
        self.troubles: list[str] = []  # sentences for people
        self._stays = stays
        self._leaving = False
        self._neighbours = neighbours
        self._changed = changed
        self._halts = halts
        self._elapsed = elapsed
        self._spares_running = False
        self._pressed = inf  # when Ctrl-C came first
        self._hurried = False
        self._tell = tell or self.troubles.append
        self._quiet = Quiet(driver, executor, self._tell)
        self._asks_whether: asyncio.Task[None] | None = None  # our place is taken away
        self._blocked = False
        self.lack = ""  # why nothing can be started for now
        self._lacking = ""  # the same, as it has just come
        self._try_again = inf
        self._wake = asyncio.Event()
        self._task: asyncio.Task[object] | None = None
        self._last: asyncio.TimerHandle | None = None  # when it is not waited for any longer
        self._signalled = inf  # when that began to count
        self._last_news = -inf  # when the executor reported something
        self.extensions = 0  # looks at which it was not over, and went on
        self._gave_up = False
        if isinstance(executor, FailsByItself):
            executor.when_failed(self.fail_run)
        self._failure: BaseException | None = None
        self._start = 0.0
        self._arrived = 0
        self._starts_after = executor if isinstance(executor, StartsAfter) else None
        if self._starts_after is not None and halts is None:  # a halt is to find nothing under way
            driver.look_ahead()

    @property
    def now(self) -> Seconds:
        """Seconds by the driver's clock; never before what the engine has seen."""
        # Events carry times of the engine; the loop's clock may lag behind one by rounding.
        return max(asyncio.get_running_loop().time() - self._start, self.driver.engine.view.now)

    def wake_loop(self) -> None:
        """Something has come in at the driver: have the next instant now."""
        self._wake.set()

    def interrupt_run(self) -> None:
        """Cancel what waits and stop what runs; safe to call from a signal handler of the loop."""
        # The loop must not sleep on: it may have been waiting for hours.
        self.stopped, self._spares_running = True, False
        self._wake.set()
        self._expect_the_end(self._ends_within)

    def terminate(self) -> None:
        """End on a signal: `interrupt_run`, but where our place is being taken away with all jobs.

        Then these end with it, what waits goes on waiting, and `run` returns when all is recorded.
        """
        # Only once, and not after an interrupt: a second signal is meant for us in any case.
        if isinstance(self.executor, TakenAway) and self._asks_whether is None and not self.stopped:
            self._asks_whether = asyncio.get_running_loop().create_task(self._ask_whether(self.executor))
        else:
            self.interrupt_run()

    async def _ask_whether(self, executor: TakenAway) -> None:
        try:
            taken = await asyncio.wait_for(executor.is_taken_away(), CLOSES_WITHIN)
        except Exception:  # noqa: BLE001 - then it is an interrupt, as anywhere else
            _log.exception("whether the place of this run is taken away could not be found out")
            taken = False
        self.place_is_taken = taken
        if not taken:
            self.interrupt_run()

    def handle_interrupt_key(self) -> None:
        """Ctrl-C: `interrupt_run`; pressed again, what runs has had its grace, and is killed.

        Some senders (GNU timeout) signal twice at once: that is one press.
        """
        now = asyncio.get_running_loop().time()
        self._pressed = min(self._pressed, now)
        # Twice within a moment is one press: GNU timeout signals the process and its group.
        if not self._hurried and now - self._pressed >= TWICE:
            self._hurried = True
            if self._last is not None:  # their grace is over, and so is ours
                self._last.cancel()
                self._last = asyncio.get_running_loop().call_later(STILL, self._see_the_end, STILL)
        self.interrupt_run()

    def cancel_waiting(self) -> None:
        """Cancel what waits; what runs goes on to its end."""
        self.stopped = self._spares_running = True
        self._wake.set()

    def stop(self) -> None:
        """Let what runs go on to its end and start nothing more; then `run` returns."""
        self.driver.draining = True
        self._stays = False
        # Set through the driver: it may be draining already for want of space.
        self._wake.set()

    def fail_run(self, error: BaseException) -> None:
        """Have `run` raise this at the next instant."""
        self._failure = self._failure or error
        self._wake.set()

    def pause_for_lack(self, what: str) -> None:
        """Nothing can be started now for want of this: pause, and try again."""
        self._lacking = what
        self._wake.set()

    def leave(self) -> None:
        """Return from `run` now and let what runs go on without us, where the executor can do that."""
        self._leaving = True
        self._wake.set()
        self._expect_the_end(LEAVES_WITHIN)

    @property
    def over_within(self) -> Seconds:
        """Seconds after an interrupt, or `leave`, within which `run` has returned if its loop goes round."""
        return (LEAVES_WITHIN if self._stays else self._ends_within) + CLOSES_WITHIN

    @property
    def _ends_within(self) -> Seconds:
        executor = self.executor
        return executor.ends_within if isinstance(executor, FailsByItself) else ENDS_WITHIN

    def _expect_the_end(self, within: Seconds) -> None:
        """End `run` then, whatever is stuck."""
        loop = asyncio.get_running_loop()
        self._signalled = min(self._signalled, loop.time())
        if self._last is None and self._task is not None:
            self._last = loop.call_later(within, self._see_the_end, within)

    @property
    def makes_progress(self) -> bool:
        """Whether what is to end is on its way there; what is not is stuck."""
        now, executor = asyncio.get_running_loop().time(), self.executor
        if self._leaving or now - self._signalled >= self._ends_within + MOST_BEYOND:
            return False
        if now - self._last_news < STILL:
            return True
        return isinstance(executor, AnswersForJobs) and executor.are_ending()

    def _see_the_end(self, waited: Seconds) -> None:
        """Give up what is stuck; what makes progress has more time."""
        if self.makes_progress:
            loop = asyncio.get_running_loop()
            self.extensions += 1
            self._last = loop.call_later(LOOKS, self._see_the_end, waited + LOOKS)
        else:
            self._give_up(waited)

    def _give_up(self, waited: Seconds) -> None:
        engine = self.driver.engine
        left = [placed.job.id for placed in engine.at_work if not placed.job.foreign]
        left += engine.handed_over
        names = ", ".join(left[:MOST_NAMED]) + (" …" if len(left) > MOST_NAMED else "")
        if self._leaving:
            why = (
                f"what was under way has not come to its end within {waited:.0f} s: the service ends without"
            )
        else:
            which = f"{len(left)} jobs ({names})" if left else "the executor"
            why = f"{which} did not end within {waited:.0f} s of the interrupt: the run ends without"
        # The first failure is the cause; what follows are its consequences.
        self._failure = self._failure or ExecutorError(why)
        self._gave_up = True
        assert self._task is not None
        self._task.cancel()

    async def _close_executor(self) -> None:
        """Close the executor, or leave it; what does not come to its end is left to the next start."""
        executor = self.executor
        ending = executor.close
        # Leaving is for executors whose jobs outlive us; others must be closed, or their jobs would be
        # orphans.
        if isinstance(executor, LeavesJobs) and (self._leaving or self._stays):
            ending = executor.leave
        within = self._ends_within + CLOSES_WITHIN
        if self._signalled == inf:  # no one waits for it
            within += MOST_BEYOND
        else:
            spent = asyncio.get_running_loop().time() - self._signalled  # of what there is since the signal
            # The time since the signal counts: a service manager kills us when its own limit is over.
            left = 0.0 if self._gave_up else self.over_within - spent
            within = min(within, max(CLOSES_WITHIN, left))
        try:
            await asyncio.wait_for(ending(), within)
        except TimeoutError:
            self._tell(f"the executor could not be closed within {within:.0f} s: what is left of it stays")

    async def run(self) -> None:
        """Go from instant to instant. Raises what the policy or the events raise, after closing.

        Where it `stays`, an error of ours ends no job either: the next start takes them up.
        """
        loop = asyncio.get_running_loop()
        self._start = loop.time() - self._elapsed()
        executor = self.executor
        self._task = asyncio.current_task()
        if self.stopped or self._leaving:
            self._expect_the_end(LEAVES_WITHIN if self._leaving else self._ends_within)
        listener: asyncio.Future[None] = loop.create_future()
        listens = isinstance(executor, HearsEvents)
        if isinstance(executor, HearsEvents):
            executor.listen(self._receive_event)
        else:
            listener = asyncio.create_task(self._receive_events())
            listener.add_done_callback(self._heard_no_more)
        if not self._stays:
            self._quiet.begin_watching()
        try:
            while not self._finished():
                slept = await self._sleep_until_due()
                if not listens:
                    await self._settle_events()
                # Without a pause the loop would serve instants alone: sockets, signals and timers need turns.
                elif not slept:  # signals and sockets have their turn, an answer takes some
                    for _ in range(TURNS if self.driver.has_more else 1):
                        await asyncio.sleep(0)
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                await self._watched_instant()
        except asyncio.CancelledError:
            # A cancellation from outside is passed on; only our own, of `_give_up`, stands for a failure.
            if not self._gave_up or self._failure is None:
                raise
            if self._task is not None:
                self._task.uncancel()
            raise self._failure from None
        finally:
            self._task = None
            if self._last is not None:
                self._last.cancel()
            # In this order: nothing new comes in before the executor is closed.
            self._quiet.end()
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
            await self._close_executor()

    def _finished(self) -> bool:
        driver = self.driver
        if self._leaving:
            return True
        if driver.busy or not driver.idle or self._stays:
            return False
        # All may have ended while the disk was full: how they ended is on record before the run is over. One
        # that is stopped does not wait for that.
        if driver.is_blocked and not self.stopped:
            return False
        if driver.draining:
            return True
        return not driver.has_waiting_jobs and (self.stopped or self._arrived == len(self.arrivals))

    # -------------------------------------------------------------------- events

    def _receive_event(self, event: Event) -> None:
        if type(event) is not Foreseen:
            self._quiet.note_activity()
            if self._last is not None:
                self._last_news = asyncio.get_running_loop().time()
        self.driver.queue_events(event)
        self._wake.set()

    async def _receive_events(self) -> None:
        async for event in self.executor.events():
            self._receive_event(event)

    def _heard_no_more(self, listener: asyncio.Future[None]) -> None:
        if not listener.cancelled() and (error := listener.exception()) is not None:
            self._failure = error
            self._wake.set()

    def _next_time(self) -> Seconds:
        due = self.driver.next_time()
        if self._neighbours is not None:
            due = min(due, self._neighbours.due)
        if self.lack:
            due = min(due, self._try_again)
        if self._arrived < len(self.arrivals) and not self.stopped:
            due = min(due, self.arrivals[self._arrived].job.submit_time)
        return due

    async def _sleep_until_due(self) -> bool:
        """Until an event comes or the next known moment; whether there was any waiting to do."""
        until = self._next_time()
        loop = asyncio.get_running_loop()
        if self._wake.is_set() or not self.driver.idle or until <= loop.time() - self._start:
            return False
        if until == inf:
            await self._wake.wait()
            return True
        timer = loop.call_at(self._start + until, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        return True

    async def _settle_events(self) -> None:
        """Let all that happens at this instant come out of the executor's stream: then it is one instant."""
        # Three turns: an executor's queue, its generator and ours; all ends of one moment come as one batch.
        for _ in range(3):
            await asyncio.sleep(0)

    # ------------------------------------------------------------------- instants

    async def _watched_instant(self) -> None:
        watch = self._watch
        if watch is None:
            await self._process_instant()
            return
        # Copied before: the instant empties the list, and a slow one is described by what came in.
        events = self.driver.pending.copy()
        watch.begin_instant()
        try:
            await self._process_instant()
        finally:
            watch.end(events)

    async def _process_instant(self) -> None:
        """One instant: what has happened, what is due, the policy's answer, and its execution."""
        driver, now = self.driver, self.now
        arrivals = self.arrivals
        # Before the instant, so that a start that was taken back does not repeat itself at once.
        self._see_what_lacks(now)
        halted = None if self._halts is None or self.stopped else self._halts(driver.pending)
        if halted is not None:
            self.cancel_waiting() if halted == "soon" else self.interrupt_run()
        while self._arrived < len(arrivals):
            if arrivals[self._arrived].job.submit_time > now and not self.stopped:
                break
            driver.queue_events(arrivals[self._arrived])
            self._arrived += 1
        if self.stopped:  # jobs must be known before they can be cancelled: the policy sees none of it
            # Draining, so the policy starts nothing of what is about to be cancelled.
            driver.draining = True
            await self._execute_orders(now)
            driver.cancel_everything(running=not self._spares_running)
        elif self._neighbours is not None:
            self._neighbours.before(driver, now)
        await self._execute_orders(now)
        # Not in a service, where a node may come back tomorrow.
        if not (self.stopped or self._stays or self.lack):
            driver.cancel_stranded()
        if self._hurried and isinstance(self.executor, SignalsJobs):
            # A second Ctrl-C: their grace is over.
            for placed in list(driver.engine.at_work):
                await self.executor.signal(placed.job.id, SIGKILL)
        if self._neighbours is not None:
            self._neighbours.after(driver)
        if self._changed is not None:
            self._changed(driver.engine)

    def _see_what_lacks(self, now: Seconds) -> None:
        """Start nothing for `PAUSE` seconds after a start was taken back, and then try again."""
        driver, executor = self.driver, self._may_lack
        lack, self._lacking = self._lacking, ""
        if executor is not None and executor.lack:
            lack, executor.lack = executor.lack, ""
        if lack:
            # Once a lack is known it is not reported again: every start would repeat it.
            if not self.lack:
                self._tell(f"{lack}: nothing starts until that has changed, and nothing fails for it")
            self.lack, self._try_again, driver.pauses = lack, now + PAUSE, True
        elif self.lack and now >= self._try_again:
            if driver.pauses:
                driver.pauses = False
                driver.queue_events(Woken())
                self._try_again = now + PAUSE
            else:  # what has been started since was not taken back
                self.lack, self._try_again = "", inf
                self._tell("what was lacking is there again: jobs start")

    async def _execute_orders(self, now: Seconds) -> None:
        orders = self.driver.process_instant(now)
        if any(type(order) is not AskStart for order in orders):
            self._quiet.note_activity()
        if self.driver.is_blocked is not self._blocked:
            self._say_whether_blocked()
        try:
            # In the order of the decisions: a stop may free what the next start uses.
            for order in orders:  # first: jobs start while the journal is written
                await self._carry_out(order)
        finally:
            # Also after an error: decisions that took effect must be in the journal, or its replay would
            # differ.
            self.driver.write_last_instant()

    def _say_whether_blocked(self) -> None:
        """Once when nothing can be kept on record any more, and once when it can again."""
        self._blocked = self.driver.is_blocked
        ledger = self.driver.ledger
        if self._blocked and ledger is not None:
            runs = len(list(self.driver.engine.at_work)) - self.driver.count_withheld_orders
            self._tell(
                f"{ledger.why_blocked}: nothing starts until it is on record; what runs ({runs}) goes on"
            )
        else:
            self._tell("what waited is on record again: jobs start")

    async def _carry_out(self, order: Order) -> None:
        """Give an order to the executor. What goes wrong with it is that job's end, not the run's."""
        executor = self.executor
        try:
            if isinstance(order, Placed):
                after = self.driver.after(order.job.id)
                if after and self._starts_after is not None:
                    await self._starts_after.launch_after(order, after)
                else:
                    await executor.launch(order)
                self._log_start(order)
            elif isinstance(order, Withdraw) and isinstance(executor, StartsAfter | TakesBack):
                await executor.withdraw(order.job)
            elif isinstance(order, Stop):
                await executor.stop(order.job, order.state.value)
            elif isinstance(order, HandOver) and isinstance(executor, SubmitsJobs):
                await executor.submit(order.job, order.decision, order.attempt)
                words = "job %s is handed over to %s (attempt %d)"
                _log.info(
                    words, order.job.id, order.decision.target, order.attempt, extra={"job": order.job.id}
                )
            elif isinstance(order, AskStart) and isinstance(executor, SubmitsJobs):
                await executor.inquire(order.shape)
            elif isinstance(order, Move) and isinstance(executor, MigratesJobs):
                await executor.migrate(order.placed, order.target)
            elif isinstance(order, Signal):
                if isinstance(executor, SignalsJobs):
                    to = {"to": order.to} if order.to != "all" else {}
                    await executor.signal(order.job, order.number, **to)
            else:
                raise ExecutorError(f"cannot {_WORDS[type(order)]}")
        except Exception as error:  # noqa: BLE001 - a backend is a plugin: whatever it raises ends this job only
            self._handle_failed_order(order, error)

    def _log_start(self, placed: Placed) -> None:
        if not _log.isEnabledFor(logging.INFO):  # naming nodes costs more than the check
            return
        nodes = [self.driver.engine.cluster.nodes[n].name for n in placed.allocation.nodes]
        more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
        job, where = placed.job.id, ", ".join(nodes[:MOST_NAMED]) + more
        how, attempt = placed.implementation.name, placed.attempt
        _log.info("job %s starts as %s on %s (attempt %d)", job, how, where, attempt, extra={"job": job})

    def _handle_failed_order(self, order: Order, error: Exception) -> None:
        """The executor raised at an order: the job fails, or stays where it is."""
        why = str(error) or type(error).__name__
        if isinstance(order, Move):
            self._receive_event(Migrated(order.placed.job.id, why))
        # For want of a resource of this machine, not by the job's fault: it waits again and is not failed.
        elif isinstance(order, Placed) and lack_of(error):
            self._lacking = lack_of(error)
            self._receive_event(Withdrawn(order.job.id))
        # An attempt that never ran must not be counted as a failure of the device.
        elif isinstance(order, Placed | HandOver):
            detail = f"the executor could not start it: {why}"
            attempt = order.attempt if isinstance(order, Placed) else None
            self._receive_event(Ended(order.job.id, State.FAILED, None, detail, attempt=attempt, ran=False))
        elif isinstance(order, AskStart):
            self._receive_event(Foreseen(order.shape, None, why=why))
        elif isinstance(order, Withdraw):
            self.troubles.append(f"jobs that were to follow job {order.job} could not be taken back: {why}")
        else:
            self.troubles.append(f"job {order.job} could not be stopped: {why}")


_WORDS = {
    AskStart: "ask an outside scheduler",
    HandOver: "hand a job over to an outside scheduler",
    Move: "move a job",
    Placed: "start a job",
    Withdraw: "take back a start",
}


def best_predicted(engine: Engine, jobs: Sequence[Job]) -> dict[JobId, Seconds]:
    """Each job's least predicted time now, or its own run time where that is less."""
    best: dict[JobId, Seconds] = {}
    for job in jobs:
        known: list[Seconds] = []
        for choice in job.asked or job.choices:
            for device in engine.cluster.device_classes(choice.implementation.kind):
                found = engine.predictions.predict(job, choice.implementation, choice.request, device)
                if found is not None:
                    known.append(found.expected)
        record = engine.records.get(job.id)
        if record is not None and record.run_time is not None and record.state is State.COMPLETED:
            known.append(record.run_time)
        if known:
            best[job.id] = min(known)
    return best


QUIET: Seconds = 60.0
"""Seconds without anything until a notice, and then twice as many each time."""
MOST = 3600.0
MOST_NAMED = 10
"""So many jobs are named in one sentence."""
REASONS = 3
"""So many reasons of waiting jobs are named, the most frequent first."""


class Quiet:
    """Watches a run by its event loop's clock, between `begin_watching` and `end`."""

    def __init__(self, driver: Driver, executor: Executor, tell: Callable[[str], None]) -> None:
        self._driver, self._tell = driver, tell
        self._executor = executor if isinstance(executor, ExplainsSilence) else None
        self._since = 0.0
        self._pause = QUIET
        self._timer: asyncio.TimerHandle | None = None

    def begin_watching(self) -> None:
        """From now on."""
        self.note_activity()
        self._arm_timer()

    def end(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def note_activity(self) -> None:
        """Something has happened. O(1)."""
        self._since = asyncio.get_running_loop().time()
        self._pause = QUIET

    def _arm_timer(self) -> None:
        # At least a second from now: a clock that was set back would make this a busy loop.
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(self._since + self._pause, loop.time() + 1.0), self._check_silence)

    def _check_silence(self) -> None:
        silence = asyncio.get_running_loop().time() - self._since
        if silence >= self._pause:
            why = self._explain_silence()
            if why:
                self._tell(f"nothing has happened for {silence:.0f} s: {why}")
            self._pause = min(2 * self._pause, self._pause + MOST)
        self._arm_timer()

    def _explain_silence(self) -> str:
        """What jobs wait for, in a sentence; empty where some run, or none waits, and there is no trouble."""
        engine = self._driver.engine
        trouble = "" if self._executor is None else self._executor.trouble()
        waiting = [job.id for job in engine.queue]
        waiting += [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
        if any(not placed.job.foreign for placed in engine.running.values()) or engine.ending:
            return trouble
        count = len(waiting) + len(engine.handed_over)
        if not count:
            return trouble
        reasons = Counter(engine.records[job].wait_reason for job in waiting)
        for job, submitted in engine.handed_over.items():
            why = engine.records[job].wait_reason
            reasons["they are in the cluster's queue" if why == submitted.reason else why] += 1
        reported = [trouble, *(reason for reason, _ in reasons.most_common(REASONS))]
        if not any(reported) and any(placed.job.foreign for placed in engine.running.values()):
            reported.append("others use this machine")
        jobs = "1 job waits" if count == 1 else f"{count} jobs wait"
        return f"nothing runs, {jobs}: {'; '.join(filter(None, reported)) or 'no reason is known'}"
