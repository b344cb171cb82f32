"""Any program of CUDA's driver API on borrowed GPUs: a carrier's servers and library, over the real wiring.

No GPU is here, nor Lupine's server: a stand-in takes its place, under its name and by its variables. What a
program calls is in a library named as CUDA's is, which is compiled for the test.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from borrowing import ROWS, Row, begun, jobs
from dovetail_command import load
from queues import processes_of
from waiting import until

from dovetail.errors import InputError
from dovetail.testing.builders import full
from dovetail.testing.processes import is_running
from dovetail_remote.lending import carriers
from dovetail_remote.lending.carriers import LUPINE, Endpoint, exposed_address, own_addresses, read_carrier

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]
SUPPORT = Path(__file__).parents[1] / "support" / "carrier"
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
PROGRAM = '''
"""Knows CUDA and nothing of Dovetail: bytes to each borrowed device and back, so many times."""
import ctypes, json, os, sys, time

steps, out = int(sys.argv[1]), sys.argv[2]
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuMemcpyHtoD_v2.argtypes = [ctypes.c_uint64, ctypes.c_char_p, ctypes.c_size_t]
cuda.cuMemcpyDtoH_v2.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_size_t]
if cuda.cuInit(0):
    sys.exit("no server")
count = ctypes.c_int()
cuda.cuDeviceGetCount(ctypes.byref(count))
names = []
for d in range(count.value):
    name = ctypes.create_string_buffer(256)
    cuda.cuDeviceGetName(name, 256, d)
    names.append(name.value.decode())
open(out + ".began", "w").close()
for k in range(steps):
    for d, name in enumerate(names):
        if name.startswith("own"):
            continue
        cuda.cuCtxSetCurrent(ctypes.c_void_p(d + 1))
        address, data, back = ctypes.c_uint64(), bytes([k % 256]) * 1000, ctypes.create_string_buffer(1000)
        if cuda.cuMemAlloc_v2(ctypes.byref(address), 1000) or cuda.cuMemcpyHtoD_v2(address, data, 1000):
            sys.exit("the server is gone")
        if cuda.cuMemcpyDtoH_v2(back, address, 1000) or back.raw != data:
            sys.exit("other bytes came back")
    time.sleep(0.02)
for _ in range(3000 if out == "long.json" else 0):  # on a busy machine the wide one may begin late
    if os.path.exists("wide.json.began"):
        break
    time.sleep(0.02)
said = {n: os.environ.get(n) for n in ("LUPINE_SERVER", "LUPINE_DISABLE_LOCAL", "CUDA_VISIBLE_DEVICES")}
with open(out, "w") as file:
    json.dump({"names": names, **said}, file)
'''
LENT = ("--cluster", "cluster.toml", "--executor", "lent?lend=lupine")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here, for a client library")
    folder = tmp_path_factory.mktemp("carrier")
    out = folder / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(out), str(SUPPORT / "libcuda.c")],
        check=True,
    )
    return folder


@pytest.fixture
def folder(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "jobs.toml").write_text(jobs(ROWS))
    (tmp_path / "bin").mkdir()
    server = tmp_path / "bin" / "lupine_driver_server"
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SUPPORT / "server.py"}"\n')
    server.chmod(0o755)
    path = f"{server.parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "driver").mkdir()  # what a node with a GPU has of its own
    shutil.copy(library / "libcuda.so.1", tmp_path / "driver")
    for name, value in (
        ("PATH", path),
        ("LUPINE_LIBDIR", str(library)),
        ("LD_LIBRARY_PATH", str(tmp_path / "driver")),
    ):
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
