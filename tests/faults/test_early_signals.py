"""INT and TERM that come before a loop takes them: while modules are loaded and a run is opened."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

STRIKE = """
import os, signal, sys

at, number, noted = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
del sys.argv[1:4]
from dovetail.start import main

count = 0

def count_event(event, arguments):
    global count
    if event in ("import", "open"):
        # Of the machine, not of the start: as many as processes are there, and one a second of a watcher.
        if str(arguments[0]).startswith("/proc/"):
            return
        count += 1
        if count == at:
            os.write(2, b"struck\\n")
            os.kill(os.getpid(), number)
    elif event == "subprocess.Popen" and noted and not os.path.exists(noted):
        os.close(os.open(noted, os.O_CREAT))
        os.write(os.open(noted, os.O_WRONLY), b"%d" % count)
        if not at:
            os.kill(os.getpid(), signal.SIGTERM)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(count_event)
main()
"""
"""The signal comes, and is noted, at this module or opened file; 0 notes how many precede a process."""
POINTS = full(120, 3)


def strike(root: Path, at: int, number: int, command: list[str], noted: str = "") -> tuple[int, str]:
    """Exit status and errors, with a state folder that is new: the same modules and files each time.

    A process that does not end is killed: that it was struck at all is in its errors.
    """
    environment = {**os.environ, "XDG_STATE_HOME": str(root / f"state-{at}")}
    environment["DOVETAIL_CLAIMS"] = str(root / "claims")  # else each Dovetail beside it is a file more
    environment.pop("DOVETAIL_SERVICE", None)
    errors = root / "errors"
    with errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", STRIKE, str(at), str(int(number)), noted, *command],
            cwd=root, env=environment, stdout=subprocess.DEVNULL, stderr=err, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            status = process.wait(120)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
    return status, errors.read_text()


def in_folder(root: Path) -> list[str]:
    """Processes at work there."""
    found = []
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{entry}/cwd").startswith(str(root)):
                found.append(entry)
        except OSError:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["INT", "TERM"])
@pytest.mark.parametrize("command", ["run -q -- sleep 600", "serve --cluster 1x1cpu"], ids=["run", "serve"])
def test_a_signal_before_the_loop_ends_it_quietly(tmp_path: Path, command: str, number: int) -> None:
    """No traceback, the signal's status, and nothing that runs on or that is left to record."""
    words = command.split()
    noted = tmp_path / "noted"
    for _ in range(2):  # the first one may have had modules to compile
        noted.unlink(missing_ok=True)
        shutil.rmtree(tmp_path / "state-0", ignore_errors=True)
        strike(tmp_path, 0, number, words, str(noted))
        until(lambda: not in_folder(tmp_path))
    last = int(noted.read_text()) - 5  # a few may differ from start to start
    expected = {128 + signal.SIGINT} if number == signal.SIGINT else {-signal.SIGTERM, 128 + signal.SIGTERM}
    for n in range(1, POINTS + 1):
        at = max(1, last * n // POINTS)
        status, told = strike(tmp_path, at, number, words)
        assert "struck\n" in told, f"no signal was sent: this start has fewer events than {at} of {last}"
        # A service whose loop runs by then ends in good order, as its log has it.
        assert status in ({0} if "service ends" in told else expected), (at, last, told)
        for wrong in ("Traceback", "rror:", "Exception"):
            assert wrong not in told, (at, last)
        until(lambda: not in_folder(tmp_path), f"something runs on after {at} of {last}")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / f"state-{last}")}
    for after, printed in (("recover", "Nothing was left behind.\n"), ("run -q --json -- true", None)):
        done = subprocess.run(
            [sys.executable, "-m", "dovetail", *after.split()],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert printed is None or done.stdout == printed
