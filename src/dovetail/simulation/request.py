"""The request of a simulation: to the engine, or to its compiled stand-in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from dovetail.engine.capacity.free import Placement
from dovetail.interfaces import Planner, Policy, RateModel, RuntimeModel
from dovetail.model import Cluster, JobId, Result, Seconds, TableTruth, Workload
from dovetail.records import dataclass
from dovetail.spec.values import Compilation, Overrun

if TYPE_CHECKING:
    from dovetail.engine.state.progress import Expectations


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How a simulation treats walltimes and what it keeps.

    ``overrun``: jobs that reach their walltime are killed, or run on. ``default_walltime``: of jobs
    without one, in seconds; ``"actual"`` takes the true time. ``validate`` holds the engine's books against
    each other after every instant, for tests. ``compiled``: the compiled stand-in takes the engine's
    place where it models all that is wanted (`dovetail.simulation.stand_in`), or never. ``clock`` has
    the CPU seconds of which the result notes its own; without one it notes none.
    """

    overrun: Overrun = "kill"
    default_walltime: Seconds | Literal["actual"] = "actual"
    placement: Placement = "pack"
    seed: int | None = None
    knowledge: str = "perfect"
    policy_name: str = ""
    policy_options: dict[str, object] = field(default_factory=dict)
    keep_considered: bool = False
    timer: Callable[[], float] | None = None
    progress: Callable[[int, int], None] | None = None
    validate: bool = False
    compiled: Compilation = "off"
    clock: Callable[[], float] | None = None


@dataclass(frozen=True, slots=True)
class SimulationRequest:
    """A request of a simulation; the workload has been prepared for the cluster."""

    workload: Workload
    cluster: Cluster
    policy: Policy | Planner
    runtimes: RuntimeModel
    rates: RateModel | None
    forecast: Expectations | None
    options: SimulationOptions


@dataclass(frozen=True, slots=True)
class NotModelled:
    """Why no compiled simulation takes the engine's place, in a few words for people."""

    reason: str


@runtime_checkable
class HasStandIn(Protocol):
    """A rate model under which some simulations are compiled."""

    def stand_in(self, request: SimulationRequest) -> Result | NotModelled:
        """The result, which is the engine's job by job, or why there is none."""
        ...


def best_times(workload: Workload) -> Mapping[JobId, Seconds]:
    """Each job's least true time over its implementations at the node count that it requests."""
    if workload.table is not None:
        return workload.table.times
    truth = workload.truth
    if isinstance(truth, TableTruth) and not truth.table:
        return truth.fixed
    known = _BEST.get(workload)
    if known is None:
        known = _BEST[workload] = _least_times(workload)
    return known


_BEST: WeakKeyDictionary[Workload, Mapping[JobId, Seconds]] = WeakKeyDictionary()


def _least_times(workload: Workload) -> Mapping[JobId, Seconds]:
    truth = workload.truth
    best: dict[JobId, Seconds] = {}
    seconds = truth.seconds
    for job in workload.jobs:
        if len(job.choices) == 1:
            choice = job.choices[0]
            only = seconds(job, choice.implementation, choice.request)
            if only is not None:
                best[job.id] = only
            continue
        choices = job.asked or job.choices
        times = [t for c in choices if (t := seconds(job, c.implementation, c.request)) is not None]
        if times:
            best[job.id] = min(times)
    return best
