"""MPI gangs for real, inside a Slurm allocation: learned by their node counts, molded by fms."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dovetail_command import DOVETAIL, load, run_command
from mpich import EXECUTOR, mpi_environment
from opencl_kernels import need_opencl
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm

from dovetail.testing.builders import full

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "moldable"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(4, cpus=4, gpus=2),)) as cluster:
        yield cluster


@pytest.fixture
def inside(slurm: SlurmCluster, environment: dict[str, str], state: Path) -> Iterator[dict[str, str]]:
    with slurm.allocation("-N4", "--exclusive", "--gres=gpu:2", "-t", "30") as allocated:
        yield {**environment, **allocated, "XDG_STATE_HOME": str(state)}


@pytest.fixture
def mpi(tmp_path: Path) -> dict[str, str]:
    return mpi_environment(tmp_path / "mpi")


def run(folder: Path, environment: Mapping[str, str], *arguments: str) -> Any:
    """``dovetail run ARGUMENTS --json`` in a folder; its report."""
    done = run_command(["run", *arguments, "--json", "--quiet"], folder, environment)
    assert done.returncode == 0, done.stderr
    return load(done)


def mean_temperature(size: int, steps: int) -> float:
    """The whole plate at once, as the method is written in a book."""
    plate = np.zeros((size + 2, size + 2))
    plate[0] = 100.0
    for _ in range(steps):
        neighbours = plate[1:-1, :-2] + plate[1:-1, 2:] + plate[:-2, 1:-1] + plate[2:, 1:-1]
        plate[1:-1, 1:-1] = neighbours / 4
    return float(plate[1:-1, 1:-1].mean())


def test_two_mpi_programs_on_one_two_and_four_nodes_give_one_result(
    tmp_path: Path, inside: dict[str, str], mpi: dict[str, str]
) -> None:
    """On either device: what they print does not depend on where they ran."""
    need_opencl()
    folder = tmp_path / "moldable"
    shutil.copytree(EXAMPLE, folder)
    text = ""
    for device in ("cpu", "opencl"):
        for name, rest in (("heat", "--size 128 --steps 20"), ("kmeans", "--points 4000 --rounds 3")):
            words = [sys.executable, f"{name}.py", *rest.split(), "--device", device]
            text += f'[[app]]\nname = "{name}-{device}"\n[[app.implementation]]\nname = "cpu"\ncpus = 2\n'
            text += f"times = {{ 1 = 1.0, 2 = 1.0, 4 = 1.0 }}\ncommand = {json.dumps(words)}\n"
            for nodes in (1, 2, 4):
                text += f'[[job]]\nid = "{name}-{device}-{nodes}"\napp = "{name}-{device}"\nnodes = {nodes}\n'
    (folder / "all.toml").write_text(text)
    run(folder, {**inside, **mpi}, "all.toml", "--executor", EXECUTOR, "--policy", "mct", "--run-dir", "run")
    said = {path.stem: path.read_text() for path in (folder / "run").glob("*-*.out")}
    assert len(said) == 12
    assert {text for name, text in said.items() if name.startswith("heat")} == {
        f"mean temperature {mean_temperature(128, 20):.4f}\n"
    }
    assert len({text for name, text in said.items() if name.startswith("kmeans")}) == 1


@pytest.mark.skipif(not full(1, 0), reason="takes minutes: DOVETAIL_TEST_FULL=1")
def test_the_order_of_the_simulation_holds_live(tmp_path: Path, inside: dict[str, str]) -> None:
    """fms before mct before torque, with moldable jobs that sleep for the times that the simulation has."""
    text = ""
    shapes = (("scales", 12.0, 0.9, 3.0), ("flat", 6.0, 0.2, 9.0), ("both", 9.0, 0.6, 4.0))
    for name, cpu, exponent, gpu in shapes:
        text += f'[[app]]\nname = "{name}"\n'
        for kind, one in (("cpu", cpu), ("gpu", gpu)):
            seconds = {nodes: round(one / nodes**exponent, 3) for nodes in (1, 2, 4)}
            inner = ", ".join(f"{nodes} = {value}" for nodes, value in seconds.items())
            choose = f"import os,time; t={seconds}; n=int(os.environ.get('DOVETAIL_RANKS','1'));"
            words = ["python3", "-I", "-S", "-c", f"{choose} time.sleep(t[n])"]
            escaped = [word.replace("{", "{{").replace("}", "}}") for word in words]
            text += f'[[app.implementation]]\nname = "{kind}"\ntimes = {{ {inner} }}\n'
            text += f"command = {json.dumps(escaped)}\n"
    for i in range(18):
        name = shapes[i % 3][0]
        asked = ("cpu", "gpu")[i % 2]
        text += (
            f'[[job]]\nid = "j{i}"\napp = "{name}"\nnodes = {(4, 2, 1)[i % 3]}\nimplementation = "{asked}"\n'
        )
    (tmp_path / "jobs.toml").write_text(text)
    simulated, live = {}, {}
    for policy in ("fms", "mct", "torque"):
        done = subprocess.run(
            [*DOVETAIL, "simulate", "jobs.toml", "--cluster", "4x4cpu+2gpu", "--policy", policy, "--json"],
            cwd=tmp_path, env=inside, text=True, capture_output=True, timeout=280, check=True,
        )  # fmt: skip
        simulated[policy] = load(done)["makespan"]
        history = tmp_path / f"{policy}.db"
        learn = ["simulate", "jobs.toml", "--cluster", "4x4cpu+2gpu", "--policy", "torque", "--learn"]
        subprocess.run(
            [*DOVETAIL, *learn, "--history", str(history), "--json"],
            cwd=tmp_path, env=inside, capture_output=True, timeout=280, check=True,
        )  # fmt: skip
        arguments = ("--executor", "slurm?poll=0.5", "--policy", policy, "--history", str(history))
        live[policy] = run(tmp_path, inside, "jobs.toml", *arguments)["makespan"]
    assert sorted(live, key=live.__getitem__) == sorted(simulated, key=simulated.__getitem__)
    assert simulated["fms"] == min(simulated.values())
