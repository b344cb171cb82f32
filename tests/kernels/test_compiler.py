"""Kernels that are interpreted until compiling pays: the same numbers, and no compiler for a few jobs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL

JOBS = """
[[app]]
name = "a"
[[app.implementation]]
name = "cpu"
cpus = 2
[[app.implementation]]
name = "gpu"
cpus = 1
"""


def simulated(folder: Path, policy: str, **environment: str) -> tuple[list[object], set[str]]:
    """What became of the jobs, and what was compiled meanwhile."""
    argv = [*DOVETAIL, "simulate", "jobs.toml", "--cluster", "2x4cpu+2gpu", "--policy", policy, "--json"]
    environ = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "cache"), **environment}
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, check=True, timeout=100)
    compiled = {path.name for path in (folder / "cache").rglob("*.nbi")}
    return [(row["id"], row["start"], row["devices"]) for row in json.loads(done.stdout)["jobs"]], compiled


@pytest.mark.parametrize("policy", ["fms", "lookahead"])
def test_a_first_run_of_a_few_jobs_compiles_nothing_and_decides_as_compiled_code_does(
    tmp_path: Path, policy: str
) -> None:
    lines = [
        f'[[job]]\napp = "a"\ntimes = {{ cpu = {2 + i % 7}, gpu = {1 + i % 5} }}\nsubmit = {i // 4}\n'
        for i in range(32)
    ]
    (tmp_path / "jobs.toml").write_text(JOBS + "".join(lines))
    rows, compiled = simulated(tmp_path, policy)
    assert not compiled
    argv = [*DOVETAIL, "simulate", "jobs.toml", "--cluster", "2x4cpu+2gpu", "--policy", policy, "--json"]
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, check=True, timeout=100
    )  # the tests' cache
    assert rows == [(row["id"], row["start"], row["devices"]) for row in json.loads(done.stdout)["jobs"]]
