"""``dovetail submit``: hand jobs to the service, and forget them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import typer

from dovetail.cli import options as opt
from dovetail.cli.service import opened, print_json
from dovetail.errors import InputError
from dovetail.files.streams import note
from dovetail.service.client import NoService

SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".py")
"""How files end that nobody takes for a list of commands."""


@opt.takes("submit")
def submit(
    context: typer.Context,
    what: list[str] | None,
    wait: bool,
    at: str | None,
    as_json: bool,
    parsable: bool,
    **given: Any,
) -> int:
    """Submit a job, or many. It runs in this folder, with this environment; the answer is its number.

    One command goes after two dashes: dovetail submit --on cpu,gpu -- python train.py. A service is started
    if none runs.
    """
    from dovetail.service.requests import here, is_script

    command = list(context.obj or [])
    commands = {kind: given.pop(kind) for kind in ("cpu", "gpu")}
    commands = {kind: text for kind, text in commands.items() if text is not None}
    inputs, each = opt.inputs(given.pop("inputs")), given.pop("each")
    named = {"inputs": inputs} if inputs else {}
    if given["depends"]:
        given["depends"] = ",".join(given["depends"])
    asked = {key: value for key, value in given.items() if value not in (None, False, [])}
    form = here()
    if sum((bool(command), bool(what), bool(commands))) != 1:
        raise InputError(
            "found several things to run, or none; expected one of a command after '--', --cpu and --gpu, "
            "a job file, a list of commands, a script"
        )
    if command:
        form["jobs"] = [{"command": command, **job_of(asked), **named}]
    elif not what:
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
    if command:
        _check_program(command, at)
    with opened(at, start=True) as service:
        found = service.post("/api/v1/jobs", form)
        tell_submitted(found, as_json, parsable)
        if wait:
            from dovetail.cli.wait import wait_for

            return wait_for(service, ",".join(map(str, found["numbers"])), None, quiet=True)
    return 0


def _check_program(command: list[str], at: str | None) -> None:
    """Refuse a program that is not here, where the jobs run here. Raises `InputError`."""
    from dovetail.cli.meant import missing_program

    sentence = missing_program(command)
    if sentence and _runs_jobs_here(at):
        raise InputError(sentence)


def _runs_jobs_here(at: str | None) -> bool:
    """Whether the service's jobs find the programs of this machine; so they do where one is yet to start."""
    try:
        with opened(at) as service:
            return os.path.isabs(service.where) and service.get("/api/v1/info")["executor"] == "local"
    except NoService:
        return True


def tell_submitted(found: Mapping[str, Any], as_json: bool, parsable: bool) -> None:
    """Say which numbers the jobs got."""
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
