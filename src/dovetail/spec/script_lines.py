"""The options that a batch script holds: its ``#DOVETAIL`` and ``#SBATCH`` lines as a part of a spec.

This is the seam for readers of scripts: from the text of one to a `ScriptOptions`, which knows no file, no
folder and no service.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from dovetail.errors import InputError
from dovetail.files.units import seconds_of
from dovetail.spec.jobs import JOB, PartialSpec, read_texts

_DIRECTIVE = re.compile(r"#(DOVETAIL|SBATCH)\s+(.*)")


class ScriptOptions(NamedTuple):
    """What the lines of a script set.

    ``part`` are fields of a `JobSpec`; ``warnings`` are sentences about lines without a meaning here;
    ``is_batch`` whether some lines are sbatch's, so that the job expects what sbatch sets; ``repeated`` are
    the fields that only these have.
    """

    part: PartialSpec
    warnings: tuple[str, ...] = ()
    is_batch: bool = False
    repeated: tuple[str, ...] = ()


class _Refusing(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def _parser() -> _Refusing:
    """The options of ``#DOVETAIL`` and ``#SBATCH`` lines that mean something here."""
    parser = _Refusing(add_help=False, allow_abbrev=False, prog="")
    for option in JOB:
        names = option.lines.split()
        if names and option.value:
            many = option.kind is not None and option.kind.many
            parser.add_argument(*names, dest=option.name, action="append" if many else "store")
        elif names:
            parser.add_argument(*names, dest=option.name, action="store_const", const=True)
    parser.add_argument("-n", "--ntasks", dest="ntasks")  # these two are Slurm's alone
    parser.add_argument("--ntasks-per-node", dest="ntasks_per_node")
    return parser


def read_script(text: str, name: str) -> ScriptOptions:
    """What the lines of a script set; ``name`` is the file's, for sentences.

    Lines count up to the first command, as in sbatch. ``#DOVETAIL`` wins over ``#SBATCH``; of the latter what
    has no meaning here is warned about. Raises `InputError` with file and line.
    """
    found: dict[str, dict[str, _Given]] = {"SBATCH": {}, "DOVETAIL": {}}
    warnings: list[str] = []
    is_batch = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            break
        match = _DIRECTIVE.match(line)
        if match is None:
            continue
        where = f"{name}: line {number}"
        try:
            words = shlex.split(match[2], comments=True)
            options, rest = _parser().parse_known_args(words)
        except (InputError, ValueError) as error:
            raise InputError(str(error), where=where) from None
        is_batch = is_batch or match[1] == "SBATCH"
        if rest and match[1] == "DOVETAIL":
            raise InputError(f"found {rest[0]!r}, expected an option of 'dovetail submit'", where=where)
        if rest:
            warnings.append(f"{where}: {rest[0]} has no meaning here and is passed over")
        given = {key: value for key, value in vars(options).items() if value is not None}
        found[match[1]].update({key: _Given(value, where) for key, value in given.items()})
    part: PartialSpec = {}
    repeated: dict[str, bool] = {}
    warnings += _take_vram(found["SBATCH"])
    for key, (value, where) in {**_from_slurm(found["SBATCH"]), **found["DOVETAIL"]}.items():
        read = read_texts({key: value}, where)
        repeated |= dict.fromkeys(read, key not in found["DOVETAIL"])
        part |= read
    return ScriptOptions(
        part, tuple(warnings), is_batch, tuple(name for name, is_so in repeated.items() if is_so)
    )


class _Given(NamedTuple):
    """The text of an option, and the line that has it."""

    text: Any
    where: str


def _take_vram(given: dict[str, _Given]) -> list[str]:
    """``--gres=gpu:1,vram:6G``, as sites write it, is a GPU and memory of it; says so."""
    if "gpus" not in given or "vram:" not in given["gpus"].text:
        return []
    text, where = given["gpus"]
    parts = text.split(",")
    sizes = [part.rpartition(":")[2] for part in parts if part.startswith("vram:")]
    given["gpus"] = _Given(",".join(part for part in parts if not part.startswith("vram:")) or "1", where)
    given["gpu_memory"] = _Given(slurm_bytes(sizes[-1]), where)
    return [f"{where}: vram is no gres that is counted here: it is read as --gpu-mem {sizes[-1]} on each GPU"]


def _from_slurm(given: Mapping[str, _Given]) -> dict[str, _Given]:
    """Options as Slurm has them, in our words: ``-n`` tasks become CPUs, times are minutes."""
    found = dict(given)
    for name in ("ntasks", "ntasks_per_node"):
        tasks = found.pop(name, None)
        if tasks is not None and tasks.text.isdigit():
            each = given["cpus"].text if "cpus" in given else "1"
            count = str(int(tasks.text) * int(each)) if each.isdigit() else each
            found["cpus"] = _Given(count, tasks.where)
    if "walltime" in found:
        limit, where = found["walltime"]
        try:
            found["walltime"] = _Given(str(slurm_seconds(limit)), where)
        except ValueError as error:
            raise InputError(str(error), where=where) from None
    if "memory" in found:
        found["memory"] = _Given(slurm_bytes(found["memory"].text), found["memory"].where)
    return found


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
