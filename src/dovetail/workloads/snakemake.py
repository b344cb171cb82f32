"""Measured runs from Snakemake's benchmark files: a header and a line for each time a job ran, or JSON Lines.

Mapping (columns by the header; the same by name in the JSON Lines of Snakemake 8.11 and later):

==============  ====================================================================================
run             from
==============  ====================================================================================
app             ``rule_name`` where the file has it (``--benchmark-extended``, JSON Lines), else the name
                of the folder that the file is in, as in ``benchmarks/RULE/SAMPLE.tsv``
seconds         ``s``
peak memory     ``max_rss``, MiB: resident memory of the job's processes together, sampled
CPU time        ``cpu_time``
CPUs            ``threads``, else 1
when            when the file was written
==============  ====================================================================================

``NA`` (``null`` in JSON) means that the job ended before anything was measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.reading import read_lines
from dovetail.files.sentences import error_reason, file_name
from dovetail.files.tables import Malformed, parse_table, read_number
from dovetail.model import CPU, DeviceClass, Run, Usage

REQUIRED = ("s", "max_rss")
NEEDED_IN_JSON = ("s",)
UNKNOWN = ("", "-", "NA")
MEBIBYTE = 2**20
ENDINGS = ("*.tsv", "*.txt", "*.jsonl")
"""How the names of benchmark files end."""


def benchmark_files(path: str | Path) -> list[Path]:
    """The file itself, or the benchmark files of a folder and those below it, by name."""
    found = Path(path)
    if not found.is_dir():
        return [found]
    files = sorted(file for end in ENDINGS for file in found.rglob(end))
    if not files:
        raise InputError(f"found no {' or '.join(ENDINGS)}, expected benchmark files", where=file_name(path))
    return files


def read_snakemake(path: str | Path, app: str | None = None) -> list[Run]:
    """The runs of a benchmark file; ``app`` replaces the name in the file. Raises `InputError`."""
    # Snakemake's convention is a folder a rule.
    usual = app or Path(path).absolute().parent.name or "snakemake"
    try:
        when = Path(path).stat().st_mtime
    except OSError as error:
        raise InputError(f"cannot be read: {error_reason(error)}", where=file_name(path)) from None
    count = 0

    def read_run(row: Mapping[str, str]) -> Run | None:
        nonlocal count
        # Counted before rows are left out, so that a row keeps its identity when another one is filled in
        # later.
        count += 1
        if row["s"] in UNKNOWN:
            return None
        rule = app or row.get("rule_name", "") or usual
        # From the content: files have no ids, and reading the same file twice must add nothing.
        identity = "|".join((rule, Path(path).name, str(count), *row.values()))
        return Run(
            app=rule,
            implementation=CPU,
            device_class=DeviceClass(CPU),
            nodes=1,
            cpus=max(1, int(_known_number(row, "threads") or 1)),
            gpus=0.0,
            seconds=read_number(row, "s", least=0),
            usage=Usage(
                _known_number(row, "cpu_time"), round((_known_number(row, "max_rss") or 0) * MEBIBYTE) or None
            ),
            when=when,
            uid="snakemake/" + hashlib.blake2b(identity.encode(), digest_size=16).hexdigest(),
        )

    # By its content: JSON Lines may have any ending.
    first = next((line for line in read_lines(path, "a benchmark file") if line.strip()), "")
    if first.lstrip().startswith("{"):
        return [run for row in _json_rows(path) if (run := _place_malformed(read_run, *row)) is not None]
    found, _ = parse_table(path, REQUIRED, read_run, delimiter="\t")
    return [run for run in found if run is not None]


def _json_rows(path: str | Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line of JSON Lines with its place: its plain values as the cells of a table have them."""
    for place, line in enumerate(read_lines(path, "a benchmark file"), start=1):
        where = f"{file_name(path)}: line {place}"
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"found broken JSON ({error}), expected an object", where=where) from None
        if not isinstance(entry, dict):
            raise InputError("found JSON that is no object, expected one", where=where)
        missing = [name for name in NEEDED_IN_JSON if name not in entry]
        if missing:
            raise InputError(f"found no {missing[0]}, expected the seconds of a job", where=where)
        yield where, {name: _cell_text(value) for name, value in entry.items()}


def _cell_text(value: object) -> str:
    if value is None:
        return "NA"
    # As a table would have it, so that one function reads both.
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _place_malformed(
    made: Callable[[Mapping[str, str]], Run | None], where: str, row: Mapping[str, str]
) -> Run | None:
    """The run of a row, and the place of what is malformed."""
    try:
        return made(row)
    except Malformed as error:
        raise InputError(str(error), where=where) from None


def _known_number(row: Mapping[str, str], field: str) -> float | None:
    return None if row.get(field, "") in UNKNOWN else read_number(row, field, least=0)
