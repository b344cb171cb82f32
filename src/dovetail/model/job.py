"""Jobs, apps and implementations: what is to run, and the ways in which it can run.

Times are seconds, memory is bytes. Everything here is frozen; identity is by object where a value
comparison would be slow and never needed (jobs, apps), by value elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from dovetail.model.frozen import frozen
from dovetail.model.marks import fill_marks, job_marks
from dovetail.records import dataclass

__all__ = [
    "ARRAY_INDEX",
    "EMPTY",
    "FRACTION_UNITS",
    "HOST_CPUS",
    "WHOLE_POOL",
    "App",
    "Choice",
    "Command",
    "Communication",
    "Dependency",
    "Implementation",
    "Job",
    "JobId",
    "Launch",
    "Recipients",
    "Request",
    "Seconds",
    "Sizing",
    "Throttle",
    "request_for",
    "with_gpu_memory",
    "without_sharing",
]

Seconds = float
JobId = str

WHOLE_POOL = -1
"""``Request.cpus``: all CPUs of the node's pool."""
HOST_CPUS = -2
"""``Request.cpus``: the ``host_cpus`` of the node (cluster file), the default beside a device."""
ARRAY_INDEX = "array_index"
"""The option of a job that keeps its index in an array, where its id does not give it away."""
TURN = "turn"
"""The option of a job that a user has moved in the queue: the number of its place on record."""
FRACTION_UNITS = 1_000_000
"""One device is counted in this many units, so that shares of a device add up exactly."""


class _Nothing(Mapping[Any, Any]):
    """The mapping without keys: hashable, so it can be a field's default, and pickled by name."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    # The general one makes two dictionaries.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and not other

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY: Mapping[Any, Any] = _Nothing()


@dataclass(frozen=True, slots=True)
class Request:
    """What a gang takes from each of its nodes.

    ``cpus`` is a count, `WHOLE_POOL` or `HOST_CPUS`. ``devices`` pairs a device kind with a number of
    devices; a number below 1 is a share of one device. ``models`` restricts the device models (empty:
    any), ``partition`` the nodes to those of that partition (empty: any). ``memory`` 0 is not counted.

    ``gpu_memory`` is the bytes taken of each device (0: not given). With it a job that requests whole devices
    shares them as far as their memory goes; without it it has them to itself, and one with a share of a
    device is counted with that share of its memory. ``gpu_least`` is the bytes that a device must have.
    With ``sharing`` two such jobs may be on one device, where a policy expects that to pay and the memory of
    each is known, or is not counted. ``avoids`` are bits of reservations whose devices it does not use
    (`dovetail.model.reservation`).
    """

    nodes: int = 1
    cpus: int = WHOLE_POOL
    devices: tuple[tuple[str, float], ...] = ()
    memory: int = 0
    models: tuple[str, ...] = ()
    partition: str = ""
    gpu_memory: int = 0
    gpu_least: int = 0
    sharing: bool = False
    avoids: int = 0
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        # Computed once: slots and a frozen class leave no cached_property.
        key = (self.nodes, self.cpus, self.devices, self.memory, self.models, self.partition)
        object.__setattr__(
            self, "_hash", hash((*key, self.gpu_memory, self.gpu_least, self.sharing, self.avoids))
        )

    # Requests key hot dictionaries: hash once.
    def __hash__(self) -> int:
        return self._hash

    def on(self, nodes: int) -> Request:
        """The same request over another number of nodes."""
        if nodes == self.nodes:
            return self
        own = self.cpus, self.devices, self.memory, self.models, self.partition
        return Request(nodes, *own, self.gpu_memory, self.gpu_least, self.sharing, self.avoids)

    @property
    def gpus(self) -> float:
        """Devices of all kinds requested on each node."""
        return sum(count for _, count in self.devices)


def request_for(
    kind: str,
    *,
    cpus: int | None = None,
    gpus: float | None = None,
    memory: int = 0,
    models: Sequence[str] = (),
    nodes: int = 1,
    gpu_memory: int = 0,
    sharing: bool = False,
) -> Request:
    """What an implementation of this kind requests of each node, by the default rules for open fields.

    ``cpu``: the whole pool, no device. ``cpu+KIND``: the whole pool and one device. A device kind: one
    device, and the node's ``host_cpus``.

    >>> request_for("gpu", gpus=2).devices
    (('gpu', 2.0),)
    """
    if kind == "cpu":
        return Request(nodes, WHOLE_POOL if cpus is None else cpus, (), memory)
    # A device's host thread takes the node's share of CPUs, unless the implementation uses all of them.
    default = WHOLE_POOL if kind.startswith("cpu+") else HOST_CPUS
    devices = ((kind.removeprefix("cpu+"), 1.0 if gpus is None else float(gpus)),)
    return Request(
        nodes,
        default if cpus is None else cpus,
        devices,
        memory,
        tuple(models),
        gpu_memory=gpu_memory,
        sharing=sharing,
    )


def with_gpu_memory(request: Request, size: int | None) -> Request:
    """The request with so many bytes on each of its devices; as it is for ``None``, and without devices."""
    if size is None or not request.devices or size == request.gpu_memory:
        return request
    return replace(request, gpu_memory=size)


def with_device_sizes(request: Request, gpu_memory: int, gpu_least: int) -> Request:
    """The request with these two; the same object where nothing changes."""
    if (gpu_memory, gpu_least) == (request.gpu_memory, request.gpu_least):
        return request
    return replace(request, gpu_memory=gpu_memory, gpu_least=gpu_least)


def without_sharing(request: Request) -> Request:
    """A request with ``sharing`` as one for whole devices, which have the memory that it gives."""
    if not request.sharing:
        return request
    # What it gives is then a device's least size: alone, it needs no limit of its own.
    return replace(request, sharing=False, gpu_memory=0, gpu_least=max(request.gpu_least, request.gpu_memory))


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments, with ``{input}`` placeholders; never given to a shell.

    ``tasks`` is how many processes are started on each node (for MPI); executors without gangs start one.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run an app. ``kind`` is ``cpu``, ``cpu+gpu`` or a device kind of the cluster."""

    name: str
    kind: str
    request: Request
    command: Command | None = None


@dataclass(frozen=True, slots=True, eq=False)
class App:
    """A program under one name, with its implementations in file order.

    ``restartable`` means that a run which was cut short may begin again: the program takes up where it was,
    or loses nothing.
    """

    name: str
    implementations: tuple[Implementation, ...]
    restartable: bool = False

    def implementation(self, name: str) -> Implementation:
        """The implementation of that name; raises `KeyError`."""
        for implementation in self.implementations:
            if implementation.name == name:
                return implementation
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the ways in which a job may run: an implementation on a number of nodes."""

    implementation: Implementation
    request: Request


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job may not start before another one has ended, or begun.

    ``afterok``: ended as COMPLETED; ``afternotok``: as anything else; ``afterany``: in any way; ``after``:
    begun or ended, ``delay`` seconds ago. Of those that are an ``alternative`` one has to come true.
    """

    kind: Literal["after", "afterok", "afternotok", "afterany"]
    job: JobId
    delay: Seconds = 0.0
    alternative: bool = False

    @classmethod
    def parse(cls, text: str) -> Dependency:
        """``afterok:JOB``, ``afternotok:JOB``, ``afterany:JOB``, ``after:JOB[+MINUTES]``, or an alternative.

        An alternative has a question mark before it. Raises `ValueError`.

        >>> str(Dependency.parse("afterok:train-1")), Dependency.parse("?after:7+5").delay
        ('afterok:train-1', 300.0)
        """
        kind, _, job = text.removeprefix("?").partition(":")
        before, plus, minutes = job.rpartition("+")
        # Bounded digits: a delay must stay a finite float.
        delay = 0.0
        if kind == "after" and plus and minutes.isdecimal() and len(minutes) < 9:
            job, delay = before, float(minutes) * 60
        for known in _DEPENDENCIES:
            if kind == known and job:
                return cls(known, job, delay, text.startswith("?"))
        raise ValueError(f"found {text!r}, expected afterok:JOB, afternotok:JOB, afterany:JOB or after:JOB")

    def __str__(self) -> str:
        later = f"+{self.delay / 60:g}" if self.delay else ""
        return f"{'?' if self.alternative else ''}{self.kind}:{self.job}{later}"


_DEPENDENCIES: tuple[Literal["after", "afterok", "afternotok", "afterany"], ...] = (
    *("after", "afterok", "afternotok", "afterany"),
)


@dataclass(frozen=True, slots=True)
class Communication:
    """What a job sends to its GPUs and between its nodes, which remote GPUs make slower (Markthub 2015).

    ``other`` is the seconds of everything but communication. ``gpu_calls`` and ``gpu_bytes`` count for each
    GPU, ``net_calls`` and ``net_bytes`` for the job.
    """

    other: Seconds
    gpu_calls: float = 0.0
    gpu_bytes: float = 0.0
    net_calls: float = 0.0
    net_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Throttle:
    """Of all jobs with this key at most ``limit`` are let through to the policy, or run, at once.

    A job counts as ``weight`` of them.
    """

    key: str
    limit: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Sizing:
    """How much memory a job reserves, where that is not fixed by its requests.

    ``auto`` names implementations for which it is learned, anew while the job waits; the probability of a
    kill is to be at most ``risk`` (``None``: the usual one). ``retry`` is what a job gets that was killed
    for memory: ``"learned"``, a factor of what it held, or ``"no"`` other try. ``kills`` counts these kills.
    ``gpu_auto`` names implementations for which the memory of their devices is learned; ``gpu_kills`` counts
    kills for that.
    """

    auto: tuple[str, ...] = ()
    retry: str | float = "learned"
    risk: float | None = None
    kills: int = 0
    gpu_auto: tuple[str, ...] = ()
    gpu_kills: int = 0


Recipients = Literal["all", "first", "others"]
"""Which processes of a job get a signal: all, the first one alone, all but the first."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Where a job's processes start, if not where Dovetail did: what comes with a submission.

    ``environ`` replaces Dovetail's own environment (name and value pairs). ``stdout`` and ``stderr`` are
    paths, as seen from ``folder``; without them the run folder holds the output; with ``append`` what is
    there stays. ``stdin`` is what its processes read. ``signal`` is sent ``notice`` seconds before the
    walltime, with ``leader_alone`` to the first process alone, with ``spares_leader`` to all others. Beyond
    ``memory`` bytes a node the job is ended. With ``batch_variables`` its environment has what the batch
    system would set whose script it is; ``variables`` go over the environment. ``umask`` and the soft
    ``limits`` (name as `setrlimit` has it without its prefix, and value, -1 for none) are those of the
    submitter; ``None``: Dovetail's own.

    Jobs that are alike share one, so that an environment is kept once for all of them: what differs stands as
    a mark in paths and variables (`dovetail.model.marks`). Jobs of an array with ``indices`` have numbers of
    their own.
    """

    folder: str | None = None
    environ: tuple[tuple[str, str], ...] | None = None
    stdout: str | None = None
    stderr: str | None = None
    signal: int | None = None
    notice: Seconds = 0.0
    memory: int | None = None
    batch_variables: bool = False
    umask: int | None = None
    limits: tuple[tuple[str, int], ...] | None = None
    variables: tuple[tuple[str, str], ...] = ()
    indices: str = ""
    stdin: str | None = None
    append: bool = False
    leader_alone: bool = False
    spares_leader: bool = False

    @property
    def signal_recipients(self) -> Recipients:
        """Which processes get its ``signal``."""
        return "first" if self.leader_alone else "others" if self.spares_leader else "all"

    def files(self, job: Job, cwd: str, node: str = "") -> tuple[str | None, str | None]:
        """Where this job's output is to go, and its errors; ``None``: not chosen. Both, where only one is.

        ``node`` is the name of its first node.
        """
        # Errors go with the output where only that was chosen, as in sbatch.
        out, err = (self._fill_path(path, job, cwd, node) for path in (self.stdout, self.stderr))
        return out, out if err is None else err

    def input(self, job: Job, cwd: str, node: str = "") -> str | None:
        """What this job reads, where that was chosen."""
        return self._fill_path(self.stdin, job, cwd, node)

    def _fill_path(self, path: str | None, job: Job, cwd: str, node: str) -> str | None:
        if path is None:
            return None
        # The short name of the host, as Slurm fills %N.
        known = {**job_marks(job.id, self.indices, job.index), "H": node.partition(".")[0]}
        return os.path.join(self.folder or cwd, fill_marks(path, lambda letter: known.get(letter, "")))


USUAL_SIZING = Sizing()


@frozen(frozen=True, slots=True, eq=False)
class Job:
    """A run of an app.

    ``choices`` lists every (implementation, node count) in which it may run: the implementations in
    file order, node counts ascending. ``nodes`` is the user's node count. ``index`` is its place in
    the file: the last tie-break everywhere. ``walltime`` is a limit, not an estimate. ``implementation``,
    ``sequential`` and ``speedup`` are given by the user (Ravi 2012: SQ, MP, GP). ``retries`` is how
    often it may start again after FAILED or NODE_FAIL; ``communication`` gives its time where a rate model
    makes it; ``batch_options`` are passed to the batch system that runs it, as they stand. ``options`` are
    those of its `JobSpec` that are kept by name, where they differ from the default. ``name`` is for people.
    ``sizing`` is how its memory is found. A ``foreign`` job is not ours: it stands for what others
    hold of the cluster. It starts at ``begin`` or later, in seconds since 1970.
    """

    id: JobId
    app: App
    choices: tuple[Choice, ...]
    index: int = 0
    submit_time: Seconds = 0.0
    inputs: Mapping[str, float | str] = EMPTY
    nodes: int = 1
    walltime: Seconds | None = None
    user: str | None = None
    group: str | None = None
    queue: str | None = None
    priority: float = 0
    implementation: str | None = None
    sequential: Seconds | None = None
    speedup: Mapping[str, float] = EMPTY
    depends: tuple[Dependency, ...] = ()
    retries: int = 0
    communication: Communication | None = None
    batch_options: tuple[str, ...] = ()
    throttles: tuple[Throttle, ...] = ()
    launch: Launch | None = None
    name: str | None = None
    sizing: Sizing = USUAL_SIZING
    foreign: bool = False
    options: Mapping[str, Any] = EMPTY
    begin: Seconds | None = None

    def __repr__(self) -> str:
        return f"Job({self.id!r}, app={self.app.name!r})"

    def requests(self, implementation: Implementation) -> tuple[Request, ...]:
        """The requests under which this implementation may run, node counts ascending."""
        return tuple(c.request for c in self.choices if c.implementation is implementation)

    @property
    def asked(self) -> tuple[Choice, ...]:
        """The choices at the node count requested, one for each implementation."""
        return tuple(c for c in self.choices if c.request.nodes == self.nodes)

    @property
    def moldable(self) -> bool:
        """Whether any implementation may run on several node counts."""
        return len(self.choices) > len({c.implementation.name for c in self.choices})
