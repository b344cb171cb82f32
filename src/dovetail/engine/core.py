"""The decision core: events in, decisions out. No clock, no I/O, no randomness.

The same engine drives a simulation, this machine and a cluster: time comes in with the events, and what
the policy decides is checked against capacity and state before it takes effect. A policy can be wrong, a
schedule cannot.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dovetail.engine.capacity import FreeCapacity, Layout, Placement
from dovetail.engine.cores import CoreBook
from dovetail.engine.gangs import gang_fault
from dovetail.engine.predictions import Predictions
from dovetail.engine.profiles import ProfileBook
from dovetail.engine.promises import PromiseBook
from dovetail.engine.queue import JobQueue
from dovetail.engine.view import EngineView, InstantChanges
from dovetail.errors import PolicyError
from dovetail.interfaces import Policy, RateModel, RuntimeModel
from dovetail.model import (
    CPU,
    EMPTY,
    Allocation,
    Cancelled,
    Choice,
    Cluster,
    Decision,
    Dequeue,
    DeviceClass,
    Ended,
    Enqueue,
    Estimated,
    Event,
    Implementation,
    Job,
    JobId,
    Migrate,
    NodeJoined,
    NodeLost,
    Placed,
    Planned,
    Promise,
    Record,
    Request,
    Reserve,
    Seconds,
    Start,
    Started,
    State,
    Submit,
    Submitted,
    Unit,
    Wait,
    Woken,
    bits,
)

__all__ = ["Bound", "Engine"]

Bound = Callable[[Job, Implementation, Request], Seconds]
"""Upper bound of a job's run time: its walltime or what stands in for it; may be infinite."""

INFINITE = float("inf")
PENDING, RUNNING = State.PENDING, State.RUNNING  # an enum's members are looked up slowly

# At one instant ends come first, then submissions; then the policy is asked.
_ORDER: dict[type, int] = {
    Ended: 0,
    Cancelled: 1,
    NodeLost: 2,
    NodeJoined: 3,
    Started: 4,
    Estimated: 5,
    Submitted: 6,
    Planned: 7,
    Woken: 8,
}


def _rank(event: Event) -> int:
    return _ORDER[type(event)]


def no_bound(job: Job, implementation: Implementation, request: Request) -> Seconds:
    """The walltime where the job has one, else infinite."""
    return INFINITE if job.walltime is None else job.walltime


class Engine:
    """Holds the state of a run, asks the policy, checks and applies what it decides.

    ``timer`` is called around every ``decide`` and its differences kept in ``decision_seconds``.
    ``keep_asked`` remembers predictions for a journal; ``keep_considered`` keeps with each started job
    what was predicted for its other choices, for ``explain``.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        runtimes: RuntimeModel,
        *,
        policy_name: str = "",
        bound: Bound = no_bound,
        placement: Placement = "pack",
        forecast: RateModel | None = None,
        timer: Callable[[], float] | None = None,
        keep_asked: bool = False,
        keep_considered: bool = False,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.policy_name = policy_name or type(policy).__name__
        self.predictions = Predictions(runtimes, keep=keep_asked)
        self.forecast = forecast
        self.layout = Layout(cluster, getattr(policy, "placement", None) or placement)
        self.free = FreeCapacity(self.layout)
        self.queue = JobQueue(self.limit)
        self.running: dict[JobId, Placed] = {}
        self.handed_over: dict[JobId, Submit] = {}
        self.device_queues: dict[int, list[tuple[Job, Implementation]]] = {}
        self.promises = PromiseBook()
        self.records: dict[JobId, Record] = {}
        self.releases: list[tuple[Seconds, Allocation]] = []  # ascending; times apart, for the search
        self._release_times: list[Seconds] = []
        self.last_enqueued: int | None = None
        self.decision_seconds: list[float] = []
        self.wake_times: list[Seconds] = []  # ascending
        self._cores = CoreBook(cluster)
        self._bound_to: dict[JobId, int] = {}
        self._on_unit: dict[tuple[int, int | None], list[Placed]] | None = None
        self._user_bound = bound
        self._whole: dict[Request, bool] = {}
        self._last_choices: tuple[Choice, ...] | None = None
        self._settles = bool(getattr(policy, "settles", False))
        self._told = False
        self._expected = -1  # version of the predictions
        self.learned_bounds = getattr(policy, "walltime", "user") == "learned"
        self._timer = timer
        self._keep_asked = keep_asked
        self._keep_considered = keep_considered
        self.lost: set[int] = set()
        self.incidents = 0  # nodes lost and back
        self._classes: dict[str, DeviceClass | None] = {}
        self.profiles = ProfileBook(self)
        self.view = EngineView(self)

    # ------------------------------------------------------------------ events

    def handle(self, now: Seconds, events: Iterable[Event], *, ask: bool = True) -> Sequence[Decision]:
        """Take in what happened at ``now``, ask the policy until it has nothing new, return what it decided.

        Every returned decision has been checked and has taken effect in the engine's state. With
        ``ask=False`` the policy is not asked (a planner is to look at the view first).
        """
        view = self.view
        view.now = now
        if self._told:
            self._told = False
            view.changes = InstantChanges()
        if not isinstance(events, list):
            events = list(events)
        if len(events) > 1:  # mostly there is one
            events = sorted(events, key=_rank)
        quiet = True
        for event in events:
            if type(event) is Ended:
                self._end(event, now)
                quiet = False
            elif type(event) is Submitted:
                self._submit(event.job)
                quiet = False
            else:
                quiet = self._apply_event(event, now) and quiet
        if quiet or not ask:
            return ()
        self.predictions.refresh()
        if self._release_times and self._release_times[0] < now:
            self.promises.overran(now)
        return self._ask(now)

    def _apply_event(self, event: Event, now: Seconds) -> bool:
        """Apply one event; ``True`` if the policy need not be asked because of it."""
        if isinstance(event, Started):
            return self._started(event, now)
        elif isinstance(event, Cancelled):
            return self._cancel(event.job, now)
        else:
            self._other(event, now)
        return False

    def _other(self, event: Event, now: Seconds) -> None:
        if isinstance(event, Woken):
            return
        self.view.changes.otherwise = True
        if isinstance(event, NodeLost):
            self._lose(event.node, now)
        elif isinstance(event, NodeJoined):
            if event.node in self.lost:
                self.lost.remove(event.node)
                self.incidents += 1
                self.free.join(event.node)
        elif isinstance(event, Planned):
            self.view.plan = event.plan

    def _submit(self, job: Job) -> None:
        record = Record(job)
        if self.records.setdefault(job.id, record) is not record:
            raise ValueError(f"job {job.id} was submitted twice")
        self.queue.add(job)
        self.view.changes.submitted.append(job)
        if self.view.interchangeable and job.choices is not self._last_choices:
            self._last_choices = job.choices
            for choice in job.choices:
                known = self._whole.get(choice.request)
                if known is None:
                    known = self._whole[choice.request] = self.free.takes_whole_nodes(choice.request)
                if not known:
                    self.view.interchangeable = False

    def _started(self, event: Started, now: Seconds) -> bool:
        submitted = self.handed_over.pop(event.job, None)
        if submitted is None:
            return True  # our own start, confirmed
        record = self.records[event.job]
        implementation = record.job.app.implementation(submitted.implementation)
        if event.allocation is None:
            record.state, record.start, record.implementation = State.RUNNING, now, implementation
            return False
        self._place(record, implementation, event.allocation, now)
        return False

    def _end(self, event: Ended, now: Seconds) -> None:
        record = self.records[event.job]
        placed = self.running.pop(event.job, None)
        if placed is None:
            if self.handed_over.pop(event.job, None) is None and record.state is not State.RUNNING:
                raise ValueError(f"job {event.job} ended but was not running")
        else:
            self._release(placed)
            if now > placed.bound:
                self.promises.overran(now)
            elif self.profiles.kept is not None and now < placed.bound:
                self.profiles.ended_early(placed)
            self.view.changes.ended.append(placed)
        record.state = event.state
        record.end = now
        record.exit_code = event.exit_code
        record.detail = event.detail
        record.usage = event.usage
        if self.predictions.cached:
            self.predictions.drop(event.job)

    def _release(self, placed: Placed) -> None:
        allocation = placed.allocation
        self.free.give(allocation)
        if allocation.cores is not EMPTY:
            self._cores.release(allocation)
        times, releases = self._release_times, self.releases
        at = bisect_left(times, placed.bound)
        while releases[at][1] is not allocation:
            at += 1
        del times[at], releases[at]
        if self._on_unit is not None:
            for key in _unit_keys(allocation):
                self._on_unit[key].remove(placed)

    def _cancel(self, job: JobId, now: Seconds) -> bool:
        record = self.records.get(job)
        if record is None or record.state is not State.PENDING or job in self.handed_over:
            return True  # running elsewhere: its driver stops it and reports the end
        self._unqueue(record.job)
        self.view.changes.otherwise = True
        self.promises.drop(job)
        self.profiles.cancelled()
        record.state, record.end, record.exit_code = State.CANCELLED, now, None
        self.predictions.drop(job)
        return False

    def _lose(self, node: int, now: Seconds) -> None:
        if node in self.lost:
            return
        bit = 1 << node
        for placed in list(self.running.values()):
            donors = any(donor.donor == node for donor in placed.allocation.donors)
            if placed.allocation.mask & bit or donors:
                self._end(Ended(placed.job.id, State.NODE_FAIL, None, "a node was lost"), now)
        self.lost.add(node)
        self.incidents += 1
        self.free.lose(node)
        self.promises.drop_all()

    # --------------------------------------------------------------- decisions

    def _ask(self, now: Seconds) -> list[Decision]:
        decided: list[Decision] = []
        policy, view, timer = self.policy, self.view, self._timer
        rounds = 0
        self._told = True
        while True:
            before = timer() if timer else 0.0
            batch = policy.decide(view)
            if not isinstance(batch, list):
                batch = list(batch)  # the view is not to change while decisions are collected
            if timer:
                self.decision_seconds.append(timer() - before)
            fresh = False
            for decision in batch:
                if type(decision) is Start:
                    self._start(decision, now)
                elif not self._decide(decision, now):
                    continue
                fresh = True
                decided.append(decision)
            if not fresh or self._settles:
                return decided
            rounds += 1
            if rounds > 1000 + 4 * len(self.records):
                raise PolicyError(self.policy_name, "-", "decides something new at one instant without end")

    def _decide(self, decision: Decision, now: Seconds) -> bool:
        """Check and apply one decision; ``True`` if it changed anything that a policy sees."""
        if isinstance(decision, Wait):
            return self._wait(decision, now)
        elif isinstance(decision, Reserve):
            return self._reserve(decision, now)
        elif isinstance(decision, Enqueue):
            self._enqueue(decision)
        elif isinstance(decision, Dequeue):
            job = self._record(decision.job).job
            if decision.job not in self._bound_to:
                raise self._wrong(decision.job, "is in no device's FIFO")
            self._unqueue(job)
            self.queue.add(job)
        elif isinstance(decision, Migrate):
            self._migrate(decision, now)
        elif isinstance(decision, Submit):
            self._hand_over(decision)
        return True

    def _wrong(self, job: JobId, message: str) -> PolicyError:
        return PolicyError(self.policy_name, job, message)

    def _record(self, job: JobId) -> Record:
        record = self.records.get(job)
        if record is None:
            raise self._wrong(job, "was never submitted")
        return record

    def _choice(self, job: Job, implementation: str, request: Request | None) -> Choice:
        for choice in job.choices:
            if choice.implementation.name == implementation and request in (None, choice.request):
                return choice
        raise self._wrong(job.id, f"cannot run as {implementation} with {request}")

    def _start(self, decision: Start, now: Seconds) -> None:
        record = self.records.get(decision.job) or self._record(decision.job)
        job = record.job
        if record.state is not PENDING or decision.job in self.handed_over:
            raise self._wrong(decision.job, f"is started while {record.state}")
        unit = self._bound_to.get(decision.job) if self._bound_to else None
        if unit is not None and self.device_queues[unit][0][0] is not job:
            raise self._wrong(decision.job, "is started before others in its device's FIFO")
        allocation = decision.allocation
        choice = job.choices[0]
        if choice.request is not allocation.request or choice.implementation.name != decision.implementation:
            choice = self._choice(job, decision.implementation, allocation.request)
        fault = gang_fault(self.cluster, choice, allocation)
        if fault is not None:
            raise self._wrong(job.id, fault)
        if unit is None:
            self.queue.remove(job)
        else:
            self._unqueue(job)
        if self.promises.held:
            bound = self._learned_bound(job, choice.implementation, allocation.request)
            record.promised = self.promises.settle(decision.job, now, bound)
        self._place(record, choice.implementation, allocation, now)

    def _place(
        self, record: Record, implementation: Implementation, allocation: Allocation, now: Seconds
    ) -> None:
        job = record.job
        try:
            self.free.take(allocation)
            cores = self._cores.assign(allocation)
        except ValueError as error:
            raise self._wrong(job.id, f"cannot be started: {error}") from None
        if cores is not EMPTY:
            allocation = replace(allocation, cores=cores)
        device = self.class_of(implementation, allocation)
        predict = self.predictions.predict if self._keep_considered else self.predictions.at_start
        prediction = predict(job, implementation, allocation.request, device)
        if self._keep_considered:
            known = self.predictions.known_of(job.id)
            record.considered = tuple(
                (f"{name} on {cls}" + (f" x{nodes}" if job.moldable else ""), p.expected if p else None)
                for (name, nodes, cls), p in known.items()
            )
        bound_of = self.bound if self.learned_bounds or self._keep_asked else self._user_bound
        bound = now + bound_of(job, implementation, allocation.request)
        expected = None if prediction is None else prediction.expected
        placed = Placed(job, implementation, allocation, now, expected, bound)
        self.running[job.id] = placed
        times = self._release_times
        at = bisect_right(times, bound)
        times.insert(at, bound)
        self.releases.insert(at, (bound, allocation))
        if self._on_unit is not None:
            for key in _unit_keys(allocation):
                self._on_unit.setdefault(key, []).append(placed)
        self.view.changes.started.append(placed)
        record.state = RUNNING
        record.start = now
        record.implementation = implementation
        record.allocation = allocation
        record.predicted = prediction

    def _unqueue(self, job: Job) -> None:
        unit = self._bound_to.pop(job.id, None)
        if unit is None:
            self.queue.remove(job)
            return
        fifo = self.device_queues[unit]
        if fifo[0][0] is job:
            del fifo[0]
        else:
            del fifo[next(i for i, (waiting, _) in enumerate(fifo) if waiting is job)]
        if not fifo:
            del self.device_queues[unit]

    def _enqueue(self, decision: Enqueue) -> None:
        job = self._record(decision.job).job
        if job not in self.queue:
            raise self._wrong(decision.job, "is bound to a device while it is not in the queue")
        choice = self._choice(job, decision.implementation, None)
        if not 0 <= decision.unit < len(self.cluster.units):
            raise self._wrong(decision.job, f"is bound to unit {decision.unit}, which does not exist")
        unit = self.cluster.units[decision.unit]
        kinds = {CPU} if choice.implementation.kind.startswith(CPU) else set()
        kinds |= {kind for kind, _ in choice.request.devices}
        if unit.kind not in kinds:
            raise self._wrong(decision.job, f"as {decision.implementation} cannot run on {unit.name}")
        self.queue.remove(job)
        self._bound_to[job.id] = decision.unit
        self.device_queues.setdefault(decision.unit, []).append((job, choice.implementation))
        self.last_enqueued = decision.unit

    def _reserve(self, decision: Reserve, now: Seconds) -> bool:
        record = self._record(decision.job)
        if record.state is not State.PENDING:
            raise self._wrong(decision.job, f"gets a promise while {record.state}")
        choice = self._choice(record.job, decision.implementation, decision.allocation.request)
        promise = Promise(record.job, choice.implementation, decision.allocation, decision.start)
        old = self.promises.held.get(decision.job)
        if old is not None and old.start == promise.start and old.allocation == promise.allocation:
            return False
        if self.learned_bounds:
            self._expect()
        bound = self._learned_bound(record.job, choice.implementation, decision.allocation.request)
        wrong = self.promises.reserve(promise, now, bound)
        if wrong:
            raise self._wrong(decision.job, wrong)
        return True

    def _migrate(self, decision: Migrate, now: Seconds) -> None:
        placed = self.running.get(decision.job)
        if placed is None:
            raise self._wrong(decision.job, "is migrated while it does not run")
        if decision.allocation.request != placed.allocation.request:
            raise self._wrong(decision.job, "is migrated to another request")
        record = self.records[decision.job]
        self._release(placed)
        try:
            self.free.take(decision.allocation)
            cores = self._cores.assign(decision.allocation)
        except ValueError as error:
            raise self._wrong(decision.job, f"cannot be migrated: {error}") from None
        allocation = replace(decision.allocation, cores=cores) if cores else decision.allocation
        moved = replace(placed, allocation=allocation)
        self.running[decision.job] = moved
        at = bisect_right(self._release_times, moved.bound)
        self._release_times.insert(at, moved.bound)
        self.releases.insert(at, (moved.bound, allocation))
        if self._on_unit is not None:
            for key in _unit_keys(allocation):
                self._on_unit.setdefault(key, []).append(moved)
        record.allocation = allocation

    def _hand_over(self, decision: Submit) -> None:
        record = self._record(decision.job)
        if record.state is not State.PENDING or decision.job in self.handed_over:
            raise self._wrong(decision.job, f"is submitted to {decision.target} while {record.state}")
        self._choice(record.job, decision.implementation, decision.request)
        self._unqueue(record.job)
        self.promises.drop(decision.job)
        self.handed_over[decision.job] = decision

    def _wait(self, decision: Wait, now: Seconds) -> bool:
        self._record(decision.job).wait_reason = decision.reason
        until, wakes = decision.until, self.wake_times
        if until is not None and until > now:
            at = bisect_left(wakes, until)
            if at == len(wakes) or wakes[at] != until:
                wakes.insert(at, until)
        return False

    # ----------------------------------------------------------------- queries

    @property
    def changes(self) -> InstantChanges:
        """What happened since the policy was last asked."""
        return self.view.changes

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Upper bound of the run time: learned where the policy asks for that and something is known."""
        if self.learned_bounds:
            classes = self.cluster.device_classes(implementation.kind)
            known = [self.predictions.predict(job, implementation, request, device) for device in classes]
            uppers = [prediction.upper for prediction in known if prediction is not None]
            if uppers:
                return max(uppers)
        if self._keep_asked:
            return self._told_bound(job, implementation, request)
        return self._user_bound(job, implementation, request)

    def _learned_bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """The bound where it may change as more is learned; 0 where it cannot."""
        return self.bound(job, implementation, request) if self.learned_bounds else 0.0

    def _expect(self) -> None:
        """Note what is known of the jobs that hold promises, if that is more than last time."""
        version = self.predictions.version
        if version != self._expected:
            self._expected = version
            for held in self.promises.held.values():
                self.promises.expect(
                    held.job.id, self.bound(held.job, held.implementation, held.allocation.request)
                )

    def limit(self, job: Job) -> Seconds:
        """The largest bound of the job's run time over its choices, learned bounds aside."""
        bound = self._told_bound if self._keep_asked else self._user_bound
        if len(job.choices) == 1:
            return bound(job, job.choices[0].implementation, job.choices[0].request)
        return max(bound(job, choice.implementation, choice.request) for choice in job.choices)

    def _told_bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """The bound by the walltime, kept for the journal: a replay asks for it again."""
        return self.predictions.bound(job, implementation, request, self._user_bound)

    def class_of(self, implementation: Implementation, allocation: Allocation) -> DeviceClass:
        """The device class on which an allocation runs an implementation (of its first node)."""
        kind = implementation.kind
        if kind not in self._classes:
            classes = self.cluster.device_classes(kind)
            self._classes[kind] = classes[0] if len(classes) == 1 else None
        only = self._classes[kind]
        if only is not None:
            return only
        if allocation.donors and not any(part.devices for part in allocation.parts):
            donor = allocation.donors[0]
            return DeviceClass(kind, self.cluster.nodes[donor.donor].devices[donor.device].model)
        part = allocation.parts[0]
        node = self.cluster.nodes[allocation.first_node]
        part = allocation.part_on(allocation.first_node) or part
        if part.devices:
            return DeviceClass(kind, node.devices[part.devices[0]].model)
        return DeviceClass(kind, node.cpu_model)

    def on_unit(self, unit: Unit) -> Sequence[Placed]:
        """Jobs that use a unit; the index is built at the first question, then kept."""
        if self._on_unit is None:
            self._on_unit = {}
            for placed in self.running.values():
                for key in _unit_keys(placed.allocation):
                    self._on_unit.setdefault(key, []).append(placed)
        return self._on_unit.get((unit.node, unit.device), ())


def _unit_keys(allocation: Allocation) -> list[tuple[int, int | None]]:
    keys: list[tuple[int, int | None]] = []
    for part in allocation.parts:
        for node in bits(part.nodes):
            if part.cpus:
                keys.append((node, None))
            keys.extend((node, device) for device in part.devices)
    keys.extend((donor.donor, donor.device) for donor in allocation.donors)
    return keys
