"""Any CUDA program borrows a GPU of another node of a Slurm allocation, through servers that agents keep."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from borrowing import ROWS, Row, begun, jobs
from carried_programs import SUPPORT, build_library, carrying_environment
from dovetail_command import load, run_command
from queues import processes_of
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.testing.builders import full
from dovetail.testing.processes import is_running

pytestmark = [
    needs_slurm,
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1"),
]

CLUSTER = '[[node]]\nname = "n0"\ncpus = 1\ngpus = 2\n[[node]]\nname = "n1"\ncpus = 1\ngpus = 1\n'
LENT = ("--cluster", "cluster.toml", "--executor", "slurm?poll=0.5&lend=lupine")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(2, cpus=4, gpus=2),)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("carrier"))


@pytest.fixture
def inside(
    tmp_path: Path, slurm: SlurmCluster, library: Path, environment: dict[str, str]
) -> Iterator[dict[str, str]]:
    """The environment of a shell in an allocation of both nodes; nothing is left in there at the end."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "jobs.toml").write_text(jobs(ROWS))
    carried = carrying_environment(tmp_path, library)
    with slurm.allocation("-N2", "--exclusive", "--gres=gpu:2", "-t", "30", "--no-kill") as allocated:
        yield {**environment, **allocated, **carried, "XDG_STATE_HOME": environment["XDG_STATE_HOME"]}
    until(lambda: not processes_of("process/agent.py"), "the agents end", 20)
    until(lambda: not servers(), "the servers end", 20)
    until(lambda: not processes_of("dovetail_remote.lending.keeper"), "the keepers end", 20)


def servers() -> list[int]:
    """Servers of the made-up carrier."""
    return processes_of(str(SUPPORT / "server.py"))


def test_a_program_that_knows_cuda_only_borrows_from_another_node_and_stays(
    tmp_path: Path, inside: dict[str, str]
) -> None:
    done = run_command(("run", "jobs.toml", *LENT, "--policy", "mrq", "--json", "--quiet"), tmp_path, inside)
    assert done.returncode == 0, done.stderr
    by_id = {job["id"]: job for job in load(done)["jobs"]}
    wide, found = by_id["wide"], json.loads((tmp_path / "wide.json").read_text())
    assert (wide["remote_gpus"], wide["migrations"]) == (1, 0)
    assert wide["start"] < by_id["long"]["end"] < wide["end"]
    # One GPU of its own node and the one that it was lent, and nothing else.
    (own,) = found["CUDA_VISIBLE_DEVICES"].split(",")
    assert found["names"] == [f"own {own}", "lent 0"]
    assert found["LUPINE_DISABLE_LOCAL"] == "0"
    host, _, port = found["LUPINE_SERVER"].rpartition(":")
    assert (host, port.isdecimal()) == ("127.0.0.1", True)
    assert json.loads((tmp_path / "short.json").read_text())["LUPINE_SERVER"] is None


def test_each_gpu_has_a_server_that_is_watched_and_ends_with_its_dovetail(
    tmp_path: Path, inside: dict[str, str]
) -> None:
    rows: tuple[Row, ...] = (("short", 1, 20), ("long", 1, 300), ("wide", 2, 3000))
    (tmp_path / "jobs.toml").write_text(jobs(rows))
    process = begun(tmp_path, inside, LENT)
    try:
        first = servers()
        assert len(first) == 3  # two of n0, one of n1
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(servers()) == 3 and first[0] not in servers(), "its keeper starts it again")
    finally:
        process.kill()
        process.communicate()
    until(lambda: not any(map(is_running, first)), "all servers end")
    until(lambda: not servers(), "and those that were started again")


def test_a_carrier_whose_server_is_not_there_is_one_sentence(tmp_path: Path, inside: dict[str, str]) -> None:
    (tmp_path / "bin" / "lupine_driver_server").unlink()
    done = run_command(("run", "jobs.toml", *LENT, "--policy", "rq", "--quiet"), tmp_path, inside)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "of node n0 did not start: found no program 'lupine_driver_server' in PATH" in said
