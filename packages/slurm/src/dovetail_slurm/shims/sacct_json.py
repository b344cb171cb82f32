"""``sacct --json``: jobs with their steps, in the form of Slurm 22.05 (openapi/dbv0.0.38)."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from typing import Any

from dovetail_slurm.shims import jobs as of
from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.lines import Line, step_elapsed, step_state

CPU, MEMORY, NODE, BILLING, FIRST_GRES = 1, 2, 4, 5, 1001
"""Numbers of trackable resources in Slurm's accounting."""


def print_json(found: Sequence[Sequence[Line]]) -> None:
    """Jobs, each as its line and those of its steps."""
    from dovetail_slurm.shims.main import VERSION

    major, minor, micro = (int(part) for part in VERSION.split()[1].split("."))
    meta = {
        "plugin": {"type": "openapi/dbv0.0.38", "name": "Slurm OpenAPI DB v0.0.38"},
        "Slurm": {"version": {"major": major, "micro": micro, "minor": minor}, "release": VERSION.split()[1]},
    }
    jobs = [_job_form(lines[0].job, lines) for lines in found if lines]
    print(json.dumps({"meta": meta, "errors": [], "jobs": jobs}, indent=2))


def _job_form(job: Job, lines: Sequence[Line]) -> dict[str, Any]:
    held = [] if job.waits else _tres(job)
    return {
        "account": str(job.option.get("account") or ""),
        "comment": {"administrator": None, "job": job.option.get("comment"), "system": None},
        "allocation_nodes": 0 if job.waits else job.nodes,
        "array": {
            "job_id": job["array"] or 0,
            "limits": {"max": {"running": {"tasks": job["at_once"] or 0}}},
            "task": job.indices or None,
            "task_id": job["index"],
        },
        "association": {
            "account": str(job.option.get("account") or ""),
            "cluster": "dovetail",
            "partition": None,
            "user": job.user,
        },
        "cluster": "dovetail",
        "constraints": "",
        "container": None,
        "derived_exit_code": _exit_form(0, 0),
        "time": {
            **_time_form(job.elapsed, job.start, job.end, float(job["cpu_time"] or 0)),
            "eligible": int(max(float(job["submit"]), float(job["begin"] or 0))),
            "submission": int(job["submit"]),
            "limit": None if job.limit is None else int(job.limit // 60),
        },
        "exit_code": _exit_form(*job.exit),
        "flags": [],
        "group": of.group_of(job.user)[0],
        "het": {"job_id": 0, "job_offset": None},
        "job_id": job.number,
        "name": job.name,
        "mcs": {"label": ""},
        "nodes": "None assigned" if job.waits else str(job["nodes"]),
        "partition": job.partition,
        "priority": job["priority"],
        "qos": str(job.option.get("qos") or "normal"),
        "required": {"CPUs": job.cpus, "memory": job.memory // of.MEBIBYTE},
        "kill_request_user": None,
        "reservation": {"id": 0, "name": 0},
        "state": {"current": job.state, "reason": job.reason},
        "steps": [_step_form(line) for line in lines if line.step],
        "tres": {"allocated": held, "requested": _tres(job)},
        "user": job.user,
        "wckey": {"wckey": str(job.option.get("wckey") or ""), "flags": []},
        "working_directory": str(job["folder"]),
    }


def _step_form(line: Line) -> dict[str, Any]:
    job, own = line.job, line.own
    nodes, where = (job.nodes, str(job["nodes"])) if own is None else (own.nodes, own.where)
    if own is None:
        spent = _time_form(job.elapsed, job.start, job.end, float(job["cpu_time"] or 0))
        ended, tasks, state, name = job.exit, 1, job.state, "batch"
    else:
        end = job["end"] if own.end is None else own.end
        spent = _time_form(step_elapsed(line, own), own.start, end, own.user, own.system)
        ended, tasks, state, name = (own.code, own.signal), own.tasks, step_state(line, own), own.name
    cpus = job.cpus if own is None else own.cpus
    empty: dict[str, list[Any]] = {"max": [], "min": [], "average": [], "total": []}
    return {
        "nodes": {"list": where.split(","), "count": nodes, "range": where},
        "tres": {
            "requested": empty,
            "consumed": empty,
            "allocated": [_tres_form(CPU, "cpu", cpus), _tres_form(NODE, "node", nodes)],
        },
        "time": spent,
        "exit_code": _exit_form(*ended),
        "tasks": {"count": tasks},
        "pid": None,
        "CPU": {"requested_frequency": {"min": 0, "max": 0}, "governor": []},
        "kill_request_user": None,
        "state": state,
        "statistics": {"CPU": {"actual_frequency": 0}, "energy": {"consumed": 0}},
        "step": {"job_id": job.number, "het": {"component": None}, "id": line.step, "name": name},
        "task": {"distribution": "Unknown"},
    }


def _time_form(
    elapsed: float, start: float | None, end: float | None, user: float, system: float = 0.0
) -> dict[str, Any]:
    return {
        "elapsed": int(elapsed),
        "end": int(end or 0),
        "start": int(start or 0),
        "suspended": 0,
        "system": _seconds(system),
        "total": _seconds(user + system),
        "user": _seconds(user),
    }


def _seconds(amount: float) -> dict[str, int]:
    return {"seconds": int(amount), "microseconds": int(amount % 1 * 1e6)}


def _exit_form(code: int, number: int) -> dict[str, Any]:
    if number:
        name = signal.Signals(number).name.removeprefix("SIG") if number in set(signal.Signals) else ""
        return {"status": "SIGNALED", "return_code": code, "signal": {"signal_id": number, "name": name}}
    return {"status": "ERROR" if code else "SUCCESS", "return_code": code}


def _tres(job: Job) -> list[dict[str, Any]]:
    found = [_tres_form(CPU, "cpu", job.cpus)]
    if job.memory:
        found.append(_tres_form(MEMORY, "mem", job.memory * job.nodes // of.MEBIBYTE))
    found += [_tres_form(NODE, "node", job.nodes), _tres_form(BILLING, "billing", job.cpus)]
    for kind, count in job.devices.items():
        found.append({"type": "gres", "name": kind, "id": FIRST_GRES, "count": count * job.nodes})
    return found


def _tres_form(number: int, kind: str, count: int) -> dict[str, Any]:
    return {"type": kind, "name": None, "id": number, "count": count}
