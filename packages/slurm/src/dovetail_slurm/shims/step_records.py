"""What ``srun`` keeps of the steps of a job, for ``sacct``: a file beside the job's output.

A line of JSON for the begin of a step and one for its end, in ``output/12/12345.steps`` of the service's
folder; it goes when the output goes. Where that folder is not on this machine nothing is kept. What is
read is data of others: at most `MOST_BYTES`, and a line that is no record counts as none.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from dovetail_slurm.shims.service import Service

MOST_BYTES = 4 << 20
"""Of the records of one job, some 20,000 steps; later ones are not kept."""
_BEGUN: Mapping[str, type] = {
    "uid": str, "name": str, "start": float, "tasks": int, "cpus": int, "nodes": int, "where": str,
}  # fmt: skip
_ENDED: Mapping[str, type] = {
    "end": float, "code": int, "signal": int, "peak": int, "mean": int, "task": int, "user": float,
    "system": float,
}  # fmt: skip


class StepRecord(NamedTuple):
    """A step: its number, of which start of its job (``uid``), its program, its share of the job.

    Moments are in seconds since the epoch, ``peak`` and ``mean`` in bytes of its tasks' largest processes,
    ``user`` and ``system`` in CPU seconds. ``end`` is ``None`` until it has ended.
    """

    number: int
    uid: str
    name: str
    start: float
    tasks: int
    cpus: int
    nodes: int
    where: str
    end: float | None = None
    code: int = 0
    signal: int = 0
    peak: int = 0
    mean: int = 0
    task: int = 0
    user: float = 0.0
    system: float = 0.0


def path_of(service: Service, job: str) -> str:
    """Where the records of a job are; empty where the service's folder is not here."""
    folder = service.folder()
    number = job.partition("_")[0]
    if not folder or not number.isdecimal():
        return ""
    return f"{folder}/output/{int(number) // 1000}/{job}.steps"


def add_record(path: str, number: int, facts: Mapping[str, Any]) -> None:
    """Note a step's begin, or its end; where that cannot be kept the step goes on without."""
    line = json.dumps({"step": number, **facts}).encode() + b"\n"
    try:
        if not os.path.isdir(os.path.dirname(path)):
            os.mkdir(os.path.dirname(path), 0o700)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(fd).st_size + len(line) <= MOST_BYTES:
                os.write(fd, line)
        finally:
            os.close(fd)
    except OSError:
        return  # a full disk, or a folder of another account: the accounting is not the job's affair


def read_records(path: str) -> list[StepRecord]:
    """The steps of the job's last start, in order. Linear in the file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            lines = file.read(MOST_BYTES).splitlines()
    except OSError:
        return []
    found: dict[int, StepRecord] = {}
    for line in lines:
        try:
            facts = json.loads(line)
        except (ValueError, RecursionError):
            continue  # cut off, where srun was killed
        number = facts.get("step") if isinstance(facts, dict) else None
        if type(number) is not int:
            continue
        begun, ended = _facts(facts, _BEGUN), _facts(facts, _ENDED)
        if begun is not None:
            if found and next(iter(found.values())).uid != begun["uid"]:
                found.clear()  # the job has begun again
            found[number] = StepRecord(number, **begun)
        elif ended is not None and number in found:
            found[number] = found[number]._replace(**ended)
    return [found[number] for number in sorted(found)]


def _facts(facts: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any] | None:
    """These facts, if all are there and of their kinds."""
    found = {name: facts.get(name) for name in kinds}
    return found if all(type(found[name]) is kind for name, kind in kinds.items()) else None
