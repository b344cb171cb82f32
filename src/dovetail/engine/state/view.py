"""What a policy sees of the engine: live references and maintained indices, nothing built per event."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Container, Mapping, Sequence
from math import inf
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dovetail.engine.profile.shadow import CountShadow, NodeShadow, ReservedShadow
from dovetail.engine.state.recent import InstantChanges
from dovetail.interfaces import Forecast, Free, Outside, Profile, Queue, Recent, RuntimeModel, Shadow
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
    Plan,
    Prediction,
    Promise,
    Request,
    Seconds,
    Unit,
)

if TYPE_CHECKING:
    from dovetail.engine.state.books import Books


class EngineView:
    """Implements `dovetail.interfaces.View` over an engine."""

    __slots__ = (
        "_engine",
        "bound",
        "changes",
        "cluster",
        "device_queues",
        "elsewhere",
        "free",
        "intended",
        "moving",
        "now",
        "outside",
        "plan",
        "queue",
        "recent",
        "reservations",
        "running",
        "staying",
    )

    def __init__(self, engine: Books) -> None:
        self._engine = engine
        self.now: Seconds = 0.0
        self.cluster: Cluster = engine.cluster
        self.queue: Queue = engine.queue
        self.changes = InstantChanges()
        self.running: Mapping[JobId, Placed] = MappingProxyType(engine.running)
        self.moving: Container[JobId] = engine.moving.keys()
        self.staying: Container[JobId] = engine.staying
        self.elsewhere: Container[JobId] = engine.occupancy.uncounted
        self.device_queues: Mapping[int, Sequence[tuple[Job, Implementation]]] = MappingProxyType(
            engine.device_queues
        )
        self.recent: Recent = engine.recent
        self.intended: Mapping[JobId, Intend] = MappingProxyType(engine.intended)
        self.reservations: Mapping[JobId, Promise] = MappingProxyType(engine.promises.held)
        self.outside: Outside = engine.outside
        self.free: Callable[[], Free] = engine.free.copy
        self.bound: Callable[[Job, Implementation, Request], Seconds] = engine.bound_of
        self.plan: Plan | None = None

    @property
    def runtimes(self) -> RuntimeModel:
        """Predictions, cached and journalled."""
        return self._engine.predictions

    @property
    def forecast(self) -> Forecast | None:
        """What a rate model expects of running jobs, over predicted times, if there is one."""
        return self._engine.forecast

    @property
    def enqueued(self) -> int | None:
        """Unit of the last `Enqueue`."""
        return self._engine.last_enqueued

    def job(self, job: JobId) -> Job:
        """A submitted job by id; raises `KeyError`."""
        return self._engine.records[job].job

    def occupant(self, unit: Unit) -> Placed | None:
        """The job on this unit; of several on one CPU pool, the one predicted to end last."""
        placed = self._engine.on_unit(unit)
        if len(placed) <= 1:
            return placed[0] if placed else None
        return max(placed, key=self.remaining)

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """Short for ``runtimes.predict``."""
        return self._engine.predictions.predict(job, implementation, request, device)

    def untried(self, app: str, implementation: str, device: DeviceClass) -> bool:
        """Whether an app of which nothing is predicted there is to be tried on this class."""
        return self._engine.predictions.untried(app, implementation, device)

    @property
    def interchangeable(self) -> bool:
        """Whether all nodes are alike and every job so far takes whole nodes."""
        return self._engine.profiles.counted

    @property
    def freed(self) -> bool:
        """Whether jobs that could not start at the policy's last call might now.

        Where nodes are counted nothing grows but by ends and incidents. Else a job may find other nodes,
        that delay no other, when those that it was to get have gone to another job.
        """
        changes = self.changes
        freed = changes.otherwise or changes.ended or changes.migrated
        return bool(freed) or not self._engine.profiles.counted

    def shadow(
        self,
        request: Request,
        free: Free,
        started: Sequence[tuple[Job, Choice, Allocation]],
        duration: Seconds = inf,
    ) -> Shadow:
        """When a job can start that does not fit on ``free``, and what others may take of it meanwhile.

        ``duration`` is how long it may run, which matters where nodes are reserved.
        """
        if self._engine.reservations and self._engine.profiles.keeps_nodes:
            return ReservedShadow(
                request, duration, free, self._engine.profiles.plan_for_head(started), self.now
            )
        releases = self._engine.releases
        if started:
            releases = releases.copy()
            for job, choice, allocation in started:
                end = self.now + self.bound(job, choice.implementation, choice.request)
                insort(releases, (end, allocation), key=itemgetter(0))
        kind = CountShadow if self._engine.profiles.counted else NodeShadow
        return kind(request, free, releases, self.now)

    def releases(self) -> Sequence[tuple[Seconds, Allocation]]:
        """When running jobs end by their bounds, ascending, never before now, and what they free."""
        entries = self._engine.releases
        now = self.now
        if entries and entries[0][0] < now:
            return [(max(time, now), allocation) for time, allocation in entries]
        return entries

    def profile(self) -> Profile:
        """Free capacity from now on, as running jobs end by their limits, without promises."""
        return self._engine.profiles.running()

    def promised(self, key: Callable[..., Any], *, bounded: bool = False) -> Profile | None:
        """The same with every promise in its place; ``None`` where an overrun has made them impossible."""
        return self._engine.profiles.promised(key, bounded)

    def unpromised(self, key: Callable[..., Any], *, bounded: bool = False) -> Sequence[Job]:
        """The waiting jobs that hold no promise, in this order. O(new jobs) mostly."""
        held, queue = self._engine.promises.held, self._engine.queue
        missing = len(queue) - len(held)
        if not missing and not self.device_queues:
            return ()
        if held and not self.device_queues and not self.changes.otherwise:
            new = [job for job in self.changes.submitted if job.id not in held and job in queue]
            if len(new) == missing:
                return sorted(new, key=queue.place_in(key, bounded))
        return [job for job in queue.by(key, bounded=bounded) if job.id not in held]

    def remaining(self, placed: Placed) -> Seconds:
        """Predicted seconds until it ends, never negative; 0 where nothing was predicted."""
        if placed.predicted is None:
            return 0.0
        return max(0.0, placed.start_time + placed.predicted - self.now)
