"""A real queue on a machine whose GPU program fails at once: it is done on the cores."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

JOBS = """
[[app]]
name = "mm"
[[app.implementation]]
name = "cpu"
command = ["sleep", "0.2"]
cpus = 1
[[app.implementation]]
name = "gpu"
command = ["sh", "-c", "echo no CUDA device >&2; exit 3"]
[[job]]
app = "mm"
count = 15
"""


def test_a_missing_driver_costs_three_jobs(
    dovetail: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "jobs.toml").write_text(JOBS)
    done = dovetail("run", "jobs.toml", "--cluster", "1x1cpu+1gpu", "--policy", "history", "--json")
    assert done.returncode == 1, done.stderr
    states = [job["state"] for job in json.loads(done.stdout)["jobs"]]
    assert states.count("COMPLETED") == 12
    rows = json.loads(dovetail("explain", "last", "--json").stdout)
    why = [row["reason"] for row in rows if row["state"] == "COMPLETED"]
    said = "gpu is suspended on gpu for 60 s: 3 runs of mm failed there within 5 s of their start"
    assert sum(reason.startswith(said) for reason in why) >= 11
