"""Jobs on terminals: the service goes between a client and the job's 0600 socket (`process.terminal`)."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from dovetail.client.folder import ServiceFolder
from dovetail.errors import InputError
from dovetail.model import JobId
from dovetail.process import terminal
from dovetail.process.terminal import PIECE, SIZE, frame

APP = "interactive"
"""The app of such jobs: how long a user types is no measure of the program."""
_PREFIX = (sys.executable, "-I", "-S", str(Path(terminal.__file__)))
HEARTBEAT = 15.0
"""Seconds after which an idle terminal's stream sends a sign of life."""
OPENS_WITHIN = 30.0
"""Seconds within which the job of a terminal has opened its socket."""
LOOK = 0.05


def command_on_terminal(argv: Sequence[str], folder: ServiceFolder, job: JobId) -> list[str]:
    """The command that runs this one on a terminal, for a job of this number."""
    return [*_PREFIX, str(socket_of(folder, job)), *argv]


def command_within(argv: Sequence[str]) -> Sequence[str]:
    """The command that a job on a terminal runs there; any other command as it is."""
    own = tuple(argv[1:3]) == _PREFIX[1:3] and argv[3:4] and argv[3].endswith("/process/terminal.py")
    return argv[len(_PREFIX) + 1 :] if own else argv


def socket_of(folder: ServiceFolder, job: JobId) -> Path:
    """Where the job with this number listens."""
    return folder.terminals / job


class Terminals:
    """The terminals that clients are at, by job."""

    def __init__(self, folder: ServiceFolder) -> None:
        self._folder = folder
        self._open: dict[JobId, asyncio.StreamWriter] = {}
        self._taken: set[JobId] = set()

    async def connect(self, job: JobId, size: tuple[int, int]) -> asyncio.StreamReader:
        """Take a job's terminal, which no other client has, with this size (rows, columns).

        Raises `InputError`.

        The job may be about to open its socket: that is waited for.
        """
        if job in self._taken:
            raise InputError(f"job {job} has its terminal elsewhere")
        path = socket_of(self._folder, job)
        self._taken.add(job)
        try:
            reader, writer = await _when_open(path, job)
        except BaseException:  # whatever it was, another client may take the terminal
            self._taken.discard(job)
            raise
        self._open[job] = writer
        writer.write(frame(b"R", SIZE.pack(*size)))  # the program starts with it
        return reader

    async def output(self, job: JobId, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
        """What the terminal shows, as frames; when the client leaves, the job is hung up."""
        try:
            while True:
                try:
                    data = await asyncio.wait_for(reader.read(PIECE), HEARTBEAT)
                except TimeoutError:
                    data = frame(b"D", b"")
                except OSError:
                    return
                if not data:
                    return
                yield data
        finally:
            self._taken.discard(job)
            self._open.pop(job).close()

    async def send(self, job: JobId, data: bytes, size: tuple[int, int] | None) -> None:
        """What was typed, and the size of the client's window. Raises `InputError`."""
        writer = self._open.get(job)
        if writer is None:
            raise InputError(f"job {job} has no terminal that is open")
        if size is not None:
            writer.write(frame(b"R", SIZE.pack(*size)))
        for first in range(0, len(data), PIECE):
            writer.write(frame(b"D", data[first : first + PIECE]))
        try:
            await writer.drain()
        except OSError:  # it has ended: that comes with its output
            return


async def _when_open(path: Path, job: JobId) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The connection to a socket that is about to be there. Raises `InputError` where it is not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + OPENS_WITHIN
    while True:
        try:
            return await asyncio.open_unix_connection(sock=_connected(path))
        except OSError:
            if loop.time() > deadline:
                raise InputError(f"job {job} has no terminal") from None
        await asyncio.sleep(LOOK)


def _connected(path: Path) -> socket.socket:
    """A connection to a socket whose path may be longer than its name can be. Raises `OSError`."""
    place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        found.setblocking(False)
        found.connect(f"/proc/self/fd/{place}/{path.name}")
    except OSError:
        found.close()
        raise
    finally:
        os.close(place)
    return found
