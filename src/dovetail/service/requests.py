"""What people have, as what a service takes: job files, lists of commands, batch scripts, single commands.

All of it is read into parts of a `JobSpec`; a request holds them as its form has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.errors import InputError
from dovetail.files.reading import read_text
from dovetail.files.sentences import file_name
from dovetail.spec.jobs import PartialSpec, as_form
from dovetail.spec.script_lines import read_script

Form = dict[str, Any]


def here() -> Form:
    """The folder and the environment of this process, which its jobs get."""
    try:
        folder = os.getcwd()
    except OSError as error:
        raise InputError(f"the current folder cannot be used: {error.strerror}") from error
    return {"folder": folder, "environment": dict(os.environ)}


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
    path: str, arguments: list[str], part: PartialSpec, warn: Callable[[str], None]
) -> Form:
    """A batch script with its arguments; ``part`` goes over what its lines ask for. Raises `InputError`."""
    text = read_text(path, "a batch script")
    found = read_script(text, file_name(path))
    for sentence in found.warnings:
        warn(sentence)
    own: PartialSpec = {"script": text, "arguments": arguments, "name": os.path.basename(path)}
    if found.is_batch:
        own["batch_variables"] = True
    return request_of_parts({**own, **found.part, **part})


def is_script(path: str) -> bool:
    """Whether a file begins with ``#!``."""
    try:
        with Path(path).open("rb") as file:
            return file.read(2) == b"#!"
    except OSError:
        return False
