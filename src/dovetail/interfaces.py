"""Every Protocol that a part of Dovetail, or a plugin, can implement. Read this first.

    events ──► Engine ──► decisions            the engine knows no clock and does no I/O
                 │ view
                 ▼
               Policy ── asks ──► RuntimeModel (how long?)   RateModel (how fast while sharing?)

A `Policy` is a frozen dataclass of its parameters and keeps no state between calls: whatever
accumulates (queues, promises, predictions used) is the engine's accounting, shown in the `View`.
Times are seconds, memory is bytes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Protocol, runtime_checkable

from dovetail.model import (
    Allocation,
    Cluster,
    Decision,
    DeviceClass,
    Event,
    Implementation,
    Job,
    JobId,
    Placed,
    Plan,
    Prediction,
    Promise,
    Request,
    Run,
    Seconds,
    Unit,
    Workload,
)

__all__ = [
    "Changes",
    "Entry",
    "Executor",
    "Free",
    "Group",
    "History",
    "Planner",
    "Policy",
    "Profile",
    "Queue",
    "RateModel",
    "RuntimeModel",
    "Slot",
    "View",
    "WorkloadReader",
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


class RateModel(Protocol):
    """How fast jobs progress while they share a cluster; used in simulation only."""

    def changed(
        self, started: Sequence[Placed], ended: Sequence[Placed], migrated: Sequence[Placed]
    ) -> tuple[Mapping[JobId, float], Mapping[JobId, Seconds]]:
        """New rates (1 is the speed alone) and one-time stalls, of the jobs for which they changed.

        Asked once an instant; the model keeps what it needs to know of what runs. ``migrated`` holds the
        jobs with their new allocation.
        """
        ...


class Free(Protocol):
    """Free capacity, copy-on-write: what a policy tries its ideas on."""

    def copy(self) -> Free:
        """An independent copy; costs a small dict."""
        ...

    def count(self, request: Request, *, within: int = -1) -> int:
        """Number of nodes (of the bit mask ``within``) that could give one node's share now."""
        ...

    def fit(self, request: Request, *, within: int = -1) -> Allocation | None:
        """Where the request fits now by the placement rule, or ``None``.

        The rule: nodes that fit, fewest free devices first, then lowest index; devices by lowest index
        (other placements: the engine's ``placement`` option). ``within`` is a bit mask of allowed nodes.
        """
        ...

    def fit_unit(self, request: Request, unit: Unit) -> Allocation | None:
        """The request on that unit's node, and on that very device if the unit is one; or ``None``."""
        ...

    def take(self, allocation: Allocation) -> None:
        """Mark as used. Raises `ValueError` if it is not free."""
        ...

    def give(self, allocation: Allocation) -> None:
        """Mark as free again."""
        ...

    def meet(self, other: Free) -> None:
        """Keep of every node only what is free here and in ``other`` (of the same cluster)."""
        ...

    def earliest(
        self, request: Request, releases: Iterable[tuple[Seconds, Allocation]], now: Seconds
    ) -> tuple[Seconds, Allocation] | None:
        """First time at which the request fits if ``releases`` (by ascending time) come true, and where.

        Releases at equal times count together. ``None`` if it never fits.
        """
        ...


Slot = tuple[Seconds, Seconds, Allocation]
"""Start, duration, and what is held."""


class Profile(Protocol):
    """Free capacity from now on, piecewise constant: what a policy may plan with. A slot is [start, end).

    A slot of no length is in an *instant*, a step of no length before all that begins at its time: nobody
    who holds a node across that time may be in its way, but who starts or ends then is not. Where nodes
    are interchangeable (`View.interchangeable`) slots are counted, and their allocations name no nodes.
    """

    def earliest(
        self, request: Request, duration: Seconds, before: Seconds = inf
    ) -> tuple[Seconds, Allocation] | None:
        """The first time, and before that one, from which the request fits for so long, and where."""
        ...

    def pull(
        self, start: Seconds, duration: Seconds, allocation: Allocation
    ) -> tuple[Seconds, Allocation] | None:
        """Move a held slot to the first gap that begins earlier; where to, or ``None`` if it stays."""
        ...

    def at(self, start: Seconds, request: Request, duration: Seconds) -> Allocation | None:
        """Where the request fits for so long from that very time."""
        ...

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        ...

    def hold_all(self, slots: Iterable[Slot]) -> bool:
        """Take these slots, the first of all; ``False`` if not all are free (it is then of no use)."""
        ...


Entry = tuple[Any, int, Seconds, Job]
"""Key of an order, place of submission, upper bound of the run time, job: entries compare as the order."""


class Group(Protocol):
    """Waiting jobs that ask for the same, in an order of the queue."""

    @property
    def size(self) -> int:
        """How many there are; may be none."""
        ...

    def first(self, after: Entry | None) -> Entry | None:
        """The first entry, or the first after another one."""
        ...

    def first_in_time(self, after: Entry | None, now: Seconds, end: Seconds) -> Entry | None:
        """The first entry, or first after another one, that has ended by ``end`` if it starts now."""
        ...


class Queue(Protocol):
    """Waiting jobs that are bound to no device. Iterates in order of submission (time, then file order)."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Job]: ...

    def __contains__(self, job: object) -> bool: ...

    def by(self, key: Callable[..., Any], *, bounded: bool = False) -> Sequence[Job]:
        """The waiting jobs by ascending key, then submission order.

        ``key`` must be a module-level function of the job alone: the order is kept up to date from its
        first use on, O(log n) a change, so no policy sorts the queue at every event. With ``bounded`` it
        is called as ``key(job, limit)``, where ``limit`` is the upper bound of the job's run time by its
        walltime or what stands in for it (the largest over its choices).
        """
        ...

    def groups(self, key: Callable[..., Any], *, bounded: bool = False) -> Mapping[Request, Group] | None:
        """The jobs of ``by`` grouped by what they ask for; ``None`` if some could run in several ways."""
        ...

    def requests(self) -> Mapping[Request, int]:
        """How many of the waiting jobs ask for each request (jobs with several choices count in each)."""
        ...


class Changes(Protocol):
    """What happened since the policy was last asked, as of the first call after it happened."""

    @property
    def submitted(self) -> Sequence[Job]:
        """Jobs that entered the queue."""
        ...

    @property
    def ended(self) -> Sequence[Placed]:
        """Jobs that ended, as they ran."""
        ...

    @property
    def started(self) -> Sequence[Placed]:
        """Jobs that started."""
        ...

    @property
    def otherwise(self) -> bool:
        """Whether anything else changed: a cancellation, a node lost or back, estimates, a plan."""
        ...


class View(Protocol):
    """All that a policy may know; read-only and cheap: nothing in it is built per event."""

    @property
    def now(self) -> Seconds:
        """This instant."""
        ...

    @property
    def cluster(self) -> Cluster:
        """Where jobs can run; lost nodes have no free capacity."""
        ...

    @property
    def queue(self) -> Queue:
        """Waiting jobs, those in device FIFOs excluded."""
        ...

    @property
    def running(self) -> Mapping[JobId, Placed]:
        """Running jobs, in order of their start."""
        ...

    @property
    def device_queues(self) -> Mapping[int, Sequence[tuple[Job, Implementation]]]:
        """FIFO of each unit (by `Unit.index`) that has one; units without waiting jobs are left out."""
        ...

    @property
    def reservations(self) -> Mapping[JobId, Promise]:
        """Promises held, in the order in which they were first made."""
        ...

    @property
    def runtimes(self) -> RuntimeModel:
        """Predictions; every one that is used is journalled."""
        ...

    @property
    def forecast(self) -> RateModel | None:
        """A rate model over predicted times, for policies that ask what sharing will cost."""
        ...

    @property
    def changes(self) -> Changes:
        """What happened since the policy was last asked at another instant."""
        ...

    @property
    def plan(self) -> Plan | None:
        """The plan in force, if a planner has made one."""
        ...

    @property
    def interchangeable(self) -> bool:
        """Whether all nodes are alike and every job so far takes whole nodes.

        Then any set of free nodes is as good as any other of its size, and capacity over time is a count.
        """
        ...

    @property
    def enqueued(self) -> int | None:
        """Unit of the last `Enqueue`, over the whole run (round robin counts on from it)."""
        ...

    def free(self) -> Free:
        """Free capacity now, as a copy that the policy may change."""
        ...

    def job(self, job: JobId) -> Job:
        """A submitted job by id."""
        ...

    def occupant(self, unit: Unit) -> Placed | None:
        """The job that uses this unit; of several on one CPU pool the one predicted to end last."""
        ...

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """Short for ``runtimes.predict``, cached until the model changes."""
        ...

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Upper bound of its run time, on which promises rest: walltime, default or learned; or infinite."""
        ...

    def releases(self) -> Sequence[tuple[Seconds, Allocation]]:
        """When running jobs end by their bounds, ascending (never before now), and what they free."""
        ...

    def profile(self) -> Profile:
        """Free capacity from now on, as running jobs end by their bounds; a copy to plan with."""
        ...

    def promised(self) -> Profile | None:
        """The same with all promises entered; ``None`` where an overrun has made them impossible."""
        ...

    def remaining(self, placed: Placed) -> Seconds:
        """Predicted seconds until it ends, never negative; 0 where nothing was predicted."""
        ...


@runtime_checkable
class Policy(Protocol):
    """Decides who runs where. A frozen dataclass of its parameters; stateless.

    A policy of which one call decides all that it has to decide may say so with a class attribute
    ``settles = True``: the engine then asks it once for each batch of events, not until it returns
    nothing new. A field ``placement`` ("pack", "spread" or "first") chooses the engine's placement rule, a
    field ``walltime`` that is "learned" makes bounds the upper ends of predictions.
    """

    def decide(self, view: View) -> Iterable[Decision]:
        """Decisions for this instant; asked again until there is nothing new.

        The view does not change while its decisions are collected: a policy that starts several jobs
        keeps its own ``free = view.free()`` and takes from it.
        """
        ...


@runtime_checkable
class Planner(Protocol):
    """Makes a `Plan` of all waiting jobs; may take its time; its plan is journalled, then followed."""

    def plan(self, view: View) -> Plan:
        """A plan for the queue of this view."""
        ...


class Executor(Protocol):
    """Runs jobs for real. Never raises for a job's own failure: that is an `Ended` event."""

    async def launch(self, placed: Placed) -> None:
        """Start the job on what it was given."""
        ...

    async def stop(self, job: JobId, reason: str) -> None:
        """End it (TERM, then KILL of the whole group); ``Ended`` follows, with the state ``reason``."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """What happens, as it happens."""
        ...

    async def close(self) -> None:
        """Stop what still runs and free what is held."""
        ...


class WorkloadReader(Protocol):
    """Reads a file into a `Workload`; its docstring states how fields are mapped."""

    def __call__(self, path: str, cluster: Cluster, *, lenient: bool = False) -> Workload:
        """Raises `InputError` with file and line at the first malformed line unless ``lenient``."""
        ...
