"""Options for sbatch by kind of implementation, and a prologue of an app, from a job file on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import dovetail
from dovetail.model.batch_options import constraint_of, options_for, partition_of
from dovetail.model.command_line import after_prologue

FILE = """
[[app]]
name = "a"
prologue = "export WHERE={there}; test -z '{there}' || true"
[[app.implementation]]
name = "fast"
kind = "gpu"
slurm = ["--qos", "gpu", "--partition=g"]
command = ["echo", "{n}"]
[[app.implementation]]
name = "cpu"
command = ["echo", "{n}"]
[[job]]
app = "a"
inputs = { n = 3 }
slurm = ["--account=x", "cpu:--nice=5", "gpu:--comment=y"]
"""


def test_options_of_an_implementation_hold_for_it_alone(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(FILE)
    (job,) = dovetail.load_workload(tmp_path / "jobs.toml").jobs
    found = {i.name: options_for(job.batch_options, i) for i in job.app.implementations}
    assert found == {
        "fast": ("--qos=gpu", "--partition=g", "--account=x", "--comment=y"),
        "cpu": ("--account=x", "--nice=5"),
    }


@pytest.mark.parametrize(
    ("options", "partition", "constraint"),
    [(["-p", "a"], "a", ""), (["-pa", "--partition=b"], "b", ""), (["-C", "rome"], "", "rome"), ([], "", "")],
)
def test_what_options_ask_for(options: list[str], partition: str, constraint: str) -> None:
    assert (partition_of(options), constraint_of(options)) == (partition, constraint)


def test_a_prologue_runs_in_a_login_shell_before_the_command_and_stops_it_where_it_fails() -> None:
    words = ["sh", "-c", "echo $A; exit 3"]
    done = subprocess.run(after_prologue("export A='two words'", words), capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("two words", 3)
    failed = subprocess.run(after_prologue("echo no; false", words), capture_output=True, text=True)
    assert (failed.stdout.strip(), failed.returncode) == ("no", 1)
