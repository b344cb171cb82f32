"""What a batch system does for its guest: the seam at which Slurm ends and PBS, LSF or Flux would begin.

Calls block; the executor runs them in threads. Each raises `BatchError` where the system refuses or is away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from dovetail.errors import ExecutorError
from dovetail.model import Foreseen, Job, Request, Seconds, Shape, State
from dovetail.records import dataclass


class BatchError(ExecutorError):
    """A call to a batch system failed. ``passing``: the same call may work a little later.

    ``no_place``: it will when the system holds fewer jobs, or for fewer jobs at once.
    """

    def __init__(self, message: str, *, passing: bool = False, no_place: bool = False) -> None:
        super().__init__(message)
        self.passing, self.no_place = passing, no_place


class Phase(Enum):
    """Where a batch job is. One that ran and is ``WAITING`` again was put back into the queue."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """What a look at the queue shows of one batch job, or of one task of an array.

    ``word`` is the system's own name of the state, ``end`` the state in which a job has ended. ``nodes`` is
    a hostlist. ``start`` is in seconds since the epoch, and foreseen while the job waits. ``reason`` is why
    it waits, where that is out of the ordinary; ``is_hopeless``: the system will never start it. ``batch``
    is the name that `BatchJob` gave it, empty for jobs that are not ours.
    """

    id: str
    phase: Phase
    word: str
    nodes: str = ""
    start: Seconds | None = None
    batch: str = ""
    reason: str = ""
    end: State | None = None
    is_hopeless: bool = False

    @property
    def has_begun(self) -> bool:
        """Whether its node may have written something down."""
        return self.phase is not Phase.WAITING


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What a batch system keeps of a user's script: exit status, times in seconds since the epoch, output.

    ``exit_code`` is negative after a signal. ``restarts`` is how often it went back into the queue.
    """

    state: str
    exit_code: int
    start: Seconds | None
    end: Seconds | None
    stdout: str
    stderr: str
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class UserScript:
    """A user's batch script, handed over as it is, from ``folder``, with ``variables`` added.

    ``outputs`` are files for its output where its own lines name none; ``walltime`` replaces its own where it
    is not ``None``.
    """

    text: str
    arguments: tuple[str, ...]
    folder: str
    variables: Mapping[str, str]
    outputs: tuple[str, str] | None
    walltime: Seconds | None


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch job, or one array of the tasks ``indices``, as it is to be handed over.

    ``batch`` is a name that no other has, and the stem of the file ``path``: `BatchSystem.look` finds it
    again. ``environ`` is the environment of the jobs, ``log`` where a script of ours writes.
    """

    batch: str
    path: Path
    log: Path
    name: str
    shape: Shape
    tasks: int
    indices: Sequence[int] | None
    environ: Mapping[str, str]
    script: UserScript | None = None


@dataclass(frozen=True, slots=True)
class TaskVariables:
    """Names of variables in which a batch job finds what it is; an empty one does not exist there.

    ``index``: the number of an array's task; ``restarts``: how often the job went back into the queue;
    ``node``: the node where its script runs; ``nodes``: the hostlist of all.
    """

    index: str = ""
    restarts: str = ""
    node: str = ""
    nodes: str = ""


class BatchSystem(Protocol):
    """A batch system as its guest sees it."""

    @property
    def title(self) -> str:
        """Its name in sentences."""
        ...

    @property
    def variables(self) -> TaskVariables:
        """What its jobs find in their environment."""
        ...

    @property
    def changed(self) -> Sequence[str]:
        """Variables that differ while its commands run; jobs get them back as they were."""
        ...

    @property
    def longest_array(self) -> int:
        """Tasks that one array may have; 1: there are no arrays."""
        ...

    @property
    def looks(self) -> tuple[Seconds, Seconds]:
        """The shortest and the longest time between two looks at the queue."""
        ...

    @property
    def pause(self) -> Seconds:
        """The time between two questions for a start."""
        ...

    def submit(self, job: BatchJob) -> str:
        """Hand a batch over; its id. It goes back into the queue when it is preempted or loses its node."""
        ...

    def look(self) -> Mapping[str, BatchStatus]:
        """All batch jobs of this user that are not forgotten, each task of an array by its own id."""
        ...

    def look_again(self, ids: Collection[str]) -> Mapping[str, BatchStatus]:
        """What is known of jobs that `look` names no more; empty where nothing is kept."""
        ...

    def describe_jobs(self, id: str) -> Mapping[str, JobFacts]:
        """A batch at length, of an array each task that has started, by id; empty where it is forgotten."""
        ...

    def cancel(self, ids: Sequence[str]) -> None:
        """End jobs, those that run as those that wait."""
        ...

    def cancel_waiting(self, id: str) -> None:
        """End a job if it has not started; one that runs goes on."""
        ...

    def id_of_task(self, id: str, index: int) -> str:
        """The id of one task of an array."""
        ...

    def id_of_batch(self, id: str) -> str:
        """The id of the array to which a task belongs; any other id stays as it is."""
        ...

    def cpus_of(self, shape: Shape, tasks: int) -> int:
        """CPUs of each task of such a job."""
        ...

    def run_tasks(self, request: Request, tasks: int, words: Sequence[str]) -> list[str]:
        """The command that runs ``words`` on all nodes of a batch job, ``tasks`` times on each."""
        ...

    def clean_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Without what describes a job of the batch system that this process may be in itself."""
        ...

    def check(self, jobs: Iterable[Job]) -> None:
        """Raise `InputError` for a job whose own options the system does not take."""
        ...

    def foresee(self, shape: Shape) -> Foreseen:
        """When such a job would start, were it handed over now."""
        ...

    def explain_closed(self) -> Mapping[str, str]:
        """Queues into which a guest may not put jobs, and why."""
        ...
