"""The control socket: a scheduler moves the devices of real jobs, and hears when the work has moved."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from device_servers import Served, start_program
from ready_command import Program
from waiting import stop

import dovetail_remote
from dovetail.errors import DeviceError, InputError
from dovetail.testing.processes import wait_until
from dovetail_remote.switchboard import Switchboard

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("remote")]

# One array at all times, so that a move at any moment finds its bytes: an element asked for by x[k] would be
# an array on the device too, until its number is there.
JOB = """
import sys, time
import numpy
import dovetail_remote
xp = dovetail_remote.namespace()
x = xp.zeros(1000)
print("begun", xp.device.address, flush=True)
for k in range(1, 10**9):
    x += 1
    if k % 100 == 0:
        assert (numpy.asarray(x) == k).all()
        if xp.device.address == sys.argv[1]:
            break
        time.sleep(0.001)
print("ended", xp.device.address, float(x[0]) == k, flush=True)
"""


@contextmanager
def job(board: Switchboard, uid: str, end: str, script: str = JOB, **environment: str) -> Iterator[Any]:
    """A process of a job, which computes until its device is at ``end``."""
    process = start_program(script, end, **{"DOVETAIL_UID": uid, **board.job_environment(uid), **environment})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


async def line(process: subprocess.Popen[str] | Program) -> str:
    """The next line that a job prints."""
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).rstrip("\n")


def scheduling(
    address: str, work: Callable[[Switchboard], Awaitable[None]], token: bytes | None = None
) -> None:
    async def main() -> None:
        async with Switchboard(address, token) as board:
            await asyncio.wait_for(work(board), 250)

    asyncio.run(main())


def test_a_running_job_is_moved(tmp_path: Path, numpy_server: Served) -> None:
    first, second = numpy_server.address(0), numpy_server.address(1)

    async def work(board: Switchboard) -> None:
        assert os.stat(tmp_path / "control.sock").st_mode & 0o777 == 0o600
        board.expect_job("u1", [first])
        with job(board, "u1", "local:numpy") as process:
            assert await line(process) == f"begun {first}"
            moved = await board.migrate("u1", 0, second)
            assert (moved.processes, moved.size) == (1, 8000)
            assert moved.pause > 0
            await wait_until(lambda: not numpy_server.status()[0]["clients"])
            await wait_until(
                lambda: [one["pid"] for one in numpy_server.status()[1]["clients"]] == [process.pid]
            )
            await board.migrate("u1", 0, "local:numpy")
            assert await line(process) == "ended local:numpy True"
            await wait_until(lambda: numpy_server.status()[1]["bytes"] == 0)
            assert board.where("u1") == ("local:numpy",)

    scheduling(f"unix:{tmp_path}/control.sock", work)
    assert not (tmp_path / "control.sock").exists()


def test_where_a_process_cannot_move_all_stay(tmp_path: Path, numpy_server: Served) -> None:
    first, second = numpy_server.address(0), numpy_server.address(1)

    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [first])
        script = JOB.replace("xp.zeros(1000)", "xp.zeros(1000, dtype=xp.complex128)").replace(
            "float(", "complex("
        )
        with job(board, "u1", second) as one, job(board, "u1", second, script) as two:
            await line(one)
            await line(two)
            with pytest.raises(DeviceError, match=rf"job u1: device 0 stays at {first}: .*nothing.sock"):
                await board.migrate("u1", 0, f"unix:{tmp_path}/nothing.sock")
            await wait_until(lambda: len(numpy_server.status()[0]["clients"]) == 2)
            # One of the two cannot go where the other can: that one comes back.
            local = dovetail_remote.Device("local:numpy")
            local.close()
            moved = await board.migrate("u1", 0, second)
            assert moved.processes == 2
            assert sorted([await line(one), await line(two)]) == [f"ended {second} True"] * 2

    scheduling(f"unix:{tmp_path}/control.sock", work)


def test_one_of_two_processes_that_fails_brings_the_other_back(tmp_path: Path, numpy_server: Served) -> None:
    first, second = numpy_server.address(0), numpy_server.address(1)
    failing = JOB.replace(
        "x = xp",
        "from dovetail.errors import DeviceError\n"
        "def migrate(target):\n    raise DeviceError('this one does not move')\n"
        "xp.device.migrate = migrate\nx = xp",
    )

    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [first])
        with job(board, "u1", "nowhere") as one, job(board, "u1", "nowhere", failing) as two:
            await line(one)
            await line(two)
            with pytest.raises(DeviceError, match="this one does not move"):
                await board.migrate("u1", 0, second)
            both = {one.pid, two.pid}
            await wait_until(
                lambda: {client["pid"] for client in numpy_server.status()[0]["clients"]} == both
            )
            await wait_until(lambda: not numpy_server.status()[1]["clients"])
            assert board.where("u1") == (first,)

    scheduling(f"unix:{tmp_path}/control.sock", work)


def test_a_process_that_ends_has_nothing_left_to_move(tmp_path: Path, numpy_server: Served) -> None:
    first, second = numpy_server.address(0), numpy_server.address(1)

    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [first])
        assert (await board.migrate("u1", 0, second)).processes == 0  # none has opened it yet
        with job(board, "u1", "nowhere") as process:
            assert await line(process) == f"begun {second}"
            stop(process.pid)
            moving = asyncio.create_task(board.migrate("u1", 0, first))
            await asyncio.sleep(0.2)
            assert not moving.done()
            process.kill()
            assert (await moving).processes == 0
        board.forget_job("u1")
        with pytest.raises(DeviceError, match="job u1 has no device 0"):
            await board.migrate("u1", 0, second)

    scheduling(f"unix:{tmp_path}/control.sock", work)


def test_a_process_that_does_not_answer_is_not_waited_for_for_ever(
    tmp_path: Path, numpy_server: Served
) -> None:
    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [numpy_server.address(0)])
        with job(board, "u1", "nowhere") as process:
            await line(process)
            stop(process.pid)
            with pytest.raises(DeviceError, match=r"no answer within 0\.3 s"):
                await board.migrate("u1", 0, "local:numpy", timeout=0.3)

    scheduling(f"unix:{tmp_path}/control.sock", work)


def test_strangers_are_refused(tmp_path: Path, numpy_server: Served) -> None:
    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [numpy_server.address(0)])
        with job(board, "u1", "nowhere", DOVETAIL_UID="u2") as process:
            _, said = await asyncio.to_thread(process.communicate)
            assert "the scheduler refuses: found the job 'u2', which does not run" in said.splitlines()[-1]
        for words in (
            b"\n",
            b"[]\n",
            b'{"hello": 5}\n',
            b"x" * 200_000 + b"\n",
            b'{"hello": {"uid": ["u1"]}}\n',
        ):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "control.sock"))
            writer.write(words)
            assert b"welcome" not in await reader.read()
            writer.close()
        with job(board, "u1", "local:numpy") as process:
            await line(process)
            await board.migrate("u1", 0, "local:numpy")
            assert (await line(process)).startswith("ended")

    scheduling(f"unix:{tmp_path}/control.sock", work)


def test_on_the_network_both_sides_know_the_token(tmp_path: Path, numpy_server: Served) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef")
    path.chmod(0o600)
    other = tmp_path / "other"
    other.write_text("0123456789abcdeX")
    other.chmod(0o600)

    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [numpy_server.address(0)])
        with job(board, "u1", "local:numpy", DOVETAIL_TOKEN_FILE=str(path)) as process:
            await line(process)
            await board.migrate("u1", 0, "local:numpy")
            assert (await line(process)).startswith("ended")
        for extra, why in (
            ({"DOVETAIL_TOKEN_FILE": str(other)}, "the token is not the one of this scheduler"),
            ({"DOVETAIL_TOKEN_FILE": ""}, "needs a token"),
        ):
            with job(board, "u1", "nowhere", **extra) as process:
                _, said = await asyncio.to_thread(process.communicate)
                assert why in said.splitlines()[-1]

    scheduling("tcp:127.0.0.1:0", work, b"0123456789abcdef")
    with pytest.raises(InputError, match="found no token"):
        Switchboard("tcp:127.0.0.1:0")
    with pytest.raises(InputError, match="found a device"):
        Switchboard("local:numpy")


def test_a_job_finds_the_scheduler_that_takes_the_run_up(tmp_path: Path, numpy_server: Served) -> None:
    """The first is gone; the second knows where the device should be by now, and goes on moving it."""
    first, second = numpy_server.address(0), numpy_server.address(1)
    address = f"unix:{tmp_path}/control.sock"

    async def main() -> None:
        async with Switchboard(address) as board:
            board.expect_job("u1", [first])
            environment = board.job_environment("u1")
            process = start_program(JOB, "local:numpy", DOVETAIL_UID="u1", **environment)
            assert await line(process) == f"begun {first}"
        async with Switchboard(address) as board:
            board.expect_job("u1", [second])
            await wait_until(lambda: bool(numpy_server.status()[1]["clients"]))
            await board.migrate("u1", 0, "local:numpy")
            assert await line(process) == "ended local:numpy True"
        process.communicate()

    asyncio.run(asyncio.wait_for(main(), 250))


def test_who_has_all_its_devices_here_starts_without_a_scheduler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dovetail was killed, and the job goes on; who borrows has to know where its device is by now."""
    monkeypatch.setenv("DOVETAIL_CONTROL", f"unix:{tmp_path}/none.sock")
    monkeypatch.setenv("DOVETAIL_DEVICE_ADDRESSES", "local:numpy local:numpy")
    xp = dovetail_remote.namespace()
    assert [device.address for device in xp.devices] == ["local:numpy", "local:numpy"]
    assert float(xp.sum(xp.ones(3))) == 3.0
    monkeypatch.setenv("DOVETAIL_DEVICE_ADDRESSES", f"local:numpy unix:{tmp_path}/other.sock#0")
    with pytest.raises(DeviceError, match="no scheduler answers"):
        dovetail_remote.namespace()


def test_a_program_that_ends_as_soon_as_its_device_is_home_is_counted(
    tmp_path: Path, numpy_server: Served
) -> None:
    first = numpy_server.address(0)
    slowly = (
        "import time\nfrom dovetail_remote.control import ControlClient\nsay = ControlClient._send_message\n"
        "def late(seat, message):\n    time.sleep(0.5 * ('moved' in message))\n    say(seat, message)\n"
        "ControlClient._send_message = late\n"
    )

    async def work(board: Switchboard) -> None:
        board.expect_job("u1", [first])
        with job(board, "u1", "local:numpy", slowly + JOB) as process:
            assert await line(process) == f"begun {first}"
            assert (await board.migrate("u1", 0, "local:numpy")).processes == 1
            assert await line(process) == "ended local:numpy True"

    scheduling(f"unix:{tmp_path}/control.sock", work)
