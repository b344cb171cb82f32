"""`run --retry-failed`: what failed, and what waited for it, in a new run; `run --then`: what comes after."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from dovetail_command import run_command

pytestmark = pytest.mark.live

JOBS = """
[[job]]
id = "bad"
command = ["sh", "-c", "test -e {flag}"]
cpus = 1
[[job]]
id = "after"
command = ["true"]
cpus = 1
depends = ["afterok:bad"]
[[job]]
id = "good"
command = ["true"]
cpus = 1
"""


def test_what_comes_after_gets_the_summary(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "list").write_text("true\nsh -c 'echo out of ink >&2; exit 3'\n")
    script = tmp_path / "after.sh"
    script.write_text(
        '#!/bin/sh\ncat > summary\necho "$DOVETAIL_OUTCOME" > subject\necho "$DOVETAIL_TEXT" > body\n'
    )
    script.chmod(0o755)
    then = "./after.sh"
    done = run_command(["run", "list", "--quiet", "--then", then], tmp_path, environment)
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "summary").read_text())
    assert (found["status"], found["counts"]) == (1, {"COMPLETED": 1, "FAILED": 1})
    assert (Path(found["run"]) / "journal.jsonl").is_file()
    assert found["outcome"].startswith("1 of 2 jobs done in ")
    assert found["outcome"].endswith(", 1 failed")
    assert (tmp_path / "subject").read_text() == f"{found['outcome']}\n"
    outcome, *failures, place = found["text"].splitlines()
    assert (outcome, place) == (found["outcome"], f"Outputs and journal: {found['run']}")
    assert [line.partition(": ")[2] for line in failures[:1]] == ["FAILED: exit code 3"]
    assert failures[1:] == ["    out of ink"]
    assert (tmp_path / "body").read_text() == found["text"]


def test_what_only_a_shell_reads_is_refused_before_anything_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    words = ["run", "--then", "cat > summary", "--", "touch", "ran"]
    done = run_command(words, tmp_path, environment)
    assert (done.returncode, done.stderr) == (
        2,
        "dovetail: --then: found '>', expected one program and its arguments: no shell reads this line "
        "(sh -c '…' starts one)\n",
    )
    assert not (tmp_path / "ran").exists()


def test_what_comes_after_need_not_read(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = run_command(["run", "--quiet", "--then", "true", "--", "true"], tmp_path, environment)
    assert (done.returncode, "--then" in done.stderr) == (0, False)


def test_what_failed_runs_once_more_where_it_was_started(tmp_path: Path) -> None:

    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "jobs.toml").write_text(JOBS.replace("{flag}", "flag"))
    then = f"sh -c 'echo $DOVETAIL_STATUS $DOVETAIL_COUNTS > {tmp_path}/then'"
    first = run_command(["run", "jobs.toml", "--quiet", "--then", then], tmp_path, environment)
    assert first.returncode == 1, first.stderr
    assert (tmp_path / "then").read_text() == "1 CANCELLED=1,COMPLETED=1,FAILED=1\n"
    twice = run_command(["run", "--retry-failed", "last", "--json"], tmp_path, environment)
    assert json.loads(twice.stdout)["workload"] == "what failed in jobs.toml"
    (tmp_path / "flag").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = run_command(
        ["run", "--retry-failed", "last", "--json", "--then", "false"], elsewhere, environment
    )
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["workload"] == "what failed in jobs.toml"
    assert {job["id"]: job["state"] for job in json.loads(again.stdout)["jobs"]} == {
        "bad": "COMPLETED",
        "after": "COMPLETED",
    }
    assert "--then: false ended with exit status 1" in again.stderr
    none = run_command(["run", "--retry-failed", "last"], elsewhere, environment)
    assert (none.returncode, "found no failed job" in none.stderr) == (2, True)
    assert run_command(["run", "x", "--retry-failed", "last"], elsewhere, environment).returncode == 2
