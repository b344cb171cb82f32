"""Runs are listed, their jobs' output is shown, old ones are cleared up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]


def test_list_logs_and_prune(dovetail: Call, tmp_path: Path) -> None:
    assert dovetail("runs").stdout == "Nothing has run yet.\n"
    (tmp_path / "list.txt").write_text("echo one\nsh -c 'echo two >&2; exit 3'\n")
    assert dovetail("run", "list.txt", "-q").returncode == 1
    (run,) = json.loads(dovetail("runs", "--json").stdout)
    assert run["jobs"] == {"COMPLETED": 1, "FAILED": 1}
    assert run["id"] in dovetail("runs").stdout
    assert dovetail("logs", "--run", run["id"], "echo-1").stdout == "one\n"
    missing = dovetail("logs", "--run", run["id"], "nobody")
    assert (missing.returncode, missing.stderr) == (
        2,
        f"dovetail: run {run['id']}: found no job 'nobody' that has started\n",
    )
    assert json.loads(dovetail("runs", "--prune", "1d", "--json").stdout) == {"removed": []}
    assert json.loads(dovetail("runs", "--prune", "0", "--json").stdout) == {"removed": [run["id"]]}
    assert not Path(run["folder"]).exists()
    assert dovetail("runs").stdout == "Nothing has run yet.\n"
