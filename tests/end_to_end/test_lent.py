"""Borrowed devices for real: jobs on device servers of other nodes, moved home while they compute."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from borrowing import (
    KILLED,
    PROGRAM,
    ROWS,
    Row,
    begun,
    children,
    jobs,
    silence_the_wide_one,
    stopped_on_its_way_home,
    wake,
)
from dovetail_command import load
from process_list import command_lines
from queues import folder_of, processes_of
from services import serving
from waiting import until

from dovetail.errors import ExecutorError
from dovetail.model import Allocation, Donor, Part, Request
from dovetail.testing.builders import full
from dovetail.testing.processes import is_running
from dovetail_remote.address import parse_address
from dovetail_remote.connection import connect_to_server
from dovetail_remote.lending.lending import LOST, devices_of, steps_home

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]

CLUSTER = """
[[node]]
name = "a"
cores = [0]
gpus = 2
[[node]]
name = "b"
cores = [1]
gpus = 1
"""
LENT = ("--cluster", "cluster.toml", "--executor", "lent?device=numpy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "jobs.toml").write_text(jobs(ROWS))
    return tmp_path


def played(dovetail: Call, policy: str) -> dict[str, Any]:
    """The result of the folder's jobs, all of which ended well."""
    done = dovetail("run", "jobs.toml", *LENT, "--policy", policy, "--json", "--quiet")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = load(done)
    return result


def ran(dovetail: Call, folder: Path, policy: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The result, and what the wide job told of itself."""
    return played(dovetail, policy), json.loads((folder / "wide.json").read_text())


def servers() -> list[str]:
    """Device servers that run on this machine, started by an executor."""
    return [line for line in command_lines() if "device-server" in line and "PDEATHSIG" in line]


def test_a_job_borrows_and_moves_home_while_it_computes(dovetail: Call, folder: Path) -> None:
    """It starts with a device of b when the short job ends, comes home when the long one does, goes on."""
    told, moved = ran(dovetail, folder, "mrq")
    by_id = {job["id"]: job for job in told["jobs"]}
    wide = by_id["wide"]
    assert (wide["remote_gpus"], wide["migrations"]) == (1, 1)
    assert wide["devices"] == ["a/gpu0", "a/gpu1"]
    assert wide["start"] < by_id["long"]["end"] < wide["end"]
    assert moved["began"][0] == "local:numpy"
    assert moved["began"][1].startswith("unix:")
    assert moved["ended"] == ["local:numpy", "local:numpy"]

    waited, stayed = ran(dovetail, folder, "fcfs")
    first = {job["id"]: job for job in waited["jobs"]}
    assert first["wide"]["start"] >= first["long"]["end"]
    assert stayed["began"] == stayed["ended"] == ["local:numpy", "local:numpy"]
    assert stayed["values"] == moved["values"]  # bit by bit
    until(lambda: servers() == [], "the servers end")


def test_a_policy_that_looks_ahead_runs_live_too(dovetail: Call, folder: Path) -> None:
    told, _ = ran(dovetail, folder, "mrq-aware")
    assert [job["state"] for job in told["jobs"]] == ["COMPLETED"] * 3


def test_the_journal_of_moves_replays(dovetail: Call, folder: Path, state: Path) -> None:
    ran(dovetail, folder, "mrq")
    (journal,) = state.rglob("journal.jsonl")
    done = dovetail("replay", journal)
    assert done.returncode == 0, done.stderr
    assert "all identical" in done.stdout


def test_a_server_that_is_killed_costs_only_who_borrows_from_it(
    folder: Path, environment: dict[str, str]
) -> None:
    """kill -9 while a job computes on it: that job ends with one sentence, the next finds a new server."""
    (folder / "jobs.toml").write_text(jobs(KILLED))
    process = begun(folder, environment, LENT)
    of_a, of_b = sorted(device_servers(process.pid))
    devices = [pid for server in (of_a[1], of_b[1]) for pid in children(server)]
    os.kill(of_b[1], signal.SIGKILL)
    told, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    by_id = {job["id"]: job for job in json.loads(told)["jobs"]}
    states = {name: job["state"] for name, job in by_id.items()}
    assert states == {"short": "COMPLETED", "long": "COMPLETED", "wide": "FAILED", "late": "COMPLETED"}
    assert by_id["late"]["remote_gpus"] == 1
    last = Path(by_id["wide"]["stderr"]).read_text().splitlines()[-1]
    assert last.startswith("dovetail.errors.DeviceLost: unix:")
    assert "the device server is gone" in last
    assert not [pid for pid in (of_a[1], of_b[1], *devices) if is_running(pid)]


@pytest.mark.parametrize("victim", ["the program", "the device"])
def test_a_kill_in_the_middle_of_a_move_costs_only_the_job_that_moves(
    folder: Path, environment: dict[str, str], state: Path, victim: str
) -> None:
    """kill -9 of the program that is the target, or of the device that is the source."""
    (folder / "jobs.toml").write_text(jobs((*KILLED[:3], ("late", 2, 100))))
    silence_the_wide_one(folder)
    process = begun(folder, environment, LENT)
    _, (socket, of_b) = sorted(device_servers(process.pid))
    (device,) = children(of_b)
    (program,) = processes_of("wide.json")
    stopped_on_its_way_home(device, folder_of(state) / "journal.jsonl")
    os.kill(program if victim == "the program" else device, signal.SIGKILL)
    if victim == "the program":
        os.kill(device, signal.SIGCONT)
    wake(folder)
    until(lambda: lent_out(socket) == ([], 0), "nothing is left on the device, or a new one is there")
    told, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    by_id = {job["id"]: job for job in json.loads(told)["jobs"]}
    wide = by_id.pop("wide")
    assert {job["state"] for job in by_id.values()} == {"COMPLETED"}
    assert wide["state"] == "FAILED"
    if victim == "the program":
        assert "SIGKILL" in wide["detail"]
    else:
        last = Path(wide["stderr"]).read_text().splitlines()[-1]
        assert last.startswith("dovetail.errors.DeviceLost: unix:")
    until(lambda: servers() == [], "the servers end")


def lent_out(socket: str) -> tuple[list[Any], int]:
    """Clients of the only device of a server, and bytes of their arrays; some where it has ended."""
    channel, said = connect_to_server(parse_address(f"unix:{socket}"), wants={"status": True})
    channel.close()
    (device,) = said["devices"]
    return device.get("clients", [None]), device.get("bytes", 1)


@pytest.mark.parametrize("silent", [False, True])
def test_a_dovetail_that_is_killed_leaves_no_servers_and_is_taken_up(
    dovetail: Call, folder: Path, environment: dict[str, str], silent: bool
) -> None:
    """kill -9 of the run: its servers end, and who borrowed from them; all others go on, the queue too.

    A job that makes no calls hears nothing of its loss: the next Dovetail ends it.
    """
    (folder / "jobs.toml").write_text(jobs(KILLED))
    if silent:
        silence_the_wide_one(folder)
    with tempfile.TemporaryDirectory() as sockets:  # names of sockets are short
        process = begun(folder, {**environment, "TMPDIR": sockets}, LENT)
        servers = [pid for _, pid in device_servers(process.pid)]
        assert os.listdir(sockets)
        process.kill()
        process.communicate()
        until(lambda: not any(map(is_running, servers)))
        until(lambda: not os.listdir(sockets), "their sockets are removed")
    again = dovetail("run", "--resume", "--json", "--quiet")
    assert again.returncode == 1, again.stderr
    by_id = {job["id"]: job for job in load(again)["jobs"]}
    lost = by_id.pop("wide")
    assert {name: job["state"] for name, job in by_id.items()} == dict.fromkeys(by_id, "COMPLETED")
    assert by_id["long"]["start"] < 0  # under the first Dovetail, and once
    assert by_id["late"]["start"] > 0
    if silent:
        assert lost["state"] == "NODE_FAIL"
        assert lost["detail"].startswith(LOST)
    else:
        assert lost["state"] == "FAILED"
        assert "the device server is gone" in lost["detail"]
    assert dovetail("run", "--resume").returncode == 2  # nothing is left to take up


def test_a_job_that_has_come_home_outlives_its_dovetail(
    dovetail: Call, folder: Path, environment: dict[str, str], state: Path
) -> None:
    """It has all its devices here by then: kill -9 costs it nothing, and its result is what it would be."""
    process = begun(folder, environment, LENT)
    notes = folder_of(state) / "devices.jsonl"
    until(lambda: "false" in notes.read_text(), "it comes home")
    process.kill()
    process.communicate()
    again = dovetail("run", "--resume", "--json", "--quiet")
    assert again.returncode == 0, again.stderr
    by_id = {job["id"]: job for job in load(again)["jobs"]}
    assert by_id["wide"]["devices"] == ["a/gpu0", "a/gpu1"]
    assert by_id["wide"]["start"] < 0 < by_id["wide"]["end"]
    moved = json.loads((folder / "wide.json").read_text())
    assert moved["began"][1].startswith("unix:")
    _, stayed = ran(dovetail, folder, "fcfs")
    assert stayed["values"] == moved["values"]


def test_a_service_that_is_stopped_and_started_loses_only_what_was_borrowed(folder: Path) -> None:
    """Its servers end with it; the next start adopts the job with its own device, and starts what waited."""
    (folder / "jobs.toml").write_text(jobs(KILLED))
    options = ("--cluster", "cluster.toml", "--executor", "lent?device=numpy", "--policy", "mrq")
    with serving(folder, *options) as service:
        done = service.dovetail("submit", "jobs.toml", "--json")
        assert done.returncode == 0, done.stderr
        until((folder / "wide.json.began").exists)
        assert service.process is not None
        pids = [pid for _, pid in device_servers(service.process.pid)]
        assert len(pids) == 2
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(100) == 0
        assert not any(map(is_running, pids))
        service.start().close()
        ids = load(done)["ids"]
        service.dovetail("wait", *ids, timeout=100)
        rows = load(service.dovetail("queue", "--ended", "--json"))
    by_name = {row["inputs"]["out"].removesuffix(".json"): row for row in rows}
    lost = by_name.pop("wide")
    assert lost["state"] == "NODE_FAIL"
    assert lost["detail"].startswith(LOST)
    assert {row["state"] for row in by_name.values()} == {"COMPLETED"}
    assert {row["attempts"] for row in by_name.values()} == {1}


def device_servers(pid: int) -> list[tuple[str, int]]:
    """Socket and process of every device server of a run."""
    found = []
    for child in children(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
            if "--socket" in words:
                found.append((words[words.index("--socket") + 1], child))
    return found


STEADY = """
'''So many half seconds on all of its devices, from four seconds after its start on.'''
import os, sys, time
import dovetail_remote

steps = int(sys.argv[1])
ticks = int(open("/proc/self/stat").read().rpartition(")")[2].split()[19])
begin = ticks / os.sysconf("SC_CLK_TCK") + 4.0
xp = dovetail_remote.namespace()
devices = xp.__array_namespace_info__().devices()
kept = [xp.zeros(1_000_000, device=device) for device in devices]
arrays = [xp.zeros(1000, device=device) for device in devices]
late = time.clock_gettime(time.CLOCK_BOOTTIME) - begin
print("late by", late)
time.sleep(max(0.0, -late))
for k in range(steps):
    arrays = [a + 1 for a in arrays]
    assert [float(a[0]) for a in arrays] == [k + 1.0] * len(arrays)
    time.sleep(0.5)
"""
THREE_NODES = """
[[node]]
name = "a"
cores = [0]
gpus = 2
[[node]]
name = "b"
cores = [1]
gpus = 1
[[node]]
name = "c"
cpus = 0
gpus = 1
"""
SLEEPING: tuple[Row, ...] = (
    ("s1", 1, 6),
    ("s2", 1, 15),
    ("s3", 1, 10),
    ("w1", 2, 12),
    ("w2", 2, 8),
    ("s4", 1, 9),
    ("w3", 2, 6),
)


TWENTY: tuple[Row, ...] = tuple((f"t{k}", 1 if k % 3 == 2 else 2, 4 + 7 * k % 9) for k in range(20))
"""Gangs of two devices, of which one node has two, and jobs of one in between."""


def sleeping(dovetail: Call, folder: Path, rows: tuple[Row, ...]) -> None:
    """Jobs whose devices' time is slept, on three nodes, and constants measured here for simulations."""
    (folder / "program.py").write_text(STEADY)
    (folder / "cluster.toml").write_text(THREE_NODES)
    told = (
        f"[job.communication]\nother = {4.0 + 0.5 * steps}\ngpu_calls = {3 * steps}\ngpu_bytes = 8e6\n"
        for _, _, steps in rows
    )
    apps, *each = jobs(rows).replace("time = 5\n", "").split("[[job]]\n")
    text = apps + "".join(f"[[job]]\n{job}{more}" for job, more in zip(each, told, strict=True))
    (folder / "jobs.toml").write_text(text)
    measured = dovetail("bench-remote", "--rounds", "2", "--size", "8000000", "--out", "costs.toml")
    assert measured.returncode == 0, measured.stderr


def simulated(dovetail: Call, policy: str) -> dict[str, Any]:
    """What a simulation makes of the same jobs."""
    done = dovetail(
        *("simulate", "jobs.toml", "--cluster", "cluster.toml", "--policy", policy),
        *("--rates", "remote_gpu?costs=costs.toml", "--json"),
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = load(done)
    return result


@pytest.mark.skipif(
    not full(1, 0), reason="times, on a machine with nothing else to do: DOVETAIL_TEST_FULL=1"
)
def test_the_simulated_makespan_is_that_of_the_live_run(dovetail: Call, folder: Path) -> None:
    """Within 10 %, borrowing and moving alike."""
    sleeping(dovetail, folder, SLEEPING)
    live, told = {}, {}
    for policy in ("fcfs", "mrq"):
        live[policy], told[policy] = played(dovetail, policy), simulated(dovetail, policy)
        print(policy, live[policy]["makespan"], told[policy]["makespan"])
        assert live[policy]["makespan"] == pytest.approx(told[policy]["makespan"], rel=0.1)
    assert live["mrq"]["makespan"] < live["fcfs"]["makespan"]
    for found in (live["mrq"], told["mrq"]):
        assert sum(job["migrations"] for job in found["jobs"]) > 0


@pytest.mark.skipif(
    not full(1, 0), reason="times, on a machine with nothing else to do: DOVETAIL_TEST_FULL=1"
)
@pytest.mark.timeout(1200)
def test_twenty_borrowing_jobs_live_and_simulated(dovetail: Call, folder: Path) -> None:
    """Within 15 %, the median of five; as many borrow and move."""
    sleeping(dovetail, folder, TWENTY)
    told = simulated(dovetail, "mrq")
    ratios = []
    for _ in range(5):
        live = played(dovetail, "mrq")
        ratios.append(live["makespan"] / told["makespan"])
        for what in ("remote_gpus", "migrations"):
            print(what, *[sum(job[what] for job in found["jobs"]) for found in (live, told)])
    print(told["makespan"], ratios)
    assert sum(job["remote_gpus"] for job in told["jobs"]) > 0
    assert statistics.median(ratios) == pytest.approx(1, abs=0.15)


def test_an_executor_that_cannot_move_jobs_says_so(dovetail: Call, folder: Path) -> None:
    for policy in ("mrq", "mrq-aware", "mrq-backfill"):
        done = dovetail("run", "jobs.toml", "--cluster", "cluster.toml", "--policy", policy)
        assert done.returncode == 2
        assert f"policy {policy} moves jobs between devices while they run" in done.stderr
        assert "executor local" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    for policy in ("rq", "rq-backfill"):
        done = dovetail("run", "jobs.toml", "--cluster", "cluster.toml", "--policy", policy)
        assert done.returncode == 2
        assert f"policy {policy} lends jobs the devices of other nodes" in done.stderr
    assert not (folder / "short.json").exists()


def test_a_device_that_cannot_be_opened_is_one_sentence(dovetail: Call, folder: Path) -> None:
    done = dovetail(
        *("run", "jobs.toml", "--cluster", "cluster.toml", "--policy", "mrq"),
        *("--executor", "lent?device=abacus"),
    )
    assert done.returncode == 2
    assert "node a" in done.stderr
    assert "abacus" in done.stderr
    assert "Traceback" not in done.stderr
    until(lambda: servers() == [], "the servers end")


def _gang(own: tuple[int, ...], *donors: Donor) -> Allocation:
    request = Request(1, 0, (("gpu", float(len(own) + len(donors))),))
    return Allocation(request, (Part(1, 0, own),), donors=donors)


def test_only_what_is_borrowed_moves_and_only_home() -> None:
    borrowed = _gang((1,), Donor(0, 1, 0), Donor(0, 2, 3))
    steps = steps_home(devices_of(borrowed), _gang((0, 1), Donor(0, 2, 3)))
    assert [(k, step.client, step.node, step.device) for k, step in steps.items()] == [(1, 0, 0, 0)]
    with pytest.raises(ExecutorError, match="stay where they are"):
        steps_home(devices_of(borrowed), _gang((0, 2), Donor(0, 2, 3)))
    with pytest.raises(ExecutorError, match="only move home"):
        steps_home(devices_of(borrowed), _gang((1,), Donor(0, 1, 1), Donor(0, 2, 3)))
