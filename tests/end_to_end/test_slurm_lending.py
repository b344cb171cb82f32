"""Nodes of a Slurm allocation that lend each other devices: real daemons, agents and device servers."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from borrowing import (
    KILLED,
    PROGRAM,
    Row,
    begun,
    children,
    jobs,
    silence_the_wide_one,
    stopped_on_its_way_home,
    wake,
)
from dovetail_command import load, run_command
from queues import folder_of, kill, processes_of
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.testing.builders import full
from dovetail_remote.lending.lending import LOST

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live"), pytest.mark.timeout(600)]

slowly = pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
CLUSTER = '[[node]]\nname = "n0"\ncpus = 1\ngpus = 2\n[[node]]\nname = "n1"\ncpus = 1\ngpus = 1\n'
LENT = ("--cluster", "cluster.toml", "--executor", "slurm?poll=0.5&lend=numpy")
QUICK: tuple[Row, ...] = (("short", 1, 20), ("long", 1, 60), ("wide", 2, 160))
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(2, cpus=4, gpus=2),)) as cluster:
        yield cluster


@pytest.fixture
def inside(slurm: SlurmCluster, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of a shell in an allocation of both nodes; nothing is left in there at the end."""
    with slurm.allocation("-N2", "--exclusive", "--gres=gpu:2", "-t", "30", "--no-kill") as allocated:
        yield {**environment, **allocated, "XDG_STATE_HOME": environment["XDG_STATE_HOME"]}
    until(lambda: not processes_of("process/agent.py"), "the agents end", 20)
    until(lambda: not servers(), "the device servers end", 20)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "jobs.toml").write_text(jobs(QUICK))
    return tmp_path


@pytest.fixture
def dovetail(folder: Path, inside: Mapping[str, str]) -> Call:
    """Run ``dovetail ARGUMENTS`` inside the allocation."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, folder, inside)

    return call


def servers() -> dict[int, str]:
    """Device servers with a token of a run of this test: process and what it was started with."""
    found: dict[int, str] = {}
    for pid in processes_of("devices.token"):
        words = text_of(Path(f"/proc/{pid}/cmdline")).split("\0")
        if "device-server" in words:
            found[pid] = " ".join(words)
    return found


def played(dovetail: Call, folder: Path, policy: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The jobs by name, all of which ended well, and what the wide one told of itself."""
    done = dovetail("run", "jobs.toml", *LENT, "--policy", policy, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    return {job["id"]: job for job in load(done)["jobs"]}, json.loads((folder / "wide.json").read_text())


def test_a_job_borrows_from_another_node_and_moves_home(dovetail: Call, folder: Path) -> None:
    """It starts with a device of n1, comes home while it computes; what it computes is what it would be."""
    lent, moved = played(dovetail, folder, "mrq")
    wide = lent["wide"]
    assert (wide["remote_gpus"], wide["migrations"]) == (1, 1)
    assert wide["devices"] == ["n0/gpu0", "n0/gpu1"]
    assert wide["start"] < lent["long"]["end"] < wide["end"]
    assert moved["began"][0] == "local:numpy"
    assert moved["began"][1].startswith("tcp:127.0.0.1:")
    assert moved["ended"] == ["local:numpy", "local:numpy"]
    _, stayed = played(dovetail, folder, "fcfs")
    assert stayed["began"] == stayed["ended"] == ["local:numpy", "local:numpy"]
    assert stayed["values"] == moved["values"]  # bit by bit
    until(lambda: not servers(), "the servers end")


@slowly
def test_a_policy_that_looks_ahead_borrows_too(dovetail: Call, folder: Path) -> None:
    played(dovetail, folder, "mrq-aware")
    lent, stayed = played(dovetail, folder, "rq")
    assert (lent["wide"]["remote_gpus"], lent["wide"]["migrations"]) == (1, 0)
    assert stayed["ended"] == stayed["began"]


@slowly
def test_a_server_that_is_killed_costs_only_who_borrows_from_it(
    folder: Path, inside: dict[str, str], state: Path
) -> None:
    """kill -9: the job that computes on it ends with one sentence, the next one finds a new server.

    The token is in one file that only its owner reads, and in no command line nor environment.
    """
    (folder / "jobs.toml").write_text(jobs(KILLED))
    process = begun(folder, inside, LENT)
    secret = folder_of(state) / "agents" / "devices.token"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    token = secret.read_text()
    assert len(token) == 64
    assert not processes_of(token)
    assert not [name for name in Path("/proc").glob("[0-9]*/environ") if token in text_of(name)]
    (of_n1,) = [pid for pid, words in servers().items() if words.count("--device ") == 1]
    os.kill(of_n1, signal.SIGKILL)
    told, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    by_id = {job["id"]: job for job in json.loads(told)["jobs"]}
    states = {name: job["state"] for name, job in by_id.items()}
    assert states == {"short": "COMPLETED", "long": "COMPLETED", "wide": "FAILED", "late": "COMPLETED"}
    assert by_id["late"]["remote_gpus"] == 1
    assert "the device server is gone" in by_id["wide"]["detail"]
    until(lambda: not servers(), "the servers end")
    assert not secret.exists()


@slowly
@pytest.mark.parametrize("victim", ["the program", "the device"])
def test_a_kill_in_the_middle_of_a_move_costs_only_the_job_that_moves(
    folder: Path, inside: dict[str, str], state: Path, victim: str
) -> None:
    """kill -9 of the program that is the target, or of the device of n1 that is the source."""
    (folder / "jobs.toml").write_text(jobs(KILLED))
    silence_the_wide_one(folder)
    process = begun(folder, inside, LENT)
    (of_n1,) = [pid for pid, words in servers().items() if words.count("--device ") == 1]
    (device,) = children(of_n1)
    (program,) = processes_of("wide.json")
    stopped_on_its_way_home(device, folder_of(state) / "journal.jsonl")
    kill(program if victim == "the program" else device)
    if victim == "the program":
        os.kill(device, signal.SIGCONT)
    wake(folder)
    told, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    by_id = {job["id"]: job for job in json.loads(told)["jobs"]}
    wide = by_id.pop("wide")
    assert {job["state"] for job in by_id.values()} == {"COMPLETED"}
    assert wide["state"] == "FAILED"
    assert ("SIGKILL" if victim == "the program" else "the device server is gone") in wide["detail"]
    until(lambda: not servers(), "the servers end")
    assert not (folder_of(state) / "agents" / "devices.token").exists()


def text_of(path: Path) -> str:
    """What is in a file of another process, if that is still there and ours to read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.parametrize("silent", [pytest.param(False, marks=slowly), True])
def test_a_dovetail_that_is_killed_leaves_no_server_and_no_secret_and_is_taken_up(
    dovetail: Call, folder: Path, inside: dict[str, str], state: Path, silent: bool
) -> None:
    """Who had borrowed ends, also if it makes no calls; who had not goes on under its agent."""
    (folder / "jobs.toml").write_text(jobs(KILLED))
    if silent:
        silence_the_wide_one(folder)
    process = begun(folder, inside, LENT)
    before = servers()
    assert len(before) == 2
    process.kill()
    process.communicate()
    until(lambda: not servers(), "the servers end")
    until(lambda: not (folder_of(state) / "agents" / "devices.token").exists(), "the token is removed")
    again = dovetail("run", "--resume", "--json", "--quiet")
    assert again.returncode == 1, again.stderr
    by_id = {job["id"]: job for job in load(again)["jobs"]}
    lost = by_id.pop("wide")
    assert {name: job["state"] for name, job in by_id.items()} == dict.fromkeys(by_id, "COMPLETED")
    assert by_id["long"]["start"] < 0 < by_id["late"]["start"]
    if silent:
        assert lost["state"] == "NODE_FAIL"
        assert lost["detail"].startswith(LOST)
    else:
        assert lost["state"] == "FAILED"
        assert "the device server is gone" in lost["detail"]
    until(lambda: not servers(), "the servers end")
    assert not (folder_of(state) / "agents" / "devices.token").exists()


@slowly
def test_an_agent_that_is_killed_takes_its_server_along(
    folder: Path, inside: dict[str, str], state: Path
) -> None:
    """The job that had borrowed from its node ends; the node comes back, and lends again."""
    (folder / "jobs.toml").write_text(jobs(KILLED))
    process = begun(folder, inside, LENT)
    data: Any = json.loads((folder_of(state) / "agents" / "agents.json").read_text())
    (of_n1,) = [agent["pid"] for agent in data["agents"] if agent["node"] == "n1"]
    kill(of_n1)
    until(lambda: len(servers()) < 2, "its server ends")
    told, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    by_id = {job["id"]: job for job in json.loads(told)["jobs"]}
    assert by_id["long"]["state"] == by_id["late"]["state"] == "COMPLETED"
    assert by_id["wide"]["state"] in ("FAILED", "NODE_FAIL")


@slowly
def test_everything_is_killed_at_once(folder: Path, inside: dict[str, str], state: Path) -> None:
    """Dovetail and all agents: no server is left, and none of its devices' processes."""

    def workers() -> list[int]:  # of this test: others may lend devices on this host too
        found = processes_of("dovetail_remote.worker")
        return [pid for pid in found if str(state) in text_of(Path(f"/proc/{pid}/environ"))]

    process = begun(folder, inside, LENT)
    assert workers()
    data: Any = json.loads((folder_of(state) / "agents" / "agents.json").read_text())
    for pid in (process.pid, *(agent["pid"] for agent in data["agents"])):
        kill(pid)
    process.communicate()
    until(lambda: not servers() and not workers(), "the servers end")


@slowly
def test_an_allocation_that_is_cancelled_ends_the_servers(
    slurm: SlurmCluster, folder: Path, inside: dict[str, str], state: Path
) -> None:
    process = begun(folder, inside, LENT)
    slurm.end(inside["SLURM_JOB_ID"])
    process.communicate(timeout=200)
    assert process.returncode == 1
    until(lambda: not servers(), "the servers end")
    assert not (folder_of(state) / "agents" / "devices.token").exists()


def test_a_device_that_cannot_be_opened_is_one_sentence(dovetail: Call, state: Path) -> None:
    done = dovetail(
        *("run", "jobs.toml", "--cluster", "cluster.toml", "--policy", "mrq"),
        *("--executor", "slurm?lend=abacus"),
    )
    assert done.returncode == 2
    assert done.stderr.startswith("dovetail: the device server of node n0 did not start: ")
    assert "abacus" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    until(lambda: not servers(), "the servers end")
    assert not list(state.rglob("devices.token"))


@slowly
def test_a_job_of_several_tasks_does_not_borrow(dovetail: Call, folder: Path) -> None:
    text = jobs(QUICK).replace("gpus = 2\n", "gpus = 2\ntasks = 2\n")
    (folder / "jobs.toml").write_text(text)
    done = dovetail("run", "jobs.toml", *LENT, "--policy", "mrq", "--json", "--quiet")
    assert done.returncode == 1
    by_id = {job["id"]: job for job in load(done)["jobs"]}
    assert by_id["wide"]["state"] == "FAILED"
    assert "cannot borrow others" in by_id["wide"]["detail"]
    done = dovetail("run", "jobs.toml", *LENT, "--policy", "fcfs", "--json", "--quiet")
    assert done.returncode == 0, done.stderr  # at home it runs as ever
