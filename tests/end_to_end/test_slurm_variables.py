"""What a job finds in its environment: of a real sbatch, and of Dovetail, for the same script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from dovetail_command import run_command
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

BODY = (
    "import json, os\n"
    "names = {n: v for n, v in os.environ.items() if n.startswith(('SLURM', 'SBATCH', 'CUDA_VIS'))}\n"
    "path = os.environ['FOUND'] + os.environ.get('SLURM_ARRAY_TASK_ID', '')\n"
    "open(path + '.new', 'w').write(json.dumps(names))\n"
    "os.rename(path + '.new', path)\n"
)
REQUESTS = (
    "",
    "-n 2",
    "-c 2",
    "-n 1 -c 2 --mem=100",
    "-N 1 --ntasks-per-node=2 --mem-per-cpu=50",
    "-N 1 --gres=gpu:2",
    "-N 1 -G 1 -J name",
    "-N 1 --gpus-per-node=1 -n 1 --comment=x --wckey=w",
    "-a 1-3:2",
    "--open-mode=append --nice=5 -t 5",
    "-n 2 -O",
    "-n 1 --hint=nomultithread -m block",
)
OWN = {
    "SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
    "SLURMD_NODENAME", "SLURM_CLUSTER_NAME", "SLURM_JOB_PARTITION", "SLURM_SUBMIT_HOST", "SLURM_TASK_PID",
    "SLURM_JOB_GPUS", "CUDA_VISIBLE_DEVICES",
}  # fmt: skip
"""Their values are each system's own."""
THEIRS = {
    "SLURM_MEM_PER_CPU": "the site's default (DefMemPerCPU); memory that is not given is not counted here",
    "SLURM_CONF": "where Slurm's configuration is",
    "SLURM_TASK_PID": "$$ in the script is the same",
    "SLURM_TOPOLOGY_ADDR": "nodes have no topology",
    "SLURM_TOPOLOGY_ADDR_PATTERN": "nodes have no topology",
    "SLURM_NODE_ALIASES": "nodes have one name",
    "SLURM_WORKING_CLUSTER": "there is one cluster",
    "SLURMD_DEBUG": "the log of slurmd",
    "SLURM_SCRIPT_CONTEXT": "of prologs",
}
"""Variables that only sbatch sets, and why."""
OURS = {
    "SLURM_CPUS_PER_TASK": "for scripts that read it without --cpus-per-task",
    "SLURM_JOB_START_TIME": "as in later versions",
    "SLURM_JOB_END_TIME": "as in later versions",
    "SLURM_NTASKS": "for scripts that read it without --ntasks",
    "SLURM_NPROCS": "as SLURM_NTASKS",
    "SLURM_JOB_NAME": "there always",
    "CUDA_VISIBLE_DEVICES": "empty for jobs without GPUs, which are to see none",
    "SLURM_WCKEY": "kept also where a cluster does not track it",
}
"""Variables that Dovetail sets where sbatch does not, and why."""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(1, cpus=4, gpus=2),)) as cluster:
        yield cluster


def read(path: Path) -> Mapping[str, str]:
    until(path.exists, f"{path.name} does not come")
    found: Mapping[str, str] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("options", REQUESTS)
def test_the_variables_are_those_of_sbatch_but_for_the_exceptions(
    slurm: SlurmCluster, tmp_path: Path, environment: dict[str, str], options: str
) -> None:
    (tmp_path / "job.sh").write_text(f"#!/usr/bin/env python3\n#SBATCH {options}\n{BODY}")
    (tmp_path / "cluster.toml").write_text(
        '[[node]]\nname = "n0"\ncores = [0, 1]\ndevices = [{ kind = "gpu", count = 2 }]\n'
    )
    index = "3" if "-a" in options else ""
    slurm.call("env", f"FOUND={tmp_path}/theirs", "sbatch", "-o/dev/null", "job.sh", cwd=tmp_path)
    here = {**environment, "FOUND": str(tmp_path / "ours")}
    done = run_command(["run", "--cluster", "cluster.toml", "job.sh"], tmp_path, here)
    assert done.returncode == 0, done.stderr
    ours, theirs = read(tmp_path / f"ours{index}"), read(tmp_path / f"theirs{index}")
    assert {name for name in theirs.keys() - ours.keys() if name not in THEIRS} == set()
    assert {name for name in ours.keys() - theirs.keys() if name not in OURS} == set()
    both = {name for name in ours.keys() & theirs.keys() if name not in OWN}
    different = {name: (ours[name], theirs[name]) for name in both if ours[name] != theirs[name]}
    assert different == {}
    assert len(both) >= 15
