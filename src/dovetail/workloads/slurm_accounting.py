"""Reader of Slurm's accounting: ``sacct --parsable2`` and ``sacct --json``.

Mapping (columns of ``--parsable2``, found by the header; the same facts by name in the JSON):

=================  =====================================================================================
job                from
=================  =====================================================================================
id                 JobID; steps (``123.batch``) are skipped, array tasks (``123_4``) and the parts of a
                   heterogeneous job (``123+0``) are jobs of their own
submit time        Submit, counted from the first submission of the file
true time          ElapsedRaw, else Elapsed (``D-HH:MM:SS``), else End less Start
walltime           TimelimitRaw (minutes), else Timelimit; none where unlimited
request            AllocTRES, else ReqTRES, else AllocNodes or NNodes or ReqNodes, and AllocCPUS or NCPUS or
                   ReqCPUS: what the job held, shared evenly over its nodes, rounded up
memory             ``mem`` of the same TRES (not counted where the log has none)
GPUs               ``gres/gpu`` of the same TRES, else the ``gres/gpu:MODEL`` entries together; before
                   21.08 those of AllocGRES, else of ReqGRES for each node
GPU model          from ReqTRES alone (AllocTRES names whatever was given): ``gres/gpu:MODEL``; not used where
                   no device of the cluster names its model
user, group        User, Account (else Group)
queue              Partition; where nodes of the cluster name it, the job runs on these alone, else on any
priority           not used: it changes while a job waits
=================  =====================================================================================

States: what ended in any way counts with the time it ran. Rejected: jobs that still wait or run (their
length is unknown), that never started, that requested nothing, or that are larger than the machine.
A record that is not a job line with these fields is malformed. App: ``slurm``.

A useful call: ``sacct -a -X --parsable2 --format
JobID,User,Account,Partition,Submit,Start,Elapsed,Timelimit,State,NNodes,NCPUS,ReqTRES,AllocTRES``.
"""

from __future__ import annotations

import gzip
import json
import math
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.errors import InputError
from dovetail.files.reading import GZIP_MAGIC, read_lines, read_text
from dovetail.files.sentences import file_name
from dovetail.files.tables import LARGEST, Malformed, job_id, wall_clock
from dovetail.files.units import seconds_of
from dovetail.model import Cluster, Request, Workload
from dovetail.workloads.builder import UNKNOWN_LENGTH, TraceBuilder, gpu_request
from dovetail.workloads.resources import Fitting
from dovetail.workloads.sacct_rows import (
    UNKNOWN,
    count_of,
    gpus_of,
    header_of,
    is_step,
    resources_of,
    rows_of,
)

REQUIRED = ("JobID", "Submit", "State")
UNFINISHED = (
    *("PENDING", "RUNNING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "CONFIGURING"),
    *("RESIZING", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "RESV_DEL_HOLD", "POWER_UP_NODE", "UPDATE_DB"),
    "EXPEDITING",
)
FINISHED = (
    "COMPLETED",
    "COMPLETING",
    "CANCELLED",
    "FAILED",
    "TIMEOUT",
    "NODE_FAIL",
    "PREEMPTED",
    "OUT_OF_MEMORY",
    "BOOT_FAIL",
    "DEADLINE",
    "REVOKED",
    "STOPPED",
    "LAUNCH_FAILED",
    "RECONFIG_FAIL",
)
UNLIMITED = ("UNLIMITED", "Partition_Limit", "PARTITION_LIMIT")
PRINTED = re.compile(r"[0-9:.-]+")
MEBIBYTE = 2**20
NO_MINUTES = 2**32 - 2
"""From here on a limit is one of Slurm's signs of a number that is not set, or of no limit."""
NO_COUNTS = (-2, 2**64 - 1, 2**64 - 2)
"""Slurm's signs of a count that it does not know, such as of energy."""
LONGEST_HEADER = 10_000


def is_sacct(path: str | Path) -> bool:
    """Whether the file's first line is the header of ``sacct --parsable2`` with the columns needed."""
    try:
        with open(path, "rb") as lines:
            header = lines.readline(LONGEST_HEADER)
        # Compressed by some sites: the header is looked for inside.
        if header.startswith(GZIP_MAGIC):
            with gzip.open(path) as lines:
                header = lines.readline(LONGEST_HEADER)
    except (OSError, ValueError, EOFError, zlib.error):
        # The reader of the file reports it.
        return False
    names, _ = header_of(header.decode("utf-8-sig", "replace"))
    return set(REQUIRED) <= set(names)


def read_sacct(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of either form: JSON if the text opens with a brace. Raises `InputError`."""
    # Leniently: a byte that is no UTF-8 far below must not hide what the file is.
    head = read_text(path, lenient=True).lstrip()[:LONGEST_HEADER].splitlines()[:1]
    if head and head[0].startswith("{"):
        return read_sacct_json(path, cluster, lenient=lenient)
    if head and len(header_of(head[0])[0]) == 1:
        raise InputError(
            "found a table whose columns cannot be separated, expected that of sacct --parsable2 (or "
            "--json), and not the one that sacct prints for people",
            where=f"{file_name(path)}: line 1",
        )
    if head and not set(REQUIRED) & set(header_of(head[0])[0]):
        raise InputError(
            f"found no header, expected the names of the columns, {', '.join(REQUIRED)} among them: sacct "
            "without -n prints them",
            where=f"{file_name(path)}: line 1",
        )
    return read_sacct_parsable(path, cluster, lenient=lenient)


def read_sacct_parsable(
    path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False
) -> Workload:
    """Jobs of ``sacct --parsable2`` (or ``--parsable``), with the mapping that the module states.

    Raises `InputError` naming file and line at the first malformed line unless ``lenient``.
    """
    builder = TraceBuilder(str(path), cluster, app="slurm")
    where, found, skipped = file_name(path), 0, 0
    for row in rows_of(read_lines(path, "a table"), where, REQUIRED):
        try:
            if isinstance(row, tuple):
                raise row[1]
            found += 1
            _add_row(builder, row.cells)
        except Malformed as error:
            line = row[0] if isinstance(row, tuple) else row.line
            if not lenient:
                raise InputError(str(error), where=f"{where}: line {line}") from None
            skipped += 1
    if not found and not skipped:
        raise InputError("holds a header and no line; expected at least one", where=where)
    return builder.build_workload(skipped=skipped, rebase=True)


def _add_row(builder: TraceBuilder, row: Mapping[str, str]) -> None:
    # Steps repeat what their job has held.
    if is_step(row):
        return
    if any("\udc80" <= character <= "\udcff" for text in row.values() for character in text):
        raise Malformed("line", "|".join(row.values()), "UTF-8 text")
    request = _read_request(row, builder.fitting)
    known = row["Submit"] not in UNKNOWN
    submit = wall_clock(row, "Submit") if known else math.inf
    run = elapsed_of(row)
    # Start is missing in some calls of sacct: then the run time alone decides.
    reason = _unfinished_reason(row["State"], run, started=row.get("Start", "yes") not in UNKNOWN)
    builder.add(
        job_id(row, "JobID"),
        submit,
        run,
        request,
        walltime=timelimit_of(row),
        user=row.get("User"),
        group=row.get("Account") or row.get("Group"),
        queue=row.get("Partition"),
        reason=reason or (None if known else "unknown submission"),
        start=None if row.get("Start", "") in UNKNOWN else wall_clock(row, "Start"),
    )


def _unfinished_reason(state: str, run: float | None, *, started: bool) -> str | None:
    """Why a job in this state cannot be replayed, or ``None``. Raises `Malformed`."""
    word = whole_state(state)
    if word in UNFINISHED:
        return f"{UNKNOWN_LENGTH} (state {word})"
    if word not in FINISHED:
        raise Malformed("State", state, "a state of sacct such as COMPLETED")
    if not started and not run:
        return f"never started (state {word})"
    return None


def whole_state(text: str) -> str:
    """The state in ``CANCELLED by 1000``, and of ``OUT_OF_ME+`` in a column that was too narrow.

    >>> whole_state("CANCELLED by 1000"), whole_state("OUT_OF_ME+")
    ('CANCELLED', 'OUT_OF_MEMORY')
    """
    word = text.partition(" ")[0]
    if not word.endswith("+"):
        return word
    near = [one for one in (*FINISHED, *UNFINISHED) if one.startswith(word[:-1])]
    return near[0] if len(near) == 1 else word


def parse_duration(text: str) -> float:
    """Seconds of ``[DAYS-][HOURS:]MINUTES:SECONDS``, or of a plain count of seconds.

    With days, hours come first: ``1-02:03`` is a day, two hours and three minutes. Raises `ValueError`.

    >>> parse_duration("1-02:03"), parse_duration("00:02:00"), parse_duration("90")
    (93780.0, 120.0, 90.0)
    """
    seconds = seconds_of(text) if PRINTED.fullmatch(text) else LARGEST
    if seconds >= LARGEST:
        raise ValueError(text)
    return seconds


def elapsed_of(row: Mapping[str, str]) -> float | None:
    """How long the job of a line ran; ``None`` where it has none. Raises `Malformed`."""
    for field in ("ElapsedRaw", "Elapsed"):
        text = row.get(field, "")
        if text in UNKNOWN:
            continue
        # A clock that was set back makes it negative: that rejects the job.
        try:
            return -parse_duration(text[1:]) if text.startswith("-") else parse_duration(text)
        except ValueError:
            raise Malformed(field, text, "a duration such as 1-02:03:04") from None
    if "Elapsed" not in row and "ElapsedRaw" not in row:
        if "Start" in row and "End" in row:
            known = row["Start"] not in UNKNOWN and row["End"] not in UNKNOWN
            return wall_clock(row, "End") - wall_clock(row, "Start") if known else None
        raise Malformed("line", "no Elapsed", "a column Elapsed or ElapsedRaw")
    return None


def timelimit_of(row: Mapping[str, str]) -> float | None:
    """The limit of the job of a line in seconds, if it has one. Raises `Malformed`."""
    # The raw field is in minutes, the other one a duration.
    for field, unit in (("TimelimitRaw", 60), ("Timelimit", 1)):
        text = row.get(field, "")
        if text in UNKNOWN or text in UNLIMITED:
            continue
        try:
            return parse_duration(text) * unit
        except ValueError:
            raise Malformed(field, text, "a duration such as 1-02:03:04, or UNLIMITED") from None
    return None


def _read_request(row: Mapping[str, str], fitting: Fitting) -> Request:
    nodes = _first_count(row, ("AllocNodes", "NNodes", "ReqNodes"))
    tres, requested = resources_of(row, nodes)
    # TRES first: it names what the job held; the columns are for logs without it.
    cpus = tres.get("cpu") or _first_count(row, ("AllocCPUS", "NCPUS", "ReqCPUS"))
    return _even_share(tres.get("node") or nodes, cpus, tres, requested, fitting)


def _first_count(row: Mapping[str, str], fields: tuple[str, ...]) -> float:
    for field in fields:
        text = row.get(field, "")
        # sacct writes 0 for a job that never started.
        if text not in UNKNOWN and text != "0":
            return count_of(text, field)
    return 0


def _even_share(
    nodes: float, cpus: float, tres: Mapping[str, float], requested: Mapping[str, float], fitting: Fitting
) -> Request:
    # A job that held CPUs held a node, whatever the column has.
    count = int(nodes) if nodes >= 1 else int(cpus > 0)
    share = max(1, count)
    gpus = gpus_of(tres)
    # By ReqTRES alone: what was allocated names a model though any would have done.
    models = tuple(sorted(k.partition(":")[2] for k in requested if k.startswith("gres/gpu:")))
    return gpu_request(
        count,
        -(-int(gpus) // share),
        cpus=-(-int(cpus) // share),
        memory=-(-int(tres.get("mem", 0)) // share),
        models=fitting.known_models(models),
    )


def read_sacct_json(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of ``sacct --json`` (data parser 0.0.37 and later), with the mapping that the module states.

    Malformed records are named by their place in ``jobs``, from 1. Raises `InputError`.
    """
    where = file_name(path)
    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        message = f"found broken JSON ({error.msg}), expected the output of sacct --json"
        raise InputError(message, where=f"{where}: line {error.lineno}") from None
    except (RecursionError, ValueError):
        # ValueError: a number with thousands of digits.
        raise InputError(
            "the JSON is nested too deeply or holds a number too long; expected the output of sacct --json",
            where=where,
        ) from None
    records = data.get("jobs") if isinstance(data, dict) else None
    if not isinstance(records, list):
        raise InputError("found no list named jobs, expected the output of sacct --json", where=where)
    if not records:
        raise InputError("the list jobs is empty; expected at least one job", where=where)
    builder = TraceBuilder(where, cluster, app="slurm")
    skipped = 0
    for place, record in enumerate(records, start=1):
        try:
            _add_record(builder, record)
        except Malformed as error:
            if not lenient:
                raise InputError(str(error), where=f"{where}: job {place}") from None
            skipped += 1
    return builder.build_workload(skipped=skipped, rebase=True)


def _add_record(builder: TraceBuilder, record: object) -> None:
    job = _check_mapping(record, "job")
    time = _check_mapping(job.get("time"), "time")
    states = job.get("state")
    # One name in older data parsers, a list of names in newer ones.
    current = states.get("current") if isinstance(states, dict) else states
    state = current[0] if isinstance(current, list) and current else current
    if not isinstance(state, str):
        raise Malformed("state", state, "a state of sacct such as COMPLETED")
    submit = _read_amount(time.get("submission"), "time.submission")
    if submit is None:
        raise Malformed("time.submission", time.get("submission"), "seconds since 1970")
    # Negative where a clock was set back: that rejects the job, and is no malformed line.
    run = _read_amount(time.get("elapsed"), "time.elapsed", least=-LARGEST)
    limit = _read_amount(time.get("limit"), "time.limit")
    tres = _check_mapping(job.get("tres"), "tres")
    requested, held = _tres_list(tres.get("requested")), _tres_list(tres.get("allocated"))
    held = held or requested
    nodes = held.get("node") or _read_amount(job.get("allocation_nodes"), "allocation_nodes") or 0
    cpus = (
        held.get("cpu")
        or _read_amount(_check_mapping(job.get("required", {}), "required").get("CPUs"), "CPUs")
        or 0
    )
    request = _even_share(nodes, cpus, held, requested, builder.fitting)
    # 0 means that it has not started.
    start = _read_amount(time.get("start"), "time.start") or None
    builder.add(
        _job_id(job),
        submit,
        run,
        request,
        walltime=None if limit is None or limit >= NO_MINUTES else limit * 60,
        user=_text_or_none(job.get("user"))
        or _text_or_none(_check_mapping(job.get("association", {}), "association").get("user")),
        group=_text_or_none(job.get("account")) or _text_or_none(job.get("group")),
        queue=_text_or_none(job.get("partition")),
        reason=_unfinished_reason(state, run, started=start is not None),
        start=start,
    )


def _job_id(job: Mapping[str, Any]) -> str:
    """``123``, or ``123_4`` for a task of an array."""
    number = _read_amount(job.get("job_id"), "job_id")
    if number is None:
        raise Malformed("job_id", job.get("job_id"), "a job id")
    array = job.get("array")
    if isinstance(array, dict):
        parent = _read_amount(array.get("job_id"), "array.job_id")
        task = _read_amount(array.get("task_id"), "array.task_id")
        if parent and task is not None:
            return f"{int(parent)}_{int(task)}"
    return str(int(number))


def _check_mapping(value: object, field: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(field, value, "an object")
    return value


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _read_amount(value: object, field: str, least: float = 0) -> float | None:
    """A number, plain or as ``{"set": …, "infinite": …, "number": …}``; ``None`` where unset or infinite."""
    if isinstance(value, dict):
        # Unset and infinite numbers have a value beside them that means nothing.
        if not value.get("set", True) or value.get("infinite", False):
            return None
        value = value.get("number")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < LARGEST:
        raise Malformed(field, value, "a number of at least 0")
    return float(value)


def _tres_list(value: object) -> dict[str, float]:
    """The JSON's list of resources under the names of `parse_tres`; memory is counted in MiB there."""
    if value is None:
        return {}
    if not isinstance(value, list):
        raise Malformed("tres", value, "a list")
    amounts: dict[str, float] = {}
    for item in value:
        entry = _check_mapping(item, "tres")
        kind, name = _text_or_none(entry.get("type")), _text_or_none(entry.get("name"))
        number = entry.get("count")
        count = None if number in NO_COUNTS else _read_amount(number, "tres.count")
        if kind is None:
            raise Malformed("tres.type", entry.get("type"), "the name of a resource")
        if count is not None:
            amounts[f"{kind}/{name}" if name else kind] = count * (MEBIBYTE if kind == "mem" else 1)
    return amounts
