"""The entries of a job file, as pydantic models: what may be written, field by field.

Checks that concern more than one entry (names, placeholders, node counts) are in
`dovetail.workloads.jobfile`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from dovetail.files.fields import (
    Bytes,
    Entry,
    Name,
    Seconds,
    duration,
    number_or_text,
    real,
    size,
    whole,
)
from dovetail.files.units import LONGEST, MOST_BYTES, SIZE
from dovetail.model import Dependency
from dovetail.spec.jobs import job_option
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES, MOST_FACTOR, MOST_INPUTS, MOST_NODES, MOST_RETRIES

MOST_COPIES = 10_000_000
MOST_RATIO = 1e12
HIGHEST_PRIORITY = 1e15

MOST_CALLS = 1e18


def _input(value: object) -> float | str:
    """An input of a job: a number or a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return real("a text or a number")(value)
    raise PydanticCustomError("dovetail", "expected a text or a number")


_sized, _factor = size(), real("a factor", most=MOST_FACTOR)


def _few(value: dict[str, float | str]) -> dict[str, float | str]:
    if len(value) > MOST_INPUTS:
        raise PydanticCustomError("dovetail", f"expected at most {MOST_INPUTS} of them")
    return value


def _memory(value: object) -> int | str:
    """Bytes, or ``auto``."""
    if value == "auto":
        return "auto"
    try:
        return round(_sized(value))
    except PydanticCustomError:
        expected = f"expected {SIZE}, or auto"
        raise PydanticCustomError("dovetail", "{expected}", {"expected": expected}) from None


def _retry_memory(value: object) -> float | str:
    """``learned``, ``no``, or a factor above 1."""
    if value in ("learned", "no"):
        return str(value)
    try:
        factor = _factor(value)
    except PydanticCustomError:
        factor = 0.0
    if factor <= 1:
        raise PydanticCustomError("dovetail", "expected learned, no, or a factor above 1, at most 100")
    return factor


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


def dependency_of(value: object) -> Dependency:
    """A field ``after``. Raises `PydanticCustomError`."""
    if isinstance(value, str):
        try:
            return Dependency.parse(value)
        except ValueError:
            pass
    raise PydanticCustomError("dovetail", "expected afterok:JOB, afternotok:JOB or afterany:JOB")


def _either(table: str, other: str, kind: type) -> Discriminator:
    """Tells two forms of a field apart; anything else is judged as the ``other`` form."""
    return Discriminator(lambda value: table if isinstance(value, kind) else other)


Nodes = Annotated[int, Field(ge=1, le=MOST_NODES), BeforeValidator(whole(1, MOST_NODES))]
Copies = Annotated[int, Field(ge=1, le=MOST_COPIES), BeforeValidator(whole(1, MOST_COPIES))]
Cpus = Annotated[int, Field(ge=0, le=MOST_CPUS), BeforeValidator(whole(0, MOST_CPUS))]
Share = Annotated[float, Field(gt=0), BeforeValidator(_share)]
Ratio = Annotated[float, Field(gt=0), BeforeValidator(real("a ratio", most=MOST_RATIO, above_zero=True))]
Limit = Annotated[float, BeforeValidator(duration(above_zero=True)), number_or_text(most=LONGEST, above=True)]
Size = Annotated[float, BeforeValidator(size()), number_or_text(most=MOST_BYTES)]
Calls = Annotated[float, Field(ge=0), BeforeValidator(real("a number of calls", most=MOST_CALLS))]
Memory = Annotated[int | Literal["auto"], BeforeValidator(_memory), number_or_text(most=MOST_BYTES)]
RetryMemory = Annotated[
    float | Literal["learned", "no"],
    BeforeValidator(_retry_memory),
    number_or_text(most=MOST_FACTOR),
]
Retries = Annotated[int, Field(ge=0, le=MOST_RETRIES), BeforeValidator(whole(0, MOST_RETRIES))]
Priority = Annotated[float, Field(ge=0), BeforeValidator(real("a number", most=HIGHEST_PRIORITY))]
Tasks = Annotated[int, Field(ge=1, le=MOST_CPUS), BeforeValidator(whole(1, MOST_CPUS))]
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
Inputs = Annotated[dict[Name, Input], AfterValidator(_few)]
Env = dict[str, str]
Depends = Annotated[
    Dependency,
    BeforeValidator(dependency_of),
    WithJsonSchema({"type": "string", "pattern": "^after(ok|notok|any):."}),
]
Values = Annotated[
    Annotated[str, Tag("~text")] | Annotated[list[Input], Field(min_length=1), Tag("~values")],
    _either("~values", "~text", list),
]


def field(name: str) -> Any:
    """A field of a job as `dovetail.spec` has it: its default, and what the schemas say of it."""
    option = job_option(name)
    default, about = option.default, option.form or None
    if isinstance(default, dict | list):
        return Field(default_factory=type(default), description=about)
    return Field(default=default, description=about)


class ImplementationEntry(Entry):
    """One way to run an app."""

    name: Name = Field(description="unique within the app")
    kind: Name | None = Field(default=None, description="cpu, cpu+gpu, or a device kind; default: the name")
    command: Argv | None = Field(
        default=None, description="argv with {input} placeholders, never through a shell"
    )
    env: Env = Field(default_factory=dict)
    tasks: Tasks = Field(default=1, description="processes that are started on each node, for MPI")
    cpus: Cpus | None = Field(
        default=None, description="a node; default: all CPUs for cpu and cpu+gpu, host_cpus beside a device"
    )
    gpus: Share | None = Field(
        default=None,
        description="devices of the kind a node; below 1 shares one; not counted where the kind is cpu",
    )
    models: list[str] = Field(default_factory=list, description="device models that will do; default: any")
    memory: Memory = Field(default=0, description="bytes a node; 0: not counted; auto: learned")
    slurm: list[str] = Field(default_factory=list, description="options for sbatch where this one is chosen")
    time: Seconds | None = Field(default=None, description="true seconds, for simulation")
    times: Times | None = Field(
        default=None, description="true seconds by node count; only these counts exist"
    )


class AppEntry(Entry):
    """A program, with its implementations."""

    name: Name
    implementation: list[ImplementationEntry] = Field(default_factory=list)
    command: Argv | None = field("command")
    env: Env = Field(default_factory=dict)
    tasks: Tasks = Field(default=1, description="processes that are started on each node, for MPI")
    on: list[Name] = Field(default_factory=list, description="kinds for which the command is run")
    restartable: bool = field("restartable")
    prologue: str = Field(
        default="", description="run by `bash -l` before the command, e.g. module load cuda"
    )


class CommunicationEntry(Entry):
    """What a job sends to its GPUs and between its nodes; its time follows from it."""

    other: Seconds = Field(description="seconds of everything but communication")
    gpu_calls: Calls = Field(default=0.0, description="for each GPU")
    gpu_bytes: Size = Field(default=0.0, description="for each GPU")
    net_calls: Calls = Field(default=0.0, description="for the job")
    net_bytes: Size = Field(default=0.0, description="for the job")


class JobEntry(Entry):
    """A run of an app, or several alike."""

    id: Name | None = Field(default=None, description="default APP-1, APP-2 …; with count ID-1, ID-2 …")
    app: Name | None = Field(default=None, description="may be left out where there is communication")
    inputs: Inputs = Field(default_factory=dict, description="features and categories")
    grid: dict[Name, Values] = Field(
        default_factory=dict,
        description="more inputs: a job for each combination; a list, or a text such as 1..5 or 0.1,0.01",
    )
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
    nodes: Nodes = field("nodes")
    implementation: Name | None = Field(default=None, description="asked for")
    walltime: Limit | None = field("walltime")
    user: Name | None = None
    group: Name | None = None
    queue: Name | None = None
    priority: Priority = Field(default=0.0, description="higher first")
    depends: list[Depends] = field("depends")
    retries: Retries = field("retries")
    retry_memory: RetryMemory = field("retry_memory")
    slurm: list[str] = Field(default_factory=list, description="options for sbatch")
    communication: CommunicationEntry | None = Field(default=None, description="of jobs on remote GPUs")
    cpus: Cpus | None = Field(default=None, description="a node, of a job without an app")
    gpus: Share | None = Field(default=None, description="a node, of a job without an app; default 1")
    memory: Bytes = Field(default=0, description="bytes a node, of a job without an app")


class JobFile(Entry):
    """A job file."""

    cluster: Name | None = Field(
        default=None, description="for simulation, where no other is given: a short form, or a cluster file"
    )
    app: list[AppEntry] = Field(default_factory=list)
    job: list[JobEntry] = Field(min_length=1)
