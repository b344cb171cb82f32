"""One driver for every world: what a simulation, a live run and a service have in common.

    what happened ──► Driver.process_instant(now) ──► orders: start this, stop that, move, hand over
                          │
                          ├─ admission    who may be seen by the policy (dependencies, holds, throttles)
                          ├─ priority     who goes first, where priorities or fair shares are on
                          ├─ history      records every end before the policy decides again
                          ├─ planner      makes a plan where jobs came in
                          ├─ Engine       checks and applies what the policy decides
                          ├─ ledger       every job and its place on disk, before anything is done
                          └─ journal      what happened, what was predicted, what was decided

The driver knows no clock and does nothing by itself: its callers name the next instant and carry out
its orders, in virtual time (`dovetail.simulation.simulate`) or on real machines
(`dovetail.driver.live`).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from operator import attrgetter
from typing import Literal, Protocol

from dovetail.driver.admission import Admission
from dovetail.driver.companions import CompanyBook
from dovetail.driver.gpu_hours import GpuHours
from dovetail.driver.moments import Deadlines, MeasuredMoments
from dovetail.driver.multifactor import Multifactor
from dovetail.driver.orders import (
    AskStart,
    HandOver,
    Move,
    Order,
    Signal,
    Stop,
    UnrecordedOrders,
    Withdraw,
)
from dovetail.driver.preemption import Preemption
from dovetail.driver.prefill import Prefill
from dovetail.driver.prepare import StrandedJobs
from dovetail.driver.priority import Priorities
from dovetail.driver.reservations import Reservations
from dovetail.driver.runs import RunRecorder
from dovetail.driver.wishes import WISHES, Wish, Wishes, WishEvent, refusal_of, subject_of
from dovetail.engine.capacity.device_sizing import held_of, with_devices_alone
from dovetail.engine.capacity.free import Placement
from dovetail.engine.capacity.sizing import Sizes
from dovetail.engine.state.books import Bound
from dovetail.engine.state.checkpoint import make_checkpoint
from dovetail.engine.state.core import EVENTS, Engine
from dovetail.engine.state.mistakes import blame_policy
from dovetail.engine.state.phases import AT_WORK, Phase
from dovetail.engine.state.progress import Expectations
from dovetail.history.base import MeasuredHistory
from dovetail.interfaces import History, Planner, Policy, RuntimeModel, traits_of
from dovetail.model import (
    Adopted,
    Cancelled,
    Cluster,
    Companions,
    Decision,
    Ended,
    Ending,
    Event,
    Held,
    Inquire,
    Job,
    JobId,
    Lingering,
    Migrate,
    Moved,
    NodeLost,
    Placed,
    Planned,
    Preempt,
    Recipients,
    Record,
    Rejected,
    Released,
    Requeued,
    Reserved,
    Result,
    Seconds,
    Signalled,
    Sized,
    Start,
    Started,
    State,
    Submit,
    Submitted,
    Updated,
    Usage,
    Withdrawn,
    Woken,
    Workload,
)
from dovetail.records import dataclass
from dovetail.runtimes.sharing import SharingModel
from dovetail.spec.values import Overrun

_log = logging.getLogger(__name__)
INFINITE = float("inf")
RETRIED = (State.FAILED, State.NODE_FAIL)
INTERRUPTED = "the run was interrupted"
Turn = Literal["begun", "adopted", "requeued"]
"""Detail of jobs that `Driver.cancel_everything` has cancelled: those that never started can be taken up."""


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """What a run keeps to, in whatever world.

    ``overrun``: jobs that reach their walltime are killed, or run on; ``default_walltime`` is that of jobs
    without one, in seconds. ``enforce``: the driver orders the kill (a simulation's world does it by itself).
    ``hold_moves``: a migrating job holds both places until it has moved. ``requeues`` bounds how often a job
    starts. ``run_uid`` makes the runs of this session unique in the history. With ``survives`` an error of
    ours in the handling of one job ends that job, and is logged; without, it is raised.
    ``restarts``: a job whose node was lost waits again, whatever its retries. ``bounded``: how long a job may
    hold a reserved place is the engine's ``bound``, not its walltime.
    Of the jobs that wait for one which has ended ``most_at_once`` are let go at an instant, the others at the
    next ones (``None``: all at that one).
    """

    overrun: Overrun = "kill"
    default_walltime: Seconds | None = None
    placement: Placement = "pack"
    seed: int | None = None
    policy_name: str = ""
    policy_options: dict[str, object] = field(default_factory=dict)
    enforce: bool = False
    hold_moves: bool = False
    requeues: int = 64
    keep_considered: bool = False
    run_uid: str = ""
    survives: bool = False
    restarts: bool = False
    bounded: bool = False
    most_at_once: int | None = None
    timer: Callable[[], float] | None = None


class Driver:
    """One run of a policy over a cluster.

    `queue_events` gathers what comes in between instants (events of the world, and people's wishes: `submit`,
    `cancel`, `hold`, `release`, `requeue`, `update`); `process_instant` takes it in, runs the policy and
    returns the orders; `write_last_instant` writes the journal, after the orders were given. A `Planner`
    plans whenever jobs have come in, and ``follow`` carries its plan out.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy | Planner,
        runtimes: RuntimeModel,
        *,
        options: DriverOptions,
        bound: Bound,
        history: History | None = None,
        journal: JournalSink | None = None,
        ledger: LedgerSink | None = None,
        forecast: Expectations | None = None,
        follow: Policy | None = None,
        rejected: Iterable[Rejected] = (),
        ended_before: Callable[[JobId], State | None] = lambda job: None,
    ) -> None:
        self.options = options
        self.journal = journal
        self.ledger = ledger
        self.planner: Planner | None = None
        if not isinstance(policy, Policy):
            assert follow is not None, "a planner needs a policy that follows its plan"
            self.planner, policy = policy, follow
        self.engine = Engine(
            cluster,
            policy,
            runtimes,
            policy_name=options.policy_name or type(self.planner or policy).__name__,
            bound=bound,
            placement=options.placement,
            forecast=forecast,
            timer=options.timer,
            keep_questions=journal is not None,
            keep_considered=options.keep_considered,
            hold_moves=options.hold_moves,
        )
        self.epoch: Seconds = 0.0  # wall-clock time of time 0, in seconds
        self.draining = False
        self.pauses = False  # nothing can be started for now, for want of something
        self.admission = Admission(self._final_state, self._has_begun, self._known_job)
        self.priorities: Priorities | None = None
        self.preemption: Preemption | None = None
        self.multifactor: Multifactor | None = None
        self._rejected = {rejection.id for rejection in rejected}
        self._ended_before = ended_before
        self.pending: list[Event] = []  # what the next instant takes in
        self._orders: list[Order] = []
        self._noted: list[tuple[Seconds, Sequence[Event], Sequence[Decision], bool]] = []
        self._runs = None if history is None else RunRecorder(history, options.run_uid)
        known = history if isinstance(history, MeasuredHistory) else None
        self.engine.predictions.sharing = SharingModel(known, runtimes)
        self._shares = traits_of(policy).shares
        self._happening: Sequence[Event] = ()  # at this instant
        self._company: CompanyBook | None = (
            None  # from the first job on that shares devices by what is learned
        )
        self._deadlines = Deadlines(kill=options.overrun == "kill", default=options.default_walltime)
        # A job without any limit is one whose length is not known, also where walltimes end nothing.
        limits = Deadlines(kill=True, default=options.default_walltime)
        self.reservations = Reservations(self.engine, self.engine.limit if options.bounded else limits.limit)
        self._withheld = UnrecordedOrders()
        self.sizes = Sizes(history)
        self._stopping: set[JobId] = set()
        self._to_requeue: set[JobId] = set()
        self._unwanted: set[JobId] = set()  # cancelled while they run: they are not to run again
        self._wishes = Wishes()
        self._plans = False  # jobs have come in that the planner has not seen
        self._failed: list[Ended] = []  # jobs that ended at this instant by an error of ours
        self._adopting: set[JobId] = set()  # come in at the next instant, and run already
        self._carried: list[Order] = []  # stops that no executor has carried out yet
        if options.survives:
            self.engine.unforeseen = self._end_failed_event
        self._later: deque[Iterator[Event]] = deque()  # what ends bring beyond what one instant takes
        self._room = 0  # how much more this one does
        self._ended: dict[JobId, Record] = {}
        self.turns: list[tuple[Turn, JobId]] | None = None
        """Jobs that have begun, were adopted or went back to the queue; ``None``: these are not kept."""
        self._reasons: dict[JobId, str] = {}  # why jobs were stopped that had not begun, for all we knew
        self._moments = MeasuredMoments(self.engine)
        self._stranded = StrandedJobs(self.engine)
        self.prefill: Prefill | None = None
        self.yields = False  # others wait for places here: none is given away before it is free
        self.direct = False
        """Whether events go to the engine as they come: no job waits for another or is tried again, no person
        intervenes, nothing is kept on record. Wake-ups go the long way.
        """
        self._rotates = False  # a new journal is to begin as soon as no place has been given away

    def order_by_priority(self, priorities: Priorities, now: Seconds) -> None:
        """From now on jobs come before the policy by rank. Call it before any job waits."""
        self.priorities = priorities
        self.direct = False
        for placed in self.engine.running.values():
            priorities.started(placed, self.engine.cluster, now)

    def limit_hours(self, hours: GpuHours) -> None:
        """From now on users have so many GPU hours. Call it before any job comes in."""
        self.admission.hours = hours
        self.direct = False
        hours.length_of = self.reservations.length_of

    def look_ahead(self) -> None:
        """From now on places are given away a moment early: the executor starts jobs after others.

        A plan names followers itself, and a forecast goes by who holds what: with these it is not done.
        """
        if self.planner is None and self.engine.forecast is None:
            self.prefill = Prefill(self.engine)

    def after(self, job: JobId) -> Sequence[JobId]:
        """Jobs that have to end before this one begins, which has been started."""
        return () if self.prefill is None else self.prefill.after(job)

    # ------------------------------------------------------------- what comes in

    def queue_events(self, *events: Event) -> None:
        """Keep events for the next instant."""
        self.pending.extend(events)

    def submit(self, job: Job, *, held: str = "", attempts: int = 0, failures: int = 0) -> Wish:
        """A job comes in (held back by its user, if ``held``; started ``attempts`` times before)."""
        return self._add_wish(Submitted(job, held, attempts, failures))

    def adopt_job(self, job: Job, adopted: Adopted, *, failures: int = 0) -> None:
        """A job comes in that runs already: its place counts as used, its deadline holds."""
        self._adopting.add(job.id)
        self.pending += [Submitted(job, "", adopted.attempt - 1, failures), adopted]

    def cancel(self, job: JobId, detail: str = "") -> Wish:
        """Cancel a waiting job, stop a running one."""
        return self._add_wish(Cancelled(job, detail))

    def hold(self, job: JobId) -> Wish:
        """Keep a waiting job back until it is released."""
        return self._add_wish(Held(job))

    def release(self, job: JobId) -> Wish:
        """Let a held job go."""
        return self._add_wish(Released(job))

    def requeue(self, job: JobId) -> Wish:
        """Another attempt: of an ended job now, of a running one after it has been stopped."""
        return self._add_wish(Requeued(job))

    def update(self, job: JobId, into: Job, fields: Sequence[str]) -> Wish:
        """Change these fields of a waiting job to what ``into`` has; of a running one only the walltime."""
        return self._add_wish(Updated(job, into, tuple(fields)))

    def move_job(self, job: JobId, after: JobId | None, turn: float) -> Wish:
        """Give a waiting job the place after another one that waits, or the first."""
        return self._add_wish(Moved(job, after, turn))

    def signal(self, job: JobId, number: int, to: Recipients = "all") -> Wish:
        """Send a running job a signal; it goes on. Refused where the executor cannot (`LiveRun`)."""
        return self._add_wish(Signalled(job, number, to))

    def _add_wish(self, event: WishEvent | Submitted) -> Wish:
        self.pending.append(event)
        return self._wishes.add(event)

    def pending_wish(self, job: JobId) -> Literal["cancel", "requeue"] | None:
        """What a person wants of a job that runs, and has not had yet."""
        if job in self._to_requeue:
            return "requeue"
        return "cancel" if job in self._unwanted else None

    def carry_over(self, orders: Iterable[Order]) -> None:
        """Stops of an instant whose orders no executor carries out: the next one gives them again."""
        self._carried += [order for order in orders if isinstance(order, Stop)]

    def cancel_everything(self, *, running: bool = True) -> None:
        """Cancel what waits and (``running``) stop what runs; jobs that come in later are not touched."""
        engine = self.engine
        waiting = [*engine.held, *(job.id for job in engine.queue)]
        waiting += [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
        own = [placed.job.id for placed in engine.at_work if not placed.job.foreign] if running else []
        for job in (*waiting, *engine.handed_over, *own):
            self.cancel(job, INTERRUPTED)

    def cancel_stranded(self) -> None:
        """Cancel what waits for nodes that are gone for good. O(1) while none is."""
        # What waits for other jobs comes first: else their ends would cancel it as lost.
        for job, why in self._stranded.find_stranded().items():
            self.cancel(job, why)

    @property
    def idle(self) -> bool:
        """Whether nothing has come in for the next instant, and nothing is left of the last."""
        if self.pending or self._carried or self._later:
            return False
        return self.priorities is None or not self.priorities.due

    @property
    def has_more(self) -> bool:
        """Whether what has ended brings more than the last instant took in (`DriverOptions.most_at_once`)."""
        return bool(self._later)

    @property
    def busy(self) -> bool:
        """Whether anything of ours runs, here or elsewhere."""
        engine = self.engine
        return bool(engine.handed_over) or any(not p.job.foreign for p in engine.at_work)

    @property
    def has_waiting_jobs(self) -> bool:
        """Whether anything waits for what may still come: in the queue, in a FIFO, or held back.

        Jobs that cannot end before the cluster does, and those that wait for them, wait for another one.
        """
        engine = self.engine
        return bool(engine.queue or engine.device_queues or (engine.held and not self.left_over))

    @property
    def left_over(self) -> Sequence[JobId]:
        """Waiting jobs that cannot end before the cluster does."""
        engine = self.engine
        return [job for job in engine.horizon.narrowed if job in engine.held]

    @property
    def is_blocked(self) -> bool:
        """Whether what was decided cannot be kept on record, so that nothing starts until it can."""
        return self.ledger is not None and self.ledger.is_blocked

    @property
    def count_withheld_orders(self) -> int:
        """How many orders wait until they are on record."""
        return len(self._withheld.orders)

    def next_time(self) -> Seconds:
        """When something is due that no event announces: a wake-up, a deadline; or infinite."""
        wakes = self.engine.wake_times
        following = INFINITE if self.prefill is None else self.prefill.next_time()
        return min(
            wakes[0] if wakes else INFINITE,
            self._withheld.retry,
            self._deadlines.next_time(),
            self.admission.next_time(),
            following,
        )

    # --------------------------------------------------------------- one instant

    def process_instant(self, now: Seconds, events: Sequence[Event] = ()) -> Sequence[Order]:
        """Take in what has happened up to now, call the policy, and return what is to be done.

        The orders have taken effect in the engine. Call `write_last_instant` when they were given.
        """
        # The short way of a plain simulation: none of the books below is in use, and an instant costs
        # microseconds.
        if self.direct and not self.pending:
            wakes = self.engine.wake_times
            if not (wakes and wakes[0] <= now):
                self.engine.handle_events(now, events)
                return self.engine.changes.started
        happened = [*self.pending, *events]
        happened += self.reservations.over(now, happened)
        self.pending.clear()
        # A service limits how many jobs one instant takes in, so that a large array does not stop it for
        # seconds.
        self._room = self.options.most_at_once or 0
        self._orders, self._carried = self._carried, []
        if self._withheld.retry <= now:
            self._try_again(now)
        # Before anything else: an end is only an end of a job that the engine has seen begin.
        self._start_ended_unseen(happened, now)
        batch = self._one_after_the_other(happened, now)
        if self.preemption is not None and (self.preemption.suspending or self.preemption.lost) and batch:
            batch = self._resume_suspended(self.preemption, batch, now)
        # A job whose place was given away may go on after all: until that is settled, no job gets a place.
        decides = (
            not self.draining
            and not self.is_blocked
            and not self.pauses
            and not (self.prefill is not None and self.prefill.recalled)
        )
        if batch:
            decisions = self._handle(now, batch, decides)
            self._order_all(decisions, now)
            self._settle_failed(batch, now)
            # Noted, not written: the journal is written after the orders were given, so jobs do not wait for
            # a disk.
            self._noted.append((now, batch, decisions, decides))
            if decides and self.prefill is not None and not self.yields:
                self._give_places_away(self.prefill, now)
            if decides and self.preemption is not None:
                self._preempt_jobs(self.preemption, now)
        self._enforce_deadlines(now)
        # On record before it is done: after a crash a successor must know of every job that may run.
        if self.ledger is not None and batch:
            self.ledger.keep(now, batch, self._orders, self.engine)
            if self.ledger.is_blocked:
                # The disk is full or gone: stops may still go, but nothing starts that no record would show.
                self._orders = self._withheld.keep_back(self._orders, now)
        return self._orders

    def _one_after_the_other(self, happened: list[Event], now: Seconds) -> list[Event]:
        """The events after which the policy is to decide.

        What is wanted of a job to which something else happens at this instant is looked at once that has
        been applied: so each wish meets its job as it stands.
        """
        batch, left = self._make_batch(happened, now)
        applied = plans = False
        # Each round applies what the wishes of the next one are checked against.
        while left:
            if batch:
                applied = True
                plans = plans or any(isinstance(event, Submitted | Released) for event in batch)
                self._handle(now, batch, False)
                self._settle_failed(batch, now)
                self._noted.append((now, batch, (), False))
                if self.ledger is not None:
                    self.ledger.keep(now, batch, (), self.engine)
            batch, left = self._make_batch(left, now)
        self._plans = self._plans or plans
        if applied and not any(isinstance(event, Woken) for event in batch):
            batch.append(Woken())  # the policy has seen none of it yet
        return batch

    def _preempt_jobs(self, preemption: Preemption, now: Seconds) -> None:
        """Stop jobs whose places others take; they wait again, or stand still."""
        victims = preemption.choose(now)
        for victim in victims:
            job = victim.placed.job.id
            if preemption.suspends:
                preemption.suspending[job] = victim.placed
            else:
                self._to_requeue.add(job)
            self._order_stop(job, State.CANCELLED, victim.why)
        if victims:
            self._plan_anew()

    def _resume_suspended(self, preemption: Preemption, batch: list[Event], now: Seconds) -> list[Event]:
        """Take the batch in, and have suspended jobs go on whose places are free; what is left to decide."""
        self._handle(now, batch, False)
        self._settle_failed(batch, now)
        self._noted.append((now, batch, (), False))
        for job in preemption.lost:
            record = self.engine.records[job]
            *before, last = record.earlier
            last = replace(last, state=State.NODE_FAIL, detail=f"lost its node while {last.detail}")
            record.earlier = (*before, last)
            self.engine.handle_events(now, [Released(job)], ask=False)
        preemption.lost.clear()
        for job, start in list(preemption.resumable()):
            # Those before it may have taken what it needs.
            if (job, start) not in preemption.resumable():
                continue
            del preemption.suspending[job]
            self._plan_anew()
            self.engine.handle_events(now, [Released(job)], ask=False)
            self.impose_decisions(now, [start])
            self._order_all([start], now)
        return [Woken()]

    def _plan_anew(self) -> None:
        """What was promised goes by places that others take: it holds no more."""
        self.engine.profiles.let_go()
        self.engine.promises.drop_all()

    def _give_places_away(self, prefill: Prefill, now: Seconds) -> None:
        """Have the policy choose followers of jobs that end in a moment, and followers of those."""
        engine = self.engine
        prefill.update_expected_ends(now)
        # Not with promises: an early place would have to be held against them. Not before a new journal
        # either, since a checkpoint cannot hold jobs that have given their places away.
        while (engine.queue or engine.device_queues) and not (engine.promises.held or self._rotates):
            ending: list[Event] = [Ending(job) for job in prefill.jobs_near_end(now)]
            if not ending:
                return
            decisions = engine.handle_events(now, ending)
            self._order_all(decisions, now)
            self._settle_failed(ending, now)
            self._noted.append((now, ending, decisions, True))
            if not decisions:
                return

    def _start_ended_unseen(self, happened: list[Event], now: Seconds) -> None:
        """Jobs that an outside scheduler has started and that have ended since have run: start them first."""
        handed_over = self.engine.handed_over
        if not handed_over:
            return
        over = {event.job for event in happened if isinstance(event, Ended)}
        begun: list[Event] = [
            self._moments.started(event, now, self.epoch)
            for event in happened
            if isinstance(event, Started) and event.job in over and event.job in handed_over
        ]
        if begun:
            self.engine.handle_events(now, begun, ask=False)
            if self.turns is not None:
                self.turns += [("begun", event.job) for event in begun if isinstance(event, Started)]
            if self.ledger is not None:
                self.ledger.keep(now, begun, (), self.engine)
            if self.journal is not None:
                self.journal.write_batch(now, begun, self.engine, (), ask=False)

    def _try_again(self, now: Seconds) -> None:
        """What was withheld may go as soon as it is on record; then the policy decides again."""
        assert self.ledger is not None
        if not self.ledger.settle():
            self._withheld.postpone_retry(now)
            return
        self._orders += self._withheld.let_go()
        # A wake-up that is due now makes this very instant call the policy, which has seen none of these
        # jobs.
        self.engine.wake_times.insert(0, now)

    def write_last_instant(self) -> None:
        """Write the last instant into the journal."""
        noted, self._noted = self._noted, []
        if self.journal is not None:
            for now, events, decisions, decides in noted:
                self.journal.write_batch(now, events, self.engine, decisions, ask=decides)

    def impose_decisions(self, now: Seconds, decisions: Sequence[Decision]) -> None:
        """Decisions that an earlier driver has made, and given the orders for: they stand."""
        engine = self.engine
        engine.impose_decisions(now, decisions, engine.last_enqueued)
        if self.journal is not None and decisions:
            self.journal.write_batch(now, [], engine, decisions, ask=False, imposed=True)

    def begin_journal(self, now: Seconds, make: Callable[[], JournalSink]) -> JournalSink | None:
        """Go on in a new journal, which begins with how things stand; returns the old one.

        ``None``, and nothing changed, at a moment at which that cannot be done. Call it between instants.
        Jobs that have ended are forgotten, as by `retire_job`: the new journal knows nothing of them.
        """
        engine, before = self.engine, self.journal
        found = None if self.pending or self._noted else make_checkpoint(engine, now)
        # Remembered only if places given away are the reason: they come back by themselves within seconds.
        self._rotates = found is None and bool(engine.ending)
        if found is None:
            return None
        # In this order: the checkpoint holds no ended jobs, so the new journal must not mention them.
        for job in [job for job, record in engine.records.items() if record.end is not None]:
            engine.retire_job(job)
        self.journal = journal = make()
        journal.write_batch(now, found.jobs, engine, (), ask=False)
        journal.write_batch(now, found.nodes, engine, found.decisions, ask=False, imposed=True)
        return before

    def _handle(self, now: Seconds, batch: list[Event], decides: bool) -> Sequence[Decision]:
        engine = self.engine
        if (
            self.planner is not None
            and decides
            and (self._plans or any(isinstance(event, Submitted | Released) for event in batch))
        ):
            # The planner sees the batch applied, and the policy then its plan: one call of each.
            self._plans = False
            engine.handle_events(now, batch, ask=False)
            engine.predictions.refresh_cache()
            with blame_policy(self.planner, engine.policy_name, "plan"):
                planned = Planned(self.planner.plan(engine.view))
            batch.append(planned)
            decisions = engine.handle_events(now, [planned])
        else:
            decisions = engine.handle_events(now, batch, ask=decides)
        self._moments.ended(batch, now, self.epoch)
        for event in batch:
            if isinstance(event, Adopted):
                placed = engine.running.get(event.job)
                if placed is None:  # it could not be, and has ended
                    continue
                if self.turns is not None:
                    self.turns.append(("adopted", event.job))
                self.admission.count_adopted_job(placed.job)
                self.admission.run_started(placed, now, placed.start_time)
                # The orders of this instant are not carried out: what is due already is due in the next.
                self._watch_deadline(placed, placed.start_time, now)
            elif isinstance(event, Updated):
                placed = engine.running.get(event.job)
                # A changed walltime moves the deadline; one that waits behind others gets it when it begins.
                if placed is not None:
                    self.admission.run_updated(placed.job)
                if placed is not None and not self.after(event.job):
                    self._deadlines.forget_job(event.job)
                    self._watch_deadline(placed, placed.start_time, now)
            elif isinstance(event, Cancelled):  # one that waited: what runs is stopped, and ends later
                record = engine.records.get(event.job)
                if record is not None and record.end is not None:
                    self._ended[event.job] = record
            elif self.turns is not None and isinstance(event, Started | Requeued):
                self.turns.append(("requeued" if isinstance(event, Requeued) else "begun", event.job))
        return decisions

    def _make_batch(self, happened: Sequence[Event], now: Seconds) -> tuple[list[Event], list[Event]]:
        """What the engine is to take in: late news left out, consequences added; and wishes for later."""
        engine = self.engine
        self._happening = happened
        # Wishes are collected first and applied last: whatever happened by itself wins over what is wanted.
        self.admission.begin_instant(now)
        batch: list[Event] = []
        submitted: dict[JobId, Job] = {}
        ends: list[Ended] = []
        wishes: list[WishEvent] = []
        # Ends come first: a job that ended with its node has ended.
        for event in sorted(happened, key=_not_an_end) if len(happened) > 1 else happened:
            if isinstance(event, WISHES):
                wishes.append(event)
                continue
            try:
                self._take_in(event, now, batch, submitted, ends)
            except Exception as error:  # noqa: BLE001 - whatever it is ends this job only
                self._end_failed_event(event, error, now)
        if ends:
            # Of several ends of one job the first counts: a lost node and the job's own end may both be
            # reported.
            ends = list({event.job: event for event in reversed(ends)}.values())[::-1]
            ends = [self._with_device_memory(end) if end.on_device else end for end in ends]
            for end in ends:  # at its own moment: it may have ended while no service ran
                at = now if end.ended_at is None else min(now, end.ended_at - self.epoch)
                self.admission.run_stopped(end.job, at)
            if self._runs is not None:  # before the policy decides again
                if self._company is not None:
                    self._runs.company = {end.job: self._left_alone(end.job, now) for end in ends}.get
                self._runs.record([(engine.records[end.job], end) for end in ends], now, self.epoch)
            for event in ends:
                try:
                    batch.extend(self._at_the_end(event, now))
                except Exception as error:  # noqa: BLE001 - whatever it is ends this job only
                    self._end_failed_event(event, error, now)
        if self._later and self._room:
            batch.extend(self._limit_follow_ups(self._later.popleft()))
        left = self._apply_wishes(wishes, submitted, batch, now) if wishes else []
        # After the ends: a dependency that comes true at this instant may let a job through a gate at once.
        # Ranks come last, since they hold back what all the others have let through.
        if self.admission.gates:
            batch.extend(self.admission.due(now))
        if self.priorities is not None:
            for event in ends:
                self.priorities.ended(event.job, now)
            batch = self.priorities.in_turn(batch, now, engine.records)
        if self.multifactor is not None:
            for event in ends:
                self.multifactor.shares.ended(event.job, now)
            batch = self.multifactor.ranked(batch, engine, now)
        # Only now, when all ends of this instant are in the history that sizes are learned from.
        if batch and self.sizes.waiting:
            batch.extend(self.sizes.due(engine.records, self._is_waiting, self._is_bound, engine.cluster))
        if batch and self.reservations.used:
            batch.extend(self.reservations.due(batch, submitted, now))
        wakes = engine.wake_times
        if wakes and wakes[0] <= now:
            # One wake-up stands for all that are due: the policy sees the moment, not their number.
            del wakes[: bisect_right(wakes, now)]
            batch.append(Woken())
        self._stranded.take_in_events(batch)
        return batch, left

    def _take_in(
        self,
        event: Event,
        now: Seconds,
        batch: list[Event],
        submitted: dict[JobId, Job],
        ends: list[Ended],
    ) -> None:
        """One event of the world, into the ends or into the batch."""
        engine = self.engine
        if isinstance(event, Ended):
            if self._is_current_end(event):
                ends.append(self._explain_unstarted_end(event))
        elif isinstance(event, NodeLost):
            # Its jobs end here rather than by their executor's word: a node that is gone may never send any.
            ends.extend(self._lost_with(event.node))
            batch.append(event)
        elif isinstance(event, Started):
            batch.append(self._moments.started(event, now, self.epoch))
        elif isinstance(event, Submitted):
            if event.job.id in engine.records or event.job.id in submitted:
                self._refuse_wish(event, event.job.id, "it is known already")
                return
            self._wishes.answer_wish(event)
            # The job is resized before it comes in, so that no policy ever sees a request without a size.
            job = self.sizes.of_new(self._apply_sharing(event.job, now), engine.cluster)
            submitted[job.id] = job
            event = event if job is event.job else replace(event, job=job)
            if job.id in self._adopting:  # nothing that it once waited for holds it back
                self._adopting.discard(job.id)
                batch.append(event)
            else:
                batch.extend(self.admission.submitted(event, now, self.epoch))
        elif isinstance(event, Lingering):
            if self.prefill is not None:
                self.prefill.goes_on(event.job)
            batch.append(event)
        elif isinstance(event, Reserved):
            self.reservations.renew(event)
            batch.append(event)
        elif isinstance(event, Withdrawn):
            batch.extend(self._not_begun(event, now))
        elif type(event) in EVENTS:
            batch.append(event)
        else:
            raise TypeError(f"an executor reported {type(event).__name__}, which is no event")

    def _apply_sharing(self, job: Job, now: Seconds) -> Job:
        """A job with ``gpus = "auto"``, as this policy takes it; from the first one on company is kept."""
        # Company costs a look at every start and end: it is kept from the first job that may share a device.
        if not any(choice.request.sharing for choice in job.choices):
            return job
        runs = any(isinstance(event, Adopted) and event.job == job.id for event in self._happening)
        if not self._shares and not runs:
            return with_devices_alone(job)
        if self._company is None:
            self._company = CompanyBook()
            for placed in self.engine.running.values():
                self._company.started(placed, now)
        return job

    def _note_companions(self, placed: Placed, now: Seconds) -> None:
        """A job begins: note who is beside it, and what that was expected to cost."""
        assert self._company is not None
        job, device, slowdown = placed.job, self.engine.records[placed.job.id].device_class, None
        others = self._company.apps_beside(placed)
        if placed.predicted and device is not None and others:
            known = self.engine.predictions.known_of(job.id)
            nodes = placed.allocation.request.nodes
            found = known.get((placed.implementation.name, nodes, device.beside(others[0])))
            slowdown = None if found is None else found.expected / placed.predicted
        self._company.started(placed, now, slowdown)

    def _left_alone(self, job: JobId, now: Seconds) -> Companions | None:
        assert self._company is not None
        placed = self._placed_job(job)
        found = self._company.ended(job, now, None if placed is None else placed.predicted)
        self.engine.records[job].beside = found
        return found

    def _apply_wishes(
        self, wishes: Sequence[WishEvent], new: Mapping[JobId, Job], batch: list[Event], now: Seconds
    ) -> list[Event]:
        """Apply wishes, or refuse them; returns those of whose jobs the batch decides something already."""
        # A wish for a job that something else happened to is looked at in the next round, against its new
        # state.
        touched = {subject_of(event) for event in batch if not isinstance(event, Submitted)}
        left: list[Event] = []
        for wish in wishes:
            # So does one that puts a job behind another that comes in now: its place is known after this
            # batch.
            if wish.job in touched or (
                isinstance(wish, Moved) and {wish.job, wish.after} & (new.keys() | touched)
            ):
                left.append(wish)
                continue
            if isinstance(wish, Updated) and (
                wish.job in new or any(one.job in touched for one in wish.into.depends)
            ):
                left.append(wish)
                continue
            refused = refusal_of(wish, self.engine.phase_of(wish.job), new=wish.job in new)
            if not refused and isinstance(wish, Moved) and wish.after is not None:
                refused = "" if self._is_waiting(wish.after) else f"job {wish.after} does not wait"
            if not refused and isinstance(wish, Updated):
                refused = self._refusal_of_update(wish, now)
            if refused:
                self._refuse_wish(wish, wish.job, refused)
                continue
            # Before the wish is applied: an error in the middle must not let a second wish near the same job.
            touched.add(wish.job)
            try:
                for event in self._expand_wish(wish, new, now):
                    batch.append(event)
                    touched.add(subject_of(event))
            except Exception as error:  # noqa: BLE001 - whatever it is ends this job only
                self._end_failed_event(wish, error, now)
            else:
                self._wishes.answer_wish(wish)
        return left

    def _refusal_of_update(self, wish: Updated, now: Seconds) -> str:
        """Why a job cannot become what the update wants; empty where it can."""
        placed, into = self.engine.running.get(wish.job), wish.into
        if placed is not None and into.walltime is not None and into.walltime <= now - placed.start_time:
            return f"it has run for {now - placed.start_time:.3g} s already: cancel it"
        if "depends" in wish.fields:
            return self.admission.why_never(into, now)
        return ""

    def _refuse_wish(self, event: WishEvent | Submitted, job: JobId, why: str) -> None:
        """A wish cannot be fulfilled: note it, and answer its sender."""
        _log.info("job %s is not %s: %s", job, _PAST[type(event)], why, extra={"job": job})
        self._wishes.answer_wish(event, why)

    # ------------------------------------------------------------- errors of ours

    def _end_failed_event(self, event: Event | Decision, error: Exception, now: Seconds) -> None:
        """An error of ours at an event: its job ends by it, whatever it did; the run goes on."""
        # In a simulation and in tests an error of ours must be seen; a service must survive it.
        if not self.options.survives:
            raise error
        job = subject_of(event)
        about = (type(event).__name__, "" if job is None else f" of job {job}")
        more = None if job is None else {"job": job}
        _log.error("an error in Dovetail at %s%s", *about, exc_info=error, extra=more)
        why = f"an error in Dovetail ended it: {type(error).__name__}: {error}"
        self._wishes.answer_wish(event, why)
        if job is None:
            return
        placed, outside = self._placed_job(job), job in self.engine.handed_over
        # The engine's books may be half-changed by the error: the job is taken out of each of them.
        ended = self.engine.expel_job(job, now, why)
        if placed is not None or outside or isinstance(event, Adopted):
            attempt = 1 if placed is None else placed.attempt
            # What runs of it must be stopped, since no book holds its place any more.
            self._orders.append(Stop(job, attempt, State.NODE_FAIL, why))
        if ended:
            self._failed.append(Ended(job, State.NODE_FAIL, None, why))

    def _settle_failed(self, batch: list[Event], now: Seconds) -> None:
        """Put the ends of jobs that were lost to an error of ours on record; who waits for them may go."""
        while self._failed:
            failed, self._failed = self._failed, []
            for end in failed:
                record = self.engine.records[end.job]
                # No book of the driver may keep the job: a later job could be refused because of it.
                for book in (self._stopping, self._to_requeue, self._unwanted):
                    book.discard(end.job)
                self._reasons.pop(end.job, None)
                self._ended[end.job] = record
                batch[:] = [event for event in batch if subject_of(event) != end.job]
                if self.ledger is not None:
                    known = [] if record.attempts else [Submitted(record.job)]
                    self.ledger.keep(now, [*known, end], (), self.engine)
                # Orders for the job die with it, but a stop still goes: something of it may run.
                self._orders = [
                    order for order in self._orders if isinstance(order, Stop) or _job_of(order) != end.job
                ]
                try:
                    self._after_failure(record, now)
                except Exception:  # noqa: BLE001 - what it is stands in the log, and ends nothing else
                    _log.exception("an error in Dovetail after the end of job %s", end.job)

    def _after_failure(self, record: Record, now: Seconds) -> None:
        """Who waits for a job that was lost to an error of ours may go, or never will."""
        job = record.job.id
        self._note_gone_job(job, now)
        if self.priorities is not None:
            self.priorities.left(job)
            self.priorities.ended(job, now)
        brings: list[Event] = self._limit_follow_ups(self.admission.ended(record.job, State.NODE_FAIL, now))
        if self.priorities is not None:
            brings = self.priorities.in_turn(brings, now, self.engine.records)
        if brings:
            # Without the policy: this runs in the middle of an instant, and it is woken for the next one.
            self._handle(now, brings, False)
            self._noted.append((now, brings, (), False))
            if self.ledger is not None:
                self.ledger.keep(now, brings, (), self.engine)
        self.engine.wake_times.insert(0, now)  # the policy has seen none of it

    def _explain_unstarted_end(self, event: Ended) -> Ended:
        """The end of a job that never began under an outside scheduler, because we had it stopped: why."""
        why = self._reasons.pop(event.job, "") if self._reasons else ""
        if why and event.state is State.CANCELLED and event.job in self.engine.handed_over:
            return replace(event, detail=why)
        return event

    def _not_begun(self, event: Withdrawn, now: Seconds) -> list[Event]:
        """A job that was started behind others waits again; it may have been cancelled meanwhile."""
        job = event.job
        if job in self.engine.handed_over:
            return [event]
        # The executor's answer crossed with the job's end: there is nothing to put back.
        if job not in self.engine.records or self._placed_job(job) is None:
            return []
        # In this order: those behind it take its place in line before it waits again itself.
        self._note_gone_job(job, now)
        if self.priorities is not None:
            self.priorities.ended(job, now)
        stopped, again, unwanted = job in self._stopping, job in self._to_requeue, job in self._unwanted
        for book in (self._stopping, self._to_requeue, self._unwanted):
            book.discard(job)
        why = self._reasons.pop(job, "")
        # A stop that came before it began decides: cancelled for good, unless it was to run again anyway.
        if not stopped or again or (job in self.engine.preempted and not unwanted):
            _log.info("job %s waits again: its start is taken back", job, extra={"job": job})
            return [event]
        ended = self._limit_follow_ups(
            self.admission.ended(self.engine.records[job].job, State.CANCELLED, now)
        )
        return [event, Cancelled(job, why), *ended]

    def _note_gone_job(self, job: JobId, now: Seconds) -> None:
        """A job has ended, or will not begin: for those that waited for it alone, time runs from now."""
        self.admission.run_stopped(job, now)
        if self._company is not None:
            self._company.ended(job, now, None)
        for other in self.prefill.remove_job(job, now) if self.prefill is not None else ():
            placed = self._placed_job(other)
            if placed is not None:
                self._watch_deadline(placed, now)

    def _placed_job(self, job: JobId) -> Placed | None:
        """A job that runs, also if its place has been given away."""
        return self.engine.running.get(job) or self.engine.ending.get(job)

    def _is_current_end(self, event: Ended) -> bool:
        """Whether an end is news: of a job that runs, and of its present attempt."""
        placed = self._placed_job(event.job)
        if placed is None:
            return event.job in self.engine.handed_over
        # The attempt's number shows whether the news is of an earlier attempt.
        return event.attempt in (None, placed.attempt)

    def _lost_with(self, node: int) -> list[Ended]:
        """Ends of the jobs that a lost node takes along; their executor stops what is left of them."""
        ends: list[Ended] = []
        for placed in self.engine.occupancy.held_on(node):
            name = self.engine.cluster.nodes[node].name
            ends.append(Ended(placed.job.id, State.NODE_FAIL, None, f"node {name} was lost"))
            self._orders.append(Stop(placed.job.id, placed.attempt, State.NODE_FAIL, f"node {name} was lost"))
        return ends

    def _expand_wish(self, event: WishEvent, new: Mapping[JobId, Job], now: Seconds) -> Iterable[Event]:
        """What a wish that can be fulfilled brings (``new``: jobs that come in at this instant)."""
        phase, admission = self.engine.phase_of(event.job), self.admission
        runs = phase in AT_WORK
        job = new[event.job] if event.job in new else self.engine.records[event.job].job
        if isinstance(event, Cancelled):
            if not runs:
                return [event, *self._limit_follow_ups(admission.ended(job, State.CANCELLED, now))]
            # A cancel after a requeue wins, and a requeue after a cancel: each takes back the other.
            self._to_requeue.discard(event.job)  # what is wanted last counts
            self._unwanted.add(event.job)
            self._order_stop(event.job, State.CANCELLED, event.detail)
            return []
        if isinstance(event, Requeued):
            if not runs:
                return [event, *admission.readmit_job(job)]
            self._unwanted.discard(event.job)
            self._to_requeue.add(event.job)
            self._order_stop(event.job, State.CANCELLED, "requeued")
            return []
        if isinstance(event, Held):
            return admission.hold(job)
        if isinstance(event, Updated):
            return self._expand_update(event, job, now, runs=runs)
        if isinstance(event, Signalled):
            self._orders.append(Signal(event.job, event.number, event.to))
        if isinstance(event, Moved | Signalled):
            return [event]
        return admission.release(event.job)

    def _expand_update(self, event: Updated, before: Job, now: Seconds, *, runs: bool) -> Iterable[Event]:
        """The fields that the update changes, in the job as it is now, and what that brings."""
        whole = self.engine.choices.whole(event.job)
        into = replace(whole, **{name: getattr(event.into, name) for name in event.fields})
        if "sizing" in event.fields:
            self.sizes.begun(event.job)
            into = self.sizes.of_new(into, self.engine.cluster)
        brought = [] if runs else list(self.admission.changed(before, into, now, self.epoch))
        return [replace(event, into=into), *brought]

    def _follow_up_end(self, event: Ended, now: Seconds) -> list[Event]:
        """What an end brings with it: another attempt, or news for those who wait for it."""
        self._stopping.discard(event.job)
        self._note_gone_job(event.job, now)
        engine = self.engine
        record = engine.records[event.job]
        requested = event.job in engine.preempted or event.job in self._to_requeue
        unwanted = event.job in self._unwanted
        self._to_requeue.discard(event.job)
        self._unwanted.discard(event.job)
        # Failures under an outside scheduler count too, as earlier spans do that failed here.
        before = record.failures + sum(span.state in RETRIED for span in record.earlier)
        # One that was refused before it ran would be refused again.
        refused = event.state is State.FAILED and record.start is None
        failed = event.state in RETRIED and before < record.job.retries and not refused
        suspends = self.preemption is not None and event.job in self.preemption.suspending
        if suspends and event.state is State.CANCELLED and not unwanted:
            return [Requeued(event.job), Held(event.job, event.detail)]
        # Cut at the end of a borrowed allocation, not by its own walltime: it is no fault of the job.
        cut = event.state is State.TIMEOUT and event.job in engine.outside.cut
        lost = self.options.restarts and event.state is State.NODE_FAIL
        if (requested or failed or cut or lost) and not unwanted and record.attempts <= self.options.requeues:
            # Sized again before it waits, so that the next attempt goes by what this one has shown.
            self.sizes.waits(record.job, engine.cluster)
            words, why = (
                "job %s waits again: attempt %d ended as %s%s",
                f": {event.detail}" if event.detail else "",
            )
            _log.info(words, event.job, record.attempts, event.state, why, extra={"job": event.job})
            return [Requeued(event.job)]
        self._ended[event.job] = record
        return self._limit_follow_ups(self.admission.ended(record.job, event.state, now))

    def _limit_follow_ups(self, brought: Iterator[Event]) -> list[Event]:
        """Of what an end brings, what this instant takes; the rest comes at the next ones."""
        if self.options.most_at_once is None:
            return list(brought)
        found = list(islice(brought, self._room))
        self._room -= len(found)
        if not self._room:
            # The rest stays an iterator: an array with 100,000 dependents is let go in pieces.
            self._later.append(brought)
        return found

    def _at_the_end(self, event: Ended, now: Seconds) -> list[Event]:
        """An end, and what it brings with it."""
        if event.state is State.OUT_OF_MEMORY:
            return self._out_of_memory(event, now)
        return [event, *self._follow_up_end(event, now)]

    def _out_of_memory(self, event: Ended, now: Seconds) -> list[Event]:
        """A job was killed for memory: it waits again with more, or its end gives the reason why not."""
        record = self.engine.records[event.job]
        peak = 0 if event.usage is None else event.usage.peak_memory or 0
        requested = event.job in self._to_requeue or event.job in self.engine.preempted
        if event.on_device:
            sized = self.sizes.after_device_kill(record, self.engine.cluster, event.available)
        else:
            sized = self.sizes.after_kill(record, peak, self.engine.cluster)
        unwanted = event.job in self._unwanted
        if isinstance(sized, Sized) and not unwanted and record.attempts <= self.options.requeues:
            self._stopping.discard(event.job)
            self._to_requeue.discard(event.job)
            self._note_gone_job(event.job, now)
            words = "job %s waits again with more memory: attempt %d ended as %s"
            _log.info(words, event.job, record.attempts, event.state, extra={"job": event.job})
            # The size follows the requeue: only a waiting job can change its request.
            return [event, Requeued(event.job), sized]
        if isinstance(sized, str) and not requested:
            event = replace(event, detail="; ".join(filter(None, (event.detail, sized))))
        return [event, *self._follow_up_end(event, now)]

    def _with_device_memory(self, event: Ended) -> Ended:
        """An end for want of a device's memory, with what was too little: what the job was given of it."""
        held = held_of(self.engine.records[event.job], self.engine.cluster)
        if held is not None and event.available is not None:
            held = min(held, event.available)
        usage = event.usage or Usage()
        # The device's whole share was too little, whatever the last sample of its use has seen.
        if held is None or (usage.gpu_memory or 0) >= held:
            return event
        return replace(event, usage=replace(usage, gpu_memory=held))

    def _known_job(self, job: JobId) -> Job | None:
        return self.engine.choices.whole(job) if job in self.engine.records else None

    def _is_waiting(self, job: JobId) -> bool:
        return self.engine.phase_of(job) in (Phase.QUEUED, Phase.HELD)

    def _has_begun(self, job: JobId) -> bool:
        return job in self.engine.records and self.engine.phase_of(job) in AT_WORK

    def _is_bound(self, job: JobId) -> bool:
        return self.engine.phase_of(job) is Phase.BOUND

    def _final_state(self, job: JobId) -> State | None:
        record = self.engine.records.get(job)
        if record is None:
            return State.CANCELLED if job in self._rejected else self._ended_before(job)
        return record.state if self.engine.phase_of(job) is Phase.ENDED else None

    # -------------------------------------------------------------------- orders

    def _order_all(self, decisions: Sequence[Decision], now: Seconds) -> None:
        for decision in decisions:
            try:
                self._order_decision(decision, now)
            except Exception as error:  # noqa: BLE001 - whatever it is ends this job only
                self._end_failed_event(decision, error, now)

    def _order_decision(self, decision: Decision, now: Seconds) -> None:
        engine = self.engine
        if isinstance(decision, Start):
            placed = engine.running[decision.job]
            self.sizes.begun(decision.job)
            prefill = self.prefill
            # A job that begins after others gets its deadline when it begins, not when it is ordered.
            if prefill is None or prefill.started(placed, engine.records[decision.job].predicted, now):
                self._watch_deadline(placed, now)
            if self._company is not None:
                self._note_companions(placed, now)
            self._orders.append(placed)
            if self.turns is not None:
                self.turns.append(("begun", decision.job))
            self.admission.begun(decision.job, now)
            self.admission.run_started(placed, now)
            if self.priorities is not None:
                self.priorities.started(placed, engine.cluster, now)
            if self.multifactor is not None:
                self.multifactor.shares.started(placed, engine.cluster, now)
        elif isinstance(decision, Submit):
            if self.priorities is not None:
                self.priorities.left(decision.job)
            record = engine.records[decision.job]
            self._orders.append(HandOver(record.job, decision, record.attempts + 1))
        elif isinstance(decision, Inquire):
            self._orders.append(AskStart(decision.shape))
        elif isinstance(decision, Migrate):
            if decision.job in engine.moving:
                self._orders.append(Move(*engine.moving[decision.job]))
        elif isinstance(decision, Preempt) and decision.job in engine.handed_over:
            self._orders.append(Withdraw(decision.job))
        elif isinstance(decision, Preempt):
            self._order_stop(decision.job, State.CANCELLED, decision.reason)

    def _order_stop(self, job: JobId, state: State, detail: str = "") -> None:
        # It was never sent to the executor, so no end will come from there: report it ourselves.
        if self._withheld.orders and self._withheld.drop_start(job):
            self.pending.append(Ended(job, state, None, detail))
        elif job not in self._stopping:
            self._stopping.add(job)
            if job in self.engine.handed_over or self.after(job):
                self._reasons[job] = detail
            # Else its requeue, which a policy wanted, would bring it back after this stop.
            if job in self.engine.handed_over:  # nor is it to go another way
                self.engine.preempted.discard(job)
            placed = self._placed_job(job)
            self._orders.append(Stop(job, 1 if placed is None else placed.attempt, state, detail))

    def _enforce_deadlines(self, now: Seconds) -> None:
        """Order what is due: signals, and the end of jobs at their limit."""
        ending = self.engine.ending
        # Jobs that gave their place away still run, and their limits hold.
        at_work = {**ending, **self.engine.running} if ending else self.engine.running
        for job, number in self._deadlines.due(now, at_work):
            if number:
                launch = at_work[job].job.launch
                self._orders.append(
                    Signal(job, number, "all" if launch is None else launch.signal_recipients)
                )
            else:
                self._order_stop(job, State.TIMEOUT)
        # Not while the ledger is blocked: a follower taken back could not be started again.
        if self.prefill is not None and not self.is_blocked:
            self._orders.extend(Withdraw(job) for job in self.prefill.overdue_jobs(now))

    def _watch_deadline(self, placed: Placed, since: Seconds, after: Seconds = -INFINITE) -> None:
        if self.options.enforce and not placed.job.foreign:
            self._deadlines.watch(placed, since, after)

    # -------------------------------------------------------------------- result

    def ended(self) -> list[Record]:
        """Records of the jobs that have ended for good since the last call."""
        ended, self._ended = self._ended, {}
        return list(ended.values())

    def retire_job(self, job: JobId) -> Record:
        """Forget an ended job (see `Engine.retire_job`); jobs that depend on it later use
        ``ended_before``."""
        return self.engine.retire_job(job)

    def result(self, workload: Workload, records: Sequence[Record] | None = None, **about: object) -> Result:
        """What became of the workload's jobs, in file order; ``about`` are further fields of the result.

        ``records`` are those of a caller who has kept them, ``None``: the engine's.
        """
        engine, options = self.engine, self.options
        if records is None:
            known = map(engine.records.get, [job.id for job in sorted(workload.jobs, key=_file_order)])
            records = [record for record in known if record is not None]
        return Result(
            policy=engine.policy_name,
            options=options.policy_options,
            workload=workload.name,
            cluster=engine.cluster,
            seed=options.seed,
            records=records,
            rejected=workload.rejected,
            skipped=workload.skipped,
            decision_seconds=engine.decision_seconds,
            plan=engine.view.plan,
            promises_broken=engine.promises.broken,
            broken_by_overrun=engine.promises.broken_by_overrun,
            overrun=options.overrun,
            **about,  # type: ignore[arg-type]
        )


def _not_an_end(event: Event) -> bool:
    return not isinstance(event, Ended)


_file_order = attrgetter("index")
_PAST = {
    Cancelled: "cancelled",
    Requeued: "requeued",
    Held: "held",
    Released: "released",
    Submitted: "submitted",
    Updated: "updated",
    Moved: "moved",
    Signalled: "signalled",
}


def _job_of(order: Order) -> JobId | None:
    """The job that an order is about; ``None`` where it is about none."""
    if isinstance(order, Placed | HandOver):
        return order.job.id
    if isinstance(order, Move):
        return order.placed.job.id
    return order.job if isinstance(order, Signal | Withdraw | Stop) else None


class JournalSink(Protocol):
    """Takes what happened at each instant (see `dovetail.engine.journal.journal`)."""

    def write_batch(
        self,
        now: Seconds,
        events: Sequence[Event],
        engine: Engine,
        decisions: Sequence[Decision],
        *,
        ask: bool = True,
        imposed: bool = False,
    ) -> None:
        """One call of the engine: its events, its predictions and decisions; whether the policy decided.

        ``imposed`` decisions were made before.
        """
        ...


class LedgerSink(Protocol):
    """Keeps what every job has become, before anything is done about it (`dovetail.running.ledger`)."""

    @property
    def is_blocked(self) -> bool:
        """Whether something could not be kept yet: until it is, nothing is to start."""
        ...

    @property
    def why_blocked(self) -> str:
        """A sentence for people: what keeps it from being kept."""
        ...

    def settle(self) -> bool:
        """Try again to keep it; whether nothing is left to keep."""
        ...

    def keep(self, now: Seconds, events: Sequence[Event], orders: Sequence[Order], engine: Engine) -> None:
        """One instant: the events that the engine took in, and what is to be carried out now."""
        ...
