"""Reader of the AIST AI Cloud log (``aaicwl-*.csv``) and of its node list.

Mapping: id, user, group, queue = the columns of these names; submit time = ``time_submit``, counted from
the first submission of the file (lines are not sorted); true time = ``walltime`` (the seconds between
``time_start`` and ``time_end``); walltime = ``walltime_req`` where positive; request = ``nodes`` nodes with
``gpus`` GPUs each. The log tells no CPUs: a job takes the ``host_cpus`` of the node (cluster file, default
0). ``time_start`` is the recorded start; ``time_end`` and ``waittime`` follow from it; ``termcode`` is not
used: a job that failed held its GPUs as long as one that did not. App: ``aaic``.

Rejected: jobs with a negative run time, without nodes, or larger than the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dovetail.files.tables import job_id, number, parse_table, whole
from dovetail.model import Cluster, Node, Workload
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.nodes import NodeList

__all__ = ["read_aaic", "read_aaic_nodes"]

COLUMNS = ("id", "user", "group", "queue", "nodes", "gpus", "walltime_req", "time_submit", "walltime")
NODE_COLUMNS = ("node_id", "cpu_cores", "gpus", "memory_gib")
GIB = 2**30


def read_aaic(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of an AAIC log, with the mapping that the module states.

    Raises `InputError` naming file and line at the first malformed line unless ``lenient``.
    """
    builder = TraceBuilder(str(path), cluster, app="aaic")

    def parse(row: Mapping[str, str]) -> None:
        nodes, gpus = whole(row, "nodes"), whole(row, "gpus", least=0)
        submit, run = number(row, "time_submit", least=0), number(row, "walltime")
        walltime = number(row, "walltime_req")
        builder.add(
            job_id(row, "id"),
            submit,
            run,
            gpu_request(nodes, gpus),
            walltime=walltime,
            user=row["user"],
            group=row["group"],
            queue=row["queue"],
            start=number(row, "time_start") if row.get("time_start") else None,
        )

    _, skipped = parse_table(path, COLUMNS, parse, lenient=lenient)
    return builder.workload(skipped=skipped, rebase=True)


def read_aaic_nodes(path: str | Path) -> Cluster:
    """The cluster of a node list ``node_id,cpu_cores,gpus,memory_gib``. Raises `InputError`."""

    found = NodeList()

    def parse(row: Mapping[str, str]) -> Node:
        return found.node(
            row,
            "node_id",
            cpus=whole(row, "cpu_cores", least=0),
            gpus=whole(row, "gpus", least=0),
            memory=int(number(row, "memory_gib", least=0) * GIB),
        )

    nodes, _ = parse_table(path, NODE_COLUMNS, parse)
    return Cluster(tuple(nodes), str(path))
