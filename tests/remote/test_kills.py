"""kill -9 at random moments: of the client, of the server, of a device, of the target of a migration.

Whatever is killed, no memory stays taken, no process is left, and the program goes on or ends with one
sentence. A few rounds of each in ``make test``, a hundred in ``make test-all``.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_servers import Served, serving, start_program, start_server
from ready_command import Program
from waiting import stop, until

from dovetail.errors import DeviceError, DeviceLost
from dovetail.testing.builders import full
from dovetail.testing.processes import is_running
from dovetail_remote import Device, Namespace

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]

ROUNDS = full(100, 1)

PROGRAM = """
import sys
import dovetail_remote
xp = dovetail_remote.namespace(sys.argv[1])
x = xp.zeros(200_000)
print("begun", flush=True)
for k in range(10**9):
    x = x + 1
    y = xp.sin(x)
    if k % 10 == 0:
        float(xp.sum(y))
"""


def program(served: Served) -> subprocess.Popen[str] | Program:
    """A program that computes until something ends it; it has begun."""
    process = start_program(PROGRAM, served.address())
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def closed(process: subprocess.Popen[str] | Program) -> str:
    """What a program that has ended said on standard error."""
    _, said = process.communicate(timeout=200)
    return said


def test_client_killed(tmp_path: Path) -> None:
    rng = random.Random(1)
    with serving(tmp_path, "numpy") as served:
        for _ in range(ROUNDS):
            process = program(served)
            time.sleep(rng.uniform(0, 0.1))
            process.kill()
            closed(process)
            until(lambda: not served.status()[0]["clients"])
            until(lambda: served.status()[0]["bytes"] == 0)
        resident = _resident(served.workers()[0])
        assert resident < 300e6


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_server_killed(tmp_path: Path) -> None:
    rng = random.Random(2)
    for number in range(ROUNDS):
        served = start_server(tmp_path, "numpy", name=f"s{number}")
        (worker,) = served.workers()
        process = program(served)
        time.sleep(rng.uniform(0, 0.1))
        served.process.kill()
        served.process.wait()
        said = closed(process).splitlines()
        assert process.returncode == 1
        assert said[-1].startswith(
            f"dovetail.errors.DeviceLost: {served.address()}: the device server is gone"
        )
        until(lambda worker=worker: not is_running(worker))


def test_device_killed(tmp_path: Path) -> None:
    """The process of the device alone: its clients have lost their arrays, the next finds a new one."""
    rng = random.Random(3)
    with serving(tmp_path, "numpy") as served:
        for _ in range(ROUNDS):
            process = program(served)
            time.sleep(rng.uniform(0, 0.1))
            os.kill(served.workers()[0], signal.SIGKILL)
            assert closed(process).splitlines()[-1].startswith("dovetail.errors.DeviceLost: ")
            until(lambda: "bytes" in served.status()[0])


class Counting:
    """A thread that counts on a device, and would notice a call that is lost or done twice."""

    def __init__(self, device: Device) -> None:
        self.xp = Namespace([device])
        self.x = self.xp.zeros(100_000)
        self.count = 0
        self.wrong: Any = None
        self.lost: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set() and self.wrong is None:
                self.x += 1
                self.count += 1
                if self.count % 20 == 0:
                    found = float(self.x[self.count % 100_000])
                    if found != self.count:
                        self.wrong = (found, self.count)
        except DeviceLost as error:
            self.lost = str(error)

    def halt(self) -> None:
        """Whatever became of it."""
        self._stop.set()
        self._thread.join(200)

    def stop(self) -> str | None:
        """How the device was lost, if it was; else every call has been carried out once."""
        self._stop.set()
        self._thread.join(200)
        assert not self._thread.is_alive()
        assert self.wrong is None
        if self.lost is None:
            assert np.array_equal(np.asarray(self.x), np.full(100_000, float(self.count)))
        return self.lost


@pytest.mark.parametrize("start", ["remote", "local"])
def test_target_killed_while_work_moves(tmp_path: Path, start: str) -> None:
    """The work stays where it is, or is lost with a target that it has reached: never half of it."""
    rng = random.Random(4)
    with serving(tmp_path, "numpy", name="home") as home, serving(tmp_path, "numpy", name="away") as away:
        source = home.address() if start == "remote" else "local:numpy"
        for _ in range(ROUNDS):
            until(lambda: "bytes" in away.status()[0])
            device = Device(source)
            counting = Counting(device)
            (target,) = away.workers()
            killer = threading.Timer(rng.uniform(0.0, 0.01), os.kill, (target, signal.SIGKILL))
            killer.start()
            try:
                device.migrate(away.address())
                reached = True
            except DeviceError:
                reached = False
            killer.join()
            if reached:  # then it is the loss of a server that has everything
                with contextlib.suppress(DeviceLost):
                    device.synchronize()
                counting.halt()
            else:
                assert device.address == source
                assert counting.stop() is None
            device.close()
            if start == "remote":
                until(lambda: home.status()[0]["bytes"] == 0)
        until(lambda: not home.status()[0]["clients"])


def moving(device: Device, target: str, failed: list[str]) -> None:
    try:
        device.migrate(target)
    except DeviceError as error:
        failed.append(str(error))


def test_target_killed_while_large_arrays_move(tmp_path: Path) -> None:
    """Killed in the middle of the transfer, for certain: the target is stopped first, so that it is full."""
    with serving(tmp_path, "numpy", name="home") as home, serving(tmp_path, "numpy", name="away") as away:
        device = Device(home.address())
        xp = Namespace([device])
        x = xp.arange(5_000_000.0)
        stayed = tries = 0
        while stayed < ROUNDS:
            tries += 1
            assert tries < 20 * ROUNDS
            until(lambda: "bytes" in away.status()[0])
            (target,) = away.workers()
            failed: list[str] = []
            thread = threading.Thread(target=moving, args=(device, away.address(), failed))
            thread.start()
            until(lambda target=target: len(away.status()[0].get("clients", ())) == 1)
            stop(target)
            time.sleep(0.05)
            os.kill(target, signal.SIGKILL)
            thread.join(200)
            if not failed:  # it was there already: begin anew
                device.close()
                device = Device(home.address())
                xp = Namespace([device])
                x = xp.arange(5_000_000.0)
                continue
            x += 1
            stayed += 1
            assert "device server" in failed[0]
            assert device.address == home.address()
            assert float(x[0]) == float(x[4_999_999]) - 4_999_999
        device.close()
        until(lambda: home.status()[0]["bytes"] == 0)


def test_source_killed_while_work_moves_is_one_sentence(tmp_path: Path) -> None:
    rng = random.Random(5)
    with serving(tmp_path, "numpy", name="home") as home, serving(tmp_path, "numpy", name="away") as away:
        for _ in range(ROUNDS):
            until(lambda: "bytes" in home.status()[0])
            device = Device(home.address())
            xp = Namespace([device])
            x = xp.ones(1_000_000)
            (source,) = home.workers()
            killer = threading.Timer(rng.uniform(0.0, 0.01), os.kill, (source, signal.SIGKILL))
            killer.start()
            failed: list[str] = []
            moving(device, away.address(), failed)
            killer.join()
            if not failed:
                assert float(xp.sum(x)) == 1_000_000
            assert not any("\n" in sentence for sentence in failed)
            device.close()
            until(lambda: not away.status()[0]["clients"] and away.status()[0]["bytes"] == 0)


def test_program_goes_on_with_replay(tmp_path: Path) -> None:
    rng = random.Random(6)
    with serving(tmp_path, "numpy", "numpy") as served:
        device = Device(served.address(0), replay=True, spares=(served.address(1),))
        counting = Counting(device)
        for _ in range(ROUNDS):
            time.sleep(rng.uniform(0.05, 0.2))
            alive = [d["pid"] for d in served.status() if "bytes" in d]
            if len(alive) == 2:
                os.kill(rng.choice(alive), signal.SIGKILL)
        assert counting.stop() is None
        device.close()
        until(lambda: all(d.get("bytes") == 0 for d in served.status()))


def test_no_process_is_left(tmp_path: Path) -> None:
    """Every process of every server of these tests has ended with it."""
    with serving(tmp_path, "numpy", "numpy") as served:
        workers = served.workers()
        program_ = program(served)
    closed(program_)
    until(lambda: not any(map(is_running, workers)))
