"""A batch script as a workload: what ``dovetail run SCRIPT`` runs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dovetail.errors import InputError
from dovetail.files.writing import private_folder
from dovetail.model import TableTruth, Workload
from dovetail.spec.jobs import JobSpec
from dovetail.workloads.batch.opening import STDIN
from dovetail.workloads.batch.script import PASSED_OVER, BatchScript
from dovetail.workloads.batch.submitting import environment_of, script_part, umask_of
from dovetail.workloads.batch.variables import Origin
from dovetail.workloads.job_builder import JobBuilder

OF_A_SERVICE = ("partition", "hold", "nice", "priority", "depends", "singleton", "mail_type")
"""Fields that mean something among the jobs of a service alone."""
OTHER_NAMES = {"depends": "dependency", "singleton": "dependency", "mail_type": "mail-type"}


def script_workload(
    script: BatchScript, path: str, arguments: Sequence[str], part: Mapping[str, Any]
) -> tuple[Workload, list[str]]:
    """The job of a script, or the elements of its array, and sentences about what is different.

    The interpreter that its first line names runs the file itself, with ``arguments``; what came through
    standard input is kept in a file. Raises `InputError`.
    """
    folder = os.getcwd()
    origin = Origin.of_this_process(folder)
    whole = script_part(script, arguments, part, origin)
    notes = [note.sentence() for note in script.warned]
    for name in OF_A_SERVICE:
        if whole.pop(name, None) and name in script.fields:
            given = script.places.get(OTHER_NAMES.get(name, name))
            if given is not None:
                notes.append(f"{given.where}: {given.text} {PASSED_OVER}: 'dovetail submit' honours it")
    program = _script_program(script.text, path)
    del whole["script"], whole["arguments"]
    environ = tuple(environment_of(script, os.environ).items())
    builder = JobBuilder(folder=folder, environ=environ, user=origin.user, umask=umask_of(os.environ))
    name = str(whole["name"])
    whole |= {"command": [*program, *arguments], "inputs": {}, "app": whole.get("app", name)}
    spec = JobSpec(**whole)
    built = builder.build(replace(spec, command=[_escape_braces(word) for word in spec.command]), "")
    id = f"{built.fields['app'].name}-1"
    return Workload(script.name, list(built.named_jobs(id, 0)), TableTruth()), notes


def _script_program(text: str, path: str) -> list[str]:
    """The words that run a script: its interpreter, with what follows that in the first line as one word."""
    interpreter, _, rest = text.partition("\n")[0].removeprefix("#!").strip().partition(" ")
    if not interpreter:
        raise InputError("found #! without an interpreter, expected e.g. #!/bin/sh", where=f"{path}: line 1")
    # What came through a descriptor is gone when the job starts.
    is_lasting = path != STDIN and not path.startswith("/dev/") and os.path.isfile(path)
    words = [interpreter, *([rest.strip()] if rest.strip() else [])]
    return [*words, os.path.abspath(path) if is_lasting else _keep_script(text)]


def _keep_script(text: str) -> str:
    """A file with this text: ``$XDG_STATE_HOME/dovetail/scripts``, by default under ``~/.local/state``.

    The same text has the same file, so that runs of one script share it. Raises `InputError`.
    """
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    data = text.encode("utf-8", "surrogateescape")
    path = Path(state, "dovetail", "scripts", hashlib.blake2b(data, digest_size=16).hexdigest())
    try:
        private_folder(path.parent)
        path.write_bytes(data)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", where=str(path)) from None
    return str(path)


def _escape_braces(word: str) -> str:
    """A word of which no brace is a placeholder."""
    return word.replace("{", "{{").replace("}", "}}")
