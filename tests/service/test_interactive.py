"""Interactive jobs: a real terminal here, a program on one of its own as a job, and the service between."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.process.terminal import Frames, frame, listen_at

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


class Screen:
    """A command on a pseudo-terminal of ours, as a person has it."""

    def __init__(self, here: Serving, *arguments: str, rows: int = 40, columns: int = 100) -> None:
        self.text = ""
        self.pid, self.master = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.chdir(here.root)
            words = [sys.executable, "-m", "dovetail", "submit", "--interactive", *arguments]
            os.execve(sys.executable, words, here.environment)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def see(self, words: str, timeout: float = 60.0) -> None:
        """Read until these words are there."""
        deadline = time.monotonic() + timeout
        while words not in self.text:
            assert time.monotonic() < deadline, f"no {words!r} in {self.text!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.master, 4096).decode()
                except OSError:
                    assert words in self.text, f"it has ended without {words!r}: {self.text!r}"

    def status(self, timeout: float = 60.0) -> int:
        """The exit status, once it has ended."""
        deadline = time.monotonic() + timeout
        while True:
            pid, found = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(found)
            assert time.monotonic() < deadline, f"it does not end: {self.text!r}"
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.text += os.read(self.master, 4096).decode()
                except OSError:
                    time.sleep(0.02)


@contextmanager
def service_here(root: Path) -> Iterator[Serving]:
    with serving(root, "--cluster", "1x2cpu+1gpu") as here:
        yield here
        assert "Traceback" not in here.folder.log.read_text()


def test_a_program_has_a_terminal_its_size_signals_and_status(tmp_path: Path) -> None:
    with service_here(tmp_path) as here, open_connection(here.folder.path) as service:
        program = (
            "trap 'echo caught' INT; trap 'echo resized' WINCH; stty size; echo ready; "
            "while read x; do echo got-$x; test $x = size && stty size; test $x = end && exit 7; done"
        )
        screen = Screen(here, "-c", "1", "-G", "1", "--", "bash", "-c", program)
        screen.see("40 100")
        screen.see("ready")
        screen.type("hello\n")
        screen.see("got-hello")
        screen.resize(31, 91)
        for _ in range(100):  # what is typed may go before the signal is taken
            screen.type("size\n")
            with suppress(AssertionError):
                screen.see("31 91", timeout=1)
                break
        screen.see("31 91", timeout=0.1)
        screen.see("resized")
        screen.type("\x03")
        screen.see("caught")
        (row,) = service.get("/api/v1/jobs")["jobs"]
        assert (row["name"], row["state"], row["devices"]) == ("interactive", "RUNNING", ["n0/gpu0"])
        assert row["command"].startswith("bash -c")
        screen.type("end\n")
        assert screen.status() == 7
        row = service.get(f"/api/v1/jobs/{row['id']}")
        assert (row["state"], row["exit_code"]) == ("FAILED", 7)
        done = Screen(here, "-c", "1", "--", "sh", "-c", "seq 20000; kill -9 $$")
        assert done.status() == 128 + signal.SIGKILL
        assert "20000" in done.text, "all that it wrote has come"
        assert not list(here.folder.terminals.iterdir())


def test_a_shell_is_the_default_and_ends_with_its_input(tmp_path: Path) -> None:
    with service_here(tmp_path) as here:
        here.environment["SHELL"] = "/bin/sh"
        screen = Screen(here, "-c", "1")
        screen.type("echo $((6 * 7))\n")
        screen.see("42")
        screen.type("\x04")
        assert screen.status() == 0
        done = here.dovetail("submit", "--interactive", "-c", "1", "--", "cat", input="through a pipe\n")
        assert done.returncode == 0, done.stderr
        assert "through a pipe" in done.stdout


def test_a_client_that_goes_ends_the_job(tmp_path: Path) -> None:
    with service_here(tmp_path) as here, open_connection(here.folder.path) as service:
        screen = Screen(here, "-c", "1", "--", "sh", "-c", "echo pid=$$.; sleep 1000")
        screen.see(".\r\n")
        program = int(screen.text.partition("pid=")[2].partition(".")[0])
        os.kill(screen.pid, signal.SIGKILL)
        (row,) = service.get("/api/v1/jobs")["jobs"]
        assert wait(service, [row["id"]]) == {row["id"]: "FAILED"}
        assert service.get(f"/api/v1/jobs/{row['id']}")["exit_code"] == 128 + signal.SIGHUP
        until(lambda: not os.path.exists(f"/proc/{program}"), "the program goes on")


def test_a_job_waits_its_turn_and_is_cancelled_by_an_interrupt(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with service_here(tmp_path) as here, open_connection(here.folder.path) as service:
        submit(service, {"command": ["sh", "-c", f"until [ -e {release} ]; do sleep 0.02; done"], "cpus": 2})
        first, second = Screen(here, "-c", "2", "--", "true"), Screen(here, "-c", "2", "--", "echo", "mine")
        first.see("Ctrl-C cancels it")
        first.type("\x03")
        assert first.status() == 130
        second.see("Ctrl-C cancels it")
        release.touch()
        assert second.status() == 0
        assert "mine" in second.text
        states = sorted(row["state"] for row in service.get("/api/v1/ended")["jobs"])
        assert states == ["CANCELLED", "COMPLETED", "COMPLETED"]


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    with service_here(tmp_path) as here:
        for words in (("--wait",), ("--json",), ("-a", "0-3"), ("--parsable",)):
            done = here.dovetail("submit", "--interactive", *words, "--", "true")
            assert done.returncode == 2
            assert "--interactive: found --wait, --test, --json, --parsable or an array" in done.stderr
        done = here.dovetail("submit", "--interactive", "jobs.toml")
        assert done.returncode == 2
        assert "expected one command after '--', or none" in done.stderr


def test_a_service_before_another_queue_has_no_terminals(tmp_path: Path) -> None:
    """Jobs of a batch system start on machines that this service does not reach; others are taken in."""
    folder = tmp_path / "spool"
    folder.mkdir()
    here = Serving(tmp_path, "--executor", f"spool?folder={folder}")
    known = 'p._USUAL["dovetail.executors", "spool"] = "spool_system:Spool"'
    here.program = ("-c", f"import dovetail.plugins as p; {known}; from dovetail.start import main; main()")
    here.environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "support")
    here.start().close()
    try:
        done = here.dovetail("submit", "--interactive", "--", "true")
        assert done.returncode == 2
        assert "interactive: found the executor 'spool" in done.stderr
        assert "and only 'local' has terminals" in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
        with open_connection(here.folder.path) as service:
            assert service.get("/api/v1/jobs")["jobs"] == []
    finally:
        here.kill()


def test_the_socket_is_its_owners_however_long_its_path(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    path = folder / "7"
    for _ in range(2):  # what an earlier one has left is in nobody's way
        with listen_at(str(path)):
            assert path.stat().st_mode & 0o777 == 0o600


def test_frames_come_whole_however_they_are_cut() -> None:
    data = frame(b"D", b"abc") + frame(b"R", b"\0\1\0\2") + frame(b"D", b"")
    frames = Frames()
    found = [one for byte in data for one in frames.feed(bytes([byte]))]
    assert found == [(b"D", b"abc"), (b"R", b"\0\1\0\2"), (b"D", b"")]
    with pytest.raises(ValueError, match="too long"):
        list(frames.feed(b"D\xff\xff\xff\xff"))
