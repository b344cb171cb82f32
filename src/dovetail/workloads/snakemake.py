"""Measured runs from Snakemake's benchmark files: a header and a line for each time a job ran.

Mapping (columns by the header):

==============  ====================================================================================
run             from
==============  ====================================================================================
app             ``rule_name`` where the file has it (``--benchmark-extended``), else the name of the
                folder that the file is in, as in ``benchmarks/RULE/SAMPLE.tsv``
seconds         ``s``
peak memory     ``max_rss``, MiB: resident memory of the job's processes together, sampled
CPU time        ``cpu_time``
CPUs            ``threads``, else 1
when            when the file was written
==============  ====================================================================================

``NA`` means that the job ended before anything was measured.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.sentences import file_name, reason
from dovetail.files.tables import number, parse_table
from dovetail.model import CPU, DeviceClass, Run, Usage

REQUIRED = ("s", "max_rss")
UNKNOWN = ("", "-", "NA")
MEBIBYTE = 2**20


def benchmark_files(path: str | Path) -> list[Path]:
    """The file itself, or the ``*.tsv`` and ``*.txt`` of a folder and those below it, by name."""
    found = Path(path)
    if not found.is_dir():
        return [found]
    files = sorted(file for end in ("*.tsv", "*.txt") for file in found.rglob(end))
    if not files:
        raise InputError("found no *.tsv or *.txt, expected benchmark files", where=file_name(path))
    return files


def read_snakemake(path: str | Path, app: str | None = None) -> list[Run]:
    """The runs of a benchmark file; ``app`` instead of what the file says. Raises `InputError`."""
    usual = app or Path(path).absolute().parent.name or "snakemake"
    try:
        when = Path(path).stat().st_mtime
    except OSError as error:
        raise InputError(f"cannot be read: {reason(error)}", where=file_name(path)) from None
    count = 0

    def made(row: Mapping[str, str]) -> Run | None:
        nonlocal count
        count += 1
        if row["s"] in UNKNOWN:
            return None
        rule = app or row.get("rule_name", "") or usual
        said = "|".join((rule, Path(path).name, str(count), *row.values()))
        return Run(
            app=rule,
            implementation=CPU,
            device_class=DeviceClass(CPU),
            nodes=1,
            cpus=max(1, int(_known(row, "threads") or 1)),
            gpus=0.0,
            seconds=number(row, "s", least=0),
            usage=Usage(_known(row, "cpu_time"), round((_known(row, "max_rss") or 0) * MEBIBYTE) or None),
            when=when,
            uid="snakemake/" + hashlib.blake2b(said.encode(), digest_size=16).hexdigest(),
        )

    found, _ = parse_table(path, REQUIRED, made, delimiter="\t")
    return [run for run in found if run is not None]


def _known(row: Mapping[str, str], field: str) -> float | None:
    return None if row.get(field, "") in UNKNOWN else number(row, field, least=0)
