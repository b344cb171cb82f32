"""INT and TERM end a run, and a service, whatever is stuck: a task, a file system, the loop itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Serving
from stuck_files import stuck
from waiting import until

from dovetail.process.recovery import recover_run
from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
SHORT = full(
    "",
    """
from dovetail.driver import live
from dovetail.process.reporting import Reporting
from dovetail.running import last_resort
last_resort.SPARE, live.CLOSES_WITHIN, live.LEAVES_WITHIN = 1.0, 1.0, 1.0
Reporting.ends_within = property(lambda self: self._grace + 2.0)
""",
)
"""`make test-all` waits for what is really given to what is stuck."""
WITHIN = 30.0
"""Seconds, more than all that is given: 1 of grace, 3, 3 and 2, on a busy machine."""
COMMAND = "\nfrom dovetail.cli.main import run_cli\nrun_cli()"
TASK = """
import asyncio
from dovetail.service.ground import Ground
async def watch(self):
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass
Ground.watch = watch
"""
WAITS = """
import asyncio, os
from pathlib import Path
from dovetail.service.ground import Ground
async def watch(self):
    await asyncio.sleep(1)
    place = Path(os.environ["XDG_STATE_HOME"])
    place.mkdir(exist_ok=True)
    (place / "waits").touch()
    os.stat({path!r})
Ground.watch = watch
"""
POLICY = """
import time
from dataclasses import dataclass
from pathlib import Path

@dataclass(frozen=True)
class Endless:
    def decide(self, view):
        Path("decides").touch()
        while view.queue:
            time.sleep(0.01)
        return ()
"""


def signalled(process: subprocess.Popen[bytes], number: int) -> tuple[int, float]:
    """The exit status after this signal, and the seconds that it took."""
    began = time.monotonic()
    process.send_signal(number)
    try:
        return process.wait(WITHIN), time.monotonic() - began
    except subprocess.TimeoutExpired:
        process.kill()
        raise


@pytest.fixture(params=[signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def number(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system that answers nothing."""
    try:
        with stuck(tmp_path / "silent") as folder:
            yield folder
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")


def service_with(root: Path, change: str, *options: str) -> Serving:
    found = Serving(root, *options)
    found.program = ("-c", SHORT + change + COMMAND)
    return found


def ended_by(found: Serving, number: int) -> str:
    """End a service by a signal; its log."""
    assert isinstance(found.process, subprocess.Popen)
    signalled(found.process, number)
    return found.folder.log.read_text()


def test_a_service_whose_task_does_not_end(tmp_path: Path, number: int) -> None:
    found = service_with(tmp_path, TASK)
    with found.start() as service:
        service.post("/api/v1/jobs", {"jobs": [{"command": ["true"]}]})
    log = ended_by(found, number)
    assert f"after {signal.Signals(number).name}, so it ends without" in log


def test_a_service_that_reads_where_nothing_answers(tmp_path: Path, silent: Path, number: int) -> None:
    found = service_with(tmp_path, "")
    with found.start() as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr(service, "_timeout", 2.0)
        service.close()
        with pytest.raises(Exception, match=r"no service answers|timed out"):
            service.post("/api/v1/jobs", {"jobs": [{"command": ["cat", str(silent / "data")]}]})
    assert "it is stuck in" in ended_by(found, number)


def test_a_service_in_an_endless_instant(tmp_path: Path, number: int) -> None:
    (tmp_path / "endless.py").write_text(POLICY)
    found = service_with(tmp_path, "", "--policy", f"{tmp_path}/endless.py:Endless")
    with found.start() as service:
        service.post("/api/v1/jobs", {"jobs": [{"command": ["true"]}]})
    until((tmp_path / "decides").exists)
    log = ended_by(found, number)
    assert "decide (endless.py:" in log


def run_with(root: Path, *arguments: str, change: str = "") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
    command = [sys.executable, "-c", SHORT + change + COMMAND, "run", "--grace", "1", *arguments]
    return subprocess.Popen(command, cwd=root, env=environment, stderr=subprocess.PIPE)


def test_a_run_in_an_endless_instant(tmp_path: Path, number: int) -> None:
    (tmp_path / "endless.py").write_text(POLICY)
    with run_with(tmp_path, "--policy", f"{tmp_path}/endless.py:Endless", "--", "true") as process:
        until((tmp_path / "decides").exists)
        status, _ = signalled(process, number)
        assert process.stderr is not None
        assert "decide (endless.py:" in process.stderr.read().decode()
    assert status == 128 + number


def test_a_run_whose_supervisor_stands_still(tmp_path: Path, number: int) -> None:
    """Its job can neither be stopped nor be told of: it is named, and left to the supervisor."""
    # The loop goes round here, and has the time for it on a busy machine as well.
    patient = "\nfrom dovetail.running import last_resort\nlast_resort.SPARE = 600.0"
    words = ("--run-dir", str(tmp_path / "run"), "--", "sleep", "600")
    process = run_with(tmp_path, *words, change=patient)
    pid = 0
    try:
        log = tmp_path / "run" / "spawn.log"
        until(lambda: log.exists() and read_log(log).starts, "the job starts")
        pid = read_log(log).supervisors[-1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        status, _ = signalled(process, number)
        assert process.stderr is not None
        assert "did not end within" in process.stderr.read().decode()
        assert status == 3
    finally:
        process.kill()
        if pid:
            os.kill(pid, signal.SIGCONT)
        process.communicate()
        until(lambda: not recover_run(tmp_path / "run").stop().running)


def test_a_service_whose_main_thread_waits_in_the_kernel(tmp_path: Path, silent: Path, number: int) -> None:
    """No handler is called there, of no signal."""
    found = service_with(tmp_path, WAITS.format(path=str(silent / "data")))
    with found.start():
        until((tmp_path / "state" / "waits").exists)
    assert f"after {signal.Signals(number).name}, so it ends without" in ended_by(found, number)
