"""A process that an agent runs beside its jobs while a Dovetail is there: the device server of its node.

It says one line on standard output when it is ready. It ends with its agent's client, so that nothing that
was lent outlives the Dovetail that lends it, and (by its own doing) with its agent. Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from dovetail.channel import bracketed

KILLED_AFTER = 5.0
"""Seconds that it has to end on SIGTERM."""
MOST_SAID = 1 << 16


class Companion:
    """One such process, started as ``request`` says: ``argv``, ``env``, and a file for its ``complaints``.

    ``{host}`` in a word becomes where this node listens. Raises `OSError` where it cannot be started.
    """

    def __init__(self, request: Mapping[str, Any], host: str, environ: Mapping[bytes, bytes]) -> None:
        self.id: str = request["id"]
        self.complaints: str = request["complaints"]
        self.heard = b""
        self.kill_at = float("inf")
        argv = [word.replace("{host}", bracketed(host)) for word in request["argv"]]
        given = {**request["env"], "DOVETAIL_STARTED_BY": str(os.getpid())}
        env = {**environ, **{os.fsencode(name): os.fsencode(value) for name, value in given.items()}}
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        files = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
        self.out = -1
        try:
            files.append(os.open(self.complaints, flags, 0o600))
            self.out, theirs = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            os.set_blocking(theirs, True)
            files.insert(1, theirs)
            actions = [(os.POSIX_SPAWN_DUP2, fd, n) for n, fd in enumerate(files)]
            self.pid = os.posix_spawn(
                argv[0],
                argv,
                env,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE,),
            )
        except OSError:
            if self.out >= 0:
                os.close(self.out)
            raise
        finally:
            for fd in files:
                os.close(fd)

    def hear(self) -> str | None:
        """The line that it has said, once it is whole; empty where it says no more."""
        try:
            data = os.read(self.out, MOST_SAID)
        except BlockingIOError:
            return None
        self.heard += data
        line, newline, _ = self.heard.partition(b"\n")
        return line.decode(errors="replace") if newline else (None if data else "")

    def complained(self) -> str:
        """What it has complained of last."""
        try:
            with open(self.complaints, "rb") as file:
                return file.read(MOST_SAID).decode(errors="replace").strip()[-1000:]
        except OSError as error:
            return f"what it said cannot be read: {error.strerror}"

    @property
    def ending(self) -> bool:
        """Whether it was told to."""
        return self.kill_at < float("inf")

    def end(self) -> None:
        """Have it end; `insist` some time later."""
        if not self.ending:
            self.kill_at = time.monotonic() + KILLED_AFTER
            self.signal(signal.SIGTERM)

    def insist(self) -> None:
        """Kill it, if it has had its time."""
        if self.kill_at <= time.monotonic():
            self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """Send it a signal; it has not been waited for, so that its pid is its own."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> None:
        """End it, and wait until it has."""
        self.end()
        while not os.waitpid(self.pid, os.WNOHANG)[0]:
            self.insist()
            time.sleep(0.01)
        os.close(self.out)
