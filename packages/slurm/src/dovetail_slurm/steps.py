"""Gangs as steps of an allocation: how ``srun`` is asked for one, and how one is found again and ended."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.executors.environment import THREAD_COUNTS, numbers_by_variable, tasks_of
from dovetail.model import Cluster, Placed
from dovetail_slurm.commands import Gres, Share, call, rows

GANG_TASK = Path(__file__).with_name("gang_task.py")


def gang_step(
    placed: Placed,
    cluster: Cluster,
    shares: Mapping[str, Share],
    job: str,
    name: str,
    options: Sequence[str],
    words: Sequence[str],
) -> list[str]:
    """A step on exactly the gang's nodes; each task takes its own cores and devices there.

    The step is given all that was allotted of its nodes, beside what else runs there: which of it the gang
    is to use is Dovetail's to say, not Slurm's (`dovetail_slurm.gang_task`).
    """
    nodes, tasks = placed.allocation.node_names(cluster), tasks_of(placed)
    return [
        *("srun", "--exact", "--overlap", f"--jobid={job}", f"--job-name={name}"),
        *(f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes) * tasks}"),
        f"--ntasks-per-node={tasks}",
        f"--cpus-per-task={max(1, min(shares[node].cpus for node in nodes) // tasks)}",
        *gres_option({shares[node].gres for node in nodes}),
        *("--mem=0", "--kill-on-bad-exit=1", "--distribution=block", "--quiet", *options),
        *(sys.executable, "-I", "-S", str(GANG_TASK)),
        *words,
    ]


def gang_environment(placed: Placed, cluster: Cluster, shares: Mapping[str, Share]) -> dict[str, str]:
    """For each node of a gang what its tasks have to know."""
    command, allocation, tasks = placed.implementation.command, placed.allocation, tasks_of(placed)
    own = {} if command is None else dict(command.env)
    told: dict[str, Any] = {}
    for n in allocation.nodes:
        node, part = cluster.nodes[n], allocation.part_on(n)
        assert part is not None
        cores = sorted(allocation.cores_on(n, node))
        threads = str(max(1, len(cores) // tasks))
        told[node.name] = {
            "cores": cores,
            "cpus": shares[node.name].cpus,
            "tasks": tasks,
            "env": {
                **{name: own.get(name, threads) for name in THREAD_COUNTS},
                "DOVETAIL_CORES": ",".join(map(str, cores)),
            },
            "pick": numbers_by_variable(node, part.devices),
        }
    return {"DOVETAIL_GANG": json.dumps(told, separators=(",", ":"))}


def gres_option(gres: set[tuple[Gres, ...]]) -> list[str]:
    """All devices that were allotted on each node, for a step; where nodes differ, Slurm's default."""
    if len(gres) != 1:
        return []
    (same,) = gres
    shares = [f"{kind}:{model}:{n}" if model else f"{kind}:{n}" for kind, model, n in same]
    return [f"--gres={','.join(shares)}"] if shares else []


def unbound(settings: Mapping[str, str]) -> list[str]:
    """Leave the binding to cores to us; a cluster that cannot bind complains of the option."""
    plugins = settings.get("TaskPlugin", "")
    return ["--cpu-bind=none"] if "affinity" in plugins or "cgroup" in plugins else []


def step_name(uid: str) -> str:
    """The name of a gang's step: the same for one attempt of a job, and no other's."""
    return f"dovetail-{hashlib.blake2b(uid.encode(), digest_size=8).hexdigest()}"


def end_steps(job: str, names: Sequence[str]) -> None:
    """Kill the steps of these names. Raises `SlurmError`."""
    found = rows(["squeue", "--steps", "-h", "-j", job, "-o", "%i|%j"], 2)
    steps = [step for step, name in found if name in names]
    if steps:
        call(["scancel", "--signal=KILL", *steps])
