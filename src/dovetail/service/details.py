"""One job in full: what it runs, where it writes, what is predicted of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from dovetail.client.errors import Forbidden, NotFound
from dovetail.engine.capacity.sizing import resize_memory
from dovetail.interfaces import SubmitsJobs
from dovetail.model import Choice, Job, JobId, State
from dovetail.model.batch_options import of_script
from dovetail.process.outputs import endless_paths
from dovetail.running.entry import Entry
from dovetail.service.core import Service
from dovetail.service.logs import Files
from dovetail.service.people import Principal
from dovetail.service.rows import Row, command_words

MOST_PREVIEWED = 100
"""Jobs that a dry run shows."""


async def job_details(service: Service, id: JobId) -> Row:
    """One job with what it runs, where it writes, and its earlier attempts. Raises `NotFound`."""
    row = await service.job(id)
    entry = service.fetch_entry(id)
    job, launch = _as_it_stands(service, entry), entry.job.launch
    out, err = _output_paths_of(service, entry.job, entry.attempt)
    earlier = await service.ask(lambda archive: archive.attempts(id))
    return {
        **row,
        "commands": {
            one.name: list(one.command.argv) for one in job.app.implementations if one.command is not None
        },
        "request": _describe_requests(job),
        "folder": None if launch is None else launch.folder,
        "stdout": str(out),
        "stderr": str(err),
        "retries": job.retries,
        "memory_auto": list(job.sizing.auto),
        "memory": [_predict_memory(service, job, choice) for choice in job.choices],
        "retry_memory": job.sizing.retry,
        "memory_kills": job.sizing.kills,
        "restartable": job.app.restartable,
        "earlier": earlier,
    }


def _describe_requests(job: Job) -> Row:
    """What each way to run a job requests of a node."""
    return {
        choice.implementation.name: {
            "nodes": choice.request.nodes,
            "cpus": choice.request.cpus,
            "devices": dict(choice.request.devices),
            "memory": choice.request.memory,
        }
        for choice in job.choices
    }


def _as_it_stands(service: Service, entry: Entry) -> Job:
    """The job with the memory that it requests now, or had at last."""
    record = service.engine.records.get(entry.job.id)
    if record is not None:
        return record.job
    # Out of memory: the size that it had at last is that of its last allocation.
    if not entry.job.sizing.auto or entry.allocation is None:
        return entry.job
    held = entry.allocation.request.memory
    return resize_memory(entry.job, [held] * len(entry.job.choices), entry.job.sizing.kills)


def _predict_memory(service: Service, job: Job, choice: Choice) -> Row:
    """The peak that is predicted of one way to run a job, and what auto would reserve; in bytes a node."""
    found = service.driver.sizes.predict_reservation(job, choice, service.engine.cluster)
    row: Row = {"implementation": choice.implementation.name, "reserved": choice.request.memory}
    peak = None if found is None else found.peak
    if found is None:
        basis = "nodes do not give their memory"
    else:
        guessed = peak is None and row["implementation"] in job.sizing.auto
        basis = found.basis if guessed or peak is not None else "no run yet"
    return row | {
        "auto": None if found is None else found.amount,
        "chance": None if found is None else found.chance,
        "expected": None if peak is None else peak.expected,
        "lower": None if peak is None else peak.lower,
        "upper": None if peak is None else peak.upper,
        "samples": 0 if peak is None else peak.samples,
        "basis": basis,
    }


def _output_paths_of(service: Service, job: Job, attempt: int) -> tuple[Path, Path]:
    """Where an attempt of a job writes."""
    entry = service.fetch_entry(job.id)
    held = None if entry.allocation is None else entry.allocation.first_node
    node = "" if held is None else service.engine.cluster.nodes[held].name
    out, err = (None, None) if job.launch is None else job.launch.files(job, service.about.cwd, node)
    ours = endless_paths(str(service.folder.path), job.id, max(1, attempt))
    # Links that the outside scheduler's jobs have made: their script names the real files.
    if _is_elsewhere(service, job) and os.path.islink(ours[0]):
        return Path(ours[0]), Path(ours[1])
    return Path(out or ours[0]), Path(err or ours[1])


def _is_elsewhere(service: Service, job: Job) -> bool:
    """Whether an outside scheduler writes to files named by its script; our own names are links to them."""
    return of_script(job.batch_options) is not None and isinstance(service.live.executor, SubmitsJobs)


async def job_files(service: Service, id: JobId, person: Principal, attempt: int | None = None) -> Files:
    """Where a job writes. Raises `NotFound`, `Forbidden` (what others wrote)."""
    entry = service.fetch_entry(id)
    if not person.may_change(entry.job.user):
        raise Forbidden(f"job {id} belongs to {entry.job.user}")
    if attempt is not None and attempt > max(1, entry.attempt):
        raise NotFound(f"job {id} has {entry.attempt} attempts")
    launch = entry.job.launch
    chosen = launch is not None and (launch.stdout is not None or launch.stderr is not None)
    paths = _output_paths_of(service, entry.job, attempt or entry.attempt)
    chosen = chosen or _is_elsewhere(service, entry.job)
    ended = entry.state not in (State.PENDING, State.RUNNING) or (attempt or entry.attempt) < entry.attempt
    return Files(*paths, ended, chosen)


def preview_jobs(service: Service, jobs: Sequence[Job]) -> list[Row]:
    """Jobs that are not submitted: what they request, and what is predicted of each way to run them."""
    waiting = service.open_count - len(service.engine.running)
    rows: list[Row] = []
    for job in jobs[:MOST_PREVIEWED]:
        considered = _predict_choices(service, job, None)
        known = [row["predicted"] for row in considered if row["predicted"] is not None]
        rows.append(
            {
                "name": job.name or job.app.name,
                "app": job.app.name,
                "command": command_words(job),
                "request": _describe_requests(job),
                "walltime": job.walltime,
                "inputs": dict(job.inputs),
                "considered": considered,
                "predicted": min(known) if known else None,
                "waiting_before": waiting,
            }
        )
    return rows


async def explain_job(service: Service, id: JobId) -> Row:
    """A job, with what is predicted now of each way to run it. Raises `NotFound`."""
    row = await service.job(id)
    entry = service.fetch_entry(id)
    job = _as_it_stands(service, entry)
    memory = [_predict_memory(service, job, choice) for choice in job.choices]
    considered = _predict_choices(service, entry.job, row["implementation"])
    record = service.engine.records.get(id)
    shared = None if record is None or record.beside is None else record.beside.words(record.took) or None
    about = {"considered": considered, "memory": memory, "policy": service.about.policy, "shared": shared}
    return {**row, **about}


def _predict_choices(service: Service, job: Job, chosen: str | None) -> list[Row]:
    """What is predicted now of each way to run a job, on each class of devices."""
    predict = service.engine.predictions.model.predict
    considered: list[Row] = []
    for choice in job.choices:
        one, request = choice.implementation, choice.request
        for device in service.engine.cluster.device_classes(one.kind):
            found = predict(job, one, request, device)
            option: Row = {"implementation": one.name, "nodes": request.nodes, "device": str(device)}
            option |= {
                "kind": device.kind,
                "model": device.model,
                "chosen": one.name == chosen,
                "suspended": service.engine.suspensions.reason((job.app.name, one.name, device)),
            }
            if found is None:
                option |= {"predicted": None, "lower": None, "upper": None, "samples": 0}
                option["basis"] = "no history"
            else:
                upper = found.upper if isfinite(found.upper) else None
                option |= {"predicted": found.expected, "lower": found.lower, "upper": upper}
                option |= {"samples": found.samples, "basis": found.basis}
            considered.append(option)
    return considered
