"""`dovetail simulate` without a policy: one that can place the jobs."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail.errors import DovetailWarning

GANGS = """; MaxProcs: 4
1 0 -1 60 2 -1 -1 2 100 -1 1 1 1 1 1 1 -1 -1
2 5 -1 60 4 -1 -1 4 100 -1 1 1 1 1 1 1 -1 -1
"""


def test_gangs_are_simulated_under_easy_and_the_reason_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.swf"
    trace.write_text(GANGS)
    with warnings.catch_warnings():
        warnings.simplefilter("default", DovetailWarning)
        assert status_of(["simulate", str(trace), "--json"]) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["policy"] == "easy"
    assert "job 1 needs 2 nodes" in found.err
    assert "simulated under easy" in found.err


def test_a_policy_that_was_chosen_is_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "t.swf"
    trace.write_text(GANGS)
    assert status_of(["simulate", str(trace), "--policy", "min-min"]) == 2
    assert "policy min-min places each job on one node" in capsys.readouterr().err


def test_jobs_on_one_node_are_simulated_under_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tmp_path / "j.toml"
    jobs.write_text(
        '[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\ntime = 1\n[[job]]\napp = "a"\n'
    )
    assert status_of(["simulate", str(jobs), "--cluster", "1x1cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["policy"] == "history"
