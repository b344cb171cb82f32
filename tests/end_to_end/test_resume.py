"""A run whose Dovetail or supervisor was killed is taken up: every job ends once, none is executed twice."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import load
from queues import FINAL, Runs, folder_of, kill, states, supervisors
from waiting import until

from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture
def runs(tmp_path: Path, environment: dict[str, str], state: Path) -> Iterator[Runs]:
    made = Runs(tmp_path, environment, state)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()


@pytest.mark.timeout(full(1800, 240))
def test_killed_again_and_again_and_taken_up(runs: Runs) -> None:
    """Dovetail, its supervisor, or both are killed at random moments, and the run is taken up each time."""
    rng = random.Random(1)
    runs.write(full(300, 24), lambda i: rng.choice([0.0, 0.01, 0.05, 0.2]))
    process = runs.go("jobs.toml", "--policy", "fcfs")
    kills, most = 0, full(100, 4)
    while process.poll() is None:
        if kills < most and runs.began():
            time.sleep(rng.uniform(0.0, full(1.2, 0.8)))
            victim = rng.choice(["dovetail", "supervisor", "both"])
            folder = folder_of(runs.state)
            if victim != "dovetail":
                for pid in supervisors(folder):
                    kill(pid)
            if victim != "supervisor":
                process.kill()
                process.wait()
            kills += 1
            if process.poll() is not None and sum(states(folder)[s] for s in FINAL) < runs.count:
                process = runs.go("--resume")
        else:
            time.sleep(0.02)
    while sum(states(folder_of(runs.state))[s] for s in FINAL) < runs.count:
        process = runs.go("--resume")
        process.wait(120)
    assert kills >= most // 2
    runs.check()


def test_what_still_runs_is_adopted_with_its_core_and_its_deadline(runs: Runs, dovetail: Any) -> None:
    """The long jobs go on, hold their cores, and end at the walltime that counts from their start."""
    count = len(CORES)
    runs.write(2 * count, lambda i: 60.0 if i < count else 0.0, walltime=4)
    process = runs.go("jobs.toml", "--policy", "fcfs")
    runs.wait_for(count)
    process.kill()
    process.wait()
    pids = {start["pid"] for start in read_log(folder_of(runs.state) / "spawn.log").starts.values()}
    found = load(dovetail("run", "--resume", "--json"))
    rows = {row["id"]: row for row in found["jobs"]}
    for i in range(count):
        assert rows[f"j{i}"]["state"] == "TIMEOUT"
        assert rows[f"j{i}"]["start"] < 0  # before this Dovetail
        assert 4 <= rows[f"j{i}"]["end"] - rows[f"j{i}"]["start"] < 60
        assert rows[f"j{count + i}"]["state"] == "COMPLETED"
        assert rows[f"j{count + i}"]["start"] >= min(rows[f"j{k}"]["end"] for k in range(count))
    again = {start["pid"] for start in read_log(folder_of(runs.state) / "spawn.log").starts.values()}
    assert pids <= again
    runs.check()
    until(lambda: not supervisors(folder_of(runs.state)), "a supervisor is left")


def test_retries_start_a_job_again_and_each_attempt_is_on_record(
    tmp_path: Path, state: Path, dovetail: Any
) -> None:
    (tmp_path / "flaky.sh").write_text('echo x >> tries; [ "$(wc -l < tries)" -ge 3 ]\n')
    (tmp_path / "jobs.toml").write_text(
        '[[app]]\nname = "f"\n[[app.implementation]]\nname = "cpu"\ncommand = ["sh", "flaky.sh"]\n'
        '[[job]]\nid = "a"\napp = "f"\nretries = 5\n'
    )
    found = dovetail("run", "jobs.toml", "--json")
    assert found.returncode == 0
    (row,) = load(found)["jobs"]
    assert row["state"] == "COMPLETED"
    folder = folder_of(state)
    with sqlite3.connect(folder / "ledger.db") as db:
        assert db.execute("SELECT attempt FROM job").fetchall() == [(3,)]
        attempts = db.execute("SELECT attempt, state, exit_code FROM attempt ORDER BY attempt").fetchall()
    assert attempts == [(1, "FAILED", 1), (2, "FAILED", 1)]
    assert {path.name for path in folder.glob("a*.out")} == {"a.out", "a.2.out", "a.3.out"}
    with sqlite3.connect(state / "dovetail" / "history.sqlite") as db:
        assert db.execute("SELECT count(*) FROM runs").fetchone() == (3,)


def test_an_interrupted_run_names_what_never_started_and_is_taken_up(runs: Runs, dovetail: Any) -> None:
    runs.write(4 * len(CORES), lambda i: 600.0 if i < len(CORES) else 0.0)
    process = runs.go("jobs.toml", "--policy", "fcfs")
    runs.wait_for(len(CORES))
    process.send_signal(signal.SIGINT)
    assert process.wait(100) == 130
    said = runs.complaints
    left = 3 * len(CORES)
    assert f"{left} jobs never started; 'dovetail run --resume " in said
    run = said.partition("--resume ")[2].partition("'")[0]
    found = dovetail("run", "--resume", run, "--json")
    assert Counter(row["state"] for row in load(found)["jobs"])["COMPLETED"] == left
    nothing = dovetail("run", "--resume", run)
    assert nothing.returncode == 2
    assert "nothing is left to take up" in nothing.stderr


def test_a_run_whose_dovetail_lives_is_not_taken_up(runs: Runs, dovetail: Any) -> None:
    runs.write(1, lambda i: 0.0)
    (runs.tmp_path / "held").touch()
    process = runs.go("jobs.toml")
    runs.wait_for(1)
    refused = dovetail("run", "--resume")
    assert refused.returncode == 3
    assert "still lives" in refused.stderr
    (runs.tmp_path / "held").unlink()
    assert process.wait(100) == 0


@pytest.mark.parametrize("name", ["nothing", "", "../x"])
def test_a_run_that_is_not_there_is_refused(dovetail: Any, name: str) -> None:
    refused = dovetail("run", "--resume", name)
    assert refused.returncode == 2
    assert refused.stderr.startswith("dovetail: ")
    assert "run" in refused.stderr


def test_attempts_are_counted_on_after_a_kill(runs: Runs, tmp_path: Path) -> None:
    """A job that failed once, may be retried once, and is cut short the second time, starts no third time."""
    (tmp_path / "fails.py").write_text(
        "import os, time\n"
        "os.write(os.open('began', os.O_WRONLY | os.O_APPEND | os.O_CREAT), b'x')\n"
        "time.sleep(0.1 if os.path.getsize('began') == 1 else 60)\n"
        "raise SystemExit(1)\n"
    )
    lines = ["[[app]]", 'name = "fails"', "[[app.implementation]]", 'name = "cpu"', "cpus = 1"]
    lines += ['command = ["python3", "-I", "-S", "fails.py"]', "[[job]]", 'app = "fails"', "retries = 1"]
    (tmp_path / "jobs.toml").write_text("\n".join(lines) + "\n")
    runs.count = 1
    process = runs.go("jobs.toml")
    began = tmp_path / "began"
    while not began.exists() or began.stat().st_size < 2:
        time.sleep(0.02)
    folder = folder_of(runs.state)
    for pid in (*supervisors(folder), process.pid):
        kill(pid)
    process.wait()
    again = runs.go("--resume")
    assert again.wait(100) == 1
    assert began.stat().st_size == 2
    with sqlite3.connect(folder / "ledger.db") as db:
        assert db.execute("SELECT state, attempt FROM job").fetchone() == ("NODE_FAIL", 2)
        assert db.execute("SELECT state, attempt FROM attempt").fetchall() == [("FAILED", 1)]
