"""Tasks over several processes: their order, and that an interruption ends all of them at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail_lab.tasks import map_tasks

INTERRUPTED = """
import time
from dovetail_lab.tasks import map_tasks

if __name__ == "__main__":
    print("ready", flush=True)
    try:
        map_tasks(time.sleep, [0.0, 600.0, 600.0, 600.0], 2, lambda done, total: print(done, flush=True))
    except KeyboardInterrupt:
        print("ended", flush=True)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_results_are_in_the_order_of_the_tasks(workers: int) -> None:
    told: list[tuple[int, int]] = []
    assert map_tasks(abs, [-3, 2, -1], workers, lambda *done: told.append(done)) == [3, 2, 1]
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


BROKEN = """
import os, struct, sys, time
from dovetail.process.worker_pool import worker_pool

def breaks_off(began):
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    writer = frame.f_locals["result_queue"]._writer
    os.write(writer.fileno(), struct.pack("!i", 1000) + b"x" * 10)  # the beginning of a result
    open(began, "w").close()
    time.sleep(600)

if __name__ == "__main__":
    try:
        with worker_pool(1) as pool:
            pool.submit(breaks_off, sys.argv[1])
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.01)
            raise ValueError("wrong")
    except ValueError as error:
        print(error)
"""


def test_a_worker_that_is_killed_within_its_result_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BROKEN)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "began")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "wrong\n"), done.stderr
