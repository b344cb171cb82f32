"""Any program of CUDA's driver API on borrowed GPUs: a carrier's servers and library, over the real wiring.

No GPU is here, nor Lupine's server: a stand-in takes its place, under its name and by its variables. What a
program calls is in a library named as CUDA's is, which is compiled for the test.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from borrowing import ROWS, Row, begun, jobs
from carried_programs import SUPPORT, build_library, carrying_environment
from dovetail_command import load
from queues import processes_of
from waiting import until

from dovetail.errors import ExecutorError, InputError
from dovetail.testing.builders import full
from dovetail.testing.processes import is_running
from dovetail_remote.lending import carriers
from dovetail_remote.lending.carried import HERE, accepts_connections, refuse_exposed
from dovetail_remote.lending.carriers import LUPINE, Endpoint, exposed_address, own_addresses, read_carrier
from dovetail_remote.lending.keeper import specify_keeper

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
LENT = ("--cluster", "cluster.toml", "--executor", "lent?lend=lupine")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client library."""
    return build_library(tmp_path_factory.mktemp("carrier"))


@pytest.fixture
def folder(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> Path:
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "jobs.toml").write_text(jobs(ROWS))
    for name, value in carrying_environment(tmp_path, library).items():
        monkeypatch.setenv(name, value)
        environment[name] = value
    return tmp_path


def servers() -> list[int]:
    """Servers of the made-up carrier."""
    return processes_of(str(SUPPORT / "server.py"))


@contextmanager
def running(folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A run whose wide job computes on a borrowed GPU; ended with the block."""
    process = begun(folder, environment, LENT)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def played(dovetail: Call, policy: str, *more: str) -> dict[str, Any]:
    done = dovetail("run", "jobs.toml", *LENT, "--policy", policy, "--json", "--quiet", *more)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = load(done)
    return result


def test_a_program_that_knows_cuda_only_borrows_and_stays(dovetail: Call, folder: Path) -> None:
    """Under MRQ, too: it keeps its borrowed GPU though one at home comes free."""
    by_id = {job["id"]: job for job in played(dovetail, "mrq")["jobs"]}
    wide, found = by_id["wide"], json.loads((folder / "wide.json").read_text())
    assert (wide["remote_gpus"], wide["migrations"]) == (1, 0)
    assert wide["start"] < by_id["long"]["end"] < wide["end"]
    # It sees one GPU of its own node and the one that it was lent, and nothing else.
    (own,) = found["CUDA_VISIBLE_DEVICES"].split(",")
    assert found["names"] == [f"own {own}", "lent 0"]
    assert found["LUPINE_DISABLE_LOCAL"] == "0"
    host, _, port = found["LUPINE_SERVER"].rpartition(":")
    assert (host, port.isdecimal()) == ("127.0.0.1", True)
    # A job that borrows nothing gets none of the variables.
    assert json.loads((folder / "short.json").read_text())["LUPINE_SERVER"] is None
    until(lambda: servers() == [], "the servers end with the run")


@pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
def test_the_other_policies_place_it_as_they_do_arrays(dovetail: Call, folder: Path) -> None:
    by_policy = {
        policy: {job["id"]: job for job in played(dovetail, policy)["jobs"]}
        for policy in ("fcfs", "rq", "rq-backfill")
    }
    waited = by_policy["fcfs"]
    assert waited["wide"]["remote_gpus"] == 0
    assert waited["wide"]["start"] >= waited["long"]["end"]
    assert {by_policy[policy]["wide"]["remote_gpus"] for policy in ("rq", "rq-backfill")} == {1}


def test_the_journal_of_a_job_that_stays_replays(dovetail: Call, folder: Path, state: Path) -> None:
    played(dovetail, "mrq")
    (journal,) = state.rglob("journal.jsonl")
    assert '["migrated","wide","what lupine carries does not move",true]' in journal.read_text()
    done = dovetail("replay", journal)
    assert done.returncode == 0, done.stderr
    assert "all identical" in done.stdout


def test_a_server_that_is_killed_is_started_again_for_the_next(
    folder: Path, environment: dict[str, str]
) -> None:
    rows: tuple[Row, ...] = (("short", 1, 20), ("long", 1, 400), ("wide", 2, 3000), ("late", 2, 20))
    (folder / "jobs.toml").write_text(jobs(rows))
    with running(folder, environment) as process:
        (server,) = servers()
        os.kill(server, signal.SIGKILL)
        found, said = process.communicate(timeout=200)
    assert process.returncode == 1, said
    by_id = {job["id"]: job for job in json.loads(found)["jobs"]}
    assert {name: job["state"] for name, job in by_id.items()} == {
        "short": "COMPLETED", "long": "COMPLETED", "wide": "FAILED", "late": "COMPLETED",
    }  # fmt: skip
    assert "the server is gone" in by_id["wide"]["detail"]
    assert by_id["late"]["remote_gpus"] == 1


def test_servers_end_with_a_dovetail_that_is_killed(folder: Path, environment: dict[str, str]) -> None:
    rows: tuple[Row, ...] = (("short", 1, 20), ("long", 1, 300), ("wide", 2, 3000))
    (folder / "jobs.toml").write_text(jobs(rows))
    with running(folder, environment) as process:
        (server,) = servers()
        process.kill()
        process.communicate()
        until(lambda: not is_running(server), "its server ends")
        until(lambda: processes_of("wide.json") == [], "the program that had borrowed ends")
        until(lambda: processes_of("long.json") == [], "the other goes on to its end")


@pytest.mark.parametrize(
    ("lend", "sentence"),
    [
        ("lupin", "lend: found 'lupin', expected lupine or a file *.toml"),
        ("lupine&device=numpy", "found device and lend, expected one of them"),
        ("lupine", "the carrier lupine cannot lend: found no program 'lupine_driver_server' in PATH"),
    ],
)
def test_what_cannot_lend_is_one_sentence(dovetail: Call, tmp_path: Path, lend: str, sentence: str) -> None:
    (tmp_path / "jobs.toml").write_text(jobs(ROWS))
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    done = dovetail(
        "run", "jobs.toml", "--cluster", "cluster.toml", "--executor", f"lent?lend={lend}", "--policy", "rq"
    )
    assert done.returncode == 2
    assert sentence in " ".join(done.stderr.split())


def test_a_sites_own_carrier_is_a_few_lines(dovetail: Call, folder: Path) -> None:
    (folder / "own.toml").write_text(
        f'server = ["{sys.executable}", "{SUPPORT / "server.py"}", "{{host}}"]\n'
        'server_env = { LUPINE_PORT = "{port}", CUDA_VISIBLE_DEVICES = "{device}" }\n'
        'job_env = { LUPINE_SERVER = "{servers}", "OWN_{n}" = "{host}/{port}", OWN_COUNT = "{count}" }\n'
        'libraries = "LUPINE_LIBDIR"\n'
    )
    done = dovetail(
        "run",
        "jobs.toml",
        "--cluster",
        "cluster.toml",
        "--executor",
        "lent?lend=own.toml",
        "--policy",
        "rq",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "wide.json").read_text())["names"][1] == "lent 0"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("server = 3", "server: found 3, expected a list of words"),
        ('server = ["x"]', "found no {port} in server or server_env, expected where it listens"),
        (
            'server = ["x", "{port}", "{pid}"]',
            "server: found '{pid}', expected of {host}, {port}, {device} only",
        ),
        (
            'server = ["x", "{port}"]\ncheckpoint = ["y"]',
            "found 'checkpoint', expected name, server, server_env",
        ),
        (
            'server = ["x", "{port}"]\njob_env = { A = 1 }',
            "job_env: found {'A': 1}, expected names and texts",
        ),
        ("server = [", "is no TOML"),
    ],
)
def test_a_file_that_describes_no_carrier_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        read_carrier(path)
    assert sentence in str(refused.value)
    assert str(path) in str(refused.value)


def test_variables_of_a_job_with_several_borrowed_gpus() -> None:
    at = [Endpoint("127.0.0.1", 7001), Endpoint("127.0.0.1", 7002)]
    assert LUPINE.job_environment(at, 0, {"LUPINE_LIBDIR": "/l", "LD_LIBRARY_PATH": "/m"}) == {
        "LUPINE_SERVER": "127.0.0.1:7001,127.0.0.1:7002",
        "LUPINE_DISABLE_LOCAL": "1",
        "LD_LIBRARY_PATH": "/l:/m",
    }


@pytest.mark.parametrize(
    ("host", "public", "found"),
    [("127.0.0.1", "198.51.100.7", ""), ("", "8.8.8.8", "8.8.8.8"), ("", "10.1.2.3", "")],
)
def test_a_port_is_exposed_where_it_listens_on_a_public_address(
    host: str, public: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sockets are the kernel's word; only the machine's addresses are made up."""
    assert ip_address("127.0.0.1") in own_addresses()
    monkeypatch.setattr(carriers, "own_addresses", lambda: [ip_address("127.0.0.1"), ip_address(public)])
    with socket.create_server((host, 0)) as one:
        assert exposed_address(one.getsockname()[1]) == found


def test_a_port_that_another_account_has_taken_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which account a socket has is the kernel's word; only who we are is made up."""
    with socket.create_server((HERE, 0)) as one:
        at = Endpoint(HERE, one.getsockname()[1])
        refuse_exposed("the server", at)
        owner = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
        with pytest.raises(ExecutorError, match=f"port {at.port}: user {owner} of this machine listens"):
            refuse_exposed("the server", at)


@pytest.fixture
def keeper(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A keeper of two GPUs, as agents of nodes start it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail_remote.lending.keeper", HERE],
        env={**os.environ, **specify_keeper(LUPINE, [0, 1]), "DOVETAIL_STARTED_BY": str(os.getpid())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


def test_a_keeper_starts_servers_again_where_they_were_and_ends_them(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdout is not None
    addresses = json.loads(keeper.stdout.readline())["addresses"]
    at = [Endpoint(HERE, int(address.rpartition(":")[2])) for address in addresses]
    assert len(set(at)) == 2
    first = servers()
    assert len(first) == 2
    os.kill(first[0], signal.SIGKILL)
    until(lambda: len(servers()) == 2 and first[0] not in servers(), "the server is started again")
    until(lambda: all(map(accepts_connections, at)), "both listen where they did")
    keeper.terminate()
    assert keeper.wait(20) == 0
    assert servers() == []


def test_a_keeper_gives_up_a_server_that_does_not_stay(keeper: subprocess.Popen[str]) -> None:
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    assert keeper.stdout.readline()

    def is_given_up() -> bool:
        for server in servers():
            with suppress(ProcessLookupError):
                os.kill(server, signal.SIGKILL)
        return keeper.poll() is not None

    until(is_given_up, "it gives up what is killed again and again")
    assert keeper.wait(20) == 1
    assert "does not stay" in keeper.stderr.read()
    assert servers() == []
