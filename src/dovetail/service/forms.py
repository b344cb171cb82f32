"""What clients send: the forms of requests, as pydantic models, which the OpenAPI page shows."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from dovetail.files.fields import Entry, duration_check, number_or_text
from dovetail.model import Recipients
from dovetail.spec import kinds
from dovetail.spec.commands import UPDATED
from dovetail.spec.values import LimitName
from dovetail.workloads.jobfile_schema import AppEntry
from dovetail.workloads.spec_forms import Env, annotation_of, form_of

_PLACE = "#/components/schemas/{model}"
MOST_JOBS = 100_000

Text: Any = annotation_of(kinds.TEXT)
Moment: Any = annotation_of(kinds.MOMENT)
Span: Any = annotation_of(kinds.duration(above=True))
Patience = Annotated[float, Field(ge=0, le=60), BeforeValidator(duration_check()), number_or_text(most=60)]

_Job: Any = form_of("http", "JobForm", {})


class JobForm(_Job):  # type: ignore[misc]  # its fields are the options of `dovetail.spec.jobs`
    """A job, or with ``array`` several that are alike.

    What it runs is one of: an ``app`` of the request; ``implementations``, a command for each kind of device;
    a ``command`` for every kind in ``on``; a ``script``.
    """


class SubmitForm(Entry):
    """Jobs that come in together: all or none."""

    folder: Text | None = Field(default=None, description="where they run; default: that of the service")
    environment: Env | None = Field(
        default=None, description="of their processes; default: that of the service"
    )
    umask: Annotated[int, Field(ge=0, le=0o777)] | None = Field(
        default=None, description="of their processes; default: that of the service"
    )
    limits: dict[LimitName, Annotated[int, Field(ge=-1, lt=1 << 63)]] | None = Field(
        default=None,
        description="soft limits of their processes as setrlimit takes them, -1 for none, as far as the "
        "service's hard limits allow; default: those of the service",
    )
    apps: list[AppEntry] = Field(default_factory=list, description="as in a job file")
    jobs: list[JobForm] = Field(min_length=1, max_length=MOST_JOBS)
    interactive: bool = Field(
        default=False, description="the one job's command runs on a terminal: `/api/v1/jobs/ID/terminal`"
    )
    dry_run: bool = Field(
        default=False, description="check them and answer with what is predicted; nothing is submitted"
    )


class ActionForm(Entry):
    """What is to happen to some jobs."""

    jobs: Text = Field(description="numbers, ranges, names, 'last' or 'all'")


class CancelForm(ActionForm):
    """Which jobs are to be cancelled; or, with ``signal``, which running ones are to be sent it."""

    signal: Text | None = Field(
        default=None, description="sent to the jobs that run, which go on: USR1, SIGTERM, 10"
    )
    to: Recipients = Field(
        default="all",
        description="which processes of a job get the signal: all, its first (a script) alone, or all others",
    )


class RequeueForm(Entry):
    """Which jobs are to run again."""

    jobs: Text | None = Field(
        default=None, description="numbers, ranges, names, 'last' or 'all'; with `failed` by default all"
    )
    failed: bool = Field(default=False, description="of these only those that have failed")


_Changes: Any = form_of("http", "ChangesForm", {}, only=UPDATED)


class ChangesForm(_Changes):  # type: ignore[misc]  # its fields are options of `dovetail.spec.jobs`
    """What jobs are to have from now on; what is not given stays."""


class UpdateForm(Entry):
    """Which jobs are to be changed, and how."""

    jobs: Text = Field(description="numbers, ranges, names, 'last' or 'all'")
    changes: ChangesForm


class MoveForm(Entry):
    """Where in the queue jobs are to stand."""

    job: Text = Field(description="a job that waits, an array, or a name: all jobs of it that wait")
    after: Text | None = Field(
        default=None, description="another one that waits, of several the last; default: first of all"
    )


class PauseForm(Entry):
    """For which kinds of devices the queue is to pause, or to go on."""

    kinds: list[Text] = Field(
        default_factory=list, max_length=64, description="cpu, gpu, opencl …; default: all"
    )


class TerminalForm(Entry):
    """What is typed at a job's terminal, and how large the window is."""

    data: Annotated[str, Field(max_length=1 << 20)] = Field(default="", description="bytes in base64")
    rows: Annotated[int, Field(ge=1, le=10_000)] | None = None
    columns: Annotated[int, Field(ge=1, le=10_000)] | None = None


class ReserveForm(Entry):
    """Devices that are to be kept for a user."""

    gpus: Annotated[int, Field(ge=1, le=100_000)] = Field(description="how many GPUs")
    start: Moment | None = Field(
        default=None, description="seconds since 1970, or 16:00, now+1hour …; default: now"
    )
    span: Span = Field(description="how long, in seconds or as 3h")
    user: Text | None = Field(default=None, description="whose jobs run there; default: the caller")
    name: Text | None = Field(default=None, description="for people")


class WaitForm(Entry):
    """Which jobs to wait for, and how long."""

    jobs: Annotated[str, Field(min_length=1, max_length=1 << 20)] = Field(description="as for `cancel`")
    timeout: Patience = 30.0
    any: bool = Field(default=False, description="until one has ended; the answer has those that have")


class ForgetForm(Entry):
    """Which jobs are old."""

    age: Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] = Field(
        description="seconds since their end; jobs that are wanted stay"
    )


class WhatIfForm(Entry):
    """A policy under which the queue of this moment is to be predicted."""

    policy: Text
    cluster: Text | None = Field(default=None, description="a short form; default: the service's")


def schema_of(form: type[Entry]) -> dict[str, Any]:
    """The JSON schema of a form, whose parts are those of `schema_definitions`."""
    schema = form.model_json_schema(ref_template=_PLACE)
    schema.pop("$defs", None)
    return schema


def schema_definitions() -> dict[str, Any]:
    """The schemas of the forms' parts, for the components of an OpenAPI description."""
    found: dict[str, Any] = {}
    for form in (
        ActionForm,
        CancelForm,
        MoveForm,
        PauseForm,
        RequeueForm,
        ReserveForm,
        SubmitForm,
        TerminalForm,
        UpdateForm,
        WaitForm,
        WhatIfForm,
    ):
        found |= form.model_json_schema(ref_template=_PLACE).get("$defs", {})
    return found
