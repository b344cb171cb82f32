"""Virtual time: the same engine and policies, driven by true run times that no policy sees."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from dovetail.engine.capacity import Placement
from dovetail.engine.core import Engine
from dovetail.engine.prepare import check_policy, prepare
from dovetail.engine.progress import Progress
from dovetail.engine.runs import run_of
from dovetail.interfaces import History, Planner, Policy, RateModel, RuntimeModel
from dovetail.model import (
    Cancelled,
    Cluster,
    Decision,
    Ended,
    Event,
    Implementation,
    Job,
    JobId,
    Migrate,
    NodeLost,
    Placed,
    Planned,
    Request,
    Result,
    Seconds,
    Start,
    State,
    Submitted,
    Woken,
    Workload,
)

__all__ = ["JournalSink", "SimulationOptions", "simulate"]

INFINITE = float("inf")


class JournalSink(Protocol):
    """Takes what happened at each instant (see `dovetail.engine.journal`)."""

    def batch(
        self,
        now: Seconds,
        events: Sequence[Event],
        engine: Engine,
        decisions: Sequence[Decision],
        *,
        ask: bool = True,
    ) -> None:
        """One call of the engine: its events, the predictions used, its decisions; was the policy asked."""
        ...


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How a simulation treats walltimes and what it keeps.

    ``overrun``: jobs that reach their walltime are killed, or run on. ``default_walltime``: of jobs
    without one, in seconds; ``"actual"`` takes the true time.
    """

    overrun: Literal["kill", "run"] = "kill"
    default_walltime: Seconds | Literal["actual"] = "actual"
    placement: Placement = "pack"
    seed: int | None = None
    knowledge: str = "perfect"
    policy_name: str = ""
    policy_options: dict[str, object] = field(default_factory=dict)
    keep_considered: bool = False
    timer: Callable[[], float] | None = None
    progress: Callable[[int, int], None] | None = None


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: Policy | Planner,
    runtimes: RuntimeModel,
    *,
    rates: RateModel | None = None,
    forecast: RateModel | None = None,
    observe: History | None = None,
    journal: JournalSink | None = None,
    options: SimulationOptions | None = None,
    follow: Policy | None = None,
    incidents: Sequence[tuple[Seconds, Event]] = (),
) -> Result:
    """Run a workload through a policy in virtual time.

    ``observe`` is the history that a learning model is built on: every finished job is recorded in it
    before the policy is asked again. ``incidents`` are cancellations and losses of nodes, by ascending
    time. A `Planner` plans whenever jobs have been submitted, and ``follow``
    carries its plan out. Raises `UnsupportedWorkload`, `PolicyError`.
    """
    opts = options or SimulationOptions()
    ready = prepare(workload, cluster, need_truth=True)
    name = opts.policy_name or type(policy).__name__
    check_policy(policy, name, ready, cluster)
    simulation = _Simulation(
        ready, cluster, policy, runtimes, rates, forecast, observe, journal, opts, follow
    )
    with _rare_collections():
        return simulation.run(list(incidents))


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Search for reference cycles rarely: what a run makes lives to its end or dies by its count."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], 200_000) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Simulation:
    """One run: the clock, the true end times, the engine."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: Policy | Planner,
        runtimes: RuntimeModel,
        rates: RateModel | None,
        forecast: RateModel | None,
        observe: History | None,
        journal: JournalSink | None,
        options: SimulationOptions,
        follow: Policy | None,
    ) -> None:
        self.workload = workload
        self.options = options
        self.observe = observe
        self.journal = journal
        self.truth = workload.truth
        self.progress = Progress(rates)
        self.rated = rates is not None
        self.planner: Planner | None = None
        if not isinstance(policy, Policy):
            assert follow is not None, "a planner needs a policy that follows its plan"
            self.planner, policy = policy, follow
        self.plain = not self.rated and self.planner is None and journal is None
        self.kills = options.overrun == "kill"
        self.default_limit = (
            INFINITE if isinstance(options.default_walltime, str) else options.default_walltime
        )
        self.engine = Engine(
            cluster,
            policy,
            runtimes,
            policy_name=options.policy_name,
            bound=self.bound,
            placement=options.placement,
            forecast=forecast,
            timer=options.timer,
            keep_asked=journal is not None,
            keep_considered=options.keep_considered,
        )

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Walltime, or what stands in for it."""
        if job.walltime is not None:
            return job.walltime
        if self.options.default_walltime == "actual":
            seconds = self.truth.seconds(job, implementation, request)
            return INFINITE if seconds is None else seconds
        return self.options.default_walltime

    def run(self, incidents: list[tuple[Seconds, Event]]) -> Result:
        """Go from event to event until nothing is left to happen."""
        jobs = self.workload.jobs
        engine, progress = self.engine, self.progress
        total, submitted, done = len(jobs), 0, 0
        tell = self.options.progress
        wake_times = engine.wake_times
        next_submit = jobs[0].submit_time if jobs else INFINITE
        while True:
            now = progress.next_end()
            if next_submit < now:
                now = next_submit
            if incidents and incidents[0][0] < now:
                now = incidents[0][0]
            if wake_times and wake_times[0] < now:
                now = wake_times[0]
            if now == INFINITE:
                break
            events: list[Event] = progress.ended(now)
            ended = len(events)
            while next_submit <= now:
                events.append(Submitted(jobs[submitted]))
                submitted += 1
                next_submit = jobs[submitted].submit_time if submitted < total else INFINITE
            while incidents and incidents[0][0] <= now:
                events.extend(self._incident(incidents.pop(0)[1]))
            if wake_times and wake_times[0] <= now:
                events.append(Woken())
                del wake_times[: bisect_right(wake_times, now)]
            if ended and self.observe is not None:
                self._learn(events[:ended], now)
            self._instant(now, events)
            if ended and tell is not None:
                done += ended
                tell(done, total)
        return self._result()

    def _incident(self, event: Event) -> list[Event]:
        """What an incident means to running jobs, whose true end times are then void."""
        running = self.engine.running
        if isinstance(event, Cancelled) and event.job in running:
            self.progress.stop(event.job)
            return [Ended(event.job, State.CANCELLED, None, "cancelled")]
        if isinstance(event, NodeLost):
            lost = [
                placed.job.id
                for placed in running.values()
                if placed.allocation.part_on(event.node) is not None
                or any(donor.donor == event.node for donor in placed.allocation.donors)
            ]
            for job in lost:
                self.progress.stop(job)
            return [*(Ended(job, State.NODE_FAIL, None, "a node was lost") for job in lost), event]
        return [event]

    def _instant(self, now: Seconds, events: list[Event]) -> None:
        engine = self.engine
        if self.plain:
            for decision in engine.handle(now, events):
                if type(decision) is Start:
                    self._begin(decision.job, now)
            return
        gone = [engine.running[e.job] for e in events if isinstance(e, Ended)] if self.rated else []
        if self.planner is not None and any(isinstance(event, Submitted) for event in events):
            engine.handle(now, events, ask=False)
            engine.predictions.refresh()
            planned = Planned(self.planner.plan(engine.view))
            decisions = engine.handle(now, [planned])
            events = [*events, planned]
        else:
            decisions = engine.handle(now, events)
        started: list[Placed] = []
        migrated: list[Placed] = []
        for decision in decisions:
            if isinstance(decision, Start):
                started.append(self._begin(decision.job, now))
            elif isinstance(decision, Migrate):
                migrated.append(engine.running[decision.job])
        if self.rated:
            self.progress.shift(now, started, gone, migrated)
        if self.journal is not None:
            self.journal.batch(now, events, engine, decisions)

    def _begin(self, job_id: JobId, now: Seconds) -> Placed:
        placed = self.engine.running[job_id]
        job = placed.job
        seconds = self.truth.seconds(job, placed.implementation, placed.allocation.request)
        assert seconds is not None, "jobs without a true time were rejected"
        limit = INFINITE
        if self.kills:
            limit = now + (self.default_limit if job.walltime is None else job.walltime)
        self.progress.start(job_id, now, seconds, limit)
        return placed

    def _learn(self, events: Sequence[Event], now: Seconds) -> None:
        assert self.observe is not None
        engine = self.engine
        for event in events:
            if isinstance(event, Ended):
                record = engine.records[event.job]
                assert record.implementation is not None
                assert record.allocation is not None
                device = engine.class_of(record.implementation, record.allocation)
                self.observe.record(
                    run_of(record, device, engine.cluster, end=now, state=event.state, uid="", when=now)
                )

    def _result(self) -> Result:
        engine, options = self.engine, self.options
        records = [engine.records[job.id] for job in sorted(self.workload.jobs, key=_file_order)]
        walltimes = any(job.walltime is None for job in self.workload.jobs)
        return Result(
            policy=options.policy_name or engine.policy_name,
            options=options.policy_options,
            workload=self.workload.name,
            cluster=engine.cluster,
            seed=options.seed,
            knowledge=options.knowledge,
            records=records,
            rejected=self.workload.rejected,
            skipped=self.workload.skipped,
            decision_seconds=engine.decision_seconds,
            plan=engine.view.plan,
            best=best_times(self.workload),
            promises_broken=engine.promises.broken,
            broken_by_overrun=engine.promises.broken_by_overrun,
            overrun=options.overrun,
            default_walltime=options.default_walltime if walltimes else None,
        )


def _file_order(job: Job) -> int:
    return job.index


def best_times(workload: Workload) -> dict[JobId, Seconds]:
    """Each job's least true time over its implementations at the node count that it asked for."""
    best: dict[JobId, Seconds] = {}
    seconds = workload.truth.seconds
    for job in workload.jobs:
        if len(job.choices) == 1:
            only = seconds(job, job.choices[0].implementation, job.choices[0].request)
            if only is not None:
                best[job.id] = only
            continue
        choices = job.asked or job.choices
        known = [t for c in choices if (t := seconds(job, c.implementation, c.request)) is not None]
        if known:
            best[job.id] = min(known)
    return best
