"""What clients send: the forms of requests, as pydantic models, which the OpenAPI page shows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from dovetail.files.fields import Entry, Name, duration, number_or_text, real
from dovetail.spec.values import MOST_CPUS, MOST_PRIORITY
from dovetail.workloads.jobfile_schema import (
    AppEntry,
    Argv,
    Depends,
    Env,
    Inputs,
    Limit,
    Memory,
    Nodes,
    Retries,
    RetryMemory,
    Share,
    field,
)

_PLACE = "#/components/schemas/{model}"
MOST_JOBS = 100_000
LONGEST_SCRIPT = 4 << 20


def _cpus(value: object) -> int | str:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_CPUS):
        return value
    raise PydanticCustomError("dovetail", "expected a number of CPUs, or 'all'")


def _without_null(value: str) -> str:
    if "\0" in value:
        raise PydanticCustomError("dovetail", "expected text without a null character")
    return value


def _priority(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MOST_PRIORITY:
        return value
    raise PydanticCustomError("dovetail", f"expected a whole number within {MOST_PRIORITY}")


Cpus = Annotated[
    int | Literal["all"],
    BeforeValidator(_cpus),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0, "maximum": MOST_CPUS}, {"const": "all"}]}),
]
Priority = Annotated[
    int,
    BeforeValidator(_priority),
    WithJsonSchema({"type": "integer", "minimum": -MOST_PRIORITY, "maximum": MOST_PRIORITY}),
]
Risk = Annotated[float, BeforeValidator(real("a probability", most=1.0))]
Word = Annotated[str, AfterValidator(_without_null)]
Text = Annotated[Word, Field(min_length=1, max_length=4096)]
Patience = Annotated[float, Field(ge=0, le=60), BeforeValidator(duration()), number_or_text(most=60)]


class JobForm(Entry):
    """A job, or with ``array`` several that are alike.

    What it runs is one of: an ``app`` of the request; ``implementations``, a command for each kind of device;
    a ``command`` for every kind in ``on``; a ``script``.
    """

    id: Name | None = field("id")
    name: Text | None = field("name")
    app: Name | None = field("app")
    implementations: dict[Name, Argv] = field("implementations")
    command: Argv | None = field("command")
    on: list[Name] = field("on")
    script: Annotated[str, Field(max_length=LONGEST_SCRIPT)] | None = field("script")
    arguments: list[Word] = field("arguments")
    inputs: Inputs = field("inputs")
    env: Env = field("env")
    cpus: Cpus | None = field("cpus")
    gpus: Share | None = field("gpus")
    memory: Memory | None = field("memory")
    retry_memory: RetryMemory = field("retry_memory")
    kill_risk: Risk | None = field("kill_risk")
    nodes: Nodes = field("nodes")
    walltime: Limit | None = field("walltime")
    partition: Name | None = field("partition")
    priority: Priority = field("priority")
    depends: list[Depends] = field("depends")
    singleton: bool = field("singleton")
    array: Text | None = field("array")
    retries: Retries = field("retries")
    restartable: bool = field("restartable")
    stdout: Text | None = field("stdout")
    stderr: Text | None = field("stderr")
    signal: Text | None = field("signal")
    hold: bool = field("hold")
    slurm: bool = field("slurm")
    sbatch: list[str] = field("sbatch")


class SubmitForm(Entry):
    """Jobs that come in together: all or none."""

    folder: Text | None = Field(default=None, description="where they run; default: that of the service")
    environment: Env | None = Field(
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
    timeout: Patience = 30.0
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
