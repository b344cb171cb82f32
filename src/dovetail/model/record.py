"""What became of a job, and what a run measured."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.model.allocation import Allocation
from dovetail.model.event import State, Usage
from dovetail.model.frozen import frozen
from dovetail.model.job import EMPTY, Implementation, Job, JobId, Request, Seconds
from dovetail.model.node import CPU, DeviceClass
from dovetail.records import dataclass

__all__ = ["Companions", "Placed", "Prediction", "Record", "Run", "Span"]

CPU_CLASS = DeviceClass(CPU)


@frozen(frozen=True, slots=True)
class Prediction:
    """How long a job is expected to take.

    ``upper`` is the upper end and ``lower`` the lower end of the 90 % interval, ``samples`` the number of
    runs that it rests on, ``basis`` describes in a few words what was done, for people.
    """

    expected: Seconds
    upper: Seconds
    samples: int
    basis: str
    lower: Seconds = 0.0


@frozen(frozen=True, slots=True)
class Placed:
    """A running job as policies see it: no progress, which would give the true time away.

    ``predicted`` is the expected time at its start; ``bound`` the moment by which it ends if walltimes
    (or learned bounds) hold, infinite where there is none. ``attempt`` counts its starts.
    """

    job: Job
    implementation: Implementation
    allocation: Allocation
    start_time: Seconds
    predicted: Seconds | None
    bound: Seconds
    device_class: DeviceClass = CPU_CLASS
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Span:
    """What a job held from ``start`` to ``end``, before the present place: an attempt, or before a move.

    ``state`` is how the attempt ended; ``None`` where the job moved on and the attempt went on.
    """

    start: Seconds
    end: Seconds
    allocation: Allocation
    implementation: Implementation
    state: State | None = None
    detail: str = ""


@dataclass(slots=True)
class Record:
    """What became of one job; the row of the results.

    ``start`` is that of the last attempt, ``since`` the moment from which it holds its present allocation
    (``None``: since its start), ``earlier`` what it held before. ``remote_gpus`` were borrowed at its start,
    ``migrations`` are the devices that have moved home since. ``failures`` are failed attempts under an
    earlier driver, which ``earlier`` does not have. ``stdout`` and ``stderr`` are paths, of real runs.
    """

    job: Job
    state: State = State.PENDING
    implementation: Implementation | None = None
    allocation: Allocation | None = None
    start: Seconds | None = None
    end: Seconds | None = None
    predicted: Prediction | None = None
    exit_code: int | None = None
    detail: str = ""
    usage: Usage | None = None
    promised: Seconds | None = None
    wait_reason: str = ""
    considered: tuple[tuple[str, Seconds | None], ...] = ()
    device_class: DeviceClass | None = None
    attempts: int = 0
    since: Seconds | None = None
    earlier: tuple[Span, ...] = ()
    stdout: str | None = None
    stderr: str | None = None
    remote_gpus: int = 0
    migrations: int = 0
    failures: int = 0
    beside: Companions | None = None

    @property
    def run_time(self) -> Seconds | None:
        """Seconds between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start

    @property
    def took(self) -> Seconds | None:
        """Seconds that a job which completed took itself, where its backend measured them: what is learned.

        `run_time` is the same but for a job that has moved, and where only the driver's instants are known.
        """
        # The backend's measure leaves out how late its report came.
        if self.state is State.COMPLETED and self.usage is not None and self.usage.wall_time is not None:
            return self.usage.wall_time
        return self.run_time


MOST_SLOWDOWN = 16.0
"""What is measured above it is no slowdown, but a wrong expectation."""


@dataclass(frozen=True, slots=True)
class Companions:
    """What ran beside a run: seconds in which runs of each app were on its device, or on cores of its node.

    ``alone`` is how long it was expected to take with the device to itself, ``slowdown`` how many times as
    long it was expected to take beside the others when it started; ``None`` where that was not known.
    """

    device: tuple[tuple[str, Seconds], ...] = ()
    cores: tuple[tuple[str, Seconds], ...] = ()
    alone: Seconds | None = None
    slowdown: float | None = None

    def words(self, seconds: Seconds | None) -> str:
        """For people: its neighbours, what was expected of that, and what came in a run of ``seconds``.

        >>> Companions((("train", 8.0),), (), 6.0, 1.25).words(8.0)
        'shared its device with train for 8 s: expected 1.25 times as long, took 1.33 times as long'
        """
        if not self.device:
            return ""
        who = ", ".join(f"{app} for {span:.3g} s" for app, span in self.device)
        expected = "nothing known" if self.slowdown is None else f"expected {self.slowdown:.2f} times as long"
        came = None if seconds is None else self.came(seconds)
        found = "" if came is None else f", took {came:.2f} times as long"
        return f"shared its device with {who}: {expected}{found}"

    def came(self, seconds: Seconds) -> float | None:
        """How many times as long it took while it shared its device; ``None`` where that cannot be known.

        A run of ``seconds`` did in ``shared`` of them the work that it would have done alone in
        ``alone - (seconds - shared)``.
        """
        shared = min(seconds, sum(span for _, span in self.device))
        if self.alone is None or shared <= 0:
            return None
        # A run of one device: what it did alone is known, so the rest was done while it shared.
        work = self.alone - (seconds - shared)
        # Less work left than could be done at the slowest: the expectation was wrong, not the neighbour slow.
        return MOST_SLOWDOWN if work <= shared / MOST_SLOWDOWN else max(1.0, shared / work)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: what goes into the history (Gregg 2011, Table 1, raw)."""

    app: str
    implementation: str
    device_class: DeviceClass
    nodes: int
    cpus: int
    gpus: float
    inputs: Mapping[str, float | str] = EMPTY
    seconds: Seconds = 0.0
    state: State = State.COMPLETED
    walltime: Seconds | None = None
    usage: Usage | None = None
    when: Seconds = 0.0
    uid: str = ""
    job: JobId = ""
    user: str | None = None
    first_on_device: bool = False
    beside: Companions | None = None

    @staticmethod
    def resolved_request(request: Request) -> tuple[int, int, float]:
        """(nodes, cpus, gpus) of a request as history keys it."""
        return request.nodes, request.cpus, request.gpus
