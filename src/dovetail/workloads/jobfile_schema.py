"""The entries of a job file, as pydantic models: what may be written, field by field.

Checks that concern more than one entry (names, placeholders, node counts) are in
`dovetail.workloads.jobfile`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from dovetail.model.files import LONGEST, Bytes, Entry, Name, Seconds, real, whole

__all__ = ["MOST_NODES", "AppEntry", "ImplementationEntry", "JobEntry", "JobFile"]

MOST_NODES = 1_000_000
MOST_COPIES = 10_000_000
MOST_CPUS = 1_000_000
MOST_DEVICES = 10_000
MOST_RATIO = 1e12
MOST_PRIORITY = 1e15


def _input(value: object) -> float | str:
    """An input of a job: a number or a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return real("a text or a number")(value)
    raise PydanticCustomError("dovetail", "expected a text or a number")


def _node_count(value: object) -> int:
    """A key of ``times``: TOML keys are texts."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 7:
        count = int(value)
        if 1 <= count <= MOST_NODES and str(count) == value:
            return count
    raise PydanticCustomError("dovetail", "expected a number of nodes, 1 or more")


def _share(value: object) -> float:
    """Devices on each node: whole, or a share of one."""
    number = real("a number of devices", most=MOST_DEVICES, above_zero=True)(value)
    if number < 1e-6:
        raise PydanticCustomError("dovetail", "expected a share of a device of at least 0.000001")
    if number > 1 and not number.is_integer():
        raise PydanticCustomError("dovetail", "expected a whole number, or a share of one device below 1")
    return number


def _either(table: str, other: str, kind: type) -> Discriminator:
    """Tells two forms of a field apart; anything else is judged as the ``other`` form."""
    return Discriminator(lambda value: table if isinstance(value, kind) else other)


Nodes = Annotated[int, Field(ge=1, le=MOST_NODES), BeforeValidator(whole(1, MOST_NODES))]
Copies = Annotated[int, Field(ge=1, le=MOST_COPIES), BeforeValidator(whole(1, MOST_COPIES))]
Cpus = Annotated[int, Field(ge=0, le=MOST_CPUS), BeforeValidator(whole(0, MOST_CPUS))]
Share = Annotated[float, Field(gt=0), BeforeValidator(_share)]
Ratio = Annotated[float, Field(gt=0), BeforeValidator(real("a ratio", most=MOST_RATIO, above_zero=True))]
Limit = Annotated[float, Field(gt=0), BeforeValidator(real("seconds", most=LONGEST, above_zero=True))]
Priority = Annotated[float, Field(ge=0), BeforeValidator(real("a number", most=MOST_PRIORITY))]
NodeCount = Annotated[
    int, BeforeValidator(_node_count), WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,6}$"})
]
Times = Annotated[
    dict[NodeCount, Seconds], Field(min_length=1, json_schema_extra={"additionalProperties": False})
]
JobTime = Annotated[
    Annotated[Seconds, Tag("~seconds")] | Annotated[Times, Tag("~times")], _either("~times", "~seconds", dict)
]
Words = Annotated[list[str], Field(min_length=1)]
Argv = Annotated[
    Annotated[str, Tag("~line")] | Annotated[Words, Tag("~words")], _either("~words", "~line", list)
]
Input = Annotated[
    float | str,
    BeforeValidator(_input),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]
Env = dict[str, str]


class ImplementationEntry(Entry):
    """One way to run an app."""

    name: Name = Field(description="unique within the app")
    kind: Name | None = Field(default=None, description="cpu, cpu+gpu, or a device kind; default: the name")
    command: Argv | None = Field(
        default=None, description="argv with {input} placeholders, never through a shell"
    )
    env: Env = Field(default_factory=dict)
    cpus: Cpus | None = Field(
        default=None, description="a node; default: all CPUs for cpu and cpu+gpu, host_cpus beside a device"
    )
    gpus: Share | None = Field(
        default=None,
        description="devices of the kind a node; below 1 shares one; not counted where the kind is cpu",
    )
    models: list[str] = Field(default_factory=list, description="device models that will do; default: any")
    memory: Bytes = Field(default=0, description="bytes a node; 0: not counted")
    time: Seconds | None = Field(default=None, description="true seconds, for simulation")
    times: Times | None = Field(
        default=None, description="true seconds by node count; only these counts exist"
    )


class AppEntry(Entry):
    """A program, with its implementations."""

    name: Name
    implementation: list[ImplementationEntry] = Field(default_factory=list)
    command: Argv | None = Field(default=None, description="one command for every kind in `on`")
    env: Env = Field(default_factory=dict)
    on: list[Name] = Field(default_factory=list, description="kinds for which the command is run")


class JobEntry(Entry):
    """A run of an app, or several alike."""

    id: Name | None = Field(default=None, description="default APP-1, APP-2 …; with count ID-1, ID-2 …")
    app: Name
    inputs: dict[Name, Input] = Field(default_factory=dict, description="features and categories")
    command: Argv | None = Field(
        default=None, description="instead of the command of the app's implementations"
    )
    env: Env = Field(default_factory=dict, description="with command")
    times: dict[Name, JobTime] = Field(
        default_factory=dict, description="true seconds by implementation, or by it and node count"
    )
    sequential: Seconds | None = Field(default=None, description="seconds on one core")
    speedup: dict[Name, Ratio] = Field(default_factory=dict, description="over one core, by implementation")
    submit: Seconds = 0.0
    count: Copies = 1
    nodes: Nodes = 1
    implementation: Name | None = Field(default=None, description="asked for")
    walltime: Limit | None = Field(default=None, description="seconds; a limit, not an estimate")
    user: Name | None = None
    group: Name | None = None
    queue: Name | None = None
    priority: Priority = Field(default=0.0, description="higher first")


class JobFile(Entry):
    """A job file."""

    app: list[AppEntry] = Field(min_length=1)
    job: list[JobEntry] = Field(min_length=1)
