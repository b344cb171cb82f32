"""Measured runs from Slurm's accounting, so that what ran before Dovetail came is known to it.

Of each job that has completed (columns of ``sacct --parsable2``, found by the header):

==============  ==================================================================================
run             from
==============  ==================================================================================
app             JobName; jobs that Dovetail itself had queued are left out, they are known
implementation  ``gpu`` where AllocTRES has ``gres/gpu``, else ``cpu``
device class    the same, with the model of ``gres/gpu:MODEL``
request         NNodes; NCPUS and GPUs shared evenly over them
seconds         ElapsedRaw, else Elapsed
when            End
walltime        TimelimitRaw (minutes), else Timelimit
peak memory     the largest MaxRSS of its steps, where the table has them: of one task, sampled
==============  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from dovetail.errors import InputError
from dovetail.model import CPU, DeviceClass, Run, Usage
from dovetail.workloads.slurm_accounting import (
    AMOUNT,
    STEP,
    UNITS,
    UNKNOWN,
    elapsed_of,
    parse_tres,
    timelimit_of,
)

COLUMNS = "JobID,JobName,User,Submit,End,ElapsedRaw,TimelimitRaw,State,NNodes,NCPUS,AllocTRES,MaxRSS"
NEEDED = ("JobID", "JobName", "End", "State", "NNodes", "NCPUS", "AllocTRES")
OURS = "dovetail-"


def runs_of(lines: Sequence[str], where: str) -> Iterator[Run]:
    """The completed jobs of a table. Raises `InputError` with the line of what is malformed. Linear."""
    header = lines[0].rstrip("\n").split("|") if lines else []
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise InputError(
            f"found no column {', '.join(missing)}, expected what 'sacct --parsable2 --format {COLUMNS}' "
            "prints",
            where=f"{where}: line 1",
        )
    runs: dict[str, Run] = {}
    peaks: dict[str, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        cells = line.rstrip("\n").split("|")
        if len(cells) < len(header):
            raise InputError(
                f"found {len(cells)} fields, expected {len(header)}", where=f"{where}: line {number}"
            )
        row = dict(zip(header, cells, strict=False))
        try:
            job = row["JobID"].partition(".")[0]
            peaks[job] = max(peaks.get(job, 0), _peak(row.get("MaxRSS", "")))
            run = _run(row)
        except ValueError as error:
            raise InputError(str(error), where=f"{where}: line {number}") from None
        if run is not None:
            runs[job] = run
    for job, run in runs.items():
        yield replace(run, usage=Usage(peak_memory=peaks[job])) if peaks[job] else run


def _run(row: Mapping[str, str]) -> Run | None:
    """The run of one line; ``None`` for steps, what did not complete, our own. Raises `ValueError`."""
    ours = row["JobName"].startswith(OURS)
    if ours or STEP.match(row["JobID"]) or row["State"].split(" ")[0] != "COMPLETED":
        return None
    seconds = elapsed_of(row)
    if seconds is None:
        return None
    nodes = max(1, _whole(row["NNodes"], "NNodes"))
    tres = parse_tres(row["AllocTRES"], "AllocTRES")
    models = {name.partition(":")[2]: n for name, n in tres.items() if name.startswith("gres/gpu:")}
    gpus = tres.get("gres/gpu", sum(models.values()))
    kind = "gpu" if gpus else CPU
    model = next(iter(models)) if gpus and len(models) == 1 else ""
    return Run(
        app=row["JobName"],
        implementation=kind,
        device_class=DeviceClass(kind, model),
        nodes=nodes,
        cpus=-(-_whole(row["NCPUS"], "NCPUS") // nodes),
        gpus=gpus / nodes,
        seconds=seconds,
        walltime=timelimit_of(row),
        when=_moment(row["End"]),
        uid=f"slurm/{row['JobID']}/{row.get('Submit', '')}",
        job=row["JobID"],
        user=row.get("User") or None,
    )


def _peak(text: str) -> int:
    """Bytes of a MaxRSS such as ``123456K``; 0 where nothing was measured."""
    if text in UNKNOWN:
        return 0
    found = AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"MaxRSS: found {text!r}, expected an amount such as 123456K")
    return int(float(found[1]) * UNITS[found[2]])


def _whole(text: str, field: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{field}: found {text!r}, expected a whole number")
    return int(text)


def _moment(text: str) -> float:
    """Seconds since the epoch; a wall-clock time is this machine's."""
    if text.isdecimal():
        return float(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"End: found {text!r}, expected a moment such as 2026-05-04T12:30:00") from None
    return found.replace(tzinfo=found.tzinfo or datetime.now(UTC).astimezone().tzinfo).timestamp()
