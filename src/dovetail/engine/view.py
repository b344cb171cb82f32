"""What a policy sees of the engine: live references and maintained indices, nothing built per event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from dovetail.engine.capacity import FreeCapacity
from dovetail.interfaces import Free, Profile, Queue, RateModel, RuntimeModel
from dovetail.model import (
    Allocation,
    Cluster,
    DeviceClass,
    Implementation,
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
    from dovetail.engine.core import Engine

__all__ = ["EngineView", "InstantChanges"]


@dataclass(slots=True)
class InstantChanges:
    """What happened since the policy was last asked, as of the first call after it happened."""

    submitted: list[Job] = field(default_factory=list)
    ended: list[Placed] = field(default_factory=list)
    started: list[Placed] = field(default_factory=list)
    otherwise: bool = False


class EngineView:
    """Implements `dovetail.interfaces.View` over an engine."""

    __slots__ = (
        "_engine",
        "changes",
        "cluster",
        "device_queues",
        "interchangeable",
        "now",
        "plan",
        "queue",
        "reservations",
        "running",
    )

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.now: Seconds = 0.0
        self.cluster: Cluster = engine.cluster
        self.queue: Queue = engine.queue
        self.changes = InstantChanges()
        self.interchangeable = engine.free.alike()
        self.running: Mapping[JobId, Placed] = MappingProxyType(engine.running)
        self.device_queues: Mapping[int, Sequence[tuple[Job, Implementation]]] = MappingProxyType(
            engine.device_queues
        )
        self.reservations: Mapping[JobId, Promise] = MappingProxyType(engine.promises.held)
        self.plan: Plan | None = None

    @property
    def runtimes(self) -> RuntimeModel:
        """Predictions, cached and journalled."""
        return self._engine.predictions

    @property
    def forecast(self) -> RateModel | None:
        """A rate model over predicted times, if there is one."""
        return self._engine.forecast

    @property
    def enqueued(self) -> int | None:
        """Unit of the last `Enqueue`."""
        return self._engine.last_enqueued

    def free(self) -> Free:
        """Free capacity now, as a copy."""
        return self._engine.free.copy()

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

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Upper bound of the run time, on which promises rest."""
        return self._engine.bound(job, implementation, request)

    def releases(self) -> Sequence[tuple[Seconds, Allocation]]:
        """When running jobs end by their bounds, ascending, never before now, and what they free."""
        entries = self._engine.releases
        now = self.now
        if entries and entries[0][0] < now:
            return [(max(time, now), allocation) for time, allocation in entries]
        return entries

    def profile(self) -> Profile:
        """Free capacity from now on, as running jobs end by their bounds."""
        return self._engine.profiles.running()

    def promised(self) -> Profile | None:
        """The same with all promises entered; ``None`` where an overrun has made them impossible."""
        return self._engine.profiles.promised()

    def remaining(self, placed: Placed) -> Seconds:
        """Predicted seconds until it ends, never negative; 0 where nothing was predicted."""
        if placed.predicted is None:
            return 0.0
        return max(0.0, placed.start_time + placed.predicted - self.now)

    def full(self) -> FreeCapacity:
        """The capacity of the cluster with nothing in use."""
        return FreeCapacity(self._engine.layout)
