"""The engine in virtual time: one simulation, from event to event."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Sequence
from math import inf
from operator import itemgetter

import numpy as np

from dovetail.driver.driver import Driver, DriverOptions, JournalSink
from dovetail.driver.gpu_hours import GpuHours
from dovetail.driver.orders import Move, Order, Stop
from dovetail.driver.priority import Priorities
from dovetail.engine.state.progress import Progress, UnseenChanges
from dovetail.interfaces import History, LearnsSharing, Policy
from dovetail.model import (
    Ended,
    Event,
    Implementation,
    Job,
    Migrated,
    Placed,
    Request,
    Result,
    Seconds,
    State,
    Submitted,
    Truth,
)
from dovetail.plugins import needs_priorities
from dovetail.runtimes.perfect import PerfectModel
from dovetail.runtimes.sharing import RatedSharing
from dovetail.simulation.ended import EndedColumns, TimesByPlace
from dovetail.simulation.followers import Followers
from dovetail.simulation.operation import Operation
from dovetail.simulation.request import (
    SimulationRequest,
    best_times,
)


def _most_requeues(operation: Operation | None) -> int:
    most = None if operation is None else operation.most_restarts
    return DriverOptions().requeues if most is None else most


class VirtualTime:
    """One run: the clock, the true end times, the driver."""

    def __init__(
        self,
        request: SimulationRequest,
        observe: History | None,
        journal: JournalSink | None,
        follow: Policy | None,
        incidents: list[tuple[Seconds, Event]],
        operation: Operation | None,
    ) -> None:
        self.operation = operation
        self.workload = workload = request.workload
        self.options = options = request.options
        cluster, policy, runtimes = request.cluster, request.policy, request.runtimes
        self.truth: Truth = workload.truth if operation is None else operation.work
        self.progress = Progress(request.rates)
        self.rated = request.rates is not None
        self.incidents = incidents
        self.news = UnseenChanges()
        walltime = options.default_walltime
        self.kills = options.overrun == "kill"
        self.unlimited = inf if isinstance(walltime, str) else walltime
        special = (
            request.rates
            or journal
            or incidents
            or options.validate
            or observe is not None
            or operation is not None
        )
        self.followers = Followers(workload)
        nothing_to_mind = (
            not special
            and not workload.follows
            and isinstance(policy, Policy)
            and (
                workload.table is not None
                or not any(
                    job.depends
                    or job.retries
                    or job.throttles
                    or job.sizing.auto
                    or job.begin is not None
                    or any(choice.request.sharing for choice in job.choices)
                    for job in workload.jobs
                )
            )
        )
        self.foreseen = type(runtimes) is PerfectModel and runtimes.truth is workload.truth
        """What is predicted is true."""
        if operation is not None and self.foreseen:
            runtimes = PerfectModel(self.truth)
        self.columns = EndedColumns.of(workload, cluster, runtimes, options) if nothing_to_mind else None
        if self.columns is not None and workload.table is not None:
            self.truth = TimesByPlace(workload.table)
            runtimes = PerfectModel(self.truth)
        self.driver = Driver(
            cluster,
            policy,
            runtimes,
            bound=self.bound,
            history=observe,
            journal=journal,
            forecast=request.forecast,
            follow=follow,
            rejected=workload.rejected,
            options=DriverOptions(
                overrun=options.overrun,
                default_walltime=None if isinstance(walltime, str) else walltime,
                placement=options.placement,
                seed=options.seed,
                policy_name=options.policy_name,
                policy_options=options.policy_options,
                keep_considered=options.keep_considered,
                timer=options.timer,
                restarts=operation is not None and operation.requeues,
                bounded=operation is not None,
                requeues=_most_requeues(operation),
            ),
        )
        self.driver.direct = nothing_to_mind
        if operation is not None:
            operation.order_in(self.driver, priorities=needs_priorities(policy))
        if observe is None and isinstance(request.rates, LearnsSharing):  # what sharing costs is known, too
            self.driver.engine.predictions.sharing = RatedSharing(request.rates, runtimes)

    def order_by_priority(self, priorities: Priorities) -> None:
        """Jobs come before the policy by rank."""
        self.driver.order_by_priority(priorities, 0.0)
        self.columns = None

    def limit_hours(self, hours: GpuHours) -> None:
        """Users have so many GPU hours."""
        self.driver.limit_hours(hours)
        self.columns = None

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Walltime, or what stands in for it."""
        operation = self.operation
        if job.walltime is not None:
            return job.walltime if operation is None else operation.limit(job, job.walltime)
        if self.options.default_walltime == "actual":
            seconds = self.truth.seconds(job, implementation, request)
            return inf if seconds is None else seconds
        default = self.options.default_walltime
        return default if operation is None else operation.limit(job, default)

    def run(self) -> Result:
        """Go from event to event until nothing is left to happen."""
        jobs, incidents = self._iterate_submissions(), self.incidents
        driver, progress = self.driver, self.progress
        engine = driver.engine
        engine.packs &= self.columns is None
        columns, show = self.columns, self.options.progress
        total, done = len(self.workload.jobs), 0
        wake_times, pending, priorities = engine.wake_times, driver.pending, driver.priorities
        gates, operation = driver.admission.gates, self.operation
        job = next(jobs, None)
        next_submit = inf if job is None else job.submit_time
        followers = self.followers
        now = 0.0
        while True:
            end = now
            # Not while events are pending: these belong to the present instant, and time must not pass them.
            if not pending and (priorities is None or not priorities.due):
                now = end = progress.next_end()
                if next_submit < now:
                    now = next_submit
                if followers.next_time < now:
                    now = followers.next_time
                if incidents and incidents[0][0] < now:
                    now = incidents[0][0]
                if wake_times and wake_times[0] < now:
                    now = wake_times[0]
                # Gates come last in this chain only because they are rare; the least of all counts.
                if gates and gates[0][0] < now:
                    now = gates[0][0]
                if operation is not None and operation.upsets.next_time < now:
                    now = self._next_upset(more=job is not None or followers.next_time < inf)
                if now == inf:
                    break
            # Ends before submissions, as in the engine, so a job that comes as another ends finds its place
            # free.
            ends = progress.ended(now) if end <= now else []
            events: list[Event] = [*ends]
            while next_submit <= now and job is not None:
                events.append(Submitted(job))
                job = next(jobs, None)
                next_submit = inf if job is None else job.submit_time
            if followers.next_time <= now:
                events += map(Submitted, followers.due(now))
            while incidents and incidents[0][0] <= now:
                events.append(incidents.pop(0)[1])
            if operation is not None and operation.upsets.next_time <= now:
                events += operation.due(now, driver, {end.job for end in ends})
            self._process_instant(now, events)
            if operation is not None:
                driver.cancel_stranded()
            if followers:
                followers.ended(driver.ended(), now)
            if ends:
                if columns is not None:
                    self._put_away(columns, ends)
                if show is not None:
                    done += len(ends)
                    show(done, total)
        return self._make_result()

    def _next_upset(self, *, more: bool) -> Seconds:
        """When something happens to nodes next; infinite where no job is left to which it would matter."""
        driver, operation = self.driver, self.operation
        assert operation is not None
        engine = driver.engine
        if driver.busy or more:
            operation.count_vain(busy=True)
        elif engine.queue or engine.device_queues or engine.held:
            operation.count_vain(busy=False, waiting=engine.queue)
        else:
            return inf
        return operation.upsets.next_time

    def _iterate_submissions(self) -> Iterator[Job]:
        """The jobs by submission; those that are columns are made when their time comes, and not kept."""
        table = self.workload.table
        if self.followers:
            return self.followers.iterate_leaders()
        return iter(self.workload.jobs) if table is None or self.columns is None else table.iterate_fleeting()

    def _put_away(self, columns: EndedColumns, ends: Sequence[Ended]) -> None:
        """What has ended leaves the engine."""
        engine = self.driver.engine
        records = engine.records
        for end in ends:
            if columns.take(records[end.job]):
                engine.retire_job(end.job)

    def _process_instant(self, now: Seconds, events: list[Event]) -> None:
        driver = self.driver
        orders = driver.process_instant(now, events)
        for order in orders:
            self._carry_out(order, now)
        # The short way needs none of what follows: no rates, no journal, no checks.
        if driver.direct:
            return
        moves = [order for order in orders if isinstance(order, Move)]
        # Rates change by what the instant did, so this follows the orders.
        if self.rated or moves:
            self._shift_rates(moves, now)
        driver.write_last_instant()
        if self.options.validate:
            driver.engine.validate_books()

    def _carry_out(self, order: Order, now: Seconds) -> None:
        """Do in virtual time what the driver orders."""
        if isinstance(order, Placed):
            self._begin_job(order, now)
        elif isinstance(order, Stop):
            self.progress.stop(order.job)
            running = self.driver.engine.running.get(order.job)
            if running is not None and self.operation is not None and order.state is State.CANCELLED:
                self.operation.stopped(running, order.detail, now)
            # A stop for an earlier attempt comes too late, and must not end the present one.
            if running is not None and running.attempt == order.attempt:
                self.driver.queue_events(Ended(order.job, order.state, None, order.detail))

    def _shift_rates(self, moves: list[Move], now: Seconds) -> None:
        """What started, ended and moved changes the rates; who moves holds its source while it is stalled."""
        changes = self.driver.engine.changes
        stalls = self.progress.shift_rates(now, *self.news.of(changes))
        for move in moves:
            job = move.placed.job.id
            # Sorted in, since incidents are read from the front.
            arrives = now + stalls.get(job, 0.0)
            insort(self.incidents, (arrives, Migrated(job)), key=itemgetter(0))

    def _begin_job(self, placed: Placed, now: Seconds) -> None:
        job = placed.job
        seconds = placed.predicted
        if not self.foreseen:
            seconds = self.truth.seconds(job, placed.implementation, placed.allocation.request)
        assert seconds is not None, "jobs without a true time were rejected"
        limit = self.unlimited if job.walltime is None else job.walltime
        if self.operation is not None:
            limit = self.operation.limit(job, limit)
        self.progress.start(job.id, now, seconds, now + limit if self.kills else inf)

    def _make_result(self) -> Result:
        options, columns = self.options, self.columns
        return self.driver.result(
            self.workload,
            records=None if columns is None else columns.records(self.driver.engine.records),
            knowledge=options.knowledge,
            best=best_times(self.workload),
            default_walltime=options.default_walltime if self._some_without_walltime() else None,
            **({} if self.operation is None else {"operated": self.operation.operated()}),
        )

    def _some_without_walltime(self) -> bool:
        table = self.workload.table
        if table is not None:
            return bool(np.isnan(table.walltime).any())
        return any(job.walltime is None for job in self.workload.jobs)
