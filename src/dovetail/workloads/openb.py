"""Reader of Alibaba's GPU-sharing trace of 2023: pods (``openb_pod_list_*``) and nodes.

Mapping: id = ``name``; submit time = ``creation_time``, counted from the file's own zero; true time =
``deletion_time`` less ``scheduled_time``, or less ``creation_time`` for a pod that was never scheduled
(how long its owner wanted it); recorded start = ``scheduled_time``; no walltime and no user; queue =
``qos``. The request is one node with

- ``cpu_milli`` / 1000 CPUs, rounded up to whole CPUs;
- ``memory_mib`` MiB of memory;
- ``num_gpu`` GPUs, or for one GPU the share ``gpu_milli`` / 1000 of it;
- the GPU models that ``gpu_spec`` allows (``V100M16|V100M32``; empty: any). Where no device of the cluster
  names its model, as in the short form ``4x96cpu+8gpu``, models cannot be told apart: any will do.

``pod_phase`` is not used. App: ``openb``. Rejected: pods of negative or unknown length (no
``deletion_time``), without CPU and GPU, or larger than every node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from dovetail.files.sentences import is_name
from dovetail.files.tables import Malformed, job_id, number, parse_table, whole
from dovetail.model import Cluster, Node, Request, Workload
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.fitting import Fitting
from dovetail.workloads.nodes import NodeList

__all__ = ["read_openb", "read_openb_nodes"]

COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
MIB = 2**20
MILLI = 1000


def read_openb(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Pods of an openb list, with the mapping that the module states.

    Raises `InputError` naming file and line at the first malformed line unless ``lenient``.
    """
    builder = TraceBuilder(str(path), cluster, app="openb")

    def parse(row: Mapping[str, str]) -> None:
        request = _request(row, builder.fitting)
        created = number(row, "creation_time", least=0)
        begun = number(row, "scheduled_time", least=0) if row["scheduled_time"] else created
        run = number(row, "deletion_time", least=0) - begun if row["deletion_time"] else None
        start = begun if row["scheduled_time"] else None
        builder.add(job_id(row, "name"), created, run, request, queue=row.get("qos"), start=start)

    _, skipped = parse_table(path, COLUMNS, parse, lenient=lenient)
    return builder.workload(skipped=skipped)


def _request(row: Mapping[str, str], fitting: Fitting) -> Request:
    gpus: float = whole(row, "num_gpu", least=0)
    share = whole(row, "gpu_milli", least=0)
    if gpus == 1:
        if not 0 < share <= MILLI:
            raise Malformed("gpu_milli", row["gpu_milli"], f"1 to {MILLI}, the share of one GPU")
        gpus = share / MILLI
    models = tuple(sorted({model for model in row["gpu_spec"].split("|") if model}))
    return gpu_request(
        1,
        gpus,
        cpus=math.ceil(number(row, "cpu_milli", least=0) / MILLI),
        memory=math.ceil(number(row, "memory_mib", least=0) * MIB),
        models=fitting.models(models),
    )


def read_openb_nodes(path: str | Path) -> Cluster:
    """The cluster of a node list ``sn,cpu_milli,memory_mib,gpu,model``; CPUs are rounded down.

    Raises `InputError`.
    """

    found = NodeList()

    def parse(row: Mapping[str, str]) -> Node:
        count, model = whole(row, "gpu", least=0), row["model"]
        if count and not is_name(model):
            raise Malformed("model", model, "the model of the node's GPUs")
        return found.node(
            row,
            "sn",
            cpus=int(number(row, "cpu_milli", least=0)) // MILLI,
            gpus=count,
            model=model,
            memory=int(number(row, "memory_mib", least=0) * MIB),
        )

    nodes, _ = parse_table(path, NODE_COLUMNS, parse)
    return Cluster(tuple(nodes), str(path))
