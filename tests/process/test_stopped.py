"""A supervisor that was stopped for a while, and a clock that was set back: times are the processes' own."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest
from services import Serving, submit, wait
from waiting import stop, until

from dovetail.interfaces import RunFolder
from dovetail.local.executor import LocalExecutor
from dovetail.model import Ended, State
from dovetail.process.processes import ran_last, stat_of
from dovetail.process.spawn_log import read_log
from dovetail.testing.processes import cpu_cluster, placed

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
TELLS = pytest.mark.skipif(
    not os.path.exists("/proc/self/sched"), reason="this kernel does not tell when a process ran last"
)


def is_zombie(pid: int) -> bool:
    return stat_of(pid)[0] == b"Z"


@TELLS
def test_when_a_zombie_ran_last() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    until(lambda: is_zombie(pid))
    ended, before = time.monotonic(), os.sched_getaffinity(0)
    time.sleep(0.5)
    found = ran_last(pid)
    os.waitpid(pid, 0)
    assert found is not None
    assert found < ended + 0.25
    assert os.sched_getaffinity(0) == before
    assert ran_last(pid) is None


async def stopped(tmp_path: Path, stop_at: str) -> dict[str, Ended]:
    """Three jobs under a supervisor that is stopped until all have ended but one; of each an end.

    ``short`` ends before somebody wants it stopped, ``long`` after that, ``endless`` never: each when its
    file is there, not after a while.
    """
    executor = LocalExecutor(RunFolder(tmp_path / "run", grace=1.0), cpu_cluster())
    stream = executor.events()
    log = tmp_path / "run" / "spawn.log"
    for name in ("short", "long", "endless"):
        waits = f"while ! test -e {tmp_path}/{name}; do sleep 0.01; done"
        await executor.launch(placed(name, "/bin/sh", "-c", waits))
    listener = asyncio.ensure_future(anext(stream))
    while not log.exists() or len(read_log(log).starts) < 3:
        await asyncio.sleep(0.01)
    found = read_log(log)
    pids = {uid.rpartition("/")[2]: start["pid"] for uid, start in found.starts.items()}
    supervisor = found.supervisors[-1]["pid"]
    await asyncio.to_thread(stop, supervisor)
    try:
        (tmp_path / "short").touch()
        while not is_zombie(pids["short"]):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        for name in ("short", "long", "endless"):
            await executor.stop(name, stop_at)
        (tmp_path / "long").touch()
        while not is_zombie(pids["long"]):
            await asyncio.sleep(0.01)
        await asyncio.sleep(2.0)
    finally:
        os.kill(supervisor, signal.SIGCONT)
    ends: dict[str, Ended] = {}
    while len(ends) < 3:
        event = await asyncio.wait_for(listener, 100)
        assert isinstance(event, Ended)
        ends[event.job] = event
        listener = asyncio.ensure_future(anext(stream))
    listener.cancel()
    await executor.close()
    return ends


@TELLS
def test_ends_that_came_while_the_supervisor_was_stopped(tmp_path: Path) -> None:
    ends = asyncio.run(stopped(tmp_path, "TIMEOUT"))
    took = {job: (end.ended_at or 0.0) - (end.started_at or 0.0) for job, end in ends.items()}
    assert ends["short"].state is State.COMPLETED, "it had ended before"
    assert took["short"] < took["long"] < took["endless"]
    assert took["long"] < took["endless"] - 1.5, "not the time that the supervisor was stopped"
    assert took["short"] < took["endless"] - 2.0
    assert ends["long"].state is State.TIMEOUT, "it had gone on beyond its limit"
    assert ends["endless"].state is State.TIMEOUT


BACK = """
import time
real = time.time
time.time = lambda: real() - 3600.0
from dovetail.start import main
main()
"""


def test_a_clock_that_is_set_back_over_a_restart(tmp_path: Path) -> None:
    """By an hour, while a job runs: how long it has run is by no clock that somebody sets."""
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    with service.start() as client:
        go = tmp_path / "go"
        (id,) = submit(client, {"command": ["sh", "-c", f"until test -e {go}; do sleep 0.05; done"]})
        until(lambda: client.get(f"/api/v1/jobs/{id}")["state"] == "RUNNING")
        began = time.monotonic()
    service.kill()
    service.program = ("-c", BACK)
    with service.start() as client:
        row = client.get(f"/api/v1/jobs/{id}")
        ran = time.monotonic() - began
        assert row["start"] < time.time() - 3500, "by the clock as it is now"
        assert time.time() - 3600 - row["start"] == pytest.approx(ran, abs=ran / 2 + 0.5)
        go.touch()
        assert wait(client, [id]) == {id: "COMPLETED"}
        row = client.get(f"/api/v1/jobs/{id}")
        assert 0 < row["end"] - row["start"] < time.monotonic() - began + 1
        assert row["end"] < time.time() - 3500
    service.stop()
