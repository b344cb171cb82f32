"""Energy of a simulated schedule, from the command line: two jobs on two CPUs, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.cli.main import status_of

JOBS = """
[[app]]
name = "a"
[[app.implementation]]
name = "cpu"
cpus = 1
[[job]]
app = "a"
times = { cpu = 10.0 }
[[job]]
app = "a"
times = { cpu = 4.0 }
"""


def test_energy_of_a_schedule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS)
    common = ["simulate", str(path), "--cluster", "1x2cpu", "--policy", "fcfs", "--busy-watts", "100"]
    assert status_of([*common, "--idle-watts", "50", "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    assert metrics["busy_processor_seconds"] == 14.0
    assert metrics["idle_processor_seconds"] == 6.0
    assert metrics["energy"] == 14 * 100 + 6 * 50
    assert status_of([*common, "--idle-watts", "50"]) == 0
    assert "Energy 1,700 J" in capsys.readouterr().out
    assert status_of(common) == 2
    assert "--idle-watts: is missing" in capsys.readouterr().err
