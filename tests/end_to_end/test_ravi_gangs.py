"""The three multi-node apps of Ravi 2012 as MPI gangs on a real Slurm: on CPUs, devices, both at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dovetail_command import run_command
from mpich import EXECUTOR, mpi_environment
from opencl_kernels import need_opencl
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm

from dovetail.testing.builders import full
from dovetail_lab.apps.registry import RAVI, run_app

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

SIZES = {"gridding": 2000, "em": 2000, "pagerank": 2000}
DEVICES = {"cpu": "cpu", "gpu": "opencl", "cpu+gpu": "cpu+opencl"}
"""What runs on a node's device: PoCL, since the nodes' GPUs are only counted."""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(4, cpus=1, gpus=1),)) as cluster:
        yield cluster


def job_file() -> str:
    text = ""
    for name, n in SIZES.items():
        text += f'[[app]]\nname = "{name}"\n'
        for kind, device in DEVICES.items():
            words = [sys.executable, "-m", "dovetail.apps", name, "--device", device]
            words += ["--n", str(n), "--iterations", "3"]
            text += f'[[app.implementation]]\nname = "{kind}"\ntimes = {{ 1 = 1.0, 2 = 1.0, 4 = 1.0 }}\n'
            text += f"command = {json.dumps(words)}\n"
        # Four nodes where each node's part is divided again; cores or devices alone only once by default.
        alone = [("cpu", 2), ("gpu", 2)] if full(1, 0) or name == "pagerank" else []
        for kind, nodes in (*alone, ("cpu+gpu", 4)):
            text += f'[[job]]\nid = "{name}-{nodes}-{kind.replace("+", "-")}"\napp = "{name}"\n'
            text += f'nodes = {nodes}\nimplementation = "{kind}"\n'
    return text


def test_gangs_on_cpus_on_devices_and_on_both_make_one_result(
    tmp_path: Path, slurm: SlurmCluster, environment: dict[str, str], state: Path
) -> None:
    """What four ranks print is what one process computes, whatever they compute on."""
    need_opencl()
    (tmp_path / "jobs.toml").write_text(job_file())
    with slurm.allocation("-N4", "--exclusive", "--gres=gpu:1", "-t", "10") as allocated:
        inside = {**environment, **allocated, **mpi_environment(tmp_path / "mpi")}
        inside |= {"XDG_STATE_HOME": str(state), "POCL_MAX_PTHREAD_COUNT": "1"}
        arguments = ["run", "jobs.toml", "--executor", EXECUTOR, "--policy", "torque", "--run-dir", "run"]
        done = run_command([*arguments, "--json", "--quiet"], tmp_path, inside)
    assert done.returncode == 0, done.stderr
    said = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "run").glob("*-*.out")}
    assert len(said) == full(9, 5)
    for id, printed in said.items():
        name = id.partition("-")[0]
        alone = run_app(name, n=SIZES[name], iterations=3)
        assert printed["checksum"] == pytest.approx(alone.checksum, rel=RAVI[name].tolerance), id
        assert ("% of the data on the cpu" in printed["device_name"]) == id.endswith("cpu-gpu")
