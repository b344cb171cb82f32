"""``dovetail slurm-shims``: write Slurm's commands, spoken by a service, into a folder."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

import dovetail
import dovetail_slurm
from dovetail.cli import options as opt
from dovetail.errors import InputError
from dovetail_slurm.shims.main import COMMANDS

MOST_LINE = 120
"""Bytes of a first line that every kernel reads."""
MARK = "# Made by 'dovetail slurm-shims'"
PROGRAM = """\
{first}
{mark}: {name} of a Dovetail service. Put its folder into PATH where programs are to find it.
import sys

sys.path[:0] = {path!r}
from dovetail_slurm.shims.main import main

main({name!r}, {service!r})
"""


def slurm_shims(
    folder: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="Folder for the commands; made if missing.")
    ],
    at: Annotated[
        str,
        typer.Option(
            "--service", metavar="URL|FOLDER", help="Speak to this service. Default: $DOVETAIL_SERVICE."
        ),
    ] = "",
    as_json: opt.Json = False,
) -> int:
    """Write sbatch, squeue, sacct and their kin, spoken by a service, into a folder."""
    service = at or os.environ.get("DOVETAIL_SERVICE", "")
    if service and "://" not in service:
        service = os.path.abspath(service)
    paths = [str(Path(package.__file__ or "").parent.parent) for package in (dovetail_slurm, dovetail)]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in COMMANDS:
            _write_shim(folder / name, name, list(dict.fromkeys(paths)), service)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(error.filename or folder)
        ) from None
    if as_json:
        import json

        print(json.dumps({"folder": str(folder.resolve()), "commands": list(COMMANDS)}))
    else:
        print(f"{len(COMMANDS)} commands in {folder}: {', '.join(COMMANDS)}")
        print(f"export PATH={shlex.quote(str(folder.resolve()))}:$PATH")
    return 0


def _write_shim(path: Path, name: str, places: list[str], service: str) -> None:
    """One command; what is there and none of ours stays. Raises `InputError`, `OSError`."""
    if path.exists() and MARK.encode() not in path.read_bytes()[:4096]:
        raise InputError(
            "found another program of that name, expected a folder of their own", where=str(path)
        )
    first = f"#!{sys.executable} -IS"
    if len(first) > MOST_LINE or " " in sys.executable:
        # A shell reads what Python takes for a text, and becomes Python.
        first = f"#!/bin/sh\n'''exec' {shlex.quote(sys.executable)} -I -S \"$0\" \"$@\"\n' '''"
    part = path.with_name(f".{name}.{os.getpid()}")
    part.write_text(PROGRAM.format(first=first, mark=MARK, name=name, path=places, service=service))
    part.chmod(0o755)
    part.replace(path)
