"""The books of a run: every job's place and every node's load, and the moves that keep them consistent.

`Books` knows nothing of why something moves: `dovetail.engine.state.core` decides what events and decisions
mean.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import inf

from dovetail.engine.capacity.free import Placement
from dovetail.engine.capacity.gangs import gang_fault
from dovetail.engine.capacity.occupancy import Occupancy
from dovetail.engine.state.choices import ChoiceLimits
from dovetail.engine.state.held import HeldJobs
from dovetail.engine.state.outside import OutsideBook
from dovetail.engine.state.phases import Phase
from dovetail.engine.state.predictions import Predictions
from dovetail.engine.state.profiles import ProfileBook
from dovetail.engine.state.progress import Expectations
from dovetail.engine.state.promises import PromiseBook
from dovetail.engine.state.queue import JobQueue
from dovetail.engine.state.recent import Durations, InstantChanges, Recent
from dovetail.engine.state.view import EngineView
from dovetail.errors import InvariantError
from dovetail.interfaces import Policy, RuntimeModel, traits_of
from dovetail.model import (
    Allocation,
    Choice,
    Cluster,
    DeviceClass,
    Implementation,
    Intend,
    Job,
    JobId,
    Placed,
    Prediction,
    Record,
    Request,
    Reservation,
    Seconds,
    Span,
    State,
    Submit,
    Unit,
)

Bound = Callable[[Job, Implementation, Request], Seconds]
"""Upper bound of a job's run time: its walltime or what stands in for it; may be infinite."""

PENDING, RUNNING = State.PENDING, State.RUNNING  # an enum's members are looked up slowly


def no_bound(job: Job, implementation: Implementation, request: Request) -> Seconds:
    """The walltime where the job has one, else infinite."""
    return float("inf") if job.walltime is None else job.walltime


class Books:
    """The state of a run; see `dovetail.engine.state.core.Engine` for the parameters."""

    __slots__ = (  # more than a dict of shared keys holds, so that it would be looked up slowly
        "_expected",
        "_keep_considered",
        "_keep_questions",
        "_user_bound",
        "bound_of",
        "bound_to",
        "choices",
        "cluster",
        "decision_seconds",
        "device_queues",
        "ending",
        "forecast",
        "free",
        "handed_over",
        "held",
        "horizon",
        "incidents",
        "intended",
        "last_enqueued",
        "layout",
        "learned_bounds",
        "looks_back",
        "moving",
        "occupancy",
        "only_class",
        "outside",
        "policy",
        "predictions",
        "preempted",
        "profiles",
        "promises",
        "queue",
        "recent",
        "records",
        "releases",
        "reservations",
        "running",
        "staying",
        "suspensions",
        "view",
        "wake_times",
    )  # fmt: skip

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        runtimes: RuntimeModel,
        bound: Bound,
        placement: Placement,
        forecast: Expectations | None,
        keep_questions: bool,
        keep_considered: bool,
    ) -> None:
        self.cluster = cluster
        self.policy = policy
        self.predictions = Predictions(runtimes, keep=keep_questions)
        self.forecast = forecast
        self.occupancy = Occupancy(cluster, getattr(policy, "placement", None) or placement)
        self.layout = self.occupancy.layout
        self.free = self.occupancy.free
        self.running = self.occupancy.running
        self.releases = self.occupancy.releases
        self.reservations: tuple[Reservation, ...] = ()
        self.queue = JobQueue(self.limit)
        self.outside = OutsideBook()
        self.handed_over: dict[JobId, Submit] = self.outside.waiting
        self.ending: dict[JobId, Placed] = {}  # run on for a moment, over who begins next in their place
        self.moving: dict[JobId, tuple[Placed, Allocation]] = {}  # as it was, and where it goes
        self.staying: set[JobId] = set()  # what they have borrowed cannot move
        self.preempted: set[JobId] = set()
        self.device_queues: dict[int, list[tuple[Job, Implementation]]] = {}
        self.promises = PromiseBook()
        self.choices = ChoiceLimits(self)
        self.horizon, self.suspensions = self.choices.horizon, self.choices.suspensions
        self.records: dict[JobId, Record] = {}
        self.held = HeldJobs(self.records)
        self.last_enqueued: int | None = None
        self.decision_seconds = Durations()
        self.wake_times: list[Seconds] = []  # ascending
        self.recent = Recent()
        self.looks_back = traits_of(policy).looks_back
        self.intended: dict[JobId, Intend] = {}
        self.bound_to: dict[JobId, int] = {}
        self._user_bound = bound
        self._expected = -1  # version of the predictions
        self.learned_bounds = getattr(policy, "walltime", "user") == "learned"
        self._keep_questions = keep_questions
        self._keep_considered = keep_considered
        # Chosen once: this is called for every job at every instant.
        self.bound_of = self.bound if self.learned_bounds or keep_questions else bound
        """`bound`, without the steps that lead nowhere in this run."""
        self.incidents = 0  # changes of the machine
        self.only_class: dict[str, DeviceClass | None] = {}
        self.profiles = ProfileBook(self)
        self.view = EngineView(self)

    def enter_queue(self, job: Job) -> None:
        """A job waits, and the policy sees it."""
        self.queue.add(job)
        self.profiles.submitted(job)
        if self.looks_back:
            self.recent.submitted(job, self.limit(job))

    def hold_back(self, record: Record, reason: str) -> None:
        """A job waits, and no policy sees it; it keeps its place."""
        self.queue.keep_place(record.job)
        record.wait_reason = reason
        self.held.hold(record.job.id, reason)

    def classes_of(self, choice: Choice, place: Allocation | None) -> Sequence[DeviceClass]:
        """The classes on which a choice may run, or does at a place."""
        if place is not None:
            return (self.class_of(choice.implementation, place),)
        models = choice.request.models
        found = self.cluster.device_classes(choice.implementation.kind)
        return [one for one in found if one.model in models] if models else found

    def withdraw(self, job: Job) -> None:
        """It leaves them, and what was promised to it and intended for it is void."""
        self.remove_from_queue(job)
        self.promises.drop_promise(job.id)
        self.intended.pop(job.id, None)
        self.profiles.drop_job(job.id)

    def remove_from_queue(self, job: Job) -> None:
        """A waiting job leaves the queue or its FIFO."""
        unit = self.bound_to.pop(job.id, None)
        if unit is None:
            self.queue.remove_job(job)
            return
        fifo = self.device_queues[unit]
        # By identity at the head, the usual case; elsewhere a job was cancelled out of order.
        if fifo[0][0] is job:
            del fifo[0]
        else:
            del fifo[next(i for i, (waiting, _) in enumerate(fifo) if waiting is job)]
        if not fifo:
            del self.device_queues[unit]

    def close_span(self, record: Record, end: Seconds, state: State | None) -> None:
        """What the job held until now goes on record; ``state`` where the attempt has ended with it."""
        assert record.start is not None
        assert record.allocation is not None
        assert record.implementation is not None
        start = record.start if record.since is None else record.since
        detail = record.detail if state is not None else ""
        span = Span(start, end, record.allocation, record.implementation, state, detail)
        record.earlier = (*record.earlier, span)
        record.since = None

    def _find_allocation_fault(self, job: Job, allocation: Allocation) -> str | None:
        """What keeps an allocation from being one of the job's; ``None`` if it is."""
        # By request alone: a policy names an implementation, and its request decides what it may hold.
        choice = next((c for c in job.choices if c.request == allocation.request), None)
        return "is no request of the job" if choice is None else gang_fault(self.cluster, choice, allocation)

    def run(
        self,
        record: Record,
        implementation: Implementation,
        allocation: Allocation,
        device: DeviceClass,
        start: Seconds,
        *,
        counted: bool = True,
        expected: tuple[Seconds | None, Seconds] | None = None,
    ) -> None:
        """The job runs from ``start`` on what is reserved for it (not ``counted``: on nothing of ours).

        ``expected`` is its expected time and bound where they are known already, else they are predicted.
        """
        job = record.job
        if expected is None:
            predictions = self.predictions
            # The cache is for jobs that are looked at again and again while they wait; one that starts leaves
            # it.
            if self._keep_questions or self._keep_considered or job.id in predictions.cached:
                prediction = predictions.predict(job, implementation, allocation.request, device)
                if self._keep_considered:
                    record.considered = self._considered_choices(job)
            else:  # this is the only use: nothing is cached
                prediction = predictions.model.predict(job, implementation, allocation.request, device)
            predicted = None if prediction is None else prediction.expected
            bound = self.bound_of(job, implementation, allocation.request)
        else:
            predicted, bound = expected
            prediction = None
            if predicted is not None:
                prediction = Prediction(predicted, float("inf"), 0, "as expected at its start")
        # Noted before the policy sees the start: it may be the trial of a suspended way.
        if self.suspensions.active:
            self.suspensions.started((job.app.name, implementation.name, device), job.id)
        attempt = record.attempts = record.attempts + 1
        placed = Placed(job, implementation, allocation, start, predicted, start + bound, device, attempt)
        if counted:
            self.occupancy.enter_job(placed)
        else:
            self.occupancy.enter_uncounted(placed)
        if self.profiles.kept is not None:
            self.profiles.started(placed)
        self.view.changes.started.append(placed)
        if self.looks_back:
            self.recent.started(placed)
        record.state = RUNNING
        record.wait_reason = ""
        record.start = start
        record.implementation = implementation
        record.allocation = allocation
        record.device_class = device
        record.predicted = prediction
        if allocation.donors:
            record.remote_gpus = len(allocation.donors)

    def _considered_choices(self, job: Job) -> tuple[tuple[str, Seconds | None], ...]:
        """Every way to run the job that was looked at, and its expected time."""
        return tuple(
            (f"{name} on {cls}" + (f" x{nodes}" if job.moldable else ""), p.expected if p else None)
            for (name, nodes, cls), p in self.predictions.known_of(job.id).items()
        )

    def change_place(
        self,
        placed: Placed,
        allocation: Allocation,
        now: Seconds,
        *,
        expected: tuple[Seconds | None, Seconds] | None = None,
    ) -> None:
        """The job holds ``allocation`` from now on; with a new expected time and bound, if they are given.

        Raises `ValueError`, nothing changed, if it is not free beside what the job holds.
        """
        predicted, bound = expected or (placed.predicted, placed.bound)
        device = self.class_of(placed.implementation, allocation)
        job, implementation, start, attempt = (
            placed.job,
            placed.implementation,
            placed.start_time,
            placed.attempt,
        )
        after = Placed(job, implementation, allocation, start, predicted, bound, device, attempt)
        moved = self.occupancy.exchange(placed, after)
        self.profiles.let_go()
        record = self.records[job.id]
        # No span of no length: a job may move at the instant at which it starts.
        if (start if record.since is None else record.since) < now:
            self.close_span(record, now, None)
        record.since = now
        record.allocation, record.device_class = moved.allocation, device

    def _renew_expectation(
        self, before: Placed, target: Allocation, now: Seconds
    ) -> tuple[Seconds | None, Seconds]:
        """Expected time and bound after a move: what is left takes as long as the new class needs."""
        device = self.class_of(before.implementation, target)
        # The same class needs the same time for the rest: nothing is predicted anew.
        if before.device_class == device:
            return before.predicted, before.bound
        new = self.predictions.predict(before.job, before.implementation, target.request, device)
        if new is None or not before.predicted:
            return None if new is None else new.expected, before.bound
        spent = now - before.start_time
        # Linear: what part is done is the part of the old prediction that has passed.
        left = max(0.0, 1.0 - spent / before.predicted)
        learned = self.learned_bounds and before.job.walltime is None
        return spent + left * new.expected, now + left * new.upper if learned else before.bound

    def complete_move(self, before: Placed, placed: Placed, target: Allocation, now: Seconds) -> None:
        """The work has moved: the old place is free, and what is expected of the job is renewed."""
        self.change_place(placed, target, now, expected=self._renew_expectation(before, target, now))
        record = self.records[placed.job.id]
        record.migrations += max(0, len(before.allocation.donors) - len(target.donors))
        self.view.changes.migrated.append(self.running[placed.job.id])

    def wake_at(self, until: Seconds, now: Seconds) -> None:
        """Have the policy called then, whatever happens."""
        wakes = self.wake_times
        if now < until < inf:
            at = bisect_left(wakes, until)
            if at == len(wakes) or wakes[at] != until:
                wakes.insert(at, until)

    @property
    def lost(self) -> set[int]:
        """Nodes that are gone."""
        return self.occupancy.lost

    @property
    def changes(self) -> InstantChanges:
        """What happened since the policy's last call."""
        return self.view.changes

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Upper bound of the run time: learned where the policy wants that and something is known."""
        if self.learned_bounds:
            classes = self.cluster.device_classes(implementation.kind)
            known = [self.predictions.predict(job, implementation, request, device) for device in classes]
            # The largest over the classes: the job may end up on the slowest of them.
            uppers = [prediction.upper for prediction in known if prediction is not None]
            if uppers:
                return max(uppers)
        if self._keep_questions:
            return self._journalled_bound(job, implementation, request)
        return self._user_bound(job, implementation, request)

    def learned_bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """The bound where it may change as more is learned; 0 where it cannot."""
        return self.bound(job, implementation, request) if self.learned_bounds else 0.0

    def update_promise_bounds(self) -> None:
        """Note what is known of the jobs that hold promises, if that is more than last time."""
        version = self.predictions.version
        # Compared by version, since predicting for every promise at every instant would be quadratic.
        if version != self._expected:
            self._expected = version
            for held in self.promises.held.values():
                self.promises.update_bound(
                    held.job.id, self.bound(held.job, held.implementation, held.allocation.request)
                )

    def limit(self, job: Job) -> Seconds:
        """The largest bound of the job's run time over its choices, learned bounds aside."""
        bound = self._journalled_bound if self._keep_questions else self._user_bound
        if len(job.choices) == 1:
            return bound(job, job.choices[0].implementation, job.choices[0].request)
        return max(bound(job, choice.implementation, choice.request) for choice in job.choices)

    def _journalled_bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """The bound by the walltime, kept for the journal: a replay needs it again."""
        return self.predictions.bound(job, implementation, request, self._user_bound)

    def class_of(self, implementation: Implementation, allocation: Allocation) -> DeviceClass:
        """The device class on which an allocation runs an implementation (of its first node)."""
        kind = implementation.kind
        only = self.only_class.get(kind)
        if only is None and kind not in self.only_class:
            classes = self.cluster.device_classes(kind)
            only = self.only_class[kind] = classes[0] if len(classes) == 1 else None
        if only is not None:
            return only
        if not allocation.parts:  # it runs elsewhere, on devices that are unknown
            classes = self.cluster.device_classes(kind)
            return classes[0] if classes else DeviceClass(kind)
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
        return self.occupancy.on_unit(unit)

    @property
    def at_work(self) -> Iterator[Placed]:
        """Jobs that run: those whose end is near enough to have given up their places come first."""
        return chain(self.ending.values(), self.running.values())

    def phase_of(self, job: JobId) -> Phase:
        """Where a job stands, by the books. O(1)."""
        record = self.records.get(job)
        if record is None:
            return Phase.UNKNOWN
        if job in self.running:
            return Phase.MOVING if job in self.moving else Phase.RUNNING
        if job in self.ending:
            return Phase.ENDING
        if record.state is not PENDING:
            return Phase.ENDED
        if job in self.held:
            return Phase.HELD
        if job in self.handed_over:
            return Phase.HANDED_OVER
        return Phase.BOUND if job in self.bound_to else Phase.QUEUED

    def validate_books(self) -> None:
        """Hold all books against each other; raises `InvariantError`. O(known jobs): for tests."""
        self.occupancy.validate_books()
        queued = {job.id for job in self.queue}
        bound = [job.id for fifo in self.device_queues.values() for job, _ in fifo]
        if len(queued) != len(self.queue):
            raise InvariantError("a job is in the queue twice")
        if sorted(bound) != sorted(self.bound_to):
            raise InvariantError("the FIFOs are not what jobs are bound to")
        for job, record in self.records.items():
            phase = self.phase_of(job)
            places = (job in queued, job in self.bound_to, job in self.held, job in self.handed_over)
            expected = [Phase.QUEUED, Phase.BOUND, Phase.HELD, Phase.HANDED_OVER]
            if list(places) != [phase is one for one in expected]:
                raise InvariantError(f"job {job} is {phase.value} and stands elsewhere too")
            runs = phase in (Phase.RUNNING, Phase.MOVING, Phase.ENDING)
            if runs != (record.state is RUNNING) or (phase is Phase.ENDED) != (record.end is not None):
                raise InvariantError(f"job {job} is {phase.value} and on record as {record.state}")
        at_work = {*self.handed_over, *self.running, *self.ending}
        strangers = {*queued, *bound, *self.held, *at_work} - self.records.keys()
        if strangers:
            raise InvariantError(f"jobs without a record: {', '.join(sorted(strangers))}")
        for job, promise in self.promises.held.items():
            if self.phase_of(job) not in (Phase.QUEUED, Phase.BOUND):
                raise InvariantError(f"job {job} holds a promise while it is {self.phase_of(job).value}")
            if promise.job is not self.records[job].job:
                raise InvariantError(f"the promise to job {job} is to another one")
        if not self.moving.keys() <= self.running.keys():
            raise InvariantError("a job moves that does not run")
