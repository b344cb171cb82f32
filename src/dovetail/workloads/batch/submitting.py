"""A batch script that was read, as a part of a `JobSpec`, and the environment that it takes along."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dovetail.errors import InputError
from dovetail.files.sentences import error_reason
from dovetail.spec.jobs import PartialSpec, laid_over
from dovetail.workloads.batch.environment import exported_environment, read_export_file
from dovetail.workloads.batch.script import BatchScript
from dovetail.workloads.batch.variables import Origin, job_variables

_OCTAL = re.compile(r"[0-7]{1,6}", re.ASCII)


def script_part(
    script: BatchScript, arguments: Sequence[str], above: Mapping[str, Any], origin: Origin
) -> PartialSpec:
    """The job that the script is: its options, over them its own lines, over those ``above``.

    Raises `InputError` for what is refused. What ``above`` and its own lines have of CPUs and nodes counts
    for each node, and the variables of the job follow them.
    """
    script.check()
    mine = laid_over(script.own, above)
    fields = dict(script.fields)
    if mine.get("on") or mine.get("cpus") is not None:
        fields.pop("exclusive", None)
    if "depends" in mine:
        fields.pop("depends", None)
    part: PartialSpec = {"script": script.text, "arguments": list(arguments), "name": script.job_name}
    part |= {**fields, **mine}
    if script.from_slurm:
        part["batch_variables"] = True
        part["from_script"] = [name for name in fields if name not in mine]
    part["variables"] = _slurm_variables(script, mine, part, origin)
    return part


def _slurm_variables(
    script: BatchScript, mine: Mapping[str, Any], part: Mapping[str, Any], origin: Origin
) -> dict[str, str]:
    """What sbatch would set, by the job's actual requests."""
    shares = script.shares
    assert shares is not None, "a script that was refused has none"
    nodes, cpus = mine.get("nodes"), mine.get("cpus")
    if nodes is not None:
        tasks = shares.tasks_on_node * nodes
        shares = replace(shares, nodes=nodes, tasks=tasks)
    if cpus is not None:
        each = shares.cpus_per_task if cpus == "all" else max(1, cpus // shares.tasks_on_node)
        shares = replace(shares, cpus=cpus, cpus_per_task=each)
    given = {name: one.value or "" for name, one in script.places.items()}
    array = script.array
    if "array" in mine:
        from dovetail.workloads.batch.units import parse_array

        try:
            array = parse_array(str(mine["array"]).replace(" ", ""))
        except ValueError as error:
            raise InputError(str(error), where="--array") from None
    return job_variables(origin, str(part["name"]), script.requested, shares, array, given)


def umask_of(environ: Mapping[str, str]) -> int | None:
    """The umask that ``SLURM_UMASK`` has for the job of a script; ``None``: it has none."""
    given = environ.get("SLURM_UMASK", "")
    return int(given, 8) & 0o777 if _OCTAL.fullmatch(given) else None


def environment_of(script: BatchScript, environ: Mapping[str, str]) -> dict[str, str]:
    """What the job gets of ``environ``, by ``--export`` and ``--export-file``. Raises `InputError`."""
    found = exported_environment(environ, script.export)
    if script.export_file is not None:
        given = script.places["export-file"]
        try:
            found |= read_export_file(os.path.expanduser(script.export_file))
        except (OSError, ValueError) as error:
            raise InputError(f"{given.text}: {error_reason(error)}", where=given.where) from None
    return found
