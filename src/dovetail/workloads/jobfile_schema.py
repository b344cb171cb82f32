"""The entries of a job file, as pydantic models: what may be written, field by field.

Checks that concern more than one entry (names, placeholders, node counts) are in
`dovetail.workloads.jobfile`.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from dovetail.files.fields import (
    Entry,
    Name,
    Seconds,
    number_or_text,
    real_number,
    size_check,
    whole_number,
)
from dovetail.files.units import MOST_BYTES
from dovetail.spec import kinds
from dovetail.spec.values import MOST_CPUS, MOST_NODES
from dovetail.workloads.spec_forms import (
    Argv,
    Env,
    Input,
    annotation_of,
    discriminate_forms,
    form_of,
    option_field,
)

MOST_COPIES = 10_000_000
MOST_RATIO = 1e12
MOST_CALLS = 1e18


def _node_count(value: object) -> int:
    """A key of ``times``: TOML keys are texts."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 7:
        count = int(value)
        if 1 <= count <= MOST_NODES and str(count) == value:
            return count
    raise PydanticCustomError("dovetail", "expected a number of nodes, 1 or more")


Copies = Annotated[int, Field(ge=1, le=MOST_COPIES), BeforeValidator(whole_number(1, MOST_COPIES))]
Cpus = Annotated[int, Field(ge=0, le=MOST_CPUS), BeforeValidator(whole_number(0, MOST_CPUS))]
Share: Any = annotation_of(kinds.DEVICES)
Ratio = Annotated[
    float, Field(gt=0), BeforeValidator(real_number("a ratio", most=MOST_RATIO, above_zero=True))
]
Size = Annotated[float, BeforeValidator(size_check()), number_or_text(most=MOST_BYTES)]
Calls = Annotated[float, Field(ge=0), BeforeValidator(real_number("a number of calls", most=MOST_CALLS))]
Memory: Any = annotation_of(kinds.SIZE_OR_AUTO)
Tasks = Annotated[int, Field(ge=1, le=MOST_CPUS), BeforeValidator(whole_number(1, MOST_CPUS))]
NodeCount = Annotated[
    int, BeforeValidator(_node_count), WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]{0,6}$"})
]
Times = Annotated[
    dict[NodeCount, Seconds], Field(min_length=1, json_schema_extra={"additionalProperties": False})
]
JobTime = Annotated[
    Annotated[Seconds, Tag("~seconds")] | Annotated[Times, Tag("~times")],
    discriminate_forms("~times", "~seconds", dict),
]
Values = Annotated[
    Annotated[str, Tag("~text")] | Annotated[list[Input], Field(min_length=1), Tag("~values")],
    discriminate_forms("~values", "~text", list),
]


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
        description="devices of the kind a node; below 1 shares one; auto: one, beside another if that pays; "
        "not counted where the kind is cpu",
    )
    models: list[str] = Field(default_factory=list, description="device models that will do; default: any")
    memory: Memory = Field(default=0, description="bytes a node; 0: not counted; auto: learned")
    gpu_memory: Memory = Field(
        default=0, description="bytes on each device, which others may share; 0: not given; auto: learned"
    )
    slurm: list[str] = Field(default_factory=list, description="options for sbatch where this one is chosen")
    time: Seconds | None = Field(default=None, description="true seconds, for simulation")
    times: Times | None = Field(
        default=None, description="true seconds by node count; only these counts exist"
    )


class AppEntry(Entry):
    """A program, with its implementations."""

    name: Name
    implementation: list[ImplementationEntry] = Field(default_factory=list)
    command: Argv | None = option_field("command")
    env: Env = Field(default_factory=dict)
    tasks: Tasks = Field(default=1, description="processes that are started on each node, for MPI")
    on: list[Name] = Field(default_factory=list, description="kinds for which the command is run")
    gpus: Share | None = Field(
        default=None, description="default of implementations on devices without their own"
    )
    gpu_memory: Memory | None = Field(
        default=None, description="default of implementations on devices without their own"
    )
    restartable: bool = option_field("restartable")
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


_Job: Any = form_of(
    "file",
    "JobEntry",
    {
        "count": Copies,
        "grid": dict[Name, Values],
        "times": dict[Name, JobTime],
        "speedup": dict[Name, Ratio],
        "communication": CommunicationEntry | None,
    },
)


class JobEntry(_Job):  # type: ignore[misc]  # its fields are the options of `dovetail.spec.jobs`
    """A run of an app, or several alike."""


class JobFile(Entry):
    """A job file."""

    cluster: Name | None = Field(
        default=None, description="for simulation, where no other is given: a short form, or a cluster file"
    )
    app: list[AppEntry] = Field(default_factory=list)
    job: list[JobEntry] = Field(min_length=1)
