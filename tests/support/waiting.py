"""Waiting for what other processes do in their own time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T], what: str = "what was waited for did not happen", seconds: float = 100
) -> T:
    """Ask until the answer is true; return it.

    The longer it takes the less often is asked, since asking may cost a process.
    """
    begun = time.monotonic()
    while not (value := found()):
        waited = time.monotonic() - begun
        assert waited < seconds, f"{what} within {seconds:g} s: {value!r}"
        time.sleep(min(0.2, 0.02 + waited / 10))
    return value


def stop(pid: int) -> None:
    """Stop a process and wait until each of its threads stands still.

    Until the thread that gets the signal has run, the others go on, and may answer.
    """
    os.kill(pid, signal.SIGSTOP)

    def stands_still() -> bool:
        states = [
            stat.read_text().rpartition(")")[2].split()[0]
            for stat in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
        return set(states) == {"T"}

    until(stands_still, "it stands still")
