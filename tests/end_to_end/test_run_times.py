"""Run times are the process's own, by its supervisor's clock: in a run's tables, and in a service's rows."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import load
from services import serving, submit, wait

from dovetail.client.connection import open_connection
from dovetail.process.spawn_log import read_log

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]


def moments(root: Path) -> dict[str, tuple[float, float]]:
    """When each job's process began and ended, seconds since the epoch, as its supervisor wrote it down."""
    (path,) = root.rglob("spawn.log")
    log = read_log(path)
    return {log.intents[uid]["job"]: (end["from"], end["at"]) for uid, end in log.ends.items()}


def test_start_and_run_and_end_add_up_and_a_failed_job_ran_no_longer_than_its_process(
    dovetail: Call, tmp_path: Path, state: Path
) -> None:
    (tmp_path / "jobs.txt").write_text("true\nls /nonexistent\nsleep 0.2\n")
    done = dovetail("run", "jobs.txt", "--json", "--csv", "out.csv", "--history", "h.sqlite")
    found, measured = load(done), moments(state)
    assert [job["state"] for job in found["jobs"]] == ["COMPLETED", "FAILED", "COMPLETED"]
    for job in found["jobs"]:
        began, ended = measured[job["id"]]
        assert job["end"] - job["start"] == pytest.approx(ended - began, abs=1e-5), job["id"]
        assert job["start"] + found["started_at"] == pytest.approx(began, abs=1e-5), job["id"]
    first, last = min(job["submit"] for job in found["jobs"]), max(job["end"] for job in found["jobs"])
    assert found["makespan"] == found["metrics"]["makespan"] == last - first
    busy = sum(job["end"] - job["start"] for job in found["jobs"])
    cores = len(os.sched_getaffinity(0))
    assert found["metrics"]["utilisation"] == pytest.approx(busy / (cores * found["makespan"]))
    header, *rows = [line.split(",") for line in (tmp_path / "out.csv").read_text().splitlines()]
    for job, row in zip(found["jobs"], rows, strict=True):
        of = dict(zip(header, row, strict=True))
        assert float(of["execution_time"]) == pytest.approx(job["end"] - job["start"], abs=1e-5)
        assert float(of["starting_time"]) == pytest.approx(job["start"], abs=1e-5)
    with sqlite3.connect(tmp_path / "h.sqlite") as database:
        known = sorted(seconds for (seconds,) in database.execute("SELECT seconds FROM runs"))
    assert known == pytest.approx(sorted(job["end"] - job["start"] for job in found["jobs"]), abs=1e-5)


def test_a_job_has_its_whole_walltime_though_its_start_took_a_while(
    dovetail: Call, tmp_path: Path, state: Path
) -> None:
    done = dovetail("run", "--walltime", "0.5s", "--json", "--", "sleep", "30")
    (job,) = load(done)["jobs"]
    assert job["state"] == "TIMEOUT"
    assert job["end"] - job["start"] >= 0.5
    assert "walltime reached after" in json.dumps(job)
    (began, ended), *_ = moments(state).values()
    assert job["end"] - job["start"] == pytest.approx(ended - began, abs=1e-5)


def test_a_service_tells_the_same_and_after_a_restart_too(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        with open_connection(here.folder.path) as service:
            ids = submit(service, {"command": ["true"], "cpus": 1}, {"command": ["ls", "/nonexistent"]})
            wait(service, ids)
        measured = moments(here.folder.path)
        for restarted in (False, True):
            if restarted:
                here.kill()
                here.start().close()
            for id in ids:
                row = json.loads(here.dovetail("info", id, "--json").stdout)
                assert (row["start"], row["end"]) == pytest.approx(measured[id], abs=1e-4), restarted
