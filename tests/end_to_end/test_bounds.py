"""What would exhaust the memory is refused with one sentence, in time and within a gigabyte."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.testing.builders import full

GIGABYTE = 1 << 30
APP = '[[app]]\nname = "mm"\n[[app.implementation]]\nname = "cpu"\ntime = 4.0\n'


def simulated(
    *arguments: str, folder: Path, memory: int = 3 * GIGABYTE // 2
) -> subprocess.CompletedProcess[str]:
    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return subprocess.run(
        [sys.executable, "-m", "dovetail", "simulate", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        preexec_fn=bounded,
    )


def packed(path: Path, piece: bytes, gigabytes: float) -> None:
    """A small gzip file of many gigabytes: one member, over and over."""
    member = gzip.compress(piece * (64 << 20 // len(piece)))
    with path.open("wb") as file:
        size = len(piece) * (64 << 20 // len(piece))
        for _ in range(int(gigabytes * GIGABYTE / size)):
            file.write(member)


def refused(found: subprocess.CompletedProcess[str], expected: str) -> None:
    assert found.returncode == 2, found.stderr
    assert expected in found.stderr
    assert found.stderr.count("\n") == 1
    assert not found.stdout


@pytest.mark.parametrize("name", ["zeros.swf.gz", "zeros.csv", "zeros.txt", "zeros.toml"])
def test_a_small_file_that_unpacks_to_ten_gigabytes(tmp_path: Path, name: str) -> None:
    packed(tmp_path / name, bytes(1024), 10)
    assert (tmp_path / name).stat().st_size < 40 << 20
    refused(simulated(name, "--cluster", "4x1cpu", folder=tmp_path), "found binary data at byte 0")


@pytest.mark.parametrize(
    ("name", "piece", "expected"),
    [
        ("blank.txt", b"\n", "found more than 64 MiB, unpacked, expected"),
        ("blank.toml", b"#\n", "found more than 64 MiB, unpacked, expected"),
        ("long.csv", b"x", "found a line of more than 16 MiB"),
        ("long.swf", b"1 ", "found a line of more than 16 MiB"),
    ],
)
def test_text_without_end(tmp_path: Path, name: str, piece: bytes, expected: str) -> None:
    packed(tmp_path / name, piece, 1)
    refused(simulated(name, "--cluster", "4x1cpu", folder=tmp_path), expected)


@pytest.mark.parametrize("spec", ["swf:/dev/zero", "csv:/dev/zero", "sacct:/dev/zero", "json:/dev/zero"])
def test_a_device_as_a_trace(tmp_path: Path, spec: str) -> None:
    refused(simulated(spec, "--cluster", "4x1cpu", folder=tmp_path), "found binary data at byte 0")


def test_a_key_of_fifty_thousand_parts(tmp_path: Path) -> None:
    (tmp_path / "deep.toml").write_text("a." * 50_000 + "a = 1\n")
    expected = "deep.toml: line 1: found a key of more than 64 parts"
    refused(simulated("deep.toml", "--cluster", "4x1cpu", folder=tmp_path), expected)
    (tmp_path / "jobs.toml").write_text(APP + '[[job]]\napp = "mm"\n')
    refused(simulated("jobs.toml", "--cluster", "deep.toml", folder=tmp_path), expected)


def test_a_million_jobs_ten_times(tmp_path: Path) -> None:
    (tmp_path / "many.toml").write_text(APP + '[[job]]\napp = "mm"\ncount = 1000000\n' * 10)
    refused(
        simulated("many.toml", "--cluster", "4x1cpu", folder=tmp_path),
        "many.toml: found 10,000,000 jobs in all, expected at most 1,000,000",
    )


def test_what_memory_does_not_hold_is_one_sentence(tmp_path: Path) -> None:
    spec = "synthetic:rigid?jobs=10000000"
    found = simulated(spec, "--cluster", "4x1cpu", folder=tmp_path, memory=GIGABYTE // 2)
    refused(found, "found a limit of 524,288 kB of memory for a process (ulimit -v), too little for this")


@pytest.mark.parametrize(
    ("command", "kilobytes"),
    [("policies", 100_000), ("run -q -- true", 140_000), ("serve", 300_000), ("submit -- true", 300_000)],
)
def test_a_library_that_finds_no_memory_late_is_one_sentence(
    tmp_path: Path, command: str, kilobytes: int
) -> None:
    """What numpy brings along ends a process from C; a service would die of it at some later moment."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    environment.pop("DOVETAIL_SERVICE", None)
    found = subprocess.run(
        ["sh", "-c", f"ulimit -v {kilobytes}; exec {sys.executable} -m dovetail {command}"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    refused(found, f"found a limit of {kilobytes:,} kB of memory for a process (ulimit -v), too little for")
    assert not (tmp_path / "dovetail" / "service").exists(), "no service was begun"


WITH_ONE_THREAD = """
import os, resource
from dovetail.files.little_memory import guard_libraries
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
guard_libraries()
import numpy, numpy.linalg
print(len(os.listdir("/proc/self/task")), "OPENBLAS_NUM_THREADS" in os.environ)
"""


def test_where_memory_is_little_numpy_has_one_thread_and_jobs_do_not_inherit_that() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", WITH_ONE_THREAD]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["1", "False"]


MILLION = "1000000x64cpu+8gpu"
SMALL = """
[[app]]
name = "a"
command = ["true", "{device}"]
on = ["cpu", "gpu"]

[[job]]
app = "a"
count = 3
times = { cpu = 10, gpu = 2 }
"""


@pytest.mark.parametrize("policy", ["fcfs", "mrq", "easy", "conservative", "brr", "mct", "rq"][: full(7, 1)])
def test_a_million_nodes_cost_what_their_shapes_cost(tmp_path: Path, policy: str) -> None:
    """A node object for each would need more than a gigabyte."""
    (tmp_path / "jobs.toml").write_text(SMALL)
    found = simulated(
        "jobs.toml", "--cluster", MILLION, "--policy", policy, folder=tmp_path, memory=GIGABYTE // 2
    )
    assert found.returncode == 0, found.stderr
    assert "3 completed" in found.stdout


@pytest.mark.parametrize("policy", ["history", "fms", "rsa", "gpu-only", "optimal"][: full(5, 1)])
def test_who_looks_at_each_device_says_up_to_how_many(tmp_path: Path, policy: str) -> None:
    (tmp_path / "jobs.toml").write_text(SMALL)
    refused(
        simulated("jobs.toml", "--cluster", MILLION, "--policy", policy, folder=tmp_path),
        f"policy {policy} looks at every CPU pool and device by itself: found 9,000,000 in the cluster, "
        "expected at most 250,000 (fcfs, sjf, easy and conservative have no such limit)",
    )


def test_the_journal_of_a_million_nodes_is_small(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(SMALL)
    nodes = full(MILLION, MILLION.replace("1000000x", "100000x"))  # replayed, each costs what it costs
    arguments = ("jobs.toml", "--cluster", nodes, "--policy", "fcfs", "--journal", "journal")
    found = simulated(*arguments, folder=tmp_path, memory=GIGABYTE // 2)
    assert found.returncode == 0, found.stderr
    assert (tmp_path / "journal").stat().st_size < 100_000
    again = subprocess.run(
        [sys.executable, "-m", "dovetail", "replay", "journal"], cwd=tmp_path, capture_output=True, text=True
    )
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(closed: str, tmp_path: Path) -> None:
    """Nor does a database get the number of one."""
    command = f'"{sys.executable}" -m dovetail run --quiet -- true {closed}'
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        ["sh", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_few_descriptors_are_one_sentence(tmp_path: Path) -> None:
    command = f'ulimit -n 16; exec "{sys.executable}" -m dovetail run --quiet -- true'
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        ["sh", "-c", command], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "dovetail: cannot go on: no file descriptors are left (ulimit -n)\n"
