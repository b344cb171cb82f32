"""Jobs, apps and implementations: what is to run, and the ways in which it can run.

Times are seconds, memory is bytes. Everything here is frozen; identity is by object where a value
comparison would be slow and never needed (jobs, apps), by value elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "EMPTY",
    "FRACTION_UNITS",
    "HOST_CPUS",
    "WHOLE_POOL",
    "App",
    "Choice",
    "Command",
    "Implementation",
    "Job",
    "JobId",
    "Request",
    "Seconds",
]

Seconds = float
JobId = str

WHOLE_POOL = -1
"""``Request.cpus``: all CPUs of the node's pool."""
HOST_CPUS = -2
"""``Request.cpus``: the ``host_cpus`` of the node (cluster file), the default beside a device."""
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

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"

    def __reduce__(self) -> str:
        return "EMPTY"


EMPTY: Mapping[Any, Any] = _Nothing()


@dataclass(frozen=True, slots=True)
class Request:
    """What a gang asks of each of its nodes.

    ``cpus`` is a count, `WHOLE_POOL` or `HOST_CPUS`. ``devices`` pairs a device kind with a number of
    devices; a number below 1 is a share of one device. ``models`` restricts the device models (empty:
    any). ``memory`` 0 is not counted.
    """

    nodes: int = 1
    cpus: int = WHOLE_POOL
    devices: tuple[tuple[str, float], ...] = ()
    memory: int = 0
    models: tuple[str, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        key = (self.nodes, self.cpus, self.devices, self.memory, self.models)
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:  # requests key hot dictionaries: hash once
        return self._hash

    def on(self, nodes: int) -> Request:
        """The same request over another number of nodes."""
        return (
            self if nodes == self.nodes else Request(nodes, self.cpus, self.devices, self.memory, self.models)
        )

    @property
    def gpus(self) -> float:
        """Devices of all kinds asked for on each node."""
        return sum(count for _, count in self.devices)


@dataclass(frozen=True, slots=True)
class Command:
    """A program and its arguments, with ``{input}`` placeholders; never given to a shell."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run an app. ``kind`` is ``cpu``, ``cpu+gpu`` or a device kind of the cluster."""

    name: str
    kind: str
    request: Request
    command: Command | None = None

    @property
    def device_kind(self) -> str:
        """The kind of device it needs besides CPUs, or ``cpu``."""
        return self.request.devices[0][0] if self.request.devices else "cpu"


@dataclass(frozen=True, slots=True, eq=False)
class App:
    """A program under one name, with its implementations in file order."""

    name: str
    implementations: tuple[Implementation, ...]

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


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A run of an app.

    ``choices`` lists every (implementation, node count) in which it may run: the implementations in
    file order, node counts ascending. ``nodes`` is what its user asked for. ``index`` is its place in
    the file: the last tie-break everywhere. ``walltime`` is a limit, not an estimate. ``implementation``,
    ``sequential`` and ``speedup`` are what the user asked or told (Ravi 2012: SQ, MP, GP).
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

    def __repr__(self) -> str:
        return f"Job({self.id!r}, app={self.app.name!r})"

    def requests(self, implementation: Implementation) -> tuple[Request, ...]:
        """The requests under which this implementation may run, node counts ascending."""
        return tuple(c.request for c in self.choices if c.implementation is implementation)

    @property
    def asked(self) -> tuple[Choice, ...]:
        """The choices at the node count that was asked for, one for each implementation."""
        return tuple(c for c in self.choices if c.request.nodes == self.nodes)

    @property
    def moldable(self) -> bool:
        """Whether any implementation may run on several node counts."""
        return len(self.choices) > len({c.implementation.name for c in self.choices})
