"""What a job becomes by an update: some fields of its spec, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dovetail.driver.prepare import Validator
from dovetail.engine.journal.checked import check_fields
from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.model import (
    EMPTY,
    Choice,
    Cluster,
    Dependency,
    Implementation,
    Job,
    JobId,
    Launch,
    Rejected,
    Throttle,
    request_for,
)
from dovetail.spec.jobs import KEPT, job_option

SINGLETON = "singleton:"
"""How the keys of throttles begin of which one job of a name and user runs at a time."""


def is_singleton(job: Job) -> bool:
    """Whether a job is to run alone among those of its name and user."""
    return any(one.key.startswith(SINGLETON) for one in job.throttles)


def job_with(
    job: Job, part: Mapping[str, Any], cluster: Cluster, known: Mapping[str, Sequence[JobId]]
) -> tuple[Job, list[str]]:
    """The job with these fields of its spec, and which fields of a `Job` differ now.

    ``known`` are the ids of the jobs that dependencies name. Raises `InputError` without a job's name.
    """
    changed: dict[str, Any] = {
        name: part[name] for name in ("walltime", "priority", "retries", "name", "begin") if name in part
    }
    kept = {name: part[name] for name in KEPT if name in part}
    if kept:
        # Values that equal the default are not stored, as in a submission, so two equal jobs stay equal.
        defaults = {name: job_option(name).default for name in kept}
        left = {
            name: value for name, value in {**job.options, **kept}.items() if value != defaults.get(name, ...)
        }
        changed["options"] = left or EMPTY
    if "depends" in part:
        found = [Dependency.parse(text) for text in part["depends"]]
        pairs = [Dependency(one.kind, id) for one in found for id in known[one.job]]
        changed["depends"] = tuple(dict.fromkeys(pairs))
    # The key holds the name, so a new name is a new throttle.
    if "name" in part or "singleton" in part or "depends" in part:
        alone = is_singleton(job)
        if "depends" in part:
            alone = bool(part.get("singleton"))
        name = part.get("name") or job.name or job.app.name
        others = tuple(one for one in job.throttles if not one.key.startswith(SINGLETON))
        own = (Throttle(f"{SINGLETON}{job.user or ''}:{name}", 1),) if alone else ()
        changed["throttles"] = (*others, *own)
    if "on" in part:
        changed |= _restrict_kinds(job, part["on"])
    if "memory" in part:
        changed |= _change_memory(replace(job, **changed), part["memory"])
    into = replace(job, **changed)
    # Admitted again as at its submission: the new request must fit the cluster.
    if "choices" in changed:
        admitted = Validator(cluster).admit_job(into)
        if isinstance(admitted, Rejected):
            raise InputError(f"it {admitted.reason}")
        if len(admitted.choices) < len(into.choices):
            lost = [one for one in into.choices if one not in admitted.choices]
            raise InputError(f"no node has what it needs on {lost[0].implementation.kind}")
    try:
        # Checked as the ledger reads it back.
        check_fields(into)
    except ValueError as error:
        raise InputError(f"it cannot be kept on record: {show_value(str(error))}") from None
    return into, [name for name in changed if getattr(into, name) != getattr(job, name)]


def _restrict_kinds(job: Job, kinds: Sequence[str]) -> dict[str, Any]:
    """The job on these kinds of devices: ways that it has, and its only command on others."""
    ways: list[Implementation] = []
    commands = {one.command for one in job.app.implementations}
    for kind in dict.fromkeys(kinds):
        there = [one for one in job.app.implementations if one.kind == kind]
        if not there:
            # One command for all ways can run anywhere; several are each for their own device.
            if len(commands) > 1 or None in commands:
                raise InputError(f"on: found {kind}, for which it has no command")
            like = next(
                (
                    one
                    for one in job.app.implementations
                    if one.kind.startswith("cpu") == kind.startswith("cpu")
                ),
                None,
            )
            cpus = 1 if like is None and kind.startswith("cpu") else None
            old = job.app.implementations[0].request
            request = request_for(kind, cpus=cpus, memory=old.memory)
            there = [Implementation(kind, kind, replace(request, partition=old.partition), *commands)]
        ways += there
    if not ways:
        raise InputError("on: found no kind, expected at least one")
    names = {one.name for one in job.app.implementations}
    app = job.app if {one.name for one in ways} <= names else replace(job.app, implementations=tuple(ways))
    # Choices that stay keep their request, with what was learned about it.
    before = {(one.implementation.name, one.request.nodes): one for one in job.choices}
    counts = list(dict.fromkeys(one.request.nodes for one in job.choices))
    choices = tuple(
        before.get((one.name, nodes)) or Choice(one, one.request.on(nodes))
        for one in ways
        for nodes in counts
    )
    if app is not job.app:
        choices = tuple(Choice(app.implementation(one.implementation.name), one.request) for one in choices)
    return {"app": app, "choices": choices}


def _change_memory(job: Job, memory: int | str) -> dict[str, Any]:
    """The job with so many bytes a node, or with memory that is learned."""
    size = memory if isinstance(memory, int) else None
    auto = () if size is not None else tuple(one.implementation.name for one in job.choices)
    choices = tuple(replace(one, request=replace(one.request, memory=size or 0)) for one in job.choices)
    launch = Launch(memory=size) if job.launch is None and size is not None else job.launch
    if launch is not None and launch.memory != size:
        launch = replace(launch, memory=size)
    sizing = replace(job.sizing, auto=tuple(dict.fromkeys(auto)), kills=0)
    return {"choices": choices, "sizing": sizing, "launch": launch}
