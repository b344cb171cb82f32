"""Where jobs run: executors, what they can do beyond that, and the backends that make them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from dovetail.model import (
    Allocation,
    Cluster,
    Ended,
    Event,
    Job,
    JobId,
    Placed,
    Recipients,
    Seconds,
    Shape,
    Submit,
)
from dovetail.records import dataclass

__all__ = [
    "AdoptsJobs",
    "AnswersForJobs",
    "Backend",
    "ChecksJobs",
    "Executor",
    "ExplainsSilence",
    "FailsByItself",
    "HearsEvents",
    "KeepsOutput",
    "LacksResources",
    "LastAttempts",
    "LeavesJobs",
    "MigratesJobs",
    "RunFolder",
    "RunningAttempt",
    "ShortensLog",
    "SignalsJobs",
    "StartsAfter",
    "SubmitsJobs",
    "TakenAway",
    "TakesBack",
]


# The four methods that every backend must have. What only some can do is a protocol each, below: the session
# tests with `isinstance` and does without, so a backend of twenty lines runs jobs.
class Executor(Protocol):
    """Runs jobs for real. Never raises for a job's own failure: that is an `Ended` event.

    What `launch` raises ends that job alone. Events carry the ``attempt`` of the `Placed` that they are
    about, since a job may start again before the news of its last end has come in.
    """

    # Asynchronous where a backend may have to wait for a network. What is on the path of every job, such as
    # `HearsEvents.listen`, is not.
    async def launch(self, placed: Placed) -> None:
        """Start the job on what it was given."""
        ...

    async def stop(self, job: JobId, reason: str) -> None:
        """End it (TERM, then KILL of the whole group); ``Ended`` follows, with the state ``reason``.

        A job that has ended already, or is not known, is no error.
        """
        ...

    def events(self) -> AsyncIterator[Event]:
        """What happens, as it happens: ends, and nodes that are lost, drained or join."""
        ...

    async def close(self) -> None:
        """Stop what still runs and free what is held. May be called again."""
        ...


# A task switch costs more than a short job's whole bookkeeping: hence a call beside the iterator.
@runtime_checkable
class HearsEvents(Protocol):
    """An executor that hands events over as they come in, without a task switch."""

    def listen(self, receiver: Callable[[Event], None]) -> None:
        """Call ``receiver`` with every event, from the loop that runs; instead of `Executor.events`."""
        ...


@runtime_checkable
class KeepsOutput(Protocol):
    """An executor that knows where its jobs' output lies."""

    def output_paths(self, job: JobId) -> tuple[Path, Path] | None:
        """Files of standard output and error of the job's last attempt; ``None`` before its first."""
        ...


@runtime_checkable
class SubmitsJobs(Protocol):
    """An executor with a scheduler of its own behind it (late binding)."""

    async def submit(self, job: Job, decision: Submit, attempt: int) -> None:
        """Hand the job over; `Started` reports where it runs, `Ended` how it ended (also before a start).

        ``attempt`` counts the starts of the job, this one included.
        """
        ...

    async def inquire(self, shape: Shape) -> None:
        """Request a forecast of when such a job would start; `Foreseen` follows, after any time."""
        ...


# Apart from `SubmitsJobs`: an executor without it leaves what was submitted where it is.
@runtime_checkable
class TakesBack(Protocol):
    """An executor that can take back what it has submitted."""

    async def withdraw(self, job: JobId) -> None:
        """Take the job back if it has not started: `Withdrawn` follows; else nothing happens."""
        ...


@runtime_checkable
class MigratesJobs(Protocol):
    """An executor that can move a running job's work to other devices."""

    async def migrate(self, placed: Placed, target: Allocation) -> None:
        """Begin to move it; `Migrated` follows, and until then it holds both places."""
        ...


# The gap between two jobs on one device is a round trip to the executor; where it can be given the next job
# early, the gap is gone, and `withdraw` keeps the engine free to change its mind.
@runtime_checkable
class StartsAfter(Protocol):
    """An executor that can be given the next job for a place while the last one still runs there."""

    async def launch_after(self, placed: Placed, after: Sequence[JobId]) -> None:
        """Start the job as soon as these have ended; what has ended already is passed over."""
        ...

    async def withdraw(self, job: JobId) -> None:
        """Take back what was to start after this job, also indirectly, and has not.

        `Withdrawn` follows for each of those, then `Lingering` for the job; if it has ended, `Ended` alone.
        A job that is stopped before it has begun is `Withdrawn` too.
        """
        ...


# Recipients as in Slurm, whose signals go to the steps of a job, or (``B:``) to its batch shell alone.
@runtime_checkable
class SignalsJobs(Protocol):
    """An executor that can send a running job a signal."""

    async def signal(self, job: JobId, number: int, *, to: Recipients = "all") -> None:
        """Send it to these of the job's processes; a job that has ended is no error."""
        ...


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where a run keeps its files, its unique name (empty: made where it begins), and what its jobs start in.

    ``cwd`` is their working folder (empty: ours), ``environ`` what their environment is built on (``None``:
    ours), ``grace`` the seconds between TERM and KILL. An ``endless`` one (a service) has any number of jobs,
    with ids that are names of files: nothing is kept in memory of those that have ended.
    """

    path: Path
    uid: str = ""
    cwd: str = ""
    grace: Seconds = 5.0
    environ: Mapping[str, str] | None = None
    endless: bool = False


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """A job of an earlier Dovetail that runs on; ``since`` is in seconds since the epoch."""

    job: JobId
    attempt: int
    since: Seconds


@dataclass(frozen=True, slots=True)
class LastAttempts:
    """What became of the last attempt of each job of a run whose Dovetail is gone.

    The ends of jobs that are ``running`` will be reported. ``ended`` have ended, in the order of their
    ends; of ``unknown`` it will never be known how, and nothing of them runs. Jobs in none of the three were
    never started, but those that were ``handed_over`` to an outside scheduler: these are in its hands, or
    were until they ended. With the number of the start that each was to be.
    """

    running: Sequence[RunningAttempt] = ()
    ended: Sequence[Ended] = ()
    unknown: Sequence[Ended] = ()
    handed_over: Sequence[tuple[Submit, int]] = ()


@runtime_checkable
class Backend(Protocol):
    """A place where jobs run: one file, one entry point of ``dovetail.executors``.

    A frozen dataclass of its options (``--executor NAME[?option=value]``).
    """

    def discover(self) -> Cluster:
        """What is there to run jobs on. Raises `InputError` with a sentence on what is missing."""
        ...

    def open(self, folder: RunFolder, cluster: Cluster) -> Executor:
        """An executor for a new run. Raises `InputError` where the cluster is not what is there."""
        ...


# Optional: a backend needs a process of its own that outlives Dovetail.
@runtime_checkable
class AdoptsJobs(Protocol):
    """A backend whose jobs outlive Dovetail, and can be taken up by the next one."""

    def resume(self, folder: RunFolder, cluster: Cluster) -> tuple[Executor, LastAttempts]:
        """An executor that goes on where that of an earlier Dovetail was cut short.

        Raises `ExecutorError` while that one still lives.
        """
        ...


# A service lives for months: what was written down for a restart would otherwise grow without a bound.
@runtime_checkable
class ShortensLog(Protocol):
    """An executor that keeps a record of what it has started, which grows with every job of a service."""

    def has_long_log(self) -> bool:
        """Whether `shorten_log` is worth its while. Microseconds."""
        ...

    def shorten_log(self) -> None:
        """All ends that were reported are on the disk elsewhere: drop them from that record."""
        ...


# Before anything runs: a batch of a thousand jobs is refused as a whole, not at its thousandth.
@runtime_checkable
class ChecksJobs(Protocol):
    """An executor that can reject jobs, before anything runs, that would never start."""

    def check(self, jobs: Iterable[Job]) -> None:
        """Raises `InputError` with what is wrong with the first such job."""
        ...


# Where the thing beside it (a server, a connection) fails, no `Ended` would ever come for jobs that wait for
# it: the executor ends the run itself.
@runtime_checkable
class FailsByItself(Protocol):
    """An executor beside whose orders something goes on, which may come to be unable to."""

    @property
    def ends_within(self) -> Seconds:
        """Seconds after which jobs that were stopped have ended, or will report no more."""
        ...

    def when_failed(self, fail: Callable[[Exception], None]) -> None:
        """Call this, with the error that is to end the run, where that is so."""
        ...


# A batch system may take half a minute to end what ignores TERM: that is no reason to leave it unrecorded.
@runtime_checkable
class AnswersForJobs(Protocol):
    """An executor that knows of what was stopped whether it is going to end."""

    def are_ending(self) -> bool:
        """Whether all that was stopped is known to be ending, by a fresh answer of what runs it.

        Called twice a second after an interrupt, once the time of `FailsByItself.ends_within` is over.
        """
        ...


@runtime_checkable
class ExplainsSilence(Protocol):
    """An executor that knows why no news comes from it."""

    def trouble(self) -> str:
        """A sentence on what is out of order, or on what all jobs wait for; empty where nothing is known."""
        ...


# A shortage that passes (processes, files, memory of the machine) is no failure of the job: it goes back to
# its place in the queue.
@runtime_checkable
class LacksResources(Protocol):
    """An executor that takes back a start (`Withdrawn`) for want of what may be there again soon.

    ``lack`` is what that was, in a clause; its reader, which pauses for a while, empties it.
    """

    lack: str


@runtime_checkable
class TakenAway(Protocol):
    """An executor whose place may be taken away as a whole, and Dovetail with it."""

    async def is_taken_away(self) -> bool:
        """Whether that is so now. Then `ClusterEnds` follows, and the ends of what runs."""
        ...


# The counterpart of `AdoptsJobs`: what is left here is taken up there.
@runtime_checkable
class LeavesJobs(Protocol):
    """An executor that can go without its jobs, which the next Dovetail takes up."""

    async def leave(self) -> None:
        """Free what is held here and let what runs go on; instead of `Executor.close`."""
        ...
