"""A real service in a process of its own, and what tests ask of it."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail_command import run_command
from places import Around, pid_outside
from ready_command import Started, can_serve
from waiting import until

from dovetail.client.connection import Connection, NoService, open_connection
from dovetail.client.folder import ServiceFolder
from dovetail.testing.builders import full

ANEW = ("-m", "dovetail")


class Serving:
    """A service over a folder; it can be killed and started again."""

    def __init__(self, root: Path, *options: str, **variables: str) -> None:
        self.root = root
        self.folder = ServiceFolder(root / "service")
        self.options: Sequence[str] = options
        self.around: Sequence[str] = ()
        """What the service is started through: see `places`."""
        self.program: Sequence[str] = ()
        """What Python is to run in the place of the command; then, and where memory is measured, anew."""
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(root / "state"),
            "DOVETAIL_SERVICE": str(self.folder.path),
            **variables,
        }
        self.process: subprocess.Popen[bytes] | Around | Started | None = None

    def start(self) -> Connection:
        self.folder.make_private()
        with open(self.folder.log, "ab") as log:
            arguments = ["serve", "--folder", str(self.folder.path), *self.options]
            if self.around:
                self.process = Around(
                    [*self.around, sys.executable, *ANEW, *arguments],
                    stdout=log, stderr=log, env=self.environment, cwd=self.root,
                )  # fmt: skip
            elif self.program or full(1, 0) or not can_serve(self.environment):
                command = [sys.executable, "-X", "faulthandler", *(self.program or ANEW), *arguments]
                self.process = subprocess.Popen(
                    command, stdout=log, stderr=log, env=self.environment, cwd=self.root
                )
            else:
                self.process = Started(arguments, self.root, self.environment, log.fileno(), log.fileno())
        atexit.register(self.process.kill)  # where a test fails before it stops it
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.folder.log.read_text()
            try:
                found = open_connection(self.folder.path)
                found.get("/api/v1/info")
            except NoService:
                time.sleep(0.02)
            else:
                return found
        self.process.send_signal(signal.SIGABRT)  # it says where each of its threads is
        self.process.wait(30)
        raise AssertionError(self.folder.log.read_text())

    def here(self, pid: int) -> int:
        """A process of the service, or its jobs, by our number; 0 where there is none."""
        if not isinstance(self.process, Around):
            return pid
        return pid_outside(pid, self.process.inner())

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._ended()

    def end(self) -> None:
        """End it as an operator does; what it runs goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        self._ended()

    def stop(self) -> None:
        """End it and what it runs."""
        if self.process is None or self.process.poll() is not None:
            self.start().close()
        assert self.process is not None
        with open_connection(self.folder.path) as service:
            service.post("/api/v1/cancel", {"jobs": "all"})
            until(lambda: not service.get("/api/v1/jobs", limit=1)["total"], "some jobs do not end")
        self.end()

    def _ended(self) -> None:
        assert self.process is not None
        self.process.wait(100)
        atexit.unregister(self.process.kill)

    def dovetail(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of this service's user; with ``input``, ``timeout``."""
        return run_command(arguments, cwd or self.root, self.environment if env is None else env, **more)


@contextmanager
def serving(root: Path, *options: str, around: Sequence[str] = (), **variables: str) -> Iterator[Serving]:
    """A service until the end of the block; ``around`` it what it is started through (`places`)."""
    found = Serving(root, *options, **variables)
    found.around = around
    found.start().close()
    try:
        yield found
    finally:
        found.stop()


def submit(service: Connection, *jobs: dict[str, Any], **more: Any) -> list[str]:
    """Ids of these jobs."""
    ids: list[str] = service.post("/api/v1/jobs", {"jobs": list(jobs), **more})["ids"]
    return ids


def wait(service: Connection, ids: Sequence[str], timeout: float = 200) -> dict[str, str]:
    """Final states by id."""
    deadline = time.monotonic() + timeout
    while True:
        found = service.post("/api/v1/wait", {"jobs": ",".join(ids), "timeout": 10})
        if not found["left"]:
            return {one["id"]: one["state"] for one in found["jobs"]}
        assert time.monotonic() < deadline, found


def cpu_seconds(pid: int) -> float:
    """What a process that lives has used so far; exact where the kernel tells it of each thread."""
    tasks = Path(f"/proc/{pid}/task")
    if (tasks.parent / "schedstat").exists():
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
    fields = (tasks.parent / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
