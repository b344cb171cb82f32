"""What is known of run times: models, the histories they learn from, rates of jobs that share, forecasts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from dovetail.model import (
    DeviceClass,
    Implementation,
    Job,
    JobId,
    Placed,
    Prediction,
    Request,
    Run,
    Seconds,
)

if TYPE_CHECKING:
    from dovetail.model import Cluster, Workload
    from dovetail.model.remote_costs import RemoteCosts

__all__ = [
    "ExpectedWork",
    "Forecast",
    "ForecastsSharing",
    "History",
    "LearnsSharing",
    "PricesBorrowing",
    "RateModel",
    "RuntimeModel",
    "SeesProgress",
]


class RuntimeModel(Protocol):
    """Predicts how long a job takes."""

    @property
    def version(self) -> int:
        """Changes whenever a prediction may have changed; constant for perfect knowledge."""
        ...

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """The prediction, or ``None`` where nothing is known. Milliseconds at most, usually cached."""
        ...

    def runs(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Completed runs of this app and implementation on this class, whatever the inputs or request.

        0 is the "no history" of Gregg 2011's rule 2.
        """
        ...


class History(Protocol):
    """Measured runs."""

    @property
    def version(self) -> int:
        """Grows with every change that this process or another has made."""
        ...

    def record(self, run: Run) -> bool:
        """Keep a run; ``False`` if a run of this ``uid`` was there already (nothing changes then)."""
        ...

    def runs(
        self, app: str, implementation: str | None = None, device: DeviceClass | None = None
    ) -> Sequence[Run]:
        """Completed runs, oldest first."""
        ...

    def count(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Number of completed runs. O(1)."""
        ...


# What a rate model can do beyond rates is in protocols of their own, below: the engine tests for each with
# `isinstance`, and a plain model needs `changed` alone.
class RateModel(Protocol):
    """How fast jobs progress while they share a cluster; used in simulation only."""

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """New rates (1 is the speed alone) and one-time stalls, of the jobs for which they changed.

        Called once an instant; the model keeps what it needs to know of what runs. ``migrated`` holds the
        jobs with their new allocation.
        """
        ...


# What a policy expects is computed beside the simulation, over predicted times: `fresh` makes a second model
# for that, since `changed` alters the model that it is called on.
@runtime_checkable
class ForecastsSharing(RateModel, Protocol):
    """A rate model that prepares a workload, and that policies may question about what sharing will cost."""

    def prepare(self, workload: Workload, cluster: Cluster, policy: object) -> tuple[Workload, Cluster]:
        """Workload and cluster as the model's simulation takes them, before it begins."""
        ...

    def fresh(self, cluster: Cluster) -> RateModel:
        """The same model before anything runs."""
        ...

    def as_json(self) -> Mapping[str, object]:
        """The model's parameters, for a journal; the class's ``from_json`` makes it again."""
        ...


# `Any` for the history: this room imports none, and a plugin may have one of its own.
@runtime_checkable
class LearnsSharing(RateModel, Protocol):
    """A rate model of jobs that share devices, which knows pairs of apps by the runs of a history."""

    def learn(self, history: Any, cluster: Cluster) -> None:
        """Called before a simulation with a history of runs, or ``None``; and whose devices they are."""
        ...

    def slowdown(self, app: str, implementation: str, device: DeviceClass) -> float:
        """How many times as long runs take on a class ``MODEL beside APP``."""
        ...


class ExpectedWork(NamedTuple):
    """What is expected of a running job: ``left`` of ``total`` seconds of work (at rate 1) as of ``since``.

    While it is stalled ``since`` lies ahead.
    """

    total: Seconds
    left: Seconds
    since: Seconds
    rate: float


class Forecast(Protocol):
    """What a rate model expects of running jobs, over predicted times."""

    @property
    def rates(self) -> RateModel:
        """The model; policies use it to estimate what sharing would cost."""
        ...

    def expected(self, job: JobId) -> ExpectedWork | None:
        """What is left of a running job; ``None`` where nothing was predicted."""
        ...


# Stalls are charged once, so a model that charges by progress needs to read it at that moment.
@runtime_checkable
class SeesProgress(Protocol):
    """A rate model whose stalls depend on how far a job has come."""

    def watch(self, done: Callable[[JobId], float]) -> None:
        """Called before a simulation: ``done`` is the fraction of its work that a running job has done."""
        ...


@runtime_checkable
class PricesBorrowing(Protocol):
    """A rate model of borrowed GPUs, which estimates what they cost (Markthub 2015).

    ``processes``: a job has one a ``node``, or one for each ``gpu``. ``recorded``: whether calls to borrowed
    GPUs are recorded, so that these can move home (``yes``, ``no``).
    """

    constants: RemoteCosts
    processes: Literal["node", "gpu"]
    recorded: Literal["auto", "yes", "no"]

    def standing(self, job: JobId) -> tuple[Seconds, Mapping[int, int]]:
        """How long a running job takes in all if everything stays as it is; GPUs that came home, by node."""
        ...
