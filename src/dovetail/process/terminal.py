"""A job's program on a terminal of its own, which a person far away sees and types into.

``python terminal.py SOCKET PROGRAM [ARGUMENTS]`` is the job. It listens at ``SOCKET`` (mode 0600) for one
connection, starts the program on a pseudo-terminal and goes between the two. Both ways go frames: a letter,
the length of what follows (4 bytes, big-endian), and that: ``D`` bytes of the terminal, ``R`` its new size
(rows and columns, 2 bytes each), ``X`` the program's exit status (1 byte; the last frame). The program starts
once a first frame has come, which has the size; the end of the connection is a hang-up.

This file is run as it is, without the packages around it, and imports the standard library alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import socket
import struct
import sys
import termios
import time
from collections.abc import Iterator

HEAD = struct.Struct(">cI")
SIZE = struct.Struct(">HH")
PIECE = 1 << 16
PATIENCE = 60.0
"""Seconds within which the submitter has to connect."""
LOOK = 0.1
"""Seconds between two looks at whether the program has ended: its children may hold the terminal open."""
GRACE = 5.0
"""Seconds that the program has after a hang-up."""
HUNG_UP = 128 + signal.SIGHUP
NOT_FOUND = 127


class Frames:
    """Takes bytes of a connection, gives whole frames."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The frames that are whole now. Raises `ValueError` for a length that none has."""
        self._pending += data
        while len(self._pending) >= HEAD.size:
            letter, length = HEAD.unpack_from(self._pending)
            if length > PIECE:
                raise ValueError("a frame that is too long")
            end = HEAD.size + length
            if len(self._pending) < end:
                return
            yield letter, self._pending[HEAD.size : end]
            self._pending = self._pending[end:]


def frame(letter: bytes, data: bytes) -> bytes:
    """One frame."""
    return HEAD.pack(letter, len(data)) + data


def listen_at(path: str) -> socket.socket:
    """A socket that its owner alone can connect to; the path may be longer than a socket's name can be."""
    folder, name = os.path.split(path)
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    before = os.umask(0o177)  # from the first moment on: later another one might have connected
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        found.bind(f"/proc/self/fd/{place}/{name}")
    finally:
        os.umask(before)
        os.close(place)
    found.listen(1)
    return found


def accept_one(path: str) -> socket.socket | None:
    """The connection; ``None`` where nothing connects in time. The socket's file is gone then."""
    with listen_at(path) as listener:
        listener.settimeout(PATIENCE)
        try:
            found, _ = listener.accept()
        except TimeoutError:
            return None
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
    found.settimeout(None)
    return found


def start_program(argv: list[str], size: bytes) -> tuple[int, int]:
    """Its process and our side of its terminal, which has that size from the beginning."""
    pid, master = pty.fork()
    if pid:
        return pid, master
    set_size(0, size)
    for number in (
        signal.SIGPIPE,
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\r\n".encode(errors="replace"))
    os._exit(NOT_FOUND)


def set_size(descriptor: int, size: bytes) -> None:
    """Have a terminal this size; nothing where it is closed, or the size is none."""
    if len(size) == SIZE.size:
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE.unpack(size), 0, 0))


class Ending(Exception):  # noqa: N818 - reads as what it is
    """The job is to end."""


def _end(number: int, _: object) -> None:
    raise Ending(number)


class Relay:
    """Goes between a connection and a program on a terminal."""

    def __init__(self, connection: socket.socket, frames: Frames, pid: int, master: int) -> None:
        self._connection, self._frames, self._pid, self._master = connection, frames, pid, master

    def run(self) -> int:
        """Until the program has ended, or the connection; the exit status."""
        open_ones = [self._connection.fileno(), self._master]
        status: int | None = None
        while True:
            ready, _, _ = select.select(open_ones, [], [], LOOK)
            if self._connection.fileno() in ready and not self._take_in():
                return self._hang_up()
            wrote = self._master in ready and self._give_out()
            if self._master in ready and not wrote:
                open_ones.remove(self._master)  # all who had the terminal open have closed it
            if status is None:
                found, code = os.waitpid(self._pid, os.WNOHANG)
                status = os.waitstatus_to_exitcode(code) if found else None
            if status is not None and not wrote:
                break
        code = 128 - status if status < 0 else status
        with contextlib.suppress(OSError):
            self._connection.sendall(frame(b"X", bytes([code & 0xFF])))
        return code

    def _take_in(self) -> bool:
        """What came for the program; ``False`` at the end of the connection."""
        try:
            data = self._connection.recv(PIECE)
        except OSError:
            return False
        for letter, body in self._frames.feed(data):
            if letter == b"R":
                set_size(self._master, body)
            elif letter == b"D":
                while body:
                    try:
                        body = body[os.write(self._master, body) :]
                    except OSError:  # it reads no more
                        break
        return bool(data)

    def _give_out(self) -> bool:
        """What the program wrote; ``False`` where it has closed its terminal."""
        try:
            data = os.read(self._master, PIECE)
        except OSError:
            return False
        if data:
            with contextlib.suppress(OSError):  # its end comes as the end of the connection
                self._connection.sendall(frame(b"D", data))
        return bool(data)

    def _hang_up(self) -> int:
        self.end(signal.SIGHUP)
        return HUNG_UP

    def end(self, number: int) -> None:
        """End the program: by the signal, and after a while for good."""
        for one in (number, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, one)  # a child of a terminal leads a session of its own
        os.close(self._master)  # the kernel sends the foreground a hang-up
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            try:
                if os.waitpid(self._pid, os.WNOHANG)[0]:
                    return
            except ChildProcessError:
                return
            time.sleep(LOOK / 2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)


def first_size(connection: socket.socket, frames: Frames) -> bytes | None:
    """What the first frame has; ``None`` where the connection ends before it."""
    while data := connection.recv(HEAD.size + SIZE.size):
        for _, body in frames.feed(data):
            return body
    return None


def main(argv: list[str]) -> int:
    """Run the job; its exit status is the program's."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)  # they are for the program
    connection = accept_one(argv[0])
    if connection is None:
        print(f"terminal: no connection came within {PATIENCE:.0f} s", file=sys.stderr)
        return HUNG_UP
    frames = Frames()
    size = first_size(connection, frames)
    if size is None:
        return HUNG_UP
    pid, master = start_program(argv[1:], size)
    relay = Relay(connection, frames, pid, master)
    signal.signal(signal.SIGTERM, _end)
    try:
        return relay.run()
    except Ending as ending:
        relay.end(signal.SIGHUP)
        return 128 + int(ending.args[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
