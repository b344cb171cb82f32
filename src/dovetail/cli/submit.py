"""``dovetail submit``: hand jobs to the service, and forget them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from dovetail.cli import options as opt
from dovetail.cli.service import At, opened, print_json
from dovetail.errors import InputError
from dovetail.files.streams import note

__all__ = ["submit"]

Text = str | None
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".py")
"""How files end that nobody takes for a list of commands."""


def submit(
    context: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE.toml|COMMANDS|SCRIPT [ARGUMENTS]…",
            help="A job file, a list of commands ('-': standard input), or a batch script and its arguments.",
        ),
    ] = None,
    name: Annotated[Text, typer.Option("--name", "-J", metavar="NAME", help="For people.")] = None,
    nodes: Annotated[Text, typer.Option("--nodes", "-N", metavar="N", help="Nodes of a gang.")] = None,
    cpus: opt.Cpus = None,
    gpus: Annotated[
        Text, typer.Option("--gpus", "-G", metavar="N", help="Devices a node; below 1 shares one.")
    ] = None,
    memory: Annotated[
        Text,
        typer.Option(
            "--memory",
            "--mem",
            metavar="SIZE|auto",
            help="A node, e.g. 8GB; beyond it the job is ended.",
        ),
    ] = None,
    retry_memory: Annotated[
        Text,
        typer.Option(metavar="learned|FACTOR|no", help="After a kill for memory it starts again with more."),
    ] = None,
    kill_risk: Annotated[
        Text, typer.Option(metavar="P", help="With --mem auto: the largest chance of a kill; default 0.05.")
    ] = None,
    walltime: Annotated[
        Text, typer.Option("--walltime", "--time", "-t", metavar="DURATION", help="A limit, not an estimate.")
    ] = None,
    partition: Annotated[
        Text, typer.Option("--partition", "-p", metavar="NAME", help="Of the nodes.")
    ] = None,
    priority: Annotated[Text, typer.Option(metavar="N", help="Higher first; above 0 for the owner.")] = None,
    depends: Annotated[
        list[str] | None,
        typer.Option(
            "--depends", "-d", metavar="WHEN", help="afterok:JOB, afternotok:JOB, afterany:JOB or singleton."
        ),
    ] = None,
    array: Annotated[
        Text, typer.Option("--array", "-a", metavar="0-9[%2]", help="A job for each index; %2: two at once.")
    ] = None,
    stdout: Annotated[
        Text, typer.Option("--output", "-o", metavar="FILE", help="%j: id, %A: number, %a: index, %x: name.")
    ] = None,
    stderr: Annotated[Text, typer.Option("--error", "-e", metavar="FILE", help="As --output.")] = None,
    retries: Annotated[Text, typer.Option(metavar="N", help="Starts again after failures.")] = None,
    cpu: Annotated[Text, typer.Option("--cpu", metavar="COMMAND", help="What runs on CPUs.")] = None,
    gpu: Annotated[Text, typer.Option("--gpu", metavar="COMMAND", help="What runs on a GPU.")] = None,
    on: opt.On = None,
    app: opt.App = None,
    each: opt.Each = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="NAME=VALUE", help="A feature; fills {NAME} in --cpu and --gpu."),
    ] = None,
    folder: Annotated[
        Text, typer.Option("--chdir", "-D", metavar="FOLDER", help="Default: this one.")
    ] = None,
    signal: Annotated[
        Text, typer.Option(metavar="SIG@SECONDS", help="Sent so long before the walltime, e.g. USR1@60.")
    ] = None,
    slurm: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="Passed to sbatch (serve --executor slurm-queue)."),
    ] = None,
    hold: Annotated[bool, typer.Option("--hold", "-H", help="Wait until released.")] = False,
    restartable: Annotated[
        bool, typer.Option("--restartable", help="A run that was cut short may begin again.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", "-W", help="Wait for the end; 1 if not all complete.")
    ] = False,
    at: At = None,
    as_json: opt.Json = False,
    parsable: Annotated[bool, typer.Option("--parsable", help="Print the numbers alone.")] = False,
) -> int:
    """Submit a job, or many. It runs in this folder, with this environment; the answer is its number.

    One command goes after two dashes: dovetail submit --on cpu,gpu -- python train.py. A service is started
    if none runs.
    """
    from dovetail.service.requests import here, is_script

    command = list(context.obj or [])
    given = {
        "name": name,
        "nodes": nodes,
        "cpus": cpus,
        "gpus": gpus,
        "memory": memory,
        "walltime": walltime,
        "partition": partition,
        "priority": priority,
        "depends": ",".join(depends) if depends else None,
        "array": array,
        "stdout": stdout,
        "stderr": stderr,
        "retries": retries,
        "retry_memory": retry_memory,
        "kill_risk": kill_risk,
        "on": on,
        "app": app,
        "folder": folder,
        "signal": signal,
        "sbatch": slurm,
        "hold": hold or None,
        "restartable": restartable or None,
    }
    asked = {key: value for key, value in given.items() if value is not None}
    form = here()
    if sum((bool(command), bool(what), cpu is not None or gpu is not None)) != 1:
        raise InputError(
            "found several things to run, or none; expected one of a command after '--', --cpu and --gpu, "
            "a job file, a list of commands, a script"
        )
    named = _inputs(inputs)
    if command:
        form["jobs"] = [{"command": command, **job_of(asked), **named}]
    elif not what:
        commands = {kind: text for kind, text in (("cpu", cpu), ("gpu", gpu)) if text is not None}
        form["jobs"] = [{"implementations": commands, **job_of(asked), **named}]
    elif is_script(what[0]):
        form["jobs"] = [_script(what, asked)]
        asked = {**asked, **form["jobs"][0].pop("asked")}
    else:
        if what[0].endswith(SCRIPTS) and not os.path.exists(what[0]):
            raise InputError("found no such file, expected a batch script", where=what[0])
        if len(what) > 1:
            raise InputError(f"found {what[1]!r} after a file of jobs, expected the file alone")
        form |= _file(what[0], asked, each)
    if "folder" in asked:
        form["folder"] = os.path.abspath(str(asked["folder"]))
    with opened(at, start=True) as service:
        found = service.post("/api/v1/jobs", form)
        _tell(found, as_json, parsable)
        if wait:
            from dovetail.cli.wait import wait_for

            return wait_for(service, ",".join(map(str, found["numbers"])), None, quiet=True)
    return 0


def _tell(found: Mapping[str, Any], as_json: bool, parsable: bool) -> None:
    ids, numbers = found["ids"], found["numbers"]
    if as_json:
        one = {"id": ids[0]} if len(ids) == 1 else {"id": str(numbers[0]), "ids": ids}
        print_json({**one, "numbers": numbers} if len(numbers) > 1 else one)
    elif parsable:
        for number in numbers:
            print(number)
    elif len(numbers) == 1:
        print(f"Submitted job {numbers[0]}" + (f" ({len(ids)} elements)" if len(ids) > 1 else ""))
    else:
        print(f"Submitted {len(ids)} jobs, {numbers[0]}-{numbers[-1]}")


def _inputs(texts: list[str] | None) -> dict[str, Any]:
    found: dict[str, float | str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InputError(f"found {text!r}, expected NAME=VALUE", where="--input")
        try:
            found[key] = float(value)
        except ValueError:
            found[key] = value
    return {"inputs": found} if found else {}


def _script(what: list[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    from dovetail.service.requests import read_script

    text, inside, slurm = read_script(what[0], note)
    both = {**inside, **asked}
    own = {"script": text, "arguments": what[1:], **job_of(both)}
    if slurm:
        own["slurm"] = True
    own.setdefault("name", os.path.basename(what[0]))
    return {**own, "asked": {key: both[key] for key in ("folder",) if key in both}}


def _file(path: str, asked: Mapping[str, Any], each: list[str] | None) -> dict[str, Any]:
    """A job file, or a list of commands; options hold for all its jobs."""
    from dovetail.service.requests import forms_of_file

    is_jobs = path.endswith(".toml")
    reader = (
        {}
        if is_jobs
        else opt.reader_options(
            on=opt.kinds(asked.get("on")), app=asked.get("app"), each=each, cpus=opt.cpus(asked.get("cpus"))
        )
    )
    apps, jobs = forms_of_file(path, reader)
    own = ("on", "app") if is_jobs else ("on", "app", "cpus")
    rest = job_of({key: value for key, value in asked.items() if key not in own})
    more = {key: rest.pop(key) for key in ("depends", "sbatch") if key in rest}
    for job in jobs:
        job |= rest
        for key, values in more.items():
            job[key] = [*job.get(key, ()), *values]
    return {"apps": apps, "jobs": jobs}


def job_of(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the fields of a job. Raises `InputError`."""
    from dovetail.service.requests import device_count
    from dovetail.workloads.identity import number_of

    job: dict[str, Any] = {}
    for key, value in asked.items():
        if key in ("nodes", "priority", "retries"):
            job[key] = _whole(value, key)
        elif key == "cpus":
            job[key] = opt.cpus(value)
        elif key == "gpus":
            job[key] = device_count(value)
        elif key in ("kill_risk", "retry_memory") and (number := number_of(value)) is not None:
            job[key] = number
        elif key == "on":
            job[key] = opt.kinds(value)
        elif key == "depends":
            when = [part.strip() for part in value.split(",") if part.strip()]
            job["depends"] = [one for part in when if part != "singleton" for one in _each_of(part)]
            if "singleton" in when:
                job["singleton"] = True
        elif key != "folder":
            job[key] = value
    if job.get("gpus") and "on" not in job:
        job["on"] = ["gpu"]
    return job


def _each_of(when: str) -> list[str]:
    """``afterok:3:4`` as sbatch writes it is ``afterok:3`` and ``afterok:4``."""
    kind, *jobs = when.split(":")
    return [f"{kind}:{job}" for job in jobs] or [when]


def _whole(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InputError(f"found {text!r}, expected a whole number", where=f"--{name}") from None
