"""Real time: the same engine and policies, driven by an executor's events and the loop's clock.

Only the event loop's clock is used, so that the very same driver runs in virtual time under test.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from dovetail.engine.capacity import Placement
from dovetail.engine.core import Engine, no_bound
from dovetail.engine.prepare import check_policy, prepare
from dovetail.engine.runs import run_of
from dovetail.engine.simulate import JournalSink
from dovetail.errors import PolicyError
from dovetail.interfaces import Executor, History, Planner, Policy, RuntimeModel
from dovetail.model import (
    Cancelled,
    Cluster,
    Decision,
    DeviceClass,
    Ended,
    Event,
    Implementation,
    Job,
    JobId,
    Migrate,
    Placed,
    Planned,
    Request,
    Result,
    Run,
    Seconds,
    Start,
    State,
    Submit,
    Submitted,
    Woken,
    Workload,
)

__all__ = ["LiveOptions", "LiveRun"]

INFINITE = float("inf")


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """How a live run treats walltimes and what it keeps.

    ``run_uid`` makes the runs of this session unique in the history; ``epoch`` is the wall-clock time of
    its start, in seconds.
    """

    kill_overruns: bool = True
    default_walltime: Seconds | None = None
    placement: Placement = "pack"
    seed: int | None = None
    policy_name: str = ""
    policy_options: dict[str, object] = field(default_factory=dict)
    run_uid: str = ""
    epoch: float = 0.0
    timer: Callable[[], float] | None = None
    changed: Callable[[Engine], None] | None = None


@runtime_checkable
class _RecordsMany(Protocol):
    """A history that takes several runs at once."""

    def record_many(self, runs: Sequence[Run]) -> int: ...


class LiveRun:
    """One live run. `run` returns when every job has ended, or after `interrupt` has stopped them."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy | Planner,
        runtimes: RuntimeModel,
        executor: Executor,
        *,
        history: History | None = None,
        journal: JournalSink | None = None,
        options: LiveOptions | None = None,
        follow: Policy | None = None,
    ) -> None:
        self.options = options or LiveOptions()
        self.workload = prepare(workload, cluster, need_truth=False)
        name = self.options.policy_name or type(policy).__name__
        check_policy(policy, name, self.workload, cluster)
        self.executor = executor
        self.history = history
        self.journal = journal
        self.planner: Planner | None = None
        if not isinstance(policy, Policy):
            assert follow is not None, "a planner needs a policy that follows its plan"
            self.planner, policy = policy, follow
        self.engine = Engine(
            cluster,
            policy,
            runtimes,
            policy_name=name,
            bound=self._bound,
            placement=self.options.placement,
            timer=self.options.timer,
            keep_asked=journal is not None,
            keep_considered=True,
        )
        self.stopped = False
        self._events: list[Event] = []
        self._wake = asyncio.Event()
        self._deadlines: dict[JobId, Seconds] = {}
        self._stopping: set[JobId] = set()
        self._failure: BaseException | None = None
        self._start = 0.0
        self._submitted = 0
        self._warm: set[tuple[str, str, DeviceClass]] = set()

    def _bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        if job.walltime is None and self.options.default_walltime is not None:
            return self.options.default_walltime
        return no_bound(job, implementation, request)

    def _now(self) -> Seconds:
        return asyncio.get_running_loop().time() - self._start

    def interrupt(self) -> None:
        """Cancel what waits and stop what runs; safe to call from a signal handler of the loop."""
        self.stopped = True
        self._wake.set()

    async def run(self) -> Result:
        """Run everything. Raises what the engine or the executor raises, after stopping what runs."""
        loop = asyncio.get_running_loop()
        self._start = loop.time()
        listen = getattr(self.executor, "listen", None)
        listener: asyncio.Future[None] = loop.create_future()
        if listen is None:
            listener = asyncio.create_task(self._listen())
        else:
            listen(self._heard)
        try:
            while not self._finished():
                slept = await self._sleep()
                if listen is None:
                    await self._settle()
                elif not slept:
                    await asyncio.sleep(0)  # signals and sockets have their turn
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                if self.stopped:
                    await self._stop_everything()
                await self._instant()
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
            await self.executor.close()
        return self._result()

    def _finished(self) -> bool:
        engine = self.engine
        if engine.running or engine.handed_over or self._events:
            return False
        waiting = len(engine.queue) or engine.device_queues
        left = self._submitted < len(self.workload.jobs)
        return (not waiting and not left) or (self.stopped and not waiting)

    def _heard(self, event: Event) -> None:
        self._events.append(event)
        self._wake.set()

    async def _listen(self) -> None:
        try:
            async for event in self.executor.events():
                self._heard(event)
        except BaseException as error:
            self._failure = error
            self._wake.set()
            raise

    def _next_time(self) -> Seconds:
        jobs = self.workload.jobs
        times: list[Seconds] = [*self.engine.wake_times, *self._deadlines.values()]
        if self._submitted < len(jobs) and not self.stopped:
            times.append(jobs[self._submitted].submit_time)
        return min(times, default=INFINITE)

    async def _sleep(self) -> bool:
        """Until an event comes or the next known moment; whether there was any waiting to do."""
        until = self._next_time()
        delay = until - self._now()
        if self._wake.is_set() or delay <= 0:
            return False
        if until == INFINITE:
            await self._wake.wait()
            return True
        loop = asyncio.get_running_loop()
        timer = loop.call_at(self._start + until, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        return True

    async def _settle(self) -> None:
        """Let all that happens at this instant come out of the executor's stream: then it is one instant."""
        for _ in range(3):
            await asyncio.sleep(0)

    async def _instant(self) -> None:
        """One instant: what has happened, what is due, the policy's answer, and its execution."""
        engine = self.engine
        now = max(self._now(), engine.view.now)
        events: list[Event] = [e for e in self._events if not self._duplicate(e)]
        self._events.clear()
        jobs = self.workload.jobs
        if not self.stopped:
            while self._submitted < len(jobs) and jobs[self._submitted].submit_time <= now:
                events.append(Submitted(jobs[self._submitted]))
                self._submitted += 1
        if engine.wake_times and min(engine.wake_times) <= now:
            engine.wake_times[:] = [time for time in engine.wake_times if time > now]
            events.append(Woken())
        ended = [event for event in events if isinstance(event, Ended)]
        if ended:
            self._record_ends(ended, now)
        if events:
            await self._decide(now, events)
        for job, deadline in list(self._deadlines.items()):
            if deadline <= now:
                del self._deadlines[job]
                await self._stop(job, State.TIMEOUT)

    def _duplicate(self, event: Event) -> bool:
        engine = self.engine
        known = isinstance(event, Ended) and (event.job in engine.running or event.job in engine.handed_over)
        return isinstance(event, Ended) and not known

    def _record_ends(self, ended: Sequence[Ended], now: Seconds) -> None:
        """Runs that ended at one instant are in the history, together, before the policy is asked again."""
        for event in ended:
            self._deadlines.pop(event.job, None)
            self._stopping.discard(event.job)
        if self.history is None:
            return
        runs = [run for event in ended if (run := self._run_of(event, now, self.history)) is not None]
        if len(runs) > 1 and isinstance(self.history, _RecordsMany):
            self.history.record_many(runs)
            return
        for run in runs:
            self.history.record(run)

    def _run_of(self, event: Ended, now: Seconds, history: History) -> Run | None:
        """What history keeps of an end."""
        engine = self.engine
        record = engine.records[event.job]
        if record.implementation is None or record.allocation is None:
            return None
        device = engine.class_of(record.implementation, record.allocation)
        measured = _measured(event)
        place = (record.job.app.name, record.implementation.name, device)
        # Only what really ran can have paid for a cold start.
        first = measured is not None and place not in self._warm and not history.count(*place)
        self._warm.add(place)
        return run_of(
            record,
            device,
            engine.cluster,
            end=now,
            state=event.state,
            uid=f"{self.options.run_uid}/{event.job}" if self.options.run_uid else "",
            when=self.options.epoch + now if event.ended_at is None else event.ended_at,
            usage=event.usage,
            measured=measured,
            first_on_device=first,
        )

    async def _decide(self, now: Seconds, events: list[Event]) -> None:
        engine = self.engine
        if self.planner is not None and any(isinstance(event, Submitted) for event in events):
            engine.handle(now, events, ask=False)
            engine.predictions.refresh()
            planned = Planned(self.planner.plan(engine.view))
            decisions = engine.handle(now, [planned])
            events = [*events, planned]
        else:
            decisions = engine.handle(now, events, ask=not self.stopped)
        try:
            await self._carry_out(decisions, now)  # first: jobs start while the journal is written
        finally:
            if self.journal is not None:
                self.journal.batch(now, events, engine, decisions, ask=not self.stopped)
        if self.options.changed is not None:
            self.options.changed(engine)

    async def _carry_out(self, decisions: Sequence[Decision], now: Seconds) -> None:
        engine = self.engine
        for decision in decisions:
            if isinstance(decision, Start):
                placed = engine.running[decision.job]
                self._watch(placed, now)
                await self.executor.launch(placed)
            elif isinstance(decision, Submit):
                await self._hand_over(decision)
            elif isinstance(decision, Migrate):
                what = "is to be migrated, which this executor cannot do"
                raise PolicyError(engine.policy_name, decision.job, what)

    async def _hand_over(self, decision: Submit) -> None:
        """Late binding, for executors that have a scheduler of their own behind them."""
        submit = getattr(self.executor, "submit", None)
        if submit is None:
            what = f"is submitted to {decision.target}, which this executor cannot do"
            raise PolicyError(self.engine.policy_name, decision.job, what)
        job = self.engine.records[decision.job].job
        await submit(job, job.app.implementation(decision.implementation), decision)

    def _watch(self, placed: Placed, now: Seconds) -> None:
        limit = placed.job.walltime
        if limit is None:
            limit = self.options.default_walltime
        if limit is not None and self.options.kill_overruns:
            self._deadlines[placed.job.id] = now + limit

    async def _stop(self, job: JobId, state: State) -> None:
        if job not in self._stopping:
            self._stopping.add(job)
            await self.executor.stop(job, state.value)

    async def _stop_everything(self) -> None:
        """After an interrupt: what waits is cancelled, what runs is stopped, nothing new is submitted."""
        engine = self.engine
        now = max(self._now(), engine.view.now)
        rest = [Submitted(job) for job in self.workload.jobs[self._submitted :]]
        if rest:  # a job must be known before it can be cancelled
            self._submitted = len(self.workload.jobs)
            await self._decide(now, list(rest))
        waiting = [job.id for job in engine.queue]
        waiting += [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
        if waiting:
            await self._decide(now, [Cancelled(job) for job in waiting])
        self._deadlines.clear()
        for job in [*engine.running, *engine.handed_over]:
            await self._stop(job, State.CANCELLED)

    def _result(self) -> Result:
        engine, options = self.engine, self.options
        order = sorted(self.workload.jobs, key=lambda job: job.index)
        return Result(
            policy=engine.policy_name,
            options=options.policy_options,
            workload=self.workload.name,
            cluster=engine.cluster,
            seed=options.seed,
            knowledge="learned",
            records=[engine.records[job.id] for job in order if job.id in engine.records],
            rejected=self.workload.rejected,
            skipped=self.workload.skipped,
            decision_seconds=engine.decision_seconds,
            plan=engine.view.plan,
            best=self._best(order),
            promises_broken=engine.promises.broken,
            broken_by_overrun=engine.promises.broken_by_overrun,
            overrun="kill" if options.kill_overruns else "run",
            default_walltime=options.default_walltime,
            live=True,
            started_at=options.epoch,
        )

    def _best(self, jobs: Sequence[Job]) -> dict[JobId, Seconds]:
        """Each job's least predicted time now, or its own run time where that is less."""
        engine = self.engine
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


def _measured(event: Ended) -> Seconds | None:
    if event.started_at is None or event.ended_at is None:
        return None
    return event.ended_at - event.started_at
