"""Tasks of a Nextflow trace (``-with-trace``): separated by tabs, as Nextflow writes it, or by commas.

Mapping (columns by the header):

==========  ==============================================================================================
task        from
==========  ==============================================================================================
id          ``task_id``, else ``hash``, ``native_id`` or ``name``
process     ``process``, else ``name`` without its tag in brackets
start, end  ``start`` and ``complete``; where ``complete`` is missing, ``submit`` plus ``duration``, less the
            time; where these are missing, too, ``start`` plus the time, or when the file was written
seconds     ``realtime``
peak        ``peak_rss``, else ``rss``: resident memory of the task's processes together, sampled; a trace
            without either (``trace.fields`` is the user's to choose) gives times alone
requested   ``memory``
read        ``rchar``, bytes read; known only when the task has ended
CPUs        ``cpus``
==========  ==============================================================================================

Raw values (``trace.raw = true``) are milliseconds and bytes; others are read as Nextflow writes them: ``1h 2m
3s``, ``1.5 GB`` (of 1024³ bytes), ``2024-01-31 12:00:00.000`` (taken as UTC). ``-`` means unknown. Only tasks
that are COMPLETED with a positive time are taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.reading import read_lines
from dovetail.files.sentences import file_name
from dovetail.files.tables import Malformed, parse_table, read_number, unix_seconds
from dovetail.files.units import seconds_of
from dovetail.model import CPU, DeviceClass, Run, Seconds, Usage
from dovetail.records import dataclass

REQUIRED = ("status", "realtime")
NAMES = ("task_id", "hash", "native_id", "name")
"""Columns that name a task, the first of a trace counts."""
READ_BYTES = "read_bytes"
"""Name of the input that holds the bytes read."""
UNKNOWN = ("", "-")
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([KMGTPE]?)B?", re.ASCII)
_RAW = re.compile(r"[0-9]{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Task:
    """A task that completed: moments in seconds since 1970, sizes in bytes; ``None`` where unknown."""

    id: str
    process: str
    start: Seconds
    complete: Seconds
    seconds: Seconds
    peak: int | None
    requested: int | None
    read: int | None
    cpus: int
    hash: str


def read_nextflow(path: str | Path) -> list[Task]:
    """The completed tasks, in the order of the file. Raises `InputError` with file and line."""
    header = next(iter(read_lines(path, "a trace of Nextflow")), "")
    try:
        written = Path(path).stat().st_mtime
    except OSError:
        # What cannot be read was named above.
        written = 0.0
    found, _ = parse_table(
        path, REQUIRED, lambda row: _read_task(row, written), delimiter="\t" if "\t" in header else ","
    )
    tasks = [task for task in found if task is not None]
    if not tasks:
        raise InputError("found no task that is COMPLETED, expected at least one", where=file_name(path))
    return tasks


def _read_task(row: Mapping[str, str], written: Seconds) -> Task | None:
    """The task of a line, if it completed; ``written`` is when the file was."""
    seconds = _read_seconds(row, "realtime")
    if row["status"] != "COMPLETED" or not seconds:
        return None
    start, complete = _read_moment(row, "start"), _read_moment(row, "complete")
    if complete is None and (submit := _read_moment(row, "submit")) is not None:
        complete = submit + (_read_seconds(row, "duration") or seconds)
    if complete is None:
        complete = written if start is None else start + seconds
    process = row.get("process", "") or row.get("name", "").partition(" (")[0]
    if process in UNKNOWN:
        raise Malformed("process", process, "the name of a process")
    cpus = row.get("cpus", "-")
    return Task(
        next(filter(None, map(row.get, NAMES)), ""),
        process,
        complete - seconds if start is None else start,
        complete,
        seconds,
        _read_bytes(row, "peak_rss") or _read_bytes(row, "rss"),
        _read_bytes(row, "memory"),
        _read_bytes(row, "rchar"),
        1 if cpus in UNKNOWN else max(1, int(read_number(row, "cpus", least=0))),
        row.get("hash", ""),
    )


def run_of(task: Task) -> Run:
    """The task as a measured run: its process is the app, what it read an input."""
    return Run(
        app=task.process,
        implementation=CPU,
        device_class=DeviceClass(CPU),
        nodes=1,
        cpus=task.cpus,
        gpus=0.0,
        inputs={} if not task.read else {READ_BYTES: float(task.read)},
        seconds=task.seconds,
        usage=Usage(peak_memory=task.peak or None),
        when=task.complete,
        uid=f"nextflow/{task.hash}/{task.process}/{task.id}/{task.complete:.3f}",
        job=task.id,
    )


def _read_time(
    row: Mapping[str, str], field: str, read: Callable[[str], float], expected: str
) -> float | None:
    """Seconds of a field: raw milliseconds, or what ``read`` makes of its text; ``None`` where unknown."""
    text = row.get(field, "")
    if text in UNKNOWN:
        return None
    if _RAW.fullmatch(text):
        return int(text) / 1000.0
    try:
        return read(text)
    except ValueError:
        raise Malformed(field, text, expected) from None


def _read_seconds(row: Mapping[str, str], field: str) -> float | None:
    return _read_time(row, field, seconds_of, "milliseconds, or a duration such as 1h 2m 3s")


def _read_moment(row: Mapping[str, str], field: str) -> float | None:
    return _read_time(row, field, unix_seconds, "milliseconds since 1970, or 2024-01-31 12:00:00.000")


def _read_bytes(row: Mapping[str, str], field: str) -> int | None:
    text = row.get(field, "")
    if text in UNKNOWN:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise Malformed(field, text, "bytes, or a size such as 1.5 GB")
    return (
        round(float(found[1]) * 1024 ** " KMGTPE".index(found[2] or " "))
        if found[2]
        else int(float(found[1]))
    )
