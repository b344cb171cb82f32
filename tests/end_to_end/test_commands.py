"""Plain commands through the command line, run for real: lists from pipes, grids, what starts programs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import DOVETAIL

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_standard_input_is_a_list_of_commands(tmp_path: Path, environment: dict[str, str]) -> None:
    for name in ("-", "/dev/stdin"):
        done = subprocess.run(
            [*DOVETAIL, "run", name, "--history", str(tmp_path / "h"), "--json", "-q"],
            input="true\nsh -c 'exit 0'\n", capture_output=True, text=True, check=False, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert [job["state"] for job in json.loads(done.stdout)["jobs"]] == ["COMPLETED"] * 2


def test_a_grid_runs_every_combination(dovetail: Call, tmp_path: Path) -> None:
    done = dovetail(
        "run", "--each", "a=1,2", "--each", "b=3..4", "--history", tmp_path / "h", "--json", "-q",
        "--", "sh", "-c", f"echo {{a}}-{{b}} >> {tmp_path}/out",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "out").read_text().split()) == ["1-3", "1-4", "2-3", "2-4"]


def test_what_starts_a_program_shares_its_history(dovetail: Call, tmp_path: Path) -> None:
    history = ("--history", tmp_path / "h")
    for start in ([], ["nice"], ["env", "A=1"], ["sh", "-c"]):
        command = [*start, "sleep 0.01"] if start[:1] == ["sh"] else [*start, "sleep", "0.01"]
        assert dovetail("run", *history, "-q", "--", *command).returncode == 0
    (group,) = json.loads(dovetail("history", "list", *history, "--json").stdout)
    assert (group["app"], group["runs"], group["cpus"]) == ("sleep", 4, 1)


def test_nothing_runs_of_a_list_that_is_a_table(dovetail: Call, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (tmp_path / "jobs.txt").write_text(f"touch {mark}\n12 sleep COMPLETED\n")
    done = dovetail("run", tmp_path / "jobs.txt")
    assert done.returncode == 2
    assert "line 2: found '12', expected a program: this looks like a table" in done.stderr
    assert not mark.exists()
    assert dovetail("run", "--", "touch", "{mrak}").returncode == 2
