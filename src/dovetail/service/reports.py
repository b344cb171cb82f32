"""Jobs with all that is on record of them, ended or not: what programs read that keep their own accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.model import Job, JobId, Seconds, Usage
from dovetail.model.job import TURN
from dovetail.model.marks import job_marks, place_of
from dovetail.process.outputs import endless_paths
from dovetail.process.spawn_log import uid_of
from dovetail.records import dataclass
from dovetail.running.entry import Entry
from dovetail.service.core import Service
from dovetail.service.people import Principal
from dovetail.service.rows import Row, row_of_entry


@dataclass(frozen=True, slots=True)
class Question:
    """Which jobs: those that ``jobs`` selects, or all, as far as the rest holds for them.

    ``since`` and ``until`` are seconds since the epoch: the job was there at some moment between them.
    """

    jobs: str | None = None
    states: Sequence[str] = ()
    users: Sequence[str] = ()
    names: Sequence[str] = ()
    since: Seconds | None = None
    until: Seconds | None = None
    limit: int = 100_000


async def report_rows(service: Service, question: Question, person: Principal) -> list[Row]:
    """The rows, in order of submission. Numbers that no job has are passed over. Raises `InputError`.

    O(jobs that are selected); with ``since`` O(open jobs and those that ended later).
    """
    conditions, values = _sql_conditions(question)
    if question.jobs is not None:
        ids = await service.select_known_jobs(question.jobs, person)
        conditions.append("id IN (SELECT value FROM json_each(?))")
        values.append(service.archive.encode_ids(ids))
    where = f"{' AND '.join(conditions) or 'TRUE'} ORDER BY seq LIMIT ?"
    entries = await service.ask(lambda archive: archive.entries(where, (*values, question.limit), whole=True))
    # What a run used is known to the engine while it remembers the job, later only to the history of runs.
    uids = {_unique_id(service, entry): entry.job.id for entry in entries if entry.ended is not None}
    away = [uid for uid, job in uids.items() if job not in service.engine.records]
    used = await service.ask(lambda archive: archive.fetch_usage(away, Path(service.about.history)))
    usage = {uids[uid]: one for uid, one in used.items()}
    return [_report_row(service, entry, usage) for entry in entries]


def _sql_conditions(question: Question) -> tuple[list[str], list[object]]:
    conditions: list[str] = []
    values: list[object] = []
    for column, wanted in (
        ("state", question.states),
        ("user", question.users),
        ("job.name", question.names),
    ):
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += wanted
    if question.since is not None:
        conditions.append("(state IN ('PENDING', 'RUNNING') OR ended >= ?)")
        values.append(question.since)
    if question.until is not None:
        conditions.append("submitted <= ?")
        values.append(question.until)
    return conditions, values


def _unique_id(service: Service, entry: Entry) -> str:
    return uid_of(service.about.uid, entry.job.id, entry.attempt)


def _report_row(service: Service, entry: Entry, used: Mapping[JobId, Usage]) -> Row:
    record = service.engine.records.get(entry.job.id)
    row = row_of_entry(entry, service.engine.cluster) if record is None else service.make_row(record)
    job = entry.job if record is None else record.job
    usage = used.get(job.id) if record is None or record.usage is None else record.usage
    return {**row, **_further_fields(service, job, entry), **_of_usage(usage)}


def _further_fields(service: Service, job: Job, entry: Entry) -> Row:
    """What a row does not have: numbers, what is requested, where it runs and writes."""
    launch = entry.job.launch
    indices = "" if launch is None else launch.indices
    marks = job_marks(job.id, indices, job.index)
    choice = next(
        (one for one in job.choices if one.implementation.name == entry.implementation),
        job.choices[0],
    )
    request = choice.request if entry.allocation is None else entry.allocation.request
    node = "" if entry.allocation is None else service.engine.cluster.nodes[entry.allocation.first_node].name
    out, err = (None, None) if launch is None else launch.files(entry.job, service.about.cwd, node)
    # Where the job itself names no file, the service keeps the output in its folder.
    ours = endless_paths(str(service.folder.path), job.id, max(1, entry.attempt))
    number, _, index = job.id.partition("_")
    return {
        "number": int(marks["j"]) if marks["j"].isdecimal() else int(number),
        "array": int(number) if index else None,
        "index": int(index) if index else None,
        "indices": indices,
        "place": place_of(int(index), indices) if index and indices else 0,
        "at_once": next((one.limit for one in job.throttles if one.key.startswith("array:")), None),
        "request": {
            "nodes": request.nodes,
            "cpus": request.cpus,
            "devices": dict(request.devices),
            "memory": request.memory,
            "partition": request.partition,
        },
        "folder": service.about.cwd if launch is None or launch.folder is None else launch.folder,
        "stdout": out or ours[0],
        "stderr": err or ours[1],
        "stdin": None if launch is None else launch.input(entry.job, service.about.cwd, node),
        "script": launch is not None and bool(launch.variables),
        "variables": {} if launch is None else _plain_variables(launch.variables),
        "restartable": job.app.restartable,
        "held": entry.held,
        "turn": float(job.options.get(TURN, entry.seq)),
    }


_SHOWN = ("SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_SUBMIT_DIR", "SLURM_JOB_UID", "SLURM_JOB_GID")


def _plain_variables(variables: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Variables of a submission that hold how many tasks there are, and where it came from."""
    return {name: value for name, value in variables if name in _SHOWN and "\0" not in value}


def _of_usage(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return {"cpu_time": None, "peak_memory": None}
    return {"cpu_time": usage.cpu_time, "peak_memory": usage.peak_memory}
