"""Gangs as steps of an allocation: how ``srun`` starts one, and how one is found again and ended."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from dovetail.model import Cluster, Placed
from dovetail.model.hostlist import compress_names
from dovetail.process.environment import THREAD_COUNTS, numbers_by_variable, tasks_of
from dovetail.process.notes import refuse_errors
from dovetail_slurm.batch import STEERING
from dovetail_slurm.commands import Gres, Share, read_rows, run_command

GANG_TASK = Path(__file__).with_name("gang_task.py")
INNER_SRUN = Path(__file__).with_name("inner_srun.py")


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
    is to use is for Dovetail to decide, not for Slurm (`dovetail_slurm.gang_task`).
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
    gang: dict[str, Any] = {}
    for n in allocation.nodes:
        node, part = cluster.nodes[n], allocation.part_on(n)
        assert part is not None
        # Sorted, since places in this list are what a step's tasks hold, on every node the same way.
        cores = sorted(allocation.cores_on(n, node))
        threads = str(max(1, len(cores) // tasks))
        gang[node.name] = {
            "cores": cores,
            "cpus": shares[node.name].cpus,
            "tasks": tasks,
            "env": {
                **{name: own.get(name, threads) for name in THREAD_COUNTS},
                "DOVETAIL_CORES": ",".join(map(str, cores)),
            },
            "pick": numbers_by_variable(node, part.devices),
        }
    return {"DOVETAIL_GANG": json.dumps(gang, separators=(",", ":"))}


def slurm_environment(
    placed: Placed, cluster: Cluster, shares: Mapping[str, Share], job: str, ours: Mapping[str, str]
) -> dict[str, str]:
    """The ``SLURM_*`` variables of a job in allocation ``job``: what Dovetail gave it (sbatch(1), srun(1)).

    Slurm's own number stays, since all of its commands go by it. ``ours`` is Dovetail's environment.
    """
    allocation, tasks = placed.allocation, tasks_of(placed)
    names = allocation.node_names(cluster)
    cores = [len(allocation.cores_on(n, cluster.nodes[n])) or 1 for n in allocation.nodes]
    first = allocation.part_on(allocation.first_node)
    devices = () if first is None else first.devices
    numbers = numbers_by_variable(cluster.nodes[allocation.first_node], devices).values()
    # Of Dovetail's own environment only these: its other SLURM_* variables describe what Dovetail holds, not
    # what the job has.
    kept = (*STEERING, "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION")
    nodes, count = compress_names(names), str(len(names))
    found = {
        **{name: ours[name] for name in kept if name in ours},
        "SLURM_JOB_ID": job,
        "SLURM_JOBID": job,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
        "SLURM_NTASKS": str(len(names) * tasks),
        "SLURM_NPROCS": str(len(names) * tasks),
        "SLURM_TASKS_PER_NODE": _counts_by_node([tasks] * len(names)),
        "SLURM_CPUS_PER_TASK": str(max(1, min(cores) // tasks)),
        "SLURM_CPUS_ON_NODE": str(cores[0]),
        "SLURM_JOB_CPUS_PER_NODE": _counts_by_node(cores),
    }
    if allocation.request.memory:
        found["SLURM_MEM_PER_NODE"] = str(max(1, allocation.request.memory >> 20))
    if devices:
        found["SLURM_GPUS_ON_NODE"] = str(len(devices))
        found["SLURM_JOB_GPUS"] = ",".join(str(number) for held in numbers for number in held)
    return found


DESCRIBED = frozenset(
    {
        *("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NUM_NODES"),
        *("SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE", "SLURM_CPUS_PER_TASK"),
        *("SLURM_CPUS_ON_NODE", "SLURM_JOB_CPUS_PER_NODE", "SLURM_MEM_PER_NODE", "SLURM_GPUS_ON_NODE"),
        *("SLURM_JOB_GPUS", "SLURM_JOB_PARTITION", "SLURM_GPUS", "SLURM_NTASKS_PER_NODE"),
    }
)
"""Variables of a job in an allocation that only `slurm_environment` may set."""


def _counts_by_node(numbers: Sequence[int]) -> str:
    """``2(x3),1``: a number for each node, as Slurm writes them."""
    runs = [(number, len(list(same))) for number, same in groupby(numbers)]
    return ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in runs)


def install_srun(folder: Path) -> Path:
    """Write what comes first in the PATH of jobs: ``srun``, and the prolog of its tasks; returns the folder.

    Raises `ExecutorError`.
    """
    path = folder / "bin"
    with refuse_errors(path):
        path.mkdir(mode=0o700, exist_ok=True)
        (folder / "steps").mkdir(mode=0o700, exist_ok=True)
        for name in ("srun", "task"):
            words = shlex.join([sys.executable, "-I", "-S", str(INNER_SRUN), name])
            steps = shlex.quote(str(folder / "steps"))
            text = "#!/bin/sh\n"
            text += f'DOVETAIL_SRUN="$0"; DOVETAIL_STEPS={steps}; export DOVETAIL_SRUN DOVETAIL_STEPS\n'
            written = path / f".{name}"
            written.write_text(f'{text}exec {words} "$@"\n')
            written.chmod(0o700)
            written.replace(path / name)
    return path


def gres_option(gres: set[tuple[Gres, ...]]) -> list[str]:
    """All devices that were allotted on each node, for a step; where nodes differ, Slurm's default."""
    if len(gres) != 1:
        return []
    (same,) = gres
    shares = [f"{kind}:{model}:{n}" if model else f"{kind}:{n}" for kind, model, n in same]
    return [f"--gres={','.join(shares)}"] if shares else []


def unbind_settings(settings: Mapping[str, str]) -> list[str]:
    """Leave the binding to cores to us; a cluster that cannot bind complains of the option."""
    plugins = settings.get("TaskPlugin", "")
    return ["--cpu-bind=none"] if "affinity" in plugins or "cgroup" in plugins else []


def step_name(uid: str) -> str:
    """The name of a gang's step: the same for one attempt of a job, and no other's."""
    return f"dovetail-{hashlib.blake2b(uid.encode(), digest_size=8).hexdigest()}"


def end_steps(job: str, names: Sequence[str]) -> None:
    """Kill the steps of these names. Raises `SlurmError`."""
    found = read_rows(["squeue", "--steps", "-h", "-j", job, "-o", "%i|%j"], 2)
    steps = [step for step, name in found if name in names]
    if steps:
        run_command(["scancel", "--signal=KILL", *steps])
