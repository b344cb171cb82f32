"""How fast 1,000 jobs of ``/bin/true`` go through eight slots of a Slurm allocation, beside srun and sbatch.

In one run, on a real cluster of four virtual nodes on this host: `dovetail run --executor slurm`, a loop of
``srun`` with eight at once in the same allocation, and ``sbatch`` of single jobs to an idle cluster until the
last has ended. Only outcomes are asserted; the rates are in ``extra_info`` and on standard output (``-s``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from slurm_cluster import NodeShape, SlurmCluster, needs_slurm

pytestmark = needs_slurm

JOBS, STEPS, BATCHES = 1000, 100, 200
JOB_FILE = f"""
[[app]]
name = "true"
[[app.implementation]]
name = "cpu"
cpus = 2
command = ["/bin/true"]
[[job]]
app = "true"
count = {JOBS}
"""


def by_dovetail(folder: Path, environment: Mapping[str, str]) -> float:
    """Jobs a second, from the first submission to the last end."""
    words = [sys.executable, "-m", "dovetail", "run", "jobs.toml", "--executor", "slurm", "--policy", "fcfs"]
    done = subprocess.run(
        [*words, "--json", "--quiet"], cwd=folder, env=dict(environment), capture_output=True, check=True
    )
    report = json.loads(done.stdout)
    assert all(row["state"] == "COMPLETED" for row in report["jobs"])
    return JOBS / float(report["makespan"])


def by_srun(environment: Mapping[str, str]) -> float:
    """Steps a second, eight at once."""

    def step(_: int) -> None:
        argv = ["srun", "--exact", "--overlap", "-N1", "-n1", "-c2", "/bin/true"]
        subprocess.run(argv, env=dict(environment), check=True, capture_output=True)

    began = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(step, range(STEPS)))
    return STEPS / (time.perf_counter() - began)


def by_sbatch(cluster: SlurmCluster) -> float:
    """Batch jobs a second, from the first sbatch to the last end."""
    began = time.perf_counter()
    for _ in range(BATCHES):
        cluster.call("sbatch", "-o", "/dev/null", "-c2", "--wrap", "/bin/true")
    while cluster.call("squeue", "-h").strip():
        time.sleep(0.1)
    return BATCHES / (time.perf_counter() - began)


def test_jobs_a_second_in_an_allocation(benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "jobs.toml").write_text(JOB_FILE)
    rates: dict[str, float] = {}
    with SlurmCluster((NodeShape(4, cpus=4, gpus=0),)) as cluster:
        with cluster.allocation("-N4", "--exclusive", "-t", "30") as allocated:
            inside = {**os.environ, **allocated}
            rates["dovetail"] = benchmark.pedantic(by_dovetail, (tmp_path, inside), rounds=1, iterations=1)
            rates["srun"] = by_srun(inside)
        rates["sbatch"] = by_sbatch(cluster)
    benchmark.extra_info.update(rates)
    print("  ".join(f"{name} {rate:.0f}/s" for name, rate in rates.items()))
