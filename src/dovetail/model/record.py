"""What became of a job, and what a run measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dovetail.model.allocation import Allocation
from dovetail.model.cluster import DeviceClass
from dovetail.model.event import State, Usage
from dovetail.model.frozen import frozen
from dovetail.model.job import EMPTY, Implementation, Job, JobId, Request, Seconds

__all__ = ["Placed", "Prediction", "Promise", "Record", "Run"]


@frozen(frozen=True, slots=True)
class Prediction:
    """How long a job is expected to take.

    ``upper`` is the upper end and ``lower`` the lower end of the 90 % interval, ``samples`` the number of
    runs that it rests on, ``basis`` says in a few words what was done, for people.
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
    (or learned bounds) hold, infinite where there is none.
    """

    job: Job
    implementation: Implementation
    allocation: Allocation
    start_time: Seconds
    predicted: Seconds | None
    bound: Seconds


@frozen(frozen=True, slots=True)
class Promise:
    """A start that was promised to a waiting job (`Reserve`)."""

    job: Job
    implementation: Implementation
    allocation: Allocation
    start: Seconds


@dataclass(slots=True)
class Record:
    """What became of one job; the row of the results."""

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

    @property
    def run_time(self) -> Seconds | None:
        """Seconds between start and end."""
        return None if self.start is None or self.end is None else self.end - self.start


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

    @staticmethod
    def resolved_request(request: Request) -> tuple[int, int, float]:
        """(nodes, cpus, gpus) of a request as history keys it."""
        return request.nodes, request.cpus, request.gpus
