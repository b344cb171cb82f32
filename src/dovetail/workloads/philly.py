"""Reader of a job-level table of Microsoft's Philly trace (``timestamp,duration,num_gpus,…,cluster``).

Mapping: id = ``job-1``, ``job-2`` … in file order (the table has none); submit time = ``timestamp`` (local
wall clock), counted from the first submission of the file; true time = ``duration``; queue = ``cluster``,
the virtual cluster; no walltime and no user. The request is ``num_gpus`` GPUs: up to ``gpus_per_node`` of
them (default 8) on one node, more spread evenly over as few nodes as hold them, each node giving the same,
so 12 GPUs are 2 nodes with 6 and 9 GPUs are 2 nodes with 5. CPUs are the node's ``host_cpus`` (cluster
file, default 0). ``gpu_time`` is not used. App: ``philly``.

Rejected: jobs with a negative duration, without GPUs, or larger than the machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dovetail.errors import InputError
from dovetail.files.tables import number, parse_table, whole
from dovetail.model import Cluster, Node, Request, Workload
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.nodes import NodeList
from dovetail.workloads.timestamps import wall_clock

__all__ = ["philly_request", "read_philly", "read_philly_machines"]

COLUMNS = ("timestamp", "duration", "num_gpus", "cluster")


def philly_request(gpus: int, gpus_per_node: int = 8) -> Request:
    """GPUs on one node, or spread evenly over as few nodes as hold them."""
    nodes = max(1, -(-gpus // gpus_per_node))
    return gpu_request(nodes, -(-gpus // nodes))


def read_philly(
    path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False, gpus_per_node: int = 8
) -> Workload:
    """Jobs of a Philly table, with the mapping that the module states.

    Raises `InputError` naming file and line at the first malformed line unless ``lenient``.
    """
    if gpus_per_node < 1:
        raise InputError(f"found {gpus_per_node}, expected at least 1", where="gpus_per_node")
    builder = TraceBuilder(str(path), cluster, app="philly")
    count = 0

    def parse(row: Mapping[str, str]) -> None:
        nonlocal count
        submit, run = wall_clock(row, "timestamp"), number(row, "duration")
        request = philly_request(whole(row, "num_gpus", least=0), gpus_per_node)
        count += 1
        builder.add(f"job-{count}", submit, run, request, queue=row["cluster"])

    _, skipped = parse_table(path, COLUMNS, parse, lenient=lenient)
    return builder.workload(skipped=skipped, rebase=True)


def read_philly_machines(path: str | Path, *, cpus: int = 1) -> Cluster:
    """The cluster of a list ``machine_id,gpus``, each machine with ``cpus`` CPUs (the file tells none).

    Raises `InputError`.
    """

    found = NodeList()

    def parse(row: Mapping[str, str]) -> Node:
        return found.node(row, "machine_id", cpus=cpus, gpus=whole(row, "gpus", least=0))

    nodes, _ = parse_table(path, ("machine_id", "gpus"), parse)
    return Cluster(tuple(nodes), str(path))
