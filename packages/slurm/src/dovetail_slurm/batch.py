"""Batch jobs of Slurm: how sbatch is asked for one, or when it would start; what squeue says of them."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log
from statistics import pstdev

from dovetail.model import HOST_CPUS, WHOLE_POOL, Cluster, Node, Request, Seconds, Shape, TimeUsed
from dovetail.model.hostlist import expand
from dovetail.records import dataclass
from dovetail_slurm.commands import (
    MEBIBYTE,
    NodeFacts,
    SlurmError,
    call,
    cpu_model,
    devices_of,
    moment,
    node_facts,
    rows,
)

_START = re.compile(r"to start at (\S+) using")
_FORMAT = "%i|%T|%N|%S|%r|%j"
ORDINARY = frozenset({"None", "Priority", "Resources", "Dependency", "BeginTime", "Cleaning", "N/A", ""})
"""Why jobs wait in a queue where all is well."""


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """What Slurm says of a batch job: its state and its nodes; ``start`` is foreseen while it waits.

    ``reason`` is why it waits, where that is out of the ordinary.
    """

    id: str
    state: str
    nodes: str
    start: Seconds | None
    name: str
    reason: str = ""


def cluster_of_partitions(partitions: Sequence[str], features: Sequence[str]) -> Cluster:
    """The nodes that take jobs, of these partitions (none named: of all). Raises `SlurmError`."""
    nodes: list[Node] = []
    for fact in node_facts():
        own = tuple(name for name in fact.partitions if not partitions or name in partitions)
        if own and fact.takes_jobs:
            cores, devices = tuple(range(fact.cpus)), devices_of(fact.gres)
            model = cpu_model(fact, features)
            nodes.append(Node(fact.name, cores, devices, fact.memory, 0, model, own))
    return Cluster(tuple(nodes), "Slurm queue")


def job_options(shape: Shape, nodes: Sequence[Node], tasks: int = 1) -> list[str]:
    """What sbatch is told of such a job, the user's own words last; ``nodes`` are its partition's."""
    request = shape.request
    options = [f"--partition={shape.target}", f"--nodes={request.nodes}", f"--ntasks-per-node={tasks}"]
    options.append(f"--cpus-per-task={max(1, _cpus(request, nodes) // tasks)}")
    devices = [(kind, ceil(count)) for kind, count in request.devices]
    if devices:
        model = f"{request.models[0]}:" if len(request.models) == 1 else ""
        options.append("--gres=" + ",".join(f"{kind}:{model}{count}" for kind, count in devices))
    if request.memory:
        options.append(f"--mem={ceil(request.memory / MEBIBYTE)}M")
    if shape.walltime is not None:
        minutes, seconds = divmod(max(1, ceil(shape.walltime)), 60)
        options.append(f"--time={minutes}:{seconds:02d}")
    return [*options, *shape.options]


def _cpus(request: Request, nodes: Sequence[Node]) -> int:
    """CPUs on each node; all of them are those of the smallest node that can run the job."""
    if request.cpus >= 0:
        return request.cpus
    able = [node for node in nodes if _holds(node, request)]
    if request.cpus == HOST_CPUS:
        return min((node.host_cpus for node in able), default=1)
    assert request.cpus == WHOLE_POOL
    return min((node.cpus for node in able), default=1)


def _holds(node: Node, request: Request) -> bool:
    held = [(device.kind, device.model) for device in node.devices]
    return all(
        sum(kind == wanted and (not request.models or model in request.models) for kind, model in held)
        >= ceil(count)
        for wanted, count in request.devices
    )


def send(
    options: Sequence[str], script: str, *, name: str, count: int, log: str, environ: Mapping[str, str]
) -> str:
    """Hand a batch job over, with ``count`` above 1 as an array; returns its id. Raises `SlurmError`."""
    array = [f"--array=0-{count - 1}"] if count > 1 else []
    argv = [
        *("sbatch", "--parsable", "--no-requeue", "--export=ALL", f"--job-name={name}"),
        *(f"--output={log}", "--open-mode=append", "--chdir=/", *array, *options),
    ]
    said, _ = call(argv, environ=environ, stdin=script)
    return said.strip().partition(";")[0]


def foreseen(options: Sequence[str]) -> Seconds:
    """When such a job would start, in seconds since the epoch. Raises `SlurmError`."""
    argv = ["sbatch", "--test-only", "--job-name=dovetail-asks", *options]
    said, told = call(argv, stdin="#!/bin/sh\ntrue\n")
    match = _START.search(told + said)
    start = None if match is None else moment(match[1])
    if start is None:
        raise SlurmError(f"sbatch --test-only: its answer is not understood: {(told + said).strip()[:200]!r}")
    return start


def look() -> dict[str, BatchStatus]:
    """All batch jobs of this user that Slurm has not forgotten, by id, each task of an array by its own.

    One squeue for all of them. Raises `SlurmError`.
    """
    ours = ("squeue", "-h", "-r", "-t", "all", "-u", getpass.getuser(), "-o", _FORMAT)
    found: dict[str, BatchStatus] = {}
    for id, state, nodes, start, reason, name in rows(ours, 6):
        why = "" if state != "PENDING" or reason in ORDINARY else reason
        found[id] = BatchStatus(id, state, nodes, moment(start), name, why)
    return found


def look_again(ids: Iterable[str], *, accounting: bool) -> dict[str, BatchStatus]:
    """What is known of jobs that squeue names no more: from the accounting, where there is one."""
    wanted = set(ids)
    if not wanted or not accounting:
        return {}
    jobs = ",".join(sorted({id.partition("_")[0] for id in wanted}))
    known = ("sacct", "-n", "-X", "-P", "-j", jobs, "-o", "JobID,State,NodeList,JobName")
    found: dict[str, BatchStatus] = {}
    for id, state, nodes, name in rows(known, 4):
        if id in wanted:
            found[id] = BatchStatus(
                id, state.split()[0], "" if nodes.startswith("None") else nodes, None, name
            )
    return found


def goes_to(shape: Shape, partitions: Iterable[str]) -> bool:
    """Whether such a job may run on a node of these partitions."""
    return not set(shape.target.split(",")).isdisjoint(partitions)


def room(shape: Shape, options: Sequence[str], nodes: Iterable[NodeFacts]) -> int:
    """How many such jobs find what they need free now on those of these ``nodes`` in their partition."""
    cpus = next((int(o.partition("=")[2]) for o in options if o.startswith("--cpus-per-task=")), 1)
    tasks = next((int(o.partition("=")[2]) for o in options if o.startswith("--ntasks-per-node=")), 1)
    usable = [node for node in nodes if node.takes_jobs and goes_to(shape, node.partitions)]
    return sum(_times(node, cpus * tasks, shape.request) for node in usable) // shape.request.nodes


def _times(node: NodeFacts, cpus: int, request: Request) -> int:
    """How often the request fits into what is free of a node."""
    fits = [(node.cpus - node.used_cpus) // cpus]
    if request.memory:
        counted = ceil(request.memory / MEBIBYTE) * MEBIBYTE
        fits.append((node.memory - node.used_memory) // counted)
    for kind, count in request.devices:
        held = sum(n for k, _, n in node.gres if k == kind)
        fits.append((held - node.used_gres.get(kind, 0)) // ceil(count))
    return max(0, min(fits))


Line = tuple[str, bool]
"""A partition, and whether jobs there hold devices."""


def times_used(days: int = 2) -> dict[Line, TimeUsed]:
    """What jobs of the last days used of their walltimes, as far as the accounting lets us see them.

    Raises `SlurmError` where there is none.
    """
    columns = "Partition,State,ElapsedRaw,TimelimitRaw,AllocTRES"
    period = ("-S", f"now-{days}days", "-E", "now")
    everybody = ("sacct", "-a", "-n", "-X", "-P", *period, "-o", columns)
    found: dict[Line, list[tuple[float, float]]] = {}
    for partition, state, elapsed, limit, given in rows(everybody, 5, timeout=20.0):
        if state in ("COMPLETED", "FAILED", "TIMEOUT") and limit.isdecimal() and int(elapsed) and int(limit):
            found.setdefault((partition, "gres/" in given), []).append((float(elapsed), 60.0 * int(limit)))
    return {
        line: TimeUsed(
            min(1.0, sum(elapsed for elapsed, _ in jobs) / sum(limit for _, limit in jobs)),
            pstdev(log(elapsed / limit) for elapsed, limit in jobs),
            len(jobs),
        )
        for line, jobs in found.items()
    }


def node_indices(cluster: Cluster, nodes: str) -> list[int]:
    """The nodes of a hostlist as we know them; those that we do not know are left out."""
    return [cluster.index_of[name] for name in (expand(nodes) if nodes else ()) if name in cluster.index_of]
