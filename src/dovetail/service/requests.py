"""What people have, as what a service takes: job files, lists of commands, batch scripts, single commands."""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dovetail.errors import InputError
from dovetail.files.reading import read_text
from dovetail.files.sentences import file_name
from dovetail.files.units import seconds_of
from dovetail.spec.jobs import JOB

if TYPE_CHECKING:
    from dovetail.model import App, Job, Workload

Form = dict[str, Any]
_DIRECTIVE = re.compile(r"#(DOVETAIL|SBATCH)\s+(.*)")
_NUMBERED = re.compile(r"(?:[A-Za-z_][\w.-]*:)*([0-9]+)")


def here() -> Form:
    """The folder and the environment of this process, which its jobs get."""
    try:
        folder = os.getcwd()
    except OSError as error:
        raise InputError(f"the current folder cannot be used: {error.strerror}") from error
    return {"folder": folder, "environment": dict(os.environ)}


# ------------------------------------------------------------------------------------ files of jobs, commands


def forms_of_file(path: str, options: Mapping[str, Any]) -> tuple[list[Form], list[Form]]:
    """(apps, jobs) of a job file or of a list of commands (``-``: standard input). Raises `InputError`."""
    from dovetail.workloads.load import load_workload

    return forms_of_workload(load_workload(path, **options))


def forms_of_workload(workload: Workload) -> tuple[list[Form], list[Form]]:
    """(apps, jobs) of a workload. Apps are sent once; submit times are not, since all jobs come in now.

    Apps that differ and have one name get names of their own for this request only where they must: a job
    with a command of its own brings its implementations along.
    """
    apps: dict[str, App] = {}
    jobs: list[Form] = []
    for job in workload.jobs:
        first = apps.setdefault(job.app.name, job.app)
        own = {"app": job.app.name} if job.app is first or job.app == first else _own(job)
        form = {
            **own,
            "id": job.id,
            "inputs": dict(job.inputs),
            "nodes": job.nodes,
            "walltime": job.walltime,
            "partition": job.queue,
            "priority": round(job.priority),
            "depends": [str(one) for one in job.depends],
            "retries": job.retries,
            "memory": "auto" if job.sizing.auto else None,
            "retry_memory": None if job.sizing.retry == "learned" else job.sizing.retry,
            "sbatch": list(job.slurm),
        }
        jobs.append({key: value for key, value in form.items() if value not in (None, {}, [])})
    return [_app(app) for app in apps.values()], jobs


def _app(app: App) -> Form:
    entries = []
    for one in app.implementations:
        request, command = one.request, one.command
        if command is None:
            raise InputError(f"app {app.name!r}, implementation {one.name!r} has no command")
        entry: Form = {"name": one.name, "kind": one.kind, "command": list(command.argv)}
        entry |= {"env": dict(command.env), "tasks": command.tasks, "memory": request.memory}
        if request.cpus >= 0:
            entry["cpus"] = request.cpus
        if request.devices:
            entry["gpus"] = request.devices[0][1]
        if request.models:
            entry["models"] = list(request.models)
        entries.append(entry)
    return {"name": app.name, "implementation": entries, "restartable": app.restartable}


def _own(job: Job) -> Form:
    """A job whose app is not the one of that name: its commands, by kind."""
    commands = {one.kind: one for one in job.app.implementations}
    first = job.app.implementations[0]
    found: Form = {
        "app": job.app.name,
        "implementations": {k: list(one.command.argv) for k, one in commands.items() if one.command},
        "restartable": job.app.restartable,
    }
    if first.command is not None:
        found["env"] = dict(first.command.env)
    if first.request.cpus > 0:
        found["cpus"] = first.request.cpus
    if first.request.memory:
        found["memory"] = first.request.memory
    return found


# ------------------------------------------------------------------------------------------- batch scripts


class _Refusing(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def _parser() -> _Refusing:
    """The options of ``#DOVETAIL`` and ``#SBATCH`` lines that mean something here."""
    parser = _Refusing(add_help=False, allow_abbrev=False, prog="")
    for option in JOB:
        names = option.lines.split()
        if names and option.value:
            parser.add_argument(
                *names, dest=option.name, action="append" if option.default == [] else "store"
            )
        elif names:
            parser.add_argument(*names, dest=option.name, action="store_const", const=True)
    parser.add_argument("-n", "--ntasks", dest="ntasks")  # these two are Slurm's alone
    parser.add_argument("--ntasks-per-node", dest="ntasks_per_node")
    return parser


def read_script(path: str, warn: Callable[[str], None]) -> tuple[str, dict[str, str], bool]:
    """The text of a batch script, what its ``#DOVETAIL`` and ``#SBATCH`` lines ask, and if it is Slurm's.

    Lines count up to the first command, as in sbatch. ``#DOVETAIL`` wins over ``#SBATCH``; of the latter what
    has no meaning here is warned about. Raises `InputError` with file and line.
    """
    text = read_text(path, "a batch script")
    found: dict[str, dict[str, str]] = {"SBATCH": {}, "DOVETAIL": {}}
    slurm = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        where = f"{file_name(path)}: line {number}"
        try:
            words = shlex.split(match[2], comments=True)
            options, rest = _parser().parse_known_args(words)
        except (InputError, ValueError) as error:
            raise InputError(str(error), where=where) from None
        slurm = slurm or match[1] == "SBATCH"
        if rest and match[1] == "DOVETAIL":
            raise InputError(f"found {rest[0]!r}, expected an option of 'dovetail submit'", where=where)
        if rest:
            warn(f"{where}: {rest[0]} has no meaning here and is passed over")
        given = {key: value for key, value in vars(options).items() if value is not None}
        for name in ("depends", "on"):  # several of them add up, as on the command line
            if name in given:
                given[name] = ",".join(given[name])
        found[match[1]].update(given)
    asked = {**_from_slurm(found["SBATCH"]), **found["DOVETAIL"]}
    return text, asked, slurm


def _from_slurm(given: dict[str, str]) -> dict[str, str]:
    """Options as Slurm has them, in our words: ``-n`` tasks become CPUs, times are minutes."""
    asked = dict(given)
    tasks = asked.pop("ntasks_per_node", None) or asked.pop("ntasks", None)
    asked.pop("ntasks", None)
    if tasks is not None and tasks.isdigit():
        asked["cpus"] = str(int(tasks) * int(asked.get("cpus", "1")))
    if "walltime" in asked:
        asked["walltime"] = str(slurm_seconds(asked["walltime"]))
    if asked.get("memory", "auto") != "auto":
        asked["memory"] = str(slurm_bytes(asked["memory"]))
    return asked


def slurm_seconds(text: str) -> float:
    """A time limit as sbatch reads it: minutes, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``.

    >>> slurm_seconds("90"), slurm_seconds("1:30"), slurm_seconds("1-12")
    (5400.0, 90.0, 129600.0)
    """
    return float(text) * 60 if text.isdigit() else seconds_of(text)


def slurm_bytes(text: str) -> str:
    """``--mem`` of an ``#SBATCH`` line: megabytes where no unit is given, else a size as everywhere.

    >>> slurm_bytes("500"), slurm_bytes("2GiB")
    ('500M', '2GiB')
    """
    return f"{text}M" if text.isdigit() else text


def device_count(text: str) -> float:
    """``2``, ``0.5``, ``gpu:a100:2``, as ``--gres`` has them. Raises `InputError`."""
    match = _NUMBERED.fullmatch(text)
    if match is not None:
        return float(match[1])
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not 0 < found < 1:
        raise InputError(f"found {text!r}, expected a number of devices", where="--gpus")
    return found


def is_script(path: str) -> bool:
    """Whether a file begins with ``#!``."""
    try:
        with Path(path).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
