"""Trace tables (CSV) and node lists, recognised by their headers; accounting is `slurm_accounting`'s.

``*.csv`` is read as the first format whose columns its header has: AAIC, Eagle, openb pods, Philly. Each
reader's docstring states its mapping: which column becomes what of a job. Common to all: a job that failed
held what it had as long as one that did not, so states are not used; rejected are jobs of negative or
unknown length, without resources, or larger than the machine; a malformed line raises `InputError` with file
and line unless ``lenient``, which skips and counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dovetail.errors import InputError
from dovetail.files.reading import read_lines
from dovetail.files.sentences import file_name, is_name, show_value
from dovetail.files.tables import (
    EMPTY_TABLE,
    Malformed,
    job_id,
    parse_table,
    read_number,
    read_whole_number,
    wall_clock,
)
from dovetail.files.units import MOST_BYTES
from dovetail.model import Cluster, Device, Node, Request, Workload
from dovetail.spec.values import MOST_CPUS, MOST_DEVICES
from dovetail.workloads import slurm_accounting
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.resources import Fitting

AAIC = ("id", "user", "group", "queue", "nodes", "gpus", "walltime_req", "time_submit", "walltime")
EAGLE = (
    *("job_id", "user", "account", "partition", "wallclock_req", "nodes_req", "processors_req", "gpus_req"),
    *("mem_req", "submit_time", "run_time"),
)
OPENB = (
    *("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time"),
    *("deletion_time", "scheduled_time"),
)
PHILLY = ("timestamp", "duration", "num_gpus", "cluster")
AAIC_NODES = ("node_id", "cpu_cores", "gpus", "memory_gib")
OPENB_NODES = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PHILLY_MACHINES = ("machine_id", "gpus")
MIB, GIB, MILLI = 2**20, 2**30, 1000
OPENB_MEMORY: Mapping[str, int] = {
    "T4": 15_842_934_784,
    "V100M16": 16_944_988_160,
    "P100": 17_070_817_280,
    "A10": 23_835_181_056,
    "V100M32": 34_089_205_760,
    "G2": 20_000 * MIB,
    "G3": 30_000 * MIB,
}
"""Bytes of memory of a GPU of each model, as in the simulator that the trace's publishers gave out with it
(Weng et al. 2023); G2 and G3 are names that they put in the place of others."""

Row = Mapping[str, str]
Reader = Callable[..., Workload]
R = TypeVar("R")


def _read_rows(
    path: str | Path,
    cluster: Cluster | None,
    lenient: bool,
    columns: Sequence[str],
    mapping: Callable[[Row, Fitting], Mapping[str, Any]],
    *,
    app: str,
    rebase: bool = True,
) -> Workload:
    """The jobs of a table: ``mapping`` gives of each line what `TraceBuilder.add` takes."""
    builder = TraceBuilder(str(path), cluster, app=app)
    _, skipped = parse_table(
        path, columns, lambda row: builder.add(**mapping(row, builder.fitting)), lenient=lenient
    )
    return builder.build_workload(skipped=skipped, rebase=rebase)


def read_aaic(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of an AIST AI Cloud log (``aaicwl-*.csv``).

    Mapping: id, user, group, queue = the columns of these names; submit time = ``time_submit``, counted from
    the first submission of the file (lines are not sorted); true time = ``walltime`` (the seconds between
    ``time_start`` and ``time_end``); walltime = ``walltime_req`` where positive; request = ``nodes`` nodes
    with ``gpus`` GPUs each. The log has no CPUs, and neither it nor its node list has the memory of GPUs: a
    job takes the ``host_cpus`` of the node (cluster file, default 0), and whole GPUs. ``time_start`` is the
    recorded start. App: ``aaic``.
    """

    def read_job(row: Row, _: Fitting) -> Mapping[str, Any]:
        return {
            "request": gpu_request(read_whole_number(row, "nodes"), read_whole_number(row, "gpus", least=0)),
            "submit": read_number(row, "time_submit", least=0),
            "run_time": read_number(row, "walltime"),
            "walltime": read_number(row, "walltime_req"),
            "id": job_id(row, "id"),
            **{name: row[name] for name in ("user", "group", "queue")},
            "start": read_number(row, "time_start") if row.get("time_start") else None,
        }

    return _read_rows(path, cluster, lenient, AAIC, read_job, app="aaic")


def read_eagle(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of the NREL Eagle job table (``eagle_jobs*.csv``), in the manner of Slurm's accounting.

    Mapping: id = ``job_id``; submit time = ``submit_time`` (local wall clock), counted from the first
    submission of the file; true time = ``run_time``; walltime = ``wallclock_req`` (seconds) where positive;
    user, group, queue = ``user``, ``account``, ``partition``. The request is ``nodes_req`` nodes, each with
    an even share, rounded up, of ``processors_req`` CPUs, ``gpus_req`` GPUs and ``mem_req`` MiB (0: not
    counted). ``start_time`` is the recorded start. App: ``eagle``.
    """

    def read_job(row: Row, _: Fitting) -> Mapping[str, Any]:
        nodes = read_whole_number(row, "nodes_req", least=0)
        # An even share of what the whole job held; nodes of these logs are not listed one by one.
        share = max(1, nodes)
        return {
            "request": gpu_request(
                nodes,
                -(-read_whole_number(row, "gpus_req", least=0) // share),
                cpus=-(-read_whole_number(row, "processors_req", least=0) // share),
                memory=math.ceil(read_number(row, "mem_req", least=0) * MIB / share),
            ),
            "submit": wall_clock(row, "submit_time"),
            "run_time": read_number(row, "run_time"),
            "walltime": read_number(row, "wallclock_req"),
            "id": job_id(row, "job_id"),
            "user": row["user"],
            "group": row["account"],
            "queue": row["partition"],
            "start": wall_clock(row, "start_time") if row.get("start_time") else None,
        }

    return _read_rows(path, cluster, lenient, EAGLE, read_job, app="eagle")


def read_openb(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Pods of Alibaba's GPU-sharing trace of 2023 (``openb_pod_list_*``).

    Mapping: id = ``name``; submit time = ``creation_time``, counted from the file's own zero; true time =
    ``deletion_time`` less ``scheduled_time``, or less ``creation_time`` for a pod that was never scheduled
    (how long its owner wanted it), unknown without a ``deletion_time``; recorded start = ``scheduled_time``;
    no walltime and no user; queue = ``qos``. The request is one node with ``cpu_milli`` / 1000 CPUs, rounded
    up to whole CPUs; ``memory_mib`` MiB; ``num_gpu`` GPUs, or for one GPU the share ``gpu_milli`` / 1000 of
    it, and of its memory; the GPU models that ``gpu_spec`` allows (``V100M16|V100M32``; empty: any). Where no
    device of the cluster names its model, as in the short form ``4x96cpu+8gpu``, any will do. App: ``openb``.
    """

    def read_job(row: Row, fitting: Fitting) -> Mapping[str, Any]:
        request = _pod_request(row, fitting)
        created = read_number(row, "creation_time", least=0)
        begun = read_number(row, "scheduled_time", least=0) if row["scheduled_time"] else None
        # A pod that was never scheduled: how long its owner wanted it, from its creation.
        since = created if begun is None else begun
        return {
            "request": request,
            "submit": created,
            "run_time": read_number(row, "deletion_time", least=0) - since if row["deletion_time"] else None,
            "id": job_id(row, "name"),
            "queue": row.get("qos"),
            "start": begun,
        }

    return _read_rows(path, cluster, lenient, OPENB, read_job, app="openb", rebase=False)


def _pod_request(row: Row, fitting: Fitting) -> Request:
    gpus: float = read_whole_number(row, "num_gpu", least=0)
    share = read_whole_number(row, "gpu_milli", least=0)
    if gpus == 1:
        if not 0 < share <= MILLI:
            raise Malformed("gpu_milli", row["gpu_milli"], f"1 to {MILLI}, the share of one GPU")
        gpus = share / MILLI
    return gpu_request(
        1,
        gpus,
        cpus=math.ceil(read_number(row, "cpu_milli", least=0) / MILLI),
        memory=math.ceil(read_number(row, "memory_mib", least=0) * MIB),
        models=fitting.known_models(tuple(sorted({model for model in row["gpu_spec"].split("|") if model}))),
    )


def philly_request(gpus: int, gpus_per_node: int = 8) -> Request:
    """GPUs on one node, or spread evenly over as few nodes as hold them."""
    # As few nodes as hold them, evenly, since the trace has no placement.
    nodes = max(1, -(-gpus // gpus_per_node))
    return gpu_request(nodes, -(-gpus // nodes))


def read_philly(
    path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False, gpus_per_node: int = 8
) -> Workload:
    """Jobs of a job-level table of Microsoft's Philly trace (``timestamp,duration,num_gpus,…,cluster``).

    Mapping: id = ``job-1``, ``job-2`` … in file order (the table has none); submit time = ``timestamp``
    (local wall clock), counted from the first submission of the file; true time = ``duration``; queue =
    ``cluster``, the virtual cluster; no walltime and no user. The request is ``num_gpus`` GPUs: up to
    ``gpus_per_node`` of them on one node, more spread evenly over as few nodes as hold them, so 12 GPUs are 2
    nodes with 6 and 9 GPUs are 2 nodes with 5. CPUs are the node's ``host_cpus`` (cluster file, default 0).
    App: ``philly``.
    """
    if gpus_per_node < 1:
        raise InputError(f"found {gpus_per_node}, expected at least 1", where="gpus_per_node")
    count = 0

    def read_job(row: Row, _: Fitting) -> Mapping[str, Any]:
        nonlocal count
        found = {"submit": wall_clock(row, "timestamp"), "run_time": read_number(row, "duration")}
        request = philly_request(read_whole_number(row, "num_gpus", least=0), gpus_per_node)
        count += 1
        return {**found, "id": f"job-{count}", "request": request, "queue": row["cluster"]}

    return _read_rows(path, cluster, lenient, PHILLY, read_job, app="philly")


# -- node lists ----------------------------------------------------------------------------------------


def read_aaic_nodes(path: str | Path) -> Cluster:
    """The cluster of a node list ``node_id,cpu_cores,gpus,memory_gib``. Raises `InputError`."""
    return _read_nodes(
        path,
        AAIC_NODES,
        lambda row: {
            "cpus": read_whole_number(row, "cpu_cores", least=0),
            "gpus": read_whole_number(row, "gpus", least=0),
            "memory": int(read_number(row, "memory_gib", least=0) * GIB),
        },
    )


def read_openb_nodes(path: str | Path) -> Cluster:
    """The cluster of a node list ``sn,cpu_milli,memory_mib,gpu,model``; CPUs are rounded down.

    GPUs have the memory of their model (`OPENB_MEMORY`); of another model it is not limited. Raises
    `InputError`.
    """

    def read_node(row: Row) -> Mapping[str, Any]:
        count, model = read_whole_number(row, "gpu", least=0), row["model"]
        if count and not is_name(model):
            raise Malformed("model", model, "the model of the node's GPUs")
        # Thousandths of a CPU: a node gives whole CPUs only.
        cpus, memory = (read_number(row, field, least=0) for field in ("cpu_milli", "memory_mib"))
        return {
            "cpus": int(cpus) // MILLI,
            "gpus": count,
            "model": model,
            "memory": int(memory * MIB),
            "gpu_memory": OPENB_MEMORY.get(model) if count else None,
        }

    return _read_nodes(path, OPENB_NODES, read_node)


def read_philly_machines(path: str | Path, *, cpus: int = 1) -> Cluster:
    """The cluster of a list ``machine_id,gpus``, each machine with ``cpus`` CPUs (the file has none).

    Raises `InputError`.
    """
    return _read_nodes(
        path, PHILLY_MACHINES, lambda row: {"cpus": cpus, "gpus": read_whole_number(row, "gpus", least=0)}
    )


def _read_nodes(
    path: str | Path, columns: Sequence[str], mapping: Callable[[Row], Mapping[str, Any]]
) -> Cluster:
    """The nodes of a list, named in its first column; what a cluster file cannot express is malformed."""
    names: set[str] = set()

    def make_node(row: Row) -> Node:
        return _check_node(names, columns[0], row[columns[0]], **mapping(row))

    nodes, _ = parse_table(path, columns, make_node)
    return Cluster(tuple(nodes), str(path))


def _check_node(
    names: set[str],
    field: str,
    name: str,
    cpus: int,
    gpus: int,
    model: str = "",
    memory: int | None = None,
    gpu_memory: int | None = None,
) -> Node:
    if not is_name(name) or set(name) & set("[],"):
        raise Malformed(field, name, "the name of a node")
    if name in names:
        raise Malformed(field, name, "each node once")
    if not cpus and not gpus:
        raise Malformed(field, name, "a node with a CPU or a device")
    bounds = ((cpus, MOST_CPUS, "CPUs"), (gpus, MOST_DEVICES, "devices"))
    for found, most, what in (*bounds, (memory or 0, MOST_BYTES, "bytes of memory")):
        if found > most:
            raise Malformed(f"{name}: {what}", found, f"at most {most:g}")
    names.add(name)
    devices = tuple(Device("gpu", model, i, memory=gpu_memory) for i in range(gpus))
    return Node(name, tuple(range(cpus)), devices, memory)


# -- which format --------------------------------------------------------------------------------------

TABLES: Mapping[str, tuple[Sequence[str], Reader]] = {
    "aaic": (AAIC, read_aaic),
    "eagle": (EAGLE, read_eagle),
    "openb": (OPENB, read_openb),
    "philly": (PHILLY, read_philly),
}
NODE_LISTS: Mapping[str, tuple[Sequence[str], Callable[[str | Path], Cluster]]] = {
    "aaic": (AAIC_NODES, read_aaic_nodes),
    "openb": (OPENB_NODES, read_openb_nodes),
    "philly": (PHILLY_MACHINES, read_philly_machines),
}


def read_table(path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False) -> Workload:
    """Jobs of a table, in the format that its header names. Raises `InputError`."""
    header = _read_header(path)
    if header[:1] in ("{", "["):
        return slurm_accounting.read_sacct_json(path, cluster, lenient=lenient)
    if "|" in header:
        return slurm_accounting.read_sacct_parsable(path, cluster, lenient=lenient)
    reader = _find_reader(path, header, TABLES, f"those of {', '.join(TABLES)}, or sacct's")
    return reader(path, cluster, lenient=lenient)


def read_node_list(path: str | Path) -> Cluster:
    """The cluster of a node list, in the format that its header names. Raises `InputError`."""
    return _find_reader(path, _read_header(path), NODE_LISTS, f"a node list of {', '.join(NODE_LISTS)}")(path)


def _find_reader(
    path: str | Path,
    header: str,
    known: Mapping[str, tuple[Sequence[str], R]],
    expected: str,
) -> R:
    """The reader whose columns a header has; else the columns that it lacks of the format it nearly is."""
    # Columns in any order, and more than are needed, as exports differ.
    columns = frozenset(cell.strip().strip('"') for cell in header.split(","))
    for required, reader in known.values():
        if columns.issuperset(required):
            return reader
    where = file_name(path)
    if not header:
        raise InputError(EMPTY_TABLE, where=where)
    # The format that it nearly is makes the better message.
    near = max(known, key=lambda name: len(columns.intersection(known[name][0])) / len(known[name][0]))
    required = known[near][0]
    missing = [name for name in required if name not in columns]
    if 2 * len(missing) <= len(required):
        expected = f"also {', '.join(missing)}, as in those of {near}"
    raise InputError(
        f"found the columns {show_value(header, limit=80)}, expected {expected}", where=f"{where}: line 1"
    )


def _read_header(path: str | Path) -> str:
    return next((line.strip() for line in read_lines(path, "a table") if line.strip()), "")
