"""What jobs print is data from strangers: it ends no run, moves no cursor, and hides nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import load

from dovetail.history.sqlite import SqliteHistory

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]

SAID = [
    '{"device":1,"bytes_to_device":' + "9" * 400 + "}",
    '{"device":' + "[" * 1500,
    '{"bytes_to_device":1,"device":' + "[" * 1500,
    '{"device":1,"bytes_to_device":1e308,"bytes_from_device":1e308,"transfer_seconds":1}',
]


def commands(tmp_path: Path, lines: list[str]) -> str:
    path = tmp_path / "commands.txt"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def here(tmp_path: Path) -> str:
    path = tmp_path / "cluster.toml"
    path.write_text(f'[[node]]\nname = "here"\ncores = [{min(os.sched_getaffinity(0))}]\n')
    return str(path)


@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
def test_no_line_of_output_hangs_a_run_or_blocks_a_later_one(
    dovetail: Call, tmp_path: Path, said: str
) -> None:
    (tmp_path / "said").write_text(said + "\n")
    jobs = commands(tmp_path, ["cat said"])
    arguments = ("run", jobs, "--cluster", here(tmp_path), "--history", "h.sqlite", "--json")
    for _ in range(2):
        done = dovetail(*arguments, timeout=280)
        assert done.returncode == 0, done.stderr
        assert [job["state"] for job in load(done)["jobs"]] == ["COMPLETED"]
        assert ("what it reported of its transfers is ignored" in done.stderr) == ("bytes_to_device" in said)
    assert dovetail("recover").stdout == "Nothing was left behind.\n"
    with SqliteHistory(tmp_path / "h.sqlite", must_exist=True) as history:
        usages = [run.usage for run in history.all_runs()]
    assert [usage is not None and usage.sent for usage in usages] == [None, None]


def test_escape_codes_of_a_failed_job_reach_no_terminal(dovetail: Call, tmp_path: Path) -> None:
    script = tmp_path / "fails.sh"
    script.write_text("printf '\\033[2J\\033]0;title\\007gone' >&2; exit 3\n")
    done = dovetail("run", commands(tmp_path, ["sh fails.sh"]), "--cluster", here(tmp_path))
    assert done.returncode == 1
    assert "?[2J?]0;title?gone" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_after_ten_failures_the_others_are_counted(dovetail: Call, tmp_path: Path) -> None:
    done = dovetail("run", commands(tmp_path, ["false"] * 13), "--cluster", here(tmp_path), "-q")
    assert done.returncode == 1
    assert done.stderr.count(": FAILED: exit code 1") == 10
    assert "… and 3 more" in done.stderr
