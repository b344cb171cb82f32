"""What a policy may see: the queue, what is free now and later, what runs, what changed."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, Protocol

from dovetail.interfaces.learning import Forecast, RuntimeModel
from dovetail.model import (
    Allocation,
    Begun,
    Choice,
    Cluster,
    DeviceClass,
    ForeseenStart,
    HandedOver,
    Implementation,
    Intend,
    Job,
    JobId,
    PastStretch,
    Placed,
    Plan,
    Prediction,
    Promise,
    RecentEnd,
    RecentSubmission,
    Renew,
    Request,
    Seconds,
    Shape,
    Submit,
    Unit,
)

__all__ = [
    "Changes",
    "Deadlines",
    "Free",
    "Outside",
    "Profile",
    "Queue",
    "Recent",
    "Shadow",
    "View",
]


# Policies get protocols, not the engine's classes: what is not named here they cannot rely on, and the
# engine may store it as it likes. Bit masks stand for sets of nodes, since one `and` then tests them all.
class Free(Protocol):
    """Free capacity, copy-on-write: what a policy tries its ideas on."""

    def copy(self) -> Free:
        """An independent copy; costs a small dict."""
        ...

    def count(self, request: Request, *, within: int = -1) -> int:
        """Number of nodes (of the bit mask ``within``) that could give one node's share now."""
        ...

    def nodes(self, request: Request) -> int:
        """Bit mask of the nodes that could give one node's share now."""
        ...

    def cpus(self) -> tuple[int, int]:
        """The most free CPUs of any node, and the free CPUs of all."""
        ...

    def devices(self, kind: str, models: tuple[str, ...] = ()) -> Sequence[tuple[int, tuple[int, ...]]]:
        """Wholly free devices of a kind: bit masks of nodes with the same ones free, and their indices."""
        ...

    def fit(self, request: Request, *, within: int = -1) -> Allocation | None:
        """Where the request fits now by the placement rule, or ``None``.

        The rule: nodes that fit, fewest free devices first, then lowest index; devices by lowest index
        (other placements: the engine's ``placement`` option). ``within`` is a bit mask of allowed nodes.
        """
        ...

    def claim(self, request: Request) -> Allocation | None:
        """`fit`, and `take` what was found."""
        ...

    def claim_as(self, allocation: Allocation) -> Allocation | None:
        """Take it, or any nodes for its request if it names none; ``None`` if that is not free."""
        ...

    def fit_unit(self, request: Request, unit: Unit) -> Allocation | None:
        """The request on that unit's node, and on that very device if the unit is one; or ``None``."""
        ...

    def tightness(self, unit: Unit) -> int:
        """The place of a device among those that suffice for a share of one: of least free memory first."""
        ...

    def take(self, allocation: Allocation) -> None:
        """Mark as used. Raises `ValueError` if it is not free."""
        ...

    def give(self, allocation: Allocation) -> None:
        """Mark as free again."""
        ...

    def earliest(
        self, request: Request, releases: Iterable[tuple[Seconds, Allocation]], now: Seconds
    ) -> tuple[Seconds, Allocation] | None:
        """First time at which the request fits if ``releases`` (by ascending time) come true, and where.

        Releases at equal times count together. ``None`` if it never fits.
        """
        ...

    def give_until_fit(
        self,
        request: Request,
        releases: Iterable[tuple[Seconds, Allocation]],
        now: Seconds,
        *,
        fits_now: bool = True,
    ) -> tuple[Seconds, Allocation] | None:
        """As `earliest`, but what has been released by then is given back here: this is what is free then.

        Without ``fits_now`` the request is known not to fit before something is released.
        """
        ...


class Profile(Protocol):
    """Free capacity from now on, piecewise constant: what a policy may plan with. A slot is [start, end).

    A slot of no length is in an *instant*, a step of no length before all that begins at its time: a job
    that holds a node across that time is in its way, one that starts or ends then is not. Where all nodes
    are alike and taken whole, slots are counted and their allocations name no nodes.
    """

    def earliest(self, request: Request, duration: Seconds) -> tuple[Seconds, Allocation] | None:
        """The first time from which the request fits for so long, and where; ``None`` if there is none."""
        ...

    def hold(self, start: Seconds, duration: Seconds, allocation: Allocation) -> bool:
        """Take a slot; ``False``, nothing changed, if it is not free."""
        ...

    def renew(self) -> Renew | None:
        """Move each promise in turn, in the order of the queue, to the first gap before its start.

        All others stay in their places meanwhile. Gives the decision; ``None`` if nothing is to be decided.
        Promises that can be kept at this instant are not in it: they are due.
        """
        ...

    def due(self) -> list[Promise]:
        """Promises whose time has come, in the order of the queue."""
        ...

    def next_due(self) -> Promise | None:
        """The promise whose time comes next."""
        ...


class Shadow(Protocol):
    """The start of a job that does not fit now, and what others may use without delaying it."""

    @property
    def start(self) -> Seconds:
        """When the job can start if all run to their limits (the shadow time); may be infinite."""
        ...

    @property
    def allocation(self) -> Allocation | None:
        """What it can be promised then; ``None`` if nothing."""
        ...

    def deadlines(self, requests: Iterable[Request]) -> Iterable[tuple[Request, Seconds]]:
        """Of these the requests of jobs that may start now, and when those must have ended; may be never."""
        ...

    def backfill(self, request: Request, end: Seconds) -> Allocation | None:
        """Take nodes for a job that starts now and ends by then; ``None`` if that would delay the other."""
        ...


# A callable, not a mapping: deadlines change while a policy takes jobs, and only those of requests that are
# still in question are computed.
Deadlines = Callable[[Iterable[Request]], Iterable[tuple[Request, Seconds]]]
"""Of some requests those of jobs that may start now, and when such a job must have ended."""


class Queue(Protocol):
    """Waiting jobs that are bound to no device. Iterates in order of submission (time, then file order)."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Job]: ...

    def __contains__(self, job: object) -> bool: ...

    # A key names an index: the engine keeps a sorted list for each function that it was given, so a lambda
    # that is made anew at each call would cost a list each time.
    def by(self, key: Callable[..., Any], *, bounded: bool = False) -> Sequence[Job]:
        """The waiting jobs by ascending key, then submission order.

        ``key`` must be a module-level function of the job alone: the order is kept up to date from its
        first use on, O(log n) a change, so no policy sorts the queue at every event. With ``bounded`` it
        is called as ``key(job, limit)``, where ``limit`` is the walltime or what stands in for it (the
        largest over its choices).
        """
        ...

    def in_time(
        self,
        key: Callable[..., Any],
        now: Seconds,
        deadlines: Deadlines,
        *,
        bounded: bool = False,
    ) -> Iterator[Job]:
        """The jobs of ``by`` that end by their request's deadline if they start now; others cost no time.

        Deadlines are read again after each job. Jobs that could run in several ways come in any
        case: a caller that takes one checks its choice again.
        """
        ...

    def requests(self) -> Mapping[Request, int]:
        """How many of the waiting jobs make each request (jobs with several choices count in each)."""
        ...


class Changes(Protocol):
    """What happened since the policy was last called, as of the first call after it happened."""

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
    def migrated(self) -> Sequence[Placed]:
        """Jobs that hold another place now."""
        ...

    @property
    def incident(self) -> bool:
        """Whether anything else changed but for jobs that wait no more: a node lost or back, a plan."""
        ...

    @property
    def otherwise(self) -> bool:
        """Whether anything else changed: an incident, or a waiting job was cancelled or held back."""
        ...


# Bounded, so that a service that runs for months looks no further back than one that began today.
class Recent(Protocol):
    """What happened of late, as far as it is remembered."""

    @property
    def ran(self) -> Sequence[RecentEnd]:
        """The last 256 jobs that ended and had a bound, oldest first."""
        ...

    @property
    def came(self) -> Sequence[RecentSubmission]:
        """The last 64 jobs that came to the queue and had a bound, oldest first."""
        ...

    @property
    def stretch(self) -> PastStretch | None:
        """The last 2,048 submissions, as of the last time that 256 more had come; ``None`` before that."""
        ...


class Outside(Protocol):
    """What is known of the outside scheduler to which jobs are handed over."""

    @property
    def submitted(self) -> Mapping[JobId, Submit]:
        """Jobs in its hands that have not started, in the order in which they were handed over."""
        ...

    def outlook(self, shape: Shape) -> ForeseenStart | None:
        """The executor's last answer about such jobs; ``None`` before its first (see `Inquire`)."""
        ...

    def handed_over(self, target: str, since: Seconds) -> Sequence[HandedOver]:
        """What was handed over to that target at that moment or after it, whatever became of it."""
        ...

    def since(self, job: JobId) -> Seconds:
        """When a job that is in its hands was handed over."""
        ...

    def begun(self) -> Sequence[Begun]:
        """Its last starts of jobs for which it had foreseen one, oldest first."""
        ...

    def was_cut_short(self, job: JobId) -> bool:
        """Whether the job has run into a walltime that was below its user's."""
        ...


# Properties, no methods, for what the engine has at hand anyway; methods for what costs something to make.
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
    def moving(self) -> Container[JobId]:
        """Running jobs that are on their way to another place; they hold both until they have arrived."""
        ...

    @property
    def staying(self) -> Container[JobId]:
        """Running jobs whose borrowed devices cannot move: a `Migrate` of theirs would be refused."""
        ...

    @property
    def elsewhere(self) -> Container[JobId]:
        """Running jobs that an outside scheduler has put where they hold nothing that is counted here."""
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
    def recent(self) -> Recent:
        """What happened of late; empty for a policy that does not look back."""
        ...

    @property
    def intended(self) -> Mapping[JobId, Intend]:
        """The policy's stated intentions for waiting jobs, in the order in which it stated them."""
        ...

    @property
    def runtimes(self) -> RuntimeModel:
        """Predictions; every one that is used is journalled."""
        ...

    @property
    def forecast(self) -> Forecast | None:
        """What is expected of running jobs, for policies that weigh what sharing will cost."""
        ...

    @property
    def changes(self) -> Changes:
        """What happened since the policy was last called at another instant."""
        ...

    @property
    def outside(self) -> Outside:
        """The outside scheduler, where there is one."""
        ...

    @property
    def plan(self) -> Plan | None:
        """The plan in force, if a planner has made one."""
        ...

    # Policies read it before they plan: counting nodes is faster by orders than placing jobs on each.
    @property
    def interchangeable(self) -> bool:
        """Whether all nodes are alike and every job so far takes whole nodes.

        Then any set of free nodes is as good as any other of its size, and capacity over time is a count.
        """
        ...

    # Most events free nothing that matters: a policy that reads this skips its whole queue.
    @property
    def freed(self) -> bool:
        """Whether jobs that could not start when the policy was last called might now.

        If not, only what has been submitted since needs a look.
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
        """A job that waits, runs or has just ended, by id; `KeyError` for others."""
        ...

    def occupant(self, unit: Unit) -> Placed | None:
        """The job that uses this unit; of several on one CPU pool the one predicted to end last."""
        ...

    def predict(
        self, job: Job, implementation: Implementation, request: Request, device: DeviceClass
    ) -> Prediction | None:
        """Short for ``runtimes.predict``, cached until the model changes."""
        ...

    def untried(self, app: str, implementation: str, device: DeviceClass) -> bool:
        """Whether an app of which nothing is predicted there is to be tried on this class.

        Where no run has completed; never with the papers' own model, ``least-squares``, under which their
        policies are what they were.
        """
        ...

    def bound(self, job: Job, implementation: Implementation, request: Request) -> Seconds:
        """Upper bound of its run time, on which promises rest: walltime, default or learned; or infinite."""
        ...

    def shadow(
        self,
        request: Request,
        free: Free,
        started: Sequence[tuple[Job, Choice, Allocation]],
        duration: Seconds = inf,
    ) -> Shadow:
        """When a job can start that does not fit on ``free``, and what others may take of it meanwhile.

        ``free`` is what is left of the view's; ``started`` has what has been taken from it for jobs that
        the policy starts at this instant. ``duration`` is the bound of the job's run time: where nodes are
        reserved it must have ended before that.
        """
        ...

    def releases(self) -> Sequence[tuple[Seconds, Allocation]]:
        """When running jobs end by their bounds, ascending (never before now), and what they free."""
        ...

    def profile(self) -> Profile:
        """Free capacity from now on, as running jobs end by their limits, without promises; to plan with."""
        ...

    def promised(self, key: Callable[..., Any], *, bounded: bool = False) -> Profile | None:
        """The same with every promise in its place; ``None`` where an overrun has made them impossible.

        The promises are in this order of the queue (see `Queue.by`). One such profile at a time: what is
        planned in it and not decided at once is forgotten.
        """
        ...

    def unpromised(self, key: Callable[..., Any], *, bounded: bool = False) -> Sequence[Job]:
        """The waiting jobs that hold no promise, in this order of the queue."""
        ...

    def remaining(self, placed: Placed) -> Seconds:
        """Predicted seconds until it ends, never negative; 0 where nothing was predicted."""
        ...
