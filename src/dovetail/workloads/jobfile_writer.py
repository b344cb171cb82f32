"""Writes any workload as a job file: what ``dovetail workload export`` prints.

``load_jobfile`` reads it back: the same jobs in the same order, with the same choices and true times.
Apps of one name that make different requests (each request of a trace is one) get a number behind their
name, since an app is there once in a job file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any

from dovetail.errors import InputError
from dovetail.files.fields import Entry, default_values
from dovetail.files.sentences import NAME, is_name, show_value
from dovetail.files.toml import toml_lines, toml_value
from dovetail.files.units import LONGEST, MOST_BYTES
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    Command,
    Implementation,
    Job,
    Request,
    Seconds,
    Workload,
)
from dovetail.model.short_form import is_short
from dovetail.spec.jobs import HIGHEST_PRIORITY, KEPT, job_option
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES, MOST_NODES, MOST_RETRIES
from dovetail.workloads.job_builder import COMMUNICATING
from dovetail.workloads.jobfile_schema import (
    MOST_RATIO,
    AppEntry,
    CommunicationEntry,
    ImplementationEntry,
    JobEntry,
)

NAMES = ("name", "kind", "implementation", "user", "group", "queue")
"""Fields that hold a name."""
MOST: Mapping[str, float] = {
    "cpus": MOST_CPUS,
    "gpus": MOST_DEVICES,
    "memory": MOST_BYTES,
    "gpu_memory": MOST_BYTES,
    "times": LONGEST,
    "sequential": LONGEST,
    "speedup": MOST_RATIO,
    "submit": LONGEST,
    "nodes": MOST_NODES,
    "walltime": LONGEST,
    "priority": HIGHEST_PRIORITY,
    "retries": MOST_RETRIES,
}
"""The largest numbers that a job file takes, by field."""
_Commands = tuple[Command | None, ...]
_Shape = tuple[str, bool, tuple[tuple[str, str, Request, int, tuple[bool, bool]], ...], _Commands]


def dump_jobfile(workload: Workload) -> str:
    """The workload as the text of a job file. Linear.

    Raises `InputError` for what a job file cannot express: a request for devices of several kinds, a moldable
    job that has no true time at some of its node counts, a negative number, one beyond the bounds of a job
    file.
    """
    # By their place in the file, which breaks ties when it is read again.
    jobs = sorted(workload.jobs, key=lambda job: job.index)
    if not jobs:
        raise InputError(f"{workload.name}: found no jobs, expected at least one to write")
    names: dict[_Shape, str] = {}
    commands: dict[str, _Commands] = {}
    taken: set[str] = set()
    head: list[str] = [f"# {' '.join(workload.name.split())}", ""]
    if workload.machine is not None and is_short(workload.machine.label):
        head += [f"cluster = {toml_value(workload.machine.label)}", ""]
    body: list[str] = []
    for job in jobs:
        if _needs_no_app(job):
            body += _job_lines(job, None, None, {})
            continue
        mine = tuple(i.command for i in job.app.implementations)
        shape = _job_shape(job)
        # The same app with another command: a job can bring one, but not one for each implementation.
        if shape in names and mine != commands[names[shape]] and (len(set(mine)) > 1 or mine[0] is None):
            # A job has one command of its own at most.
            shape = (*shape[:3], mine)
        if shape not in names:
            names[shape] = _unused_name(job.app.name, taken)
            commands[names[shape]] = mine
            head += _app_lines(names[shape], job)
        name = names[shape]
        own = None if mine == commands[name] else mine[0]
        body += _job_lines(job, name, own, _true_times(job, workload))
    return "\n".join(head + body)


def _needs_no_app(job: Job) -> bool:
    """Whether its communication describes it completely."""
    ways = job.app.implementations
    return (
        job.communication is not None
        and job.app.name == COMMUNICATING
        and [(i.name, i.kind, i.command) for i in ways] == [("gpu", "gpu", None)]
        and not job.app.restartable
    )


def _job_shape(job: Job) -> _Shape:
    """What makes the apps of two jobs one entry: everything but the argv and the environment."""
    requested = tuple(
        (i.name, i.kind, i.request.on(1), i.command.tasks if i.command else 1, _learned_memory(i, job))
        for i in job.app.implementations
    )
    return job.app.name, job.app.restartable, requested, ()


def _unused_name(name: str, taken: set[str]) -> str:
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}-{number}"
    taken.add(unused)
    return unused


# -- entries -------------------------------------------------------------------------------------------


def _app_lines(name: str, job: Job) -> list[str]:
    app = job.app
    lines = ["[[app]]", *_entry_lines(AppEntry, {"name": name, "restartable": app.restartable}, "app"), ""]
    for i in app.implementations:
        where = f"app {app.name!r}, implementation {i.name!r}"
        written = {"name": i.name, "kind": None if i.kind == i.name else i.kind}
        if i.command is not None:
            written |= _command_form(i.command) | {"tasks": i.command.tasks}
        written |= _request_form(i, where, *_learned_memory(i, job))
        lines += ["[[app.implementation]]", *_entry_lines(ImplementationEntry, written, where), ""]
    return lines


def _command_form(command: Command) -> dict[str, Any]:
    return {"command": command.argv, "env": dict(command.env)}


def _learned_memory(implementation: Implementation, job: Job) -> tuple[bool, bool]:
    """Whether its memory is learned, and whether that of its devices is."""
    sizing, name = job.sizing, implementation.name
    return name in sizing.auto, (
        name in sizing.gpu_auto
        and not implementation.request.gpu_memory
        and not implementation.request.sharing
    )


def _request_form(
    implementation: Implementation, where: str, learned: bool = False, gpu_learned: bool = False
) -> dict[str, Any]:
    """What differs from the default request of the kind; learned: its memory, and that of its devices."""
    kind, request = implementation.kind, implementation.request
    device = kind.removeprefix("cpu+")
    # "cpu+gpu" takes the pool by default, a device alone its host's share.
    default = HOST_CPUS if device == kind != "cpu" else WHOLE_POOL
    if [k for k, _ in request.devices] != ([] if kind == "cpu" else [device]):
        requested = ", ".join(k for k, _ in request.devices) or "none"
        raise InputError(f"{where}: found devices {requested}, expected those of its kind {kind!r}")
    # -1 and -2 stand for "all" and "the host's share": only the kind's own default can be left out.
    if request.cpus < 0 and request.cpus != default:
        raise InputError(
            f"{where}: found a request for CPUs that a job file cannot express, expected a number"
        )
    gpus = request.devices[0][1] if request.devices else 1
    return {
        "cpus": None if request.cpus == default else request.cpus,
        "gpus": "auto" if request.sharing else None if gpus == 1 else gpus,
        "models": request.models,
        "memory": "auto" if learned else request.memory,
        "gpu_memory": "auto" if gpu_learned else request.gpu_memory,
    }


def _job_lines(
    job: Job, app: str | None, command: Command | None, times: Mapping[str, Seconds | Mapping[int, Seconds]]
) -> list[str]:
    where = f"job {job.id!r}"
    written: dict[str, Any] = {"id": _check_name(job.id, "job"), "app": app}
    if app is None:
        written |= _request_form(job.app.implementations[0], where)
        # A job of its own has none.
        del written["models"]
    written |= {"inputs": {_check_name(name, where): value for name, value in job.inputs.items()}}
    written |= {} if command is None else _command_form(command)
    written |= {"times": times, "sequential": job.sequential, "speedup": dict(job.speedup)}
    written |= {"submit": job.submit_time}
    for field in ("name", "nodes", "implementation", "user", "group", "queue", "walltime", "priority"):
        written[field] = getattr(job, field)
    written |= {"kill_risk": job.sizing.risk, "partition": _common_partition(job)}
    # Options of the command line alone have no field in a file.
    written |= {name: job.options[name] for name in KEPT if name in job.options and job_option(name).file}
    written |= {"depends": [str(one) for one in job.depends], "retries": job.retries}
    written |= {"retry_memory": job.sizing.retry, "slurm": job.batch_options}
    lines = ["[[job]]", *_entry_lines(JobEntry, written, where)]
    if job.communication is not None:
        lines += ["[job.communication]", *_entry_lines(CommunicationEntry, asdict(job.communication), where)]
    return [*lines, ""]


def _common_partition(job: Job) -> str | None:
    """The partition that a job names in each of its ways to run."""
    found = {choice.request.partition for choice in job.choices}
    # Several partitions: the job names none of them itself.
    return (found.pop() or None) if len(found) == 1 else None


def _true_times(job: Job, workload: Workload) -> dict[str, Seconds | Mapping[int, Seconds]]:
    """True times by implementation: one number where the only node count is the requested one."""
    found: dict[str, Seconds | Mapping[int, Seconds]] = {}
    for implementation in job.app.implementations:
        known = {
            request.nodes: workload.truth.seconds(job, implementation, request)
            for request in job.requests(implementation)
        }
        timed = {nodes: seconds for nodes, seconds in known.items() if seconds is not None}
        if list(known) == [job.nodes]:
            found.update({implementation.name: timed[job.nodes]} if timed else {})
        # A moldable job without some of its times would be read back as another one.
        elif len(timed) < len(known):
            raise InputError(
                f"job {job.id!r}, implementation {implementation.name!r}: found no true time on some of its "
                f"node counts ({', '.join(map(str, known))}), expected one on each"
            )
        elif timed:
            found[implementation.name] = timed
    return found


# -- values --------------------------------------------------------------------------------------------


_defaults = cache(default_values)


def _entry_lines(form: type[Entry], written: Mapping[str, Any], where: str) -> list[str]:
    """The fields of an entry that differ from its defaults. Raises `InputError` for what it cannot hold."""
    for field, value in written.items():
        if field in NAMES and value is not None:
            _check_name(value, where)
        _check_value(value, where, MOST.get(field, math.inf))
    return toml_lines(written, _defaults(form))


def _check_value(value: object, where: str, most: float) -> None:
    if isinstance(value, Mapping):
        for key, one in value.items():
            _check_value(key, where, MOST_NODES)  # times by node count
            _check_value(one, where, most)
    elif isinstance(value, int | float):
        if not math.isfinite(value) or value < 0:
            raise InputError(f"{where}: found {value!r}, expected a finite number of at least 0")
        if value > most:
            raise InputError(f"{where}: found {value!r}, expected at most {most:g}, as a job file holds")


def _check_name(name: str, where: str) -> str:
    if not is_name(name):
        raise InputError(f"{where}: found {show_value(name)}, expected {NAME}")
    return name
