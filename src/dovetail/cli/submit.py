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
"""How the names of files end that are no lists of commands."""


@opt.takes("submit")
def submit(
    context: typer.Context,
    what: list[str] | None,
    wait: bool,
    patience: float,
    at: str | None,
    as_json: bool,
    parsable: bool,
    **given: Any,
) -> int:
    """Submit a job, or many. It runs in this folder, with this environment; the answer is its number.

    One command goes after two dashes: dovetail submit --on cpu,gpu -- python train.py. A service is started
    if none runs.
    """
    from dovetail.service.requests import (
        here,
        is_script,
        request_of_file,
        request_of_parts,
        request_of_script,
    )

    command, part = list(context.obj or []), opt.part_of_options(given)
    passed_over: list[str] = []
    commands = "implementations" in part
    if sum((bool(command), bool(what), commands)) != 1:
        raise InputError(
            "found several things to run, or none; expected one of a command after '--', --cpu and --gpu, "
            "a job file, a list of commands, a script"
        )
    reader = opt.reader_options(
        on=part.get("on"), app=part.get("app"), each=given["each"], cpus=part.get("cpus")
    )
    if command and given["each"]:
        from dovetail.workloads.commands import command_parts

        jobs = request_of_parts(*command_parts(command, part, **reader))
    elif command or not what:
        jobs = request_of_parts({**({"command": command} if command else {}), **part})
    elif is_script(what[0]):
        jobs = request_of_script(what[0], what[1:], part, passed_over.append)
    else:
        if what[0].endswith(SCRIPTS) and not os.path.exists(what[0]):
            raise InputError("found no such file, expected a batch script", where=what[0])
        if len(what) > 1:
            raise InputError(f"found {what[1]!r} after a file of jobs, expected the file alone")
        jobs = request_of_file(what[0], part, **({} if what[0].endswith(".toml") else reader))
    form = {**here(), **jobs}
    if command:
        _check_program(command, at)
    with opened(at, start=True) as service:
        if passed_over and not service.get("/api/v1/info")["executor"].startswith("slurm-queue"):
            for line in passed_over:
                note(line)
        found = service.post("/api/v1/jobs", form)
        tell_submitted(found, as_json, parsable)
        if wait:
            from dovetail.cli.wait import wait_for

            service.be_patient(patience, note)
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
    """Print which numbers the jobs got."""
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
