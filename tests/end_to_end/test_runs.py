"""Runs are listed, their jobs' output is shown, old ones are cleared up."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
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
    assert dovetail("logs", "--run", "last", "echo-1").stdout == "one\n"
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


def test_runs_that_cannot_be_read_are_not_none(dovetail: Call, tmp_path: Path) -> None:
    assert dovetail("run", "-q", "--", "true").returncode == 0
    (run,) = json.loads(dovetail("runs", "--json").stdout)
    (Path(run["folder"]) / "run.json").write_text("nothing that could be read")
    done = dovetail("runs")
    assert (done.returncode, done.stdout) == (1, "No run can be read.\n")
    assert "run.json" in done.stderr


def test_the_newest_run_stays_the_newest_whoever_looks_at_others(dovetail: Call, tmp_path: Path) -> None:
    """To read a run's ledger changes its folder; a refused run is none."""
    for word in ("first", "second", "third"):
        assert dovetail("run", "-q", "--", "echo", word).returncode == 0
    listed = [run["workload"] for run in json.loads(dovetail("runs", "--json").stdout)]
    assert listed == ["echo third", "echo second", "echo first"]
    cpu = '{ name = "cpu", command = "true", cpus = 4096 }'
    (tmp_path / "large.toml").write_text(
        f'[[app]]\nname = "x"\nimplementation = [{cpu}]\n[[job]]\napp = "x"\n'
    )
    assert dovetail("run", "-q", "large.toml").returncode == 2
    again = [run["workload"] for run in json.loads(dovetail("runs", "--json").stdout)]
    assert again == listed
    assert "arg1=third" in dovetail("explain", "last").stdout


def test_logs_without_a_service_are_those_of_the_newest_run_with_such_a_job(
    dovetail: Call, tmp_path: Path
) -> None:
    assert dovetail("run", "-q", "--", "echo", "old").returncode == 0
    assert dovetail("run", "-q", "--", "echo", "new").returncode == 0
    assert dovetail("run", "-q", "--", "sh", "-c", "sleep 0; echo bad >&2").returncode == 0
    found = dovetail("logs", "echo-1")
    assert found.stdout == "new\n"
    assert found.stderr.startswith("of run ")
    assert dovetail("logs", "--err", "sleep-1").stdout == "bad\n"
    missing = dovetail("logs", "nobody")
    assert missing.returncode == 2
    assert "no run with a job 'nobody'" in missing.stderr


def test_what_ran_when_its_dovetail_was_killed_is_shown_as_it_ended(dovetail: Call, tmp_path: Path) -> None:
    """The ledger has such a job as running for ever; its spawn log knows more."""
    assert dovetail("run", "-q", "--", "sh", "-c", "exit 3").returncode == 1
    (run,) = json.loads(dovetail("runs", "--json").stdout)
    with closing(sqlite3.connect(Path(run["folder"]) / "ledger.db")) as ledger, ledger:
        ledger.execute("UPDATE job SET state = 'RUNNING', ended = NULL")
    assert json.loads(dovetail("runs", "--json").stdout)[0]["jobs"] == {"FAILED": 1}
