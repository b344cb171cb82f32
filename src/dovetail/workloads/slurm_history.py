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

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import UTC, datetime

from dovetail.errors import InputError
from dovetail.files.tables import Malformed, WrongCount
from dovetail.model import CPU, DeviceClass, Run, Usage
from dovetail.records import dataclass
from dovetail.workloads.sacct_rows import (
    AMOUNT,
    UNITS,
    UNKNOWN,
    Row,
    count_of,
    gpus_of,
    is_step,
    resources_of,
    rows_of,
)
from dovetail.workloads.slurm_accounting import elapsed_of, timelimit_of

COLUMNS = "JobID,JobName,User,Submit,End,ElapsedRaw,TimelimitRaw,State,NNodes,NCPUS,AllocTRES,MaxRSS"
NEEDED = ("JobID", "JobName", "End", "State", "NNodes", "NCPUS")
RESOURCES = ("AllocTRES", "AllocGRES", "ReqTRES", "ReqGRES")
"""One of these shows whether a job had GPUs."""
WHOLE = "a whole number"
OURS = "dovetail-"


class OddJob(Malformed):
    """A job that no history can hold, in a line that is well-formed: it alone is left out."""

    # Past the base class's sentence, which names a field: here the job as a whole is odd.
    def __init__(self, reason: str) -> None:
        ValueError.__init__(self, reason)


@dataclass(slots=True)
class Measured:
    """What a table of accounting gives: runs, and of the lines that were rejected where and why."""

    runs: list[Run] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)


def read_runs(lines: Iterable[str], where: str, *, lenient: bool = False) -> Measured:
    """The completed jobs of a table, and the lines that were left out.

    Left out is a job that no history can hold (without a name, of a negative length), and a line of another
    number of fields. Raises `InputError` with the line of anything else that is malformed, unless
    ``lenient``, which leaves it out too. Linear.
    """
    found = Measured()
    runs: dict[str, Run] = {}
    peaks: dict[str, int] = {}
    for row in _check_rows(rows_of(lines, where, NEEDED), where):
        try:
            if isinstance(row, tuple):
                raise row[1]
            # Steps carry the memory, their job the rest.
            job = row.cells["JobID"].partition(".")[0]
            peaks[job] = max(peaks.get(job, 0), _read_peak(row.cells.get("MaxRSS", "")))
            run = _read_run(row.cells)
        except ValueError as error:
            line = f"{where}: line {row[0] if isinstance(row, tuple) else row.line}"
            if not (lenient or isinstance(error, OddJob | WrongCount)):
                raise InputError(str(error), where=line) from None
            found.rejected.append((line, str(error)))
        else:
            if run is not None:
                runs[job] = run
    # Peaks are put in at the end, when all steps were read.
    found.runs = [
        replace(run, usage=Usage(peak_memory=peaks[job])) if peaks[job] else run for job, run in runs.items()
    ]
    return found


def _check_rows(
    rows: Iterable[Row | tuple[int, Malformed]], where: str
) -> Iterable[Row | tuple[int, Malformed]]:
    """The rows, once the first one shows that the table holds what jobs had."""
    unknown = True
    for row in rows:
        if unknown and isinstance(row, Row):
            # Once, at the first row: without such a column every job would count as one without GPUs.
            unknown = False
            if not any(name in row.cells for name in RESOURCES):
                raise InputError(
                    f"found no column AllocTRES, expected what 'sacct --parsable2 --format {COLUMNS}' prints",
                    where=f"{where}: line 1",
                )
        yield row


def _read_run(row: Mapping[str, str]) -> Run | None:
    """The run of one line; ``None`` for steps, what did not complete, our own. Raises `Malformed`."""
    # Our own jobs are in the history with better figures; here they would count twice.
    ours = row["JobName"].startswith(OURS)
    if ours or is_step(row) or row["State"].split(" ")[0] != "COMPLETED":
        return None
    if not row["JobName"]:
        raise OddJob("the job has no name")
    seconds = elapsed_of(row)
    if seconds is None:
        return None
    if seconds < 0:
        raise OddJob(f"the job has a negative length ({seconds:g} s)")
    nodes = max(1, int(count_of(row["NNodes"], "NNodes", WHOLE)))
    tres, _ = resources_of(row, nodes)
    models = {name.partition(":")[2]: n for name, n in tres.items() if name.startswith("gres/gpu:")}
    gpus = gpus_of(tres)
    kind = "gpu" if gpus else CPU
    # GPUs of two models in one job: no class is right, so none is named.
    model = next(iter(models)) if gpus and len(models) == 1 else ""
    return Run(
        app=row["JobName"],
        implementation=kind,
        device_class=DeviceClass(kind, model),
        nodes=nodes,
        cpus=-(-int(count_of(row["NCPUS"], "NCPUS", WHOLE)) // nodes),
        gpus=gpus / nodes,
        seconds=seconds,
        walltime=timelimit_of(row),
        when=_read_moment(row["End"]),
        # Numbers of jobs begin anew some day, and a requeued job keeps its own: with its submission it is
        # unique.
        uid=f"slurm/{row['JobID']}/{row.get('Submit', '')}",
        job=row["JobID"],
        user=row.get("User") or None,
    )


def _read_peak(text: str) -> int:
    """Bytes of a MaxRSS such as ``123456K``; 0 where nothing was measured."""
    if text in UNKNOWN:
        return 0
    found = AMOUNT.fullmatch(text)
    if found is None:
        raise Malformed("MaxRSS", text, "an amount such as 123456K")
    return int(float(found[1]) * UNITS[found[2]])


def _read_moment(text: str) -> float:
    """Seconds since the epoch; a wall-clock time is this machine's."""
    if text.isdecimal():
        return float(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Malformed("End", text, "a moment such as 2026-05-04T12:30:00") from None
    # sacct prints the cluster's local time without its zone.
    return found.replace(tzinfo=found.tzinfo or datetime.now(UTC).astimezone().tzinfo).timestamp()
