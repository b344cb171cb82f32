"""Jobs whose memory is learned, with real processes: all complete, nobody is killed twice."""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import pytest
from dovetail_command import run_command
from services import Serving, serving, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

EAT = """
import sys, time
held = bytearray(int(float(sys.argv[1]) * 1e6))
for page in range(0, len(held), 4096):
    held[page] = 1
time.sleep(float(sys.argv[2]))
"""
PROGRAMS = {
    "line": (20, 10.0),
    "steep": (10, 25.0),
    "flat": (60, 0.0),
    "small": (30, 1.0),
    "large": (80, 4.0),
}
"""Megabytes without input, and for each unit of it."""
NODE = 1_000_000_000


def program(folder: Path) -> Path:
    path = folder / "eat.py"
    path.write_text(EAT)
    return path


def job_file(folder: Path, each: int, memory: str) -> Path:
    """A queue of jobs of five programs whose peak follows their input."""
    eat, lines = program(folder), []
    for name, (base, slope) in PROGRAMS.items():
        command = [sys.executable, "-I", "-S", str(eat), f"{{{'mb'}}}", str(full(0.8, 0.4))]
        lines += ["[[app]]", f'name = "{name}"', "[[app.implementation]]", 'name = "cpu"', "cpus = 1"]
        lines += [f"memory = {json.dumps(memory)}", f"command = {json.dumps(command)}"]
        for n in range(each):
            size = 1 + 12 * ((7 * n) % each) // each
            lines += ["[[job]]", f'app = "{name}"', f"inputs = {{ mb = {base + slope * size:g} }}"]
    path = folder / f"{memory}.toml"
    path.write_text("\n".join(lines) + "\n")
    return path


def attempts(folder: Path) -> list[tuple[str, int]]:
    """Job and number of its killed tries, by the ledger of the run."""
    with sqlite3.connect(folder / "run" / "ledger.db") as db:
        query = (
            "SELECT id, count(*) FROM attempt JOIN job USING (seq)"
            " WHERE attempt.state = 'OUT_OF_MEMORY' GROUP BY id"
        )
        return db.execute(query).fetchall()


@pytest.mark.parametrize("cgroups", ["on", "off"])
def test_all_complete_and_nobody_is_killed_twice(tmp_path: Path, cgroups: str) -> None:
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "n0"\ncpus = 2\nmemory = {NODE}\n')
    path = job_file(tmp_path, full(12, 3), "auto")
    environment = {"DOVETAIL_CGROUPS": cgroups, "XDG_STATE_HOME": str(tmp_path / "state"), "PATH": "/usr/bin"}
    done = run_command(
        [
            *("run", str(path), "--cluster", "cluster.toml", "--policy", "fcfs", "--json", "--quiet"),
            *("--history", "history.db", "--run-dir", "run"),
        ],
        tmp_path,
        environment,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    jobs = json.loads(done.stdout)["jobs"]
    assert {job["state"] for job in jobs} == {"COMPLETED"}
    told = run_command(["memory", "run/journal.jsonl", "--json"], tmp_path, environment)
    use = json.loads(told.stdout)
    assert use["tries"] == len(jobs) + sum(count for _, count in attempts(tmp_path))
    assert use["reserved_gb_hours"] >= use["used_gb_hours"] > 0
    assert use["series"][-1][1:] == [0, 0]
    killed = attempts(tmp_path)
    assert all(count == 1 for _, count in killed), killed
    assert len(killed) == use["kills"] <= len(jobs) / 3


@pytest.fixture
def service(tmp_path: Path) -> Serving:
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "n0"\ncpus = 2\nmemory = {NODE}\n')
    return Serving(tmp_path, "--cluster", str(tmp_path / "cluster.toml"), "--policy", "fcfs")


def test_too_little_is_tried_again_by_itself_with_more(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "n0"\ncpus = 2\nmemory = {NODE}\n')
    with serving(tmp_path, "--cluster", "cluster.toml", "--policy", "fcfs") as service:
        eat = program(tmp_path)
        command = [sys.executable, "-I", "-S", str(eat), "300", "1.5"]
        done = service.dovetail("submit", "-W", "--mem", "60MB", "--retries", "2", "--", *command)
        assert done.returncode == 0, done.stderr
        with open_connection(service.folder.path) as client:
            found = client.get("/api/v1/jobs/1")
        assert [one["state"] for one in found["earlier"]] == ["OUT_OF_MEMORY"]
        assert (found["state"], found["memory_kills"]) == ("COMPLETED", 1)
        assert found["request"]["cpu"]["memory"] == NODE
        done = service.dovetail("submit", "-W", "--memory", "auto", "--", *command)
        assert done.returncode == 0, done.stderr
        with open_connection(service.folder.path) as client:
            found = client.get("/api/v1/jobs/2")
        assert (found["memory_auto"], found["memory_kills"], found["attempts"]) == (["cpu"], 0, 1)
        assert 300e6 < found["request"]["cpu"]["memory"] < 500e6
        assert found["memory"][0]["samples"] >= 1


def test_a_service_may_learn_the_memory_of_all_jobs_that_give_none(tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "n0"\ncpus = 2\nmemory = {NODE}\n')
    with serving(tmp_path, "--cluster", "cluster.toml", "--memory", "auto") as service:
        for words in ([], ["--mem", "200MB"]):
            done = service.dovetail("submit", "-W", *words, "--", "true")
            assert done.returncode == 0, done.stderr
        with open_connection(service.folder.path) as client:
            first, second = (client.get(f"/api/v1/jobs/{number}") for number in (1, 2))
        assert (first["memory_auto"], second["memory_auto"]) == (["cpu"], [])
        shown = service.dovetail("info", "2").stdout
        assert "memory (cpu):     reserves 200 MB; peak" in shown
        refused = service.dovetail("submit", "--mem", "999GB", "--", "true")
        assert refused.returncode == 2
        assert "found a job that needs 999 GB of memory on a node" in refused.stderr


def test_killed_between_the_kill_and_the_retry_the_retry_still_knows(
    tmp_path: Path, service: Serving
) -> None:
    eat = program(tmp_path)
    try:
        with service.start() as client:
            # It holds nearly all of the node, so that the retry has to wait for it.
            held = ["sh", "-c", f"until test -e {tmp_path}/over; do sleep 0.05; done"]
            eats = [sys.executable, "-I", "-S", str(eat), "250", "3"]
            form = [
                {"command": held, "app": "held", "memory": 700_000_000},
                {"command": eats, "app": "eat", "memory": 60_000_000},
            ]
            first, second = client.post("/api/v1/jobs", {"jobs": form})["ids"]
            until(lambda: client.get(f"/api/v1/jobs/{second}")["earlier"])
        service.kill()
        with service.start() as client:
            found = client.get(f"/api/v1/jobs/{second}")
            assert (found["state"], found["memory_kills"]) == ("PENDING", 1)
            assert found["request"]["cpu"]["memory"] == NODE
            assert found["reason"] == "waits for memory"
            explained = service.dovetail("explain", second)
            assert "memory of cpu: reserves 1,000 MB" in explained.stdout
            assert "waits for memory" in explained.stdout
            (tmp_path / "over").touch()
            assert set(wait(client, [first, second]).values()) == {"COMPLETED"}
            found = client.get(f"/api/v1/jobs/{second}")
            assert [one["state"] for one in found["earlier"]] == ["OUT_OF_MEMORY"]
    finally:
        service.stop()


@pytest.mark.parametrize("memory", ["auto", "60MB"])
def test_a_list_of_commands_takes_memory_too(tmp_path: Path, memory: str) -> None:
    (tmp_path / "cluster.toml").write_text(f'[[node]]\nname = "n0"\ncpus = 2\nmemory = {NODE}\n')
    eat = program(tmp_path)
    (tmp_path / "jobs.txt").write_text(f"{sys.executable} -I -S {eat} 700 1.5\n")
    environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "PATH": "/usr/bin"}
    options = ("--cluster", "cluster.toml", "--policy", "fcfs", "--run-dir", "run", "--memory", memory)
    done = run_command(["run", "jobs.txt", *options, "--json", "--quiet"], tmp_path, environment)
    assert done.returncode == 0, done.stderr
    assert [job["state"] for job in json.loads(done.stdout)["jobs"]] == ["COMPLETED"]
    assert [count for _, count in attempts(tmp_path)] == [1], "the share of a node was too little"
    wrong = run_command(["run", "jobs.txt", *options[:-1], "much"], tmp_path, environment)
    assert (wrong.returncode, "found 'much', expected bytes" in wrong.stderr) == (2, True)
