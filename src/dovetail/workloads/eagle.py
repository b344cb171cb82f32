"""Reader of the NREL Eagle job table (``eagle_jobs*.csv``), a table in the manner of Slurm's accounting.

Mapping: id = ``job_id``; submit time = ``submit_time`` (local wall clock), counted from the first
submission of the file; true time = ``run_time``; walltime = ``wallclock_req`` (seconds) where positive;
user, group, queue = ``user``, ``account``, ``partition``. The request is ``nodes_req`` nodes, each with an
even share, rounded up, of ``processors_req`` CPUs, ``gpus_req`` GPUs and ``mem_req`` MiB (0: not counted).
``start_time`` is the recorded start; ``end_time``, ``state`` and the names are not used. App: ``eagle``.

Rejected: jobs of negative length, without nodes, or larger than the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from dovetail.files.tables import job_id, number, parse_table, whole
from dovetail.model import Cluster, Workload
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.timestamps import wall_clock

__all__ = ["read_eagle"]

COLUMNS = (
    "job_id",
    "user",
    "account",
    "partition",
    "wallclock_req",
    "nodes_req",
    "processors_req",
    "gpus_req",
    "mem_req",
    "submit_time",
    "run_time",
)
MIB = 2**20


def read_eagle(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of an Eagle table, with the mapping that the module states.

    Raises `InputError` naming file and line at the first malformed line unless ``lenient``.
    """
    builder = TraceBuilder(str(path), cluster, app="eagle")

    def parse(row: Mapping[str, str]) -> None:
        nodes = whole(row, "nodes_req", least=0)
        share = max(1, nodes)
        request = gpu_request(
            nodes,
            -(-whole(row, "gpus_req", least=0) // share),
            cpus=-(-whole(row, "processors_req", least=0) // share),
            memory=math.ceil(number(row, "mem_req", least=0) * MIB / share),
        )
        submit, run = wall_clock(row, "submit_time"), number(row, "run_time")
        walltime = number(row, "wallclock_req")
        builder.add(
            job_id(row, "job_id"),
            submit,
            run,
            request,
            walltime=walltime,
            user=row["user"],
            group=row["account"],
            queue=row["partition"],
            start=wall_clock(row, "start_time") if row.get("start_time") else None,
        )

    _, skipped = parse_table(path, COLUMNS, parse, lenient=lenient)
    return builder.workload(skipped=skipped, rebase=True)
