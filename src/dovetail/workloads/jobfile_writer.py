"""Writes any workload as a job file: what ``dovetail workload export`` prints.

``load_jobfile`` reads it back: the same jobs in the same order, with the same choices and true times.
Apps of one name that ask for different things (each request of a trace is one) get a number behind their
name, since an app is there once in a job file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

from dovetail.errors import InputError
from dovetail.files.sentences import NAME, is_name, shown
from dovetail.files.units import LONGEST, MOST_BYTES
from dovetail.model import (
    HOST_CPUS,
    WHOLE_POOL,
    Command,
    Communication,
    Implementation,
    Job,
    Request,
    Seconds,
    Workload,
)
from dovetail.model.cluster_file import is_short
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES, MOST_NODES, MOST_RETRIES
from dovetail.workloads.jobfile import COMMUNICATING
from dovetail.workloads.jobfile_schema import HIGHEST_PRIORITY, MOST_RATIO

__all__ = ["dump_jobfile"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_Commands = tuple[Command | None, ...]
_Shape = tuple[str, bool, tuple[tuple[str, str, Request, int, bool], ...], _Commands]


def dump_jobfile(workload: Workload) -> str:
    """The workload as the text of a job file. Linear.

    Raises `InputError` for what a job file cannot say: a request for devices of several kinds, a moldable
    job that has no true time at some of its node counts, a negative number, one beyond the bounds of a job
    file.
    """
    jobs = sorted(workload.jobs, key=lambda job: job.index)
    if not jobs:
        raise InputError(f"{workload.name}: found no jobs, expected at least one to write")
    names: dict[_Shape, str] = {}
    commands: dict[str, _Commands] = {}
    taken: set[str] = set()
    head: list[str] = [f"# {' '.join(workload.name.split())}", ""]
    if workload.machine is not None and is_short(workload.machine.label):
        head += [f"cluster = {_text(workload.machine.label)}", ""]
    body: list[str] = []
    for job in jobs:
        if _needs_no_app(job):
            body += _job(job, None, None, {})
            continue
        mine = tuple(i.command for i in job.app.implementations)
        shape = _shape(job)
        if shape in names and mine != commands[names[shape]] and (len(set(mine)) > 1 or mine[0] is None):
            shape = (*shape[:3], mine)  # a job has one command of its own at most
        if shape not in names:
            names[shape] = _unused(job.app.name, taken)
            commands[names[shape]] = mine
            head += _app(names[shape], job)
        name = names[shape]
        own = None if mine == commands[name] else mine[0]
        body += _job(job, name, own, _times(job, workload))
    return "\n".join(head + body)


def _needs_no_app(job: Job) -> bool:
    """Whether its communication says all that there is to say of it."""
    ways = job.app.implementations
    return (
        job.communication is not None
        and job.app.name == COMMUNICATING
        and [(i.name, i.kind, i.command) for i in ways] == [("gpu", "gpu", None)]
        and not job.app.restartable
    )


def _shape(job: Job) -> _Shape:
    """What makes the apps of two jobs one entry: everything but the argv and the environment."""
    asked = tuple(
        (i.name, i.kind, i.request.on(1), i.command.tasks if i.command else 1, i.name in job.sizing.auto)
        for i in job.app.implementations
    )
    return job.app.name, job.app.restartable, asked, ()


def _unused(name: str, taken: set[str]) -> str:
    number, unused = 1, name
    while unused in taken:
        number += 1
        unused = f"{name}-{number}"
    taken.add(unused)
    return unused


# -- entries -------------------------------------------------------------------------------------------


def _app(name: str, job: Job) -> list[str]:
    app = job.app
    lines = ["[[app]]", f"name = {_text(_named(name, 'app'))}"]
    lines += ["restartable = true", ""] if app.restartable else [""]
    for i in app.implementations:
        where = f"app {app.name!r}, implementation {i.name!r}"
        lines += ["[[app.implementation]]", f"name = {_text(_named(i.name, where))}"]
        if i.kind != i.name:
            lines.append(f"kind = {_text(_named(i.kind, where))}")
        if i.command is not None:
            lines += _command(i.command)
        lines += [*_request(i, where, learned=i.name in job.sizing.auto), ""]
    return lines


def _command(command: Command) -> list[str]:
    lines = [f"command = [{', '.join(map(_text, command.argv))}]"]
    if command.env:
        lines.append(f"env = {_table((key, _text(value)) for key, value in command.env)}")
    if command.tasks != 1:
        lines.append(f"tasks = {command.tasks}")
    return lines


def _request(implementation: Implementation, where: str, *, learned: bool = False) -> list[str]:
    """What differs from the default request of the kind; ``learned`` is its memory."""
    kind, request = implementation.kind, implementation.request
    lines: list[str] = []
    device = kind.removeprefix("cpu+")
    default = HOST_CPUS if device == kind != "cpu" else WHOLE_POOL
    if [k for k, _ in request.devices] != ([] if kind == "cpu" else [device]):
        asked = ", ".join(k for k, _ in request.devices) or "none"
        raise InputError(f"{where}: found devices {asked}, expected those of its kind {kind!r}")
    if request.cpus != default:
        if request.cpus < 0:
            raise InputError(
                f"{where}: found a request for CPUs that a job file cannot say, expected a number"
            )
        lines.append(f"cpus = {_number(request.cpus, where, MOST_CPUS)}")
    if request.devices and request.devices[0][1] != 1:
        lines.append(f"gpus = {_number(request.devices[0][1], where, MOST_DEVICES)}")
    if request.models:
        lines.append(f"models = [{', '.join(map(_text, request.models))}]")
    if learned:
        lines.append('memory = "auto"')
    elif request.memory:
        lines.append(f"memory = {_number(request.memory, where, MOST_BYTES)}")
    return lines


def _job(
    job: Job, app: str | None, command: Command | None, times: Mapping[str, Seconds | Mapping[int, Seconds]]
) -> list[str]:
    where = f"job {job.id!r}"
    lines = ["[[job]]", f"id = {_text(_named(job.id, 'job'))}"]
    lines += _request(job.app.implementations[0], where) if app is None else [f"app = {_text(app)}"]
    if job.inputs:
        pairs = ((_named(k, where), _value(v, where)) for k, v in job.inputs.items())
        lines.append(f"inputs = {_table(pairs)}")
    if command is not None:
        lines += _command(replace(command, tasks=1))  # how many start is said by the app
    if times:
        lines.append(f"times = {_table((name, _seconds(t, where)) for name, t in times.items())}")
    if job.sequential is not None:
        lines.append(f"sequential = {_number(job.sequential, where, LONGEST)}")
    if job.speedup:
        lines.append(
            f"speedup = {_table((name, _number(s, where, MOST_RATIO)) for name, s in job.speedup.items())}"
        )
    if job.submit_time:
        lines.append(f"submit = {_number(job.submit_time, where, LONGEST)}")
    if job.nodes != 1:
        lines.append(f"nodes = {_number(job.nodes, where, MOST_NODES)}")
    for key, value in (("implementation", job.implementation), ("user", job.user)):
        lines += [f"{key} = {_text(_named(value, where))}"] if value is not None else []
    for key, value in (("group", job.group), ("queue", job.queue)):
        lines += [f"{key} = {_text(_named(value, where))}"] if value is not None else []
    if job.walltime is not None:
        lines.append(f"walltime = {_number(job.walltime, where, LONGEST)}")
    if job.priority:
        lines.append(f"priority = {_number(job.priority, where, HIGHEST_PRIORITY)}")
    if job.depends:
        lines.append(f"depends = [{', '.join(_text(str(one)) for one in job.depends)}]")
    if job.retries:
        lines.append(f"retries = {_number(job.retries, where, MOST_RETRIES)}")
    if job.sizing.retry != "learned":
        retry = job.sizing.retry
        lines.append(f"retry_memory = {_text(retry) if isinstance(retry, str) else _number(retry, where)}")
    if job.slurm:
        lines.append(f"slurm = [{', '.join(map(_text, job.slurm))}]")
    if job.communication is not None:
        said = [(field.name, getattr(job.communication, field.name)) for field in fields(Communication)]
        lines += [
            "[job.communication]",
            *(f"{name} = {_number(n, where)}" for name, n in said if n or name == "other"),
        ]
    return [*lines, ""]


def _times(job: Job, workload: Workload) -> dict[str, Seconds | Mapping[int, Seconds]]:
    """True times by implementation: one number where the only node count is the one asked for."""
    found: dict[str, Seconds | Mapping[int, Seconds]] = {}
    for implementation in job.app.implementations:
        known = {
            request.nodes: workload.truth.seconds(job, implementation, request)
            for request in job.requests(implementation)
        }
        timed = {nodes: seconds for nodes, seconds in known.items() if seconds is not None}
        if list(known) == [job.nodes]:
            found.update({implementation.name: timed[job.nodes]} if timed else {})
        elif len(timed) < len(known):
            raise InputError(
                f"job {job.id!r}, implementation {implementation.name!r}: found no true time on some of its "
                f"node counts ({', '.join(map(str, known))}), expected one on each"
            )
        elif timed:
            found[implementation.name] = timed
    return found


# -- values --------------------------------------------------------------------------------------------


def _seconds(value: Seconds | Mapping[int, Seconds], where: str) -> str:
    if isinstance(value, Mapping):
        return _table(
            (_number(nodes, where, MOST_NODES), _number(seconds, where, LONGEST))
            for nodes, seconds in value.items()
        )
    return _number(value, where, LONGEST)


def _value(value: float | str, where: str) -> str:
    return _text(value) if isinstance(value, str) else _number(value, where)


def _number(value: float, where: str, most: float = math.inf) -> str:
    if not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: found {value!r}, expected a finite number of at least 0")
    if value > most:
        raise InputError(f"{where}: found {value!r}, expected at most {most:g}, as a job file holds")
    whole = isinstance(value, int) or (value.is_integer() and value < 1e15)
    return str(int(value)) if whole else repr(float(value))


def _named(name: str, where: str) -> str:
    if not is_name(name):
        raise InputError(f"{where}: found {shown(name)}, expected {NAME}")
    return name


def _table(pairs: Iterable[tuple[str, str]]) -> str:
    return "{ " + ", ".join(f"{_key(key)} = {value}" for key, value in pairs) + " }"


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    """A TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\u{ord(m[0]):04x}", escaped) + '"'
