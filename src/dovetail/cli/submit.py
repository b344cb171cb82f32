"""``dovetail submit``: hand jobs to the service, and forget them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from dovetail.cli import options as opt
from dovetail.cli.service import open_service, print_json
from dovetail.client.connection import NoService
from dovetail.errors import InputError
from dovetail.files.streams import is_input_given, print_note

if TYPE_CHECKING:
    from dovetail.workloads.batch.script import BatchScript

SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".py")
"""How the names of files end that are no lists of commands."""


@opt.takes_options("submit")
def submit(
    context: typer.Context,
    what: list[str] | None,
    wait: bool,
    interactive: bool,
    test: bool,
    patience: float,
    at: str | None,
    as_json: bool,
    parsable: bool,
    explain_script: str | None,
    **given: Any,
) -> int:
    """Submit a job, or many. It runs in this folder, with this environment; the answer is its number.

    One command goes after two dashes: dovetail submit --on cpu,gpu -- python train.py. A service is started
    if none runs.
    """
    from dovetail.client.requests import (
        request_context,
        request_of_file,
        request_of_parts,
        request_of_script,
    )

    if explain_script is not None:
        return explain(explain_script, as_json=as_json)
    script: BatchScript | None = None
    command, part = list(context.obj or []), opt.part_of_options(given)
    passed_over: list[str] = []
    if interactive:
        _check_interactive(what, part, wait or test or as_json or parsable or bool(given["each"]))
        from dovetail.cli.interactive import default_command, run_on_terminal

        command = command or default_command()
        form = {**request_context(), **request_of_parts({"command": command, **part})}
        _check_program(command, at)
        with open_service(at, start=True) as service, open_service(at) as inputs:
            return run_on_terminal(service, inputs, form)
    if isinstance(context.obj, opt.ScriptArguments):
        command, what = [], [*(what or []), *command]
    commands = "implementations" in part
    if not (command or what or commands) and is_input_given():
        what = ["-"]  # as sbatch reads a here-document
    # Exactly one source of jobs: with two, options would apply to which?
    if sum((bool(command), bool(what), commands)) != 1:
        raise InputError(
            f"found {'several things' if command or what or commands else 'nothing'} to run, expected one of "
            "a command after '--', --cpu and --gpu, a job file, a list of commands, a script"
        )
    reader = opt.reader_options(
        on=part.get("on"), app=part.get("app"), each=given["each"], cpus=part.get("cpus")
    )
    if command and given["each"]:
        from dovetail.workloads.commands import command_parts

        jobs = request_of_parts(*command_parts(command, part, **reader))
    elif command or not what:
        jobs = request_of_parts({**({"command": command} if command else {}), **part})
    elif (script := _find_script(what[0])) is not None:
        if given["each"]:
            raise InputError("found it with a batch script, expected --array", where="--each")
        if script.refused and _is_guest_of_slurm(at):
            script.leave_to_slurm()
        jobs = request_of_script(script, what[1:], part, passed_over.append)
        wait = wait or script.wait
    else:
        if what[0].endswith(SCRIPTS) and not os.path.exists(what[0]):
            raise InputError("found no such file, expected a batch script", where=what[0])
        if len(what) > 1:
            raise InputError(f"found {what[1]!r} after a file of jobs, expected the file alone")
        jobs = request_of_file(what[0], part, **({} if what[0].endswith(".toml") else reader))
    form = {**request_context(), **jobs}
    if command:
        # Checked here, where the user is, rather than as a failed job later.
        _check_program(command, at)
    with open_service(at, start=True) as service:
        # Under slurm-queue the script keeps all its options, so nothing was passed over.
        if passed_over and not service.get("/api/v1/info")["executor"].startswith("slurm-queue"):
            for line in passed_over:  # a guest hands the script over as it is
                print_note(line)
        try:
            if test:
                from dovetail.cli.tested import test_jobs

                test_jobs(service, form, as_json=as_json)
                return 0
            found = service.post("/api/v1/jobs", form)
        # An error of the service names a field; the script's own line is what its user can change.
        except InputError as error:
            raise _place_error(error, script) from None
        tell_submitted(found, as_json, parsable)
        for one in found.get("notes", ()):
            print_note(_passed_over(script, one))
        if wait:
            from dovetail.cli.wait import wait_for

            service.be_patient(patience, print_note)
            return wait_for(service, ",".join(map(str, found["numbers"])), None, quiet=True)
    return 0


def _check_interactive(what: list[str] | None, part: Mapping[str, Any], others: bool) -> None:
    """Refuse what does not go together with a terminal. Raises `InputError`."""
    where = "--interactive"
    if what or "implementations" in part or "script" in part:
        raise InputError(
            "found a file or a second command, expected one command after '--', or none", where=where
        )
    if others or part.get("array") is not None:
        raise InputError("found --wait, --test, --json, --parsable or an array beside it", where=where)


def _check_program(command: list[str], at: str | None) -> None:
    """Refuse a program that is not here, where the jobs run here. Raises `InputError`."""
    from dovetail.cli.meant import missing_program

    sentence = missing_program(command)
    if sentence and _runs_jobs_here(at):
        raise InputError(sentence)


def _runs_jobs_here(at: str | None) -> bool:
    """Whether the service's jobs find the programs of this machine; so they do where one is yet to start."""
    try:
        with open_service(at) as service:
            return os.path.isabs(service.where) and service.get("/api/v1/info")["executor"] == "local"
    except NoService:
        return True


def _is_guest_of_slurm(at: str | None) -> bool:
    """Whether the service hands scripts to Slurm as they are."""
    try:
        with open_service(at) as service:
            return str(service.get("/api/v1/info")["executor"]).startswith("slurm-queue")
    except NoService:  # the one that is started for this submission is no guest
        return False


def _find_script(path: str) -> BatchScript | None:
    """The batch script that a path or ``-`` names; ``None`` for job files and lists. Raises `InputError`."""
    if path.endswith(".toml"):
        return None
    from dovetail.workloads.batch.opening import open_script

    return open_script(path, os.environ)


PLACES = {
    "gpu": ("gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "ntasks-per-gpu"),
    "models": ("gres", "gpus", "gpus-per-node", "gpus-per-task"),
    "cpus": ("cpus-per-task", "ntasks", "ntasks-per-node", "cpus-per-gpu", "mincpus"),
    "nodes": ("nodes", "ntasks-per-node"),
    "memory": ("mem", "mem-per-cpu", "mem-per-gpu"),
    "partition": ("partition",),
    "depends": ("dependency",),
    "array": ("array",),
    "signal": ("signal",),
    "mail_type": ("mail-type",),
}
"""Options of sbatch from which a field of a job follows, by words of the sentence that refuses it."""


def _place_error(error: InputError, script: BatchScript | None) -> InputError:
    """An error of the service with the line of the script that it is about, as far as its words show it."""
    if script is None:
        return error
    text = str(error)
    names = [name for word, names in PLACES.items() if re.search(rf"\b{word}\b", text) for name in names]
    given = next((script.places[name] for name in names if name in script.places), None)
    where = script.name if given is None else f"{given.where}: {given.text}"
    return InputError(text, where=where)


def _passed_over(script: BatchScript | None, found: Mapping[str, str]) -> str:
    """The sentence about a field of a job that has no meaning on the service's cluster."""
    places = {} if script is None else script.places
    given = next((places[name] for name in PLACES[found["field"]] if name in places), None)
    what = f"--{found['field'].replace('_', '-')}" if given is None else f"{given.where}: {given.text}"
    return f"{what} has no meaning here and is passed over: {found['text']}"


def explain(path: str, *, as_json: bool) -> int:
    """Print what becomes of each option of a script; 2 if something is refused."""
    script = _find_script(path)
    if script is None:
        raise InputError("found no batch script, expected a file that begins with #!", where=path)
    lists = {"honoured": script.honoured, "warned": script.warned, "refused": script.refused}
    lists = {name: sorted(notes, key=lambda one: one.line or 0) for name, notes in lists.items()}
    if as_json:
        names = ("where", "line", "option", "effect")
        forms = {
            key: [{name: getattr(one, name) for name in names} for one in notes]
            for key, notes in lists.items()
        }
        print_json({"script": script.name, **forms})
    else:
        for key, notes in lists.items():
            print(f"{key} ({len(notes)})")
            for one in notes:
                print(f"  {one.sentence()}")
    return 2 if script.refused else 0


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
