"""What clients send: the forms of requests, as pydantic models, which the OpenAPI page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from dovetail.files.fields import Entry, Name, real
from dovetail.model import Dependency
from dovetail.workloads.jobfile_schema import (
    AppEntry,
    Argv,
    Env,
    Input,
    Limit,
    Memory,
    Nodes,
    Retries,
    RetryMemory,
    Share,
    dependency_of,
)

__all__ = ["ActionForm", "JobForm", "SubmitForm", "WaitForm", "WhatIfForm", "definitions", "schema_of"]

_PLACE = "#/components/schemas/{model}"
MOST_PRIORITY = 1_000_000
MOST_JOBS = 100_000
LONGEST_SCRIPT = 4 << 20


def _cpus(value: object) -> int | str:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1_000_000):
        return value
    raise PydanticCustomError("dovetail", "expected a number of CPUs, or 'all'")


def _priority(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_PRIORITY:
        return value
    raise PydanticCustomError("dovetail", f"expected a whole number within {MOST_PRIORITY}")


Cpus = Annotated[
    int | Literal["all"],
    BeforeValidator(_cpus),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": 1_000_000}, {"const": "all"}]}),
]
Priority = Annotated[
    int,
    BeforeValidator(_priority),
    WithJsonSchema({"type": "integer", "minimum": -MOST_PRIORITY, "maximum": MOST_PRIORITY}),
]
After = Annotated[
    Dependency,
    BeforeValidator(dependency_of),
    WithJsonSchema({"type": "string", "pattern": "^after(ok|notok|any):."}),
]
Risk = Annotated[float, BeforeValidator(real("a probability", most=1.0))]
Text = Annotated[str, Field(min_length=1, max_length=4096)]


class JobForm(Entry):
    """A job, or with ``array`` several that are alike.

    What it runs is one of: an ``app`` of the request; ``implementations``, a command for each kind of device;
    a ``command`` for every kind in ``on``; a ``script``.
    """

    id: Name | None = Field(default=None, description="its name in `depends` of other jobs of this request")
    name: Text | None = Field(default=None, description="for people; default: the name of the app")
    app: Name | None = Field(default=None, description="an app of this request, or the name to be known by")
    implementations: dict[Name, Argv] = Field(
        default_factory=dict, description="a command for each kind of device: cpu, gpu, cpu+gpu, opencl …"
    )
    command: Argv | None = Field(default=None, description="one command for every kind in `on`")
    on: list[Name] = Field(default_factory=list, description="kinds for `command`; default: cpu")
    script: Annotated[str, Field(max_length=LONGEST_SCRIPT)] | None = Field(
        default=None, description="a program that begins with #!; kept as it is now"
    )
    arguments: list[str] = Field(default_factory=list, description="of the script")
    inputs: dict[Name, Input] = Field(
        default_factory=dict, description="features of the prediction; they fill placeholders of commands"
    )
    env: Env = Field(default_factory=dict, description="over the request's environment")
    cpus: Cpus | None = Field(default=None, description="a node; default 1 where it runs on CPUs")
    gpus: Share | None = Field(default=None, description="devices a node; below 1 shares one; default 1")
    memory: Memory | None = Field(
        default=None, description="bytes a node, beyond which the job is ended; auto: learned"
    )
    retry_memory: RetryMemory = Field(
        default="learned",
        description="after a kill for memory it starts again with: learned, a factor of before, or no",
    )
    kill_risk: Risk | None = Field(
        default=None, description="with memory auto: the largest probability of a kill; default 0.05"
    )
    nodes: Nodes = 1
    walltime: Limit | None = Field(default=None, description="seconds; a limit, not an estimate")
    partition: Name | None = None
    priority: Priority = Field(default=0, description="higher first")
    depends: list[After] = Field(
        default_factory=list, description="afterok:JOB, afternotok:JOB or afterany:JOB"
    )
    singleton: bool = Field(default=False, description="at most one of this name and user at once")
    array: Text | None = Field(default=None, description="indices such as 0-9 or 1,3,5; 0-9%2: two at once")
    retries: Retries = Field(default=0, description="how often it may start again after a failure")
    restartable: bool = Field(default=False, description="a run that was cut short may begin again")
    stdout: Text | None = Field(
        default=None,
        description="a path from the folder; %j the job's id, %A the array's, %a the index, %x name",
    )
    stderr: Text | None = Field(default=None, description="default: as stdout where that is given")
    signal: Text | None = Field(default=None, description="SIGNAL@SECONDS before the walltime, e.g. USR1@60")
    hold: bool = False
    slurm: bool = Field(default=False, description="its environment has what sbatch would set")
    sbatch: list[str] = Field(
        default_factory=list, description="options for sbatch, where the service is a guest of Slurm's queue"
    )


class SubmitForm(Entry):
    """Jobs that come in together: all or none."""

    folder: Text | None = Field(default=None, description="where they run; default: that of the service")
    environment: dict[str, str] | None = Field(
        default=None, description="of their processes; default: that of the service"
    )
    apps: list[AppEntry] = Field(default_factory=list, description="as in a job file")
    jobs: list[JobForm] = Field(min_length=1, max_length=MOST_JOBS)


class ActionForm(Entry):
    """What is to happen to some jobs."""

    jobs: Text = Field(description="numbers, ranges, names, 'last' or 'all'")


class WaitForm(Entry):
    """For whom to wait, and for how long."""

    jobs: Annotated[str, Field(min_length=1, max_length=1 << 20)] = Field(description="as for `cancel`")
    timeout: Annotated[float, Field(ge=0, le=60)] = 30.0
    any: bool = Field(default=False, description="until one has ended; the answer has those that have")


class WhatIfForm(Entry):
    """A policy under which the queue of this moment is to be predicted."""

    policy: Text
    cluster: Text | None = Field(default=None, description="a short form; default: the service's")


def schema_of(form: type[Entry]) -> dict[str, Any]:
    """The JSON schema of a form, whose parts are those of `definitions`."""
    schema = form.model_json_schema(ref_template=_PLACE)
    schema.pop("$defs", None)
    return schema


def definitions() -> dict[str, Any]:
    """The schemas of the forms' parts, for the components of an OpenAPI description."""
    found: dict[str, Any] = {}
    for form in (ActionForm, SubmitForm, WaitForm, WhatIfForm):
        found |= form.model_json_schema(ref_template=_PLACE).get("$defs", {})
    return found
