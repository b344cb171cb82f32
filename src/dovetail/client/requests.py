"""What people have, as what a service takes: job files, lists of commands, batch scripts, single commands.

All of it is read into parts of a `JobSpec`; a request holds them as its form has them.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, get_args

from dovetail.errors import InputError
from dovetail.spec.jobs import PartialSpec, as_form
from dovetail.spec.values import LimitName

if TYPE_CHECKING:
    from dovetail.workloads.batch.script import BatchScript

Form = dict[str, Any]
_LIMITS = {name: getattr(resource, f"RLIMIT_{name}") for name in get_args(LimitName)}


def request_context() -> Form:
    """The folder, environment, umask and soft limits of this process, which its jobs get."""
    try:
        folder = os.getcwd()
    except OSError as error:
        raise InputError(f"the current folder cannot be used: {error.strerror}") from error
    own = {name: resource.getrlimit(limit)[0] for name, limit in _LIMITS.items()}
    return {"folder": folder, "environment": dict(os.environ), "umask": _read_umask(), "limits": own}


HEAD_OF_STATUS = 256
"""Bytes of a process' status that hold its first lines; the kernel makes all of it where more is read."""


def _read_umask() -> int:
    """Ours, which other threads that make files meanwhile do not notice."""
    status = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
    try:
        head = os.read(status, HEAD_OF_STATUS)
    finally:
        os.close(status)
    for line in head.splitlines():
        if line.startswith(b"Umask:"):
            return int(line.split()[1], 8)
    found = os.umask(0o077)  # a kernel before 4.7 does not show it
    os.umask(found)
    return found


def request_of_parts(*parts: PartialSpec) -> Form:
    """The jobs of a request."""
    return {"jobs": [as_form(part) for part in parts]}


def request_of_file(path: str, part: PartialSpec, **options: Any) -> Form:
    """The apps and jobs of a job file, or of a list of commands (``-``: standard input).

    ``part`` is laid over each job; ``options`` are those of `dovetail.workloads.commands.CommandOptions`.
    Raises `InputError`.
    """
    from dovetail.workloads.load import read_parts

    apps, jobs = read_parts(path, part, **options)
    return {"apps": apps, **request_of_parts(*jobs)}


def request_of_script(
    script: BatchScript, arguments: list[str], part: PartialSpec, warn: Callable[[str], None]
) -> Form:
    """A batch script with its arguments; ``part`` goes over what its lines set. Raises `InputError`."""
    from dovetail.workloads.batch.submitting import environment_of, script_part, umask_of
    from dovetail.workloads.batch.variables import Origin

    around = request_context()
    request = request_of_parts(script_part(script, arguments, part, Origin.of_this_process(around["folder"])))
    for note in script.warned:
        warn(note.sentence())
    umask = umask_of(around["environment"])
    return {
        **request,
        "environment": environment_of(script, around["environment"]),
        **({} if umask is None else {"umask": umask}),
    }
