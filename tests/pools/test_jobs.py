"""`dovetail.Executor` whose workers are jobs of a service."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import executor_functions as ef
import pytest
from services import Serving, serving
from waiting import until

import dovetail
from dovetail.client.connection import Connection, open_connection
from dovetail.errors import InputError
from dovetail.pools.pool import WorkerLost

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
LONG = 100.0


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


@pytest.fixture
def asks(service: Serving) -> Iterator[Connection]:
    with open_connection(service.folder.path) as found:
        yield found


def jobs(asks: Connection, *states: str) -> list[dict[str, Any]]:
    return [row for row in asks.get("/api/v1/jobs")["jobs"] if not states or row["state"] in states]


def test_workers_are_jobs_that_come_and_go(service: Serving, asks: Connection) -> None:
    with dovetail.Executor(service=service.folder.path, name="fits", env={"COLOUR": "green"}) as executor:
        assert not jobs(asks), "there is none before there is a call"
        (colour, job), cores = executor.submit(ef.around, "COLOUR", "DOVETAIL_JOB").result(LONG)
        assert (colour, len(cores)) == ("green", 1)
        (row,) = jobs(asks, "RUNNING")
        assert (row["id"], row["name"]) == (job, "fits")
        assert list(executor.map(ef.square, range(100))) == [n * n for n in range(100)]
        until(lambda: not jobs(asks), "its cores are free again")
        assert executor.submit(ef.square, 3).result(LONG) == 9
        array = executor.submit(ef.total, __import__("numpy").ones(1 << 15)).result(LONG)
        assert array[:2] == (1 << 15, False)
    until(lambda: not jobs(asks))


def test_a_killed_worker_and_a_cancelled_one(service: Serving, asks: Connection, tmp_path: Path) -> None:
    with dovetail.Executor(1, service=service.folder.path) as executor:
        error = ef.end_of(executor.submit(ef.die, str(tmp_path / "mark")))
        assert isinstance(error, WorkerLost)
        assert "FAILED" in str(error)
        held = executor.submit(ef.wait_for, str(tmp_path / "never"))
        rest = executor.submit(ef.square, 5)
        (row,) = until(lambda: held.running() and jobs(asks, "RUNNING"))
        asks.post("/api/v1/cancel", {"jobs": row["id"]})
        error = ef.end_of(held)
        assert isinstance(error, WorkerLost)
        assert "CANCELLED" in str(error)
        assert rest.result(LONG) == 25


def test_after_ctrl_c_no_call_runs_on(service: Serving, asks: Connection, tmp_path: Path) -> None:
    def interrupt(executor: dovetail.Executor, futures: list[Future[Any]]) -> None:
        futures += [executor.submit(ef.wait_for, str(tmp_path / "never")) for _ in range(2)]
        until(lambda: futures[0].running() and jobs(asks, "RUNNING"))
        raise KeyboardInterrupt

    futures: list[Future[Any]] = []
    with (
        pytest.raises(KeyboardInterrupt),
        dovetail.Executor(1, service=service.folder.path) as executor,
    ):
        interrupt(executor, futures)
    assert "interrupted" in str(futures[0].exception(0))
    assert futures[1].cancelled()
    until(lambda: not jobs(asks))


def test_workers_that_are_not_needed_any_more_leave_the_queue(
    service: Serving, asks: Connection, tmp_path: Path
) -> None:
    with dovetail.Executor(service=service.folder.path, cpus=2) as executor:
        other = asks.post("/api/v1/jobs", {"jobs": [{"command": ["sleep", "100"], "cpus": 1}]})["ids"][0]
        until(lambda: jobs(asks, "RUNNING"))
        future = executor.submit(ef.square, 3)
        until(lambda: len(jobs(asks, "PENDING")) == 1, "a worker waits for two cores")
        assert future.cancel()
        until(lambda: not jobs(asks, "PENDING"), "it is not needed any more")
        future = executor.submit(ef.square, 3)
        until(lambda: len(jobs(asks, "PENDING")) == 1)
        executor.shutdown(wait=False, cancel_futures=True)
        until(lambda: [row["id"] for row in jobs(asks)] == [other])
        asks.post("/api/v1/cancel", {"jobs": other})
        until(lambda: not jobs(asks))
    with pytest.raises(InputError, match="found 3, expected at most the 2 cores"):
        dovetail.Executor(service=service.folder.path, cpus=3)


def test_executors_within_workers_use_their_cores(service: Serving) -> None:
    """With all cores in use a worker's own executor must not wait for a job."""
    with dovetail.Executor(service=service.folder.path) as executor:
        futures = [executor.submit(ef.nest, 2, 2, {}) for _ in range(3)]
        assert [future.result(LONG) for future in futures] == [4, 4, 4]


def test_within_a_job_an_executor_uses_the_jobs_cores(service: Serving) -> None:
    program = "import dovetail\nwith dovetail.Executor() as e: print(sum(e.map(pow, range(4), [2] * 4)))"
    with dovetail.Client(service.folder.path) as client:
        import sys

        found = client.submit([sys.executable, "-c", program], cpus=1).result(LONG)
    assert found.stdout == b"14\n"


def test_a_restart_of_the_service_costs_no_call(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.start().close()
    try:
        with dovetail.Executor(service=service.folder.path) as executor:
            held = executor.submit(ef.wait_for, str(tmp_path / "late"))
            until(held.running)
            service.kill()
            rest = [executor.submit(ef.square, n) for n in range(3)]
            time.sleep(0.6)
            service.start().close()
            (tmp_path / "late").touch()
            assert held.result(LONG) == str(tmp_path / "late")
            assert [future.result(LONG) for future in rest] == [0, 1, 4]
            assert executor.submit(os.getpid).result(LONG) > 0
    finally:
        service.stop()
