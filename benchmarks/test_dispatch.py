"""How fast 1,000 jobs of ``/bin/true`` are dispatched over two devices, beside what needs no scheduler.

``make bench`` measures, in turns in one process: a posix_spawn loop with a window of two, ``xargs -P2``,
HyperQueue with a worker of two cores (from requirements/peers.txt, where it is installed), the local executor
alone (each end starts the next job on the device that became free), and `dovetail.run`
with policy, journal and history on. The share of the loop's rate is in the benchmark's ``extra_info`` and
on standard output (``-s``). Only outcomes are asserted: shares depend on what else the machine does.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import io
import itertools
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.history.sqlite import SqliteHistory
from dovetail.interfaces import RunFolder
from dovetail.local.executor import LocalExecutor
from dovetail.model import CPU, Cluster, Device, Ended, Node, Placed, State
from dovetail.process.spawn_log import read_log
from dovetail.testing.processes import CORES, on_device, placed

JOBS = 1000
ROUNDS = 3

JOB_FILE = f"""
[[app]]
name = "true"
[[app.implementation]]
name = "cpu"
command = ["/bin/true"]
[[app.implementation]]
name = "opencl"
command = ["/bin/true"]
[[job]]
app = "true"
count = {JOBS}
"""


def two_devices() -> Cluster:
    """A core, and another as an OpenCL device."""
    if len(CORES) < 2:
        pytest.skip("two cores are needed")
    return Cluster((Node("n0", CORES[:1], (Device("opencl", "pocl", 0, CORES[1:2]),)),))


def spawn_loop() -> None:
    """posix_spawn, two at a time, nothing else."""
    running = 0
    for _ in range(JOBS):
        if running == 2:
            os.wait()
            running -= 1
        os.posix_spawn("/bin/true", ["/bin/true"], os.environ)
        running += 1
    for _ in range(running):
        os.wait()


def xargs() -> None:
    """The shell's way: one process for each line, two at a time."""
    lines = "".join(f"{n}\n" for n in range(JOBS))
    subprocess.run(["xargs", "-P2", "-n1", "/bin/true"], input=lines, text=True, check=True)


@contextmanager
def hyperqueue_client() -> Iterator[Any]:
    """A client of a server with one worker of two cores; ``None`` where HyperQueue is not installed."""
    if importlib.util.find_spec("hyperqueue") is None:
        yield None
        return
    from hyperqueue import LocalCluster
    from hyperqueue.cluster import WorkerConfig

    with LocalCluster(worker_config=WorkerConfig(cores=2)) as cluster:
        yield cluster.client()


def hyperqueue(client: Any) -> None:
    """One HyperQueue job with a task for each program."""
    from hyperqueue import Job

    job = Job()
    for _ in range(JOBS):
        job.program(["/bin/true"], stdout=None, stderr=None)
    with contextlib.redirect_stderr(io.StringIO()):  # it draws its progress there
        client.wait_for_jobs([client.submit(job)])


def executor_alone(folder: Path) -> list[Ended]:
    """The executor, driven by nothing but its own events."""
    cluster = two_devices()
    numbers = itertools.count()

    def job(kind: str) -> Placed:
        name = f"{kind}-{next(numbers)}"
        return placed(name, "/bin/true") if kind == CPU else on_device(name, cluster, kind, (0,), "/bin/true")

    async def main() -> list[Ended]:
        executor = LocalExecutor(RunFolder(folder), cluster)
        ends: list[Ended] = []
        for kind in (CPU, "opencl"):
            await executor.launch(job(kind))
        launched = 2
        async for event in executor.events():
            assert isinstance(event, Ended)
            ends.append(event)
            if launched < JOBS:
                launched += 1
                await executor.launch(job(event.job.split("-")[0]))
            if len(ends) == JOBS:
                break
        await executor.close()
        return ends

    return asyncio.run(main())


def whole(folder: Path) -> dovetail.Report:
    """`dovetail.run`: policy, journal, history."""
    folder.mkdir()
    (folder / "jobs.toml").write_text(JOB_FILE)
    return dovetail.run(
        folder / "jobs.toml", cluster=two_devices(), history=folder / "history.sqlite", run_dir=folder / "run"
    )


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return JOBS / (time.perf_counter() - start)


def test_dispatch_rate(benchmark, state: Path):
    names = ("posix_spawn", "xargs -P2", "HyperQueue", "executor", "dovetail.run")
    rates: dict[str, list[float]] = {name: [] for name in names}
    folders = (state / str(n) for n in itertools.count())

    def turn() -> None:
        rates["posix_spawn"].append(timed(spawn_loop))
        if shutil.which("xargs"):
            rates["xargs -P2"].append(timed(xargs))
        if client is not None:
            rates["HyperQueue"].append(timed(lambda: hyperqueue(client)))
        folder = next(folders)
        rates["executor"].append(timed(lambda: executor_alone(folder)))
        log = read_log(folder / "spawn.log")
        assert len(log.ends) == JOBS
        assert all(end["status"] == 0 for end in log.ends.values())
        folder = next(folders)
        report = whole(folder)
        rates["dovetail.run"].append(JOBS / report.makespan)
        assert [row["state"] for row in report.jobs] == [State.COMPLETED] * JOBS
        with SqliteHistory(folder / "history.sqlite") as history:
            assert len({run.uid for run in history.runs("true")}) == JOBS

    with hyperqueue_client() as client:
        benchmark.pedantic(turn, rounds=ROUNDS, iterations=1, warmup_rounds=1)
    loop = statistics.median(rates["posix_spawn"])
    for name, found in rates.items():
        if found:
            rate = statistics.median(found)
            benchmark.extra_info[name] = {
                "jobs_per_second": round(rate),
                "share_of_loop": round(rate / loop, 3),
            }
            print(f"{name:14s} {rate:7.0f} jobs/s  {rate / loop:5.2f} of the posix_spawn loop")
