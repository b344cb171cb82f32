"""Tasks over several processes: their order, and that an interruption ends all of them at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail_lab.tasks import mapped

INTERRUPTED = """
import time
from dovetail_lab.tasks import mapped

if __name__ == "__main__":
    print("ready", flush=True)
    try:
        mapped(time.sleep, [0.0, 600.0, 600.0, 600.0], 2, lambda done, total: print(done, flush=True))
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_tasks(workers: int) -> None:
    told: list[tuple[int, int]] = []
    assert mapped(abs, [-3, 2, -1], workers, lambda *done: told.append(done)) == [3, 2, 1]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_interruption_ends_running_tasks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    assert process.stdout.readline() == "1\n"  # one has ended, two sleep for long
    os.kill(process.pid, signal.SIGINT)
    said, errors = process.communicate(timeout=280)
    assert (said, errors, process.returncode) == ("ended\n", "", 0)
