"""A process whose loop is stuck ends all the same; one that has ended in time is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

PROGRAM = """
import asyncio, sys, threading, time
from dovetail.running import last_resort
last_resort.SPARE = 0.0

async def main():
    resort.handle_signal({number}, lambda: print("the loop goes round", flush=True))
    print("ready", flush=True)
    if {stuck!r} == "loop":
        time.sleep(600)
    elif {stuck!r} == "thread":
        await asyncio.to_thread(time.sleep, 600)
    else:
        await asyncio.sleep(600)

resort = last_resort.LastResort(0.3)
asyncio.run(main())
"""


@pytest.mark.parametrize("stuck", ["loop", "thread", "task"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signalled_process_ends_whatever_is_stuck(stuck: str, number: signal.Signals) -> None:
    program = PROGRAM.format(number=int(number), stuck=stuck)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert f"after {number.name}, so it ends without" in err
    assert ("the loop goes round" in out) is (stuck != "loop")


def test_a_second_ctrl_c_shortens_what_is_left() -> None:
    program = PROGRAM.format(number=int(signal.SIGINT), stuck="loop").replace(
        "LastResort(0.3)", "LastResort(600)"
    )
    program = program.replace("SPARE = 0.0", "SPARE, last_resort.HURRIED, last_resort.TWICE = 0.0, 0.3, 0.0")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        # Two that are pending at once would be one.
        until(lambda: not int(signals_of(process.pid), 16) & 1 << signal.SIGINT - 1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT


def signals_of(pid: int) -> str:
    """The mask of signals that a process has not taken yet."""
    return Path(f"/proc/{pid}/status").read_text().split("ShdPnd:")[1].split()[0]


def test_what_has_come_to_its_end_is_left_alone() -> None:
    """Its timer is gone: it is not waited for, since a busy machine would let it run out before the end."""
    over = PROGRAM.format(number=15, stuck="task").replace(
        "await asyncio.sleep(600)",
        "import os; os.kill(os.getpid(), 15); await asyncio.sleep(0.05)",
    )
    over = over.replace("LastResort(0.3)", "LastResort(600)")
    over += "assert resort._timer.is_alive()\nresort.disarm_timer()\nresort._timer.join(60)\n"
    over += "assert not resort._timer.is_alive()\n"
    done = subprocess.run([sys.executable, "-c", over], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
