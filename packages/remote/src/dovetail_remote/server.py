"""The server of a node's devices: it lets clients in, and hands each to the process of its device.

The server itself never computes and never reads more of a client than its first few words, so that a client
that hangs half-way through them, or sends what is no HELLO, harms no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import orjson

from dovetail.errors import DeviceError, InputError
from dovetail.files.writing import private_folder
from dovetail.process.channel import NONCE, Handshake, bracket_host
from dovetail.records import dataclass
from dovetail_remote.wire import (
    HEAD_SIZE,
    HELLO_JSON,
    MAGIC,
    Kind,
    ProtocolError,
    frame_head,
    parse_head,
)
from dovetail_remote.worker import MESSAGE

HANDSHAKE = 5.0
"""Seconds that a client has for its first words."""
MOST_WAITING = 256
"""Connections within their first words; beyond them the oldest is closed."""
STARTING = 120.0
"""Seconds that a device has to open."""
RESTART = 0.5
"""Seconds between two starts of a device's process at least."""


@dataclass(frozen=True, slots=True)
class LendingLimits:
    """What is lent: devices by `open_backend`'s names, bytes for arrays, bytes and clients for each.

    ``memory`` and ``quota`` 0: what the device has, and all of it.
    """

    devices: tuple[str, ...]
    memory: int = 0
    quota: int = 0
    clients: int = 64


@dataclass(slots=True)
class _Worker:
    """The process of one device."""

    number: int
    device: str
    process: subprocess.Popen[bytes]
    control: socket.socket
    started: float
    ready: dict[str, Any] | None = None
    missing: str | None = None
    waiting: dict[int, asyncio.Future[Any]] = field(default_factory=dict)


class DeviceServer:
    """Listens on a unix socket (0600), on TCP with a token, or both; runs until it is stopped.

    Args:
        lent: the devices.
        path: of the unix socket.
        listen: host and port on the network; port 0 takes a free one.
        token: what clients on the network have to know; those on the unix socket only have to be the same
            user, which the kernel reports.
        report: called with a line for the operator.

    Raises:
        InputError: no device is there, the socket is in use, or TCP is requested without a token.
    """

    def __init__(
        self,
        lent: LendingLimits,
        *,
        path: str | None = None,
        listen: tuple[str, int] | None = None,
        token: bytes | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        if listen is not None and token is None:
            raise InputError("found no token, expected one: without it the port would lend to any client")
        self.lent = lent
        self._path = path
        self._listen = listen
        self._token = token
        self._say = report
        self._workers: list[_Worker] = []
        self._greeted: dict[asyncio.Task[None], None] = {}
        self._questions = 0
        self._stopped = asyncio.Event()
        self._signal = 0
        self.addresses: list[str] = []

    async def run(self, ready: Callable[[list[str], list[dict[str, Any]]], None]) -> int:
        """Open the devices, then serve; ``ready`` is called with the addresses and what the devices are.

        Returns the number of the signal that ended it.
        """
        loop = asyncio.get_running_loop()
        for received in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(received, self._stop_by_signal, received)
        listeners: list[socket.socket] = []
        tasks: list[asyncio.Task[Any]] = []
        # Listeners first: a port that is taken is found before minutes are spent on opening devices.
        try:
            if self._path is not None:
                listeners.append(_unix_listener(self._path))
                self.addresses.append(f"unix:{self._path}")
            if self._listen is not None:
                listeners.append(_tcp_listener(*self._listen))
                host, port = listeners[-1].getsockname()[:2]
                self.addresses.append(f"tcp:{bracket_host(host)}:{port}")
            for number, device in enumerate(self.lent.devices):
                self._workers.append(self._start_worker(number, device))
            words = [self._first_words(worker) for worker in self._workers]
            first = asyncio.gather(*words, return_exceptions=True)
            tasks.append(stopped := loop.create_task(self._stopped.wait()))
            both: list[asyncio.Future[Any]] = [first, stopped]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            # A signal came while devices were being opened: end at once, with no line that it is ready.
            if not first.done():
                first.cancel()
                return self._signal
            self._drop_unopened(first.result())
            described = [{"number": w.number, **w.ready} for w in self._workers if w.ready is not None]
            ready(self.addresses, described)
            for worker in self._workers:
                if worker.missing is None:
                    loop.add_reader(worker.control, self._read_worker, worker)
            tasks += [loop.create_task(self._accept_clients(listener)) for listener in listeners]
            await stopped
            return self._signal
        finally:
            for task in [*tasks, *self._greeted]:
                task.cancel()
            for listener in listeners:
                listener.close()
            if self._path is not None and listeners:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path)
            for worker in self._workers:
                if worker.missing is None:
                    loop.remove_reader(worker.control)
                    _end_worker(worker)

    def _drop_unopened(self, found: Sequence[BaseException | None]) -> None:
        """Go on without the devices that cannot be opened. Raises what it was where none can."""
        failed = [error for error in found if error is not None]
        if failed and (len(failed) == len(found) or not all(isinstance(e, InputError) for e in failed)):
            raise failed[0]
        for worker, error in zip(self._workers, found, strict=True):
            if error is not None:
                worker.missing = str(error)
                _end_worker(worker)
                self._say(f"device {worker.number} is not lent: {error}")

    def _stop_by_signal(self, received: int) -> None:
        self._signal = received
        self._stopped.set()

    # -- processes -------------------------------------------------------------------------------------

    def _start_worker(self, number: int, device: str) -> _Worker:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "dovetail_remote.worker", str(theirs.fileno()), str(os.getpid())]
        with theirs:
            # Its output goes to stderr: stdout carries the server's own lines, which scripts read.
            process = subprocess.Popen(
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=sys.stderr
            )
        ours.setblocking(False)
        task = {"device": device, "memory": self.lent.memory, "quota": self.lent.quota}
        ours.send(orjson.dumps(task))
        return _Worker(number, device, process, ours, time.monotonic())

    async def _first_words(self, worker: _Worker) -> None:
        """Wait until the device is open. Raises `InputError` with its process's own message."""
        loop = asyncio.get_running_loop()
        try:
            message = await asyncio.wait_for(loop.sock_recv(worker.control, MESSAGE), STARTING)
        except TimeoutError:
            raise InputError(f"device {worker.device!r} did not open in {STARTING:g} s") from None
        if not message:
            raise InputError(f"device {worker.device!r} cannot be opened: its process ended")
        content: dict[str, Any] = orjson.loads(message)
        if "failed" in content:
            raise InputError(content["failed"])
        worker.ready = content["ready"]

    def _read_worker(self, worker: _Worker) -> None:
        """Something from a worker, or its end."""
        try:
            message = worker.control.recv(MESSAGE)
        except BlockingIOError:
            return
        except OSError:
            message = b""
        if not message:
            self._replace_worker(worker)
            return
        content = orjson.loads(message)
        if "ready" in content:
            worker.ready = content["ready"]
        elif "failed" in content:
            self._say(f"device {worker.number}: {content['failed']}")
        else:
            waiting = worker.waiting.pop(content["status"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(content["is"])

    def _replace_worker(self, worker: _Worker) -> None:
        """A worker's process has ended by itself: its clients have lost their arrays; start another."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(worker.control)
        _end_worker(worker)
        how = worker.process.returncode
        reason = f"killed by signal {-how}" if how < 0 else f"exit status {how}"
        self._say(f"device {worker.number} ({worker.device}): its process ended ({reason}); starts again")
        # At most one start in RESTART seconds: a device that fails at once would be opened in a loop.
        wait = max(0.0, worker.started + RESTART - time.monotonic())
        loop.call_later(wait, self._start_again, worker)

    def _start_again(self, old: _Worker) -> None:
        if self._stopped.is_set():
            return
        worker = self._workers[old.number] = self._start_worker(old.number, old.device)
        asyncio.get_running_loop().add_reader(worker.control, self._read_worker, worker)

    # -- clients ---------------------------------------------------------------------------------------

    async def _accept_clients(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # too many open files
                self._say(f"a client cannot be let in: {error.strerror}")
                await asyncio.sleep(0.1)
                continue
            # The oldest of those that have not identified themselves gives way, so silent connections cannot
            # keep others out.
            if len(self._greeted) >= MOST_WAITING:
                next(iter(self._greeted)).cancel()
            task = loop.create_task(self._greet_client(connection))
            self._greeted[task] = None
            task.add_done_callback(lambda done: self._greeted.pop(done, None))

    async def _greet_client(self, connection: socket.socket) -> None:
        """The first words with a client, and its way to the device."""
        with connection:
            connection.setblocking(False)
            try:
                async with asyncio.timeout(HANDSHAKE):
                    hello = await self._read_hello(connection)
                    if hello.get("status") is True:
                        await self._tell_status(connection, hello)
                    else:
                        self._hand_over(connection, hello)
            except (ProtocolError, DeviceError) as error:
                with contextlib.suppress(OSError):
                    connection.send(_make_frame(Kind.REFUSED, str(error)[:500]))
            except (OSError, TimeoutError):
                pass  # it has left, or is silent

    async def _read_hello(self, connection: socket.socket) -> dict[str, Any]:
        """The HELLO of a client that may be let in. Raises `ProtocolError`, `DeviceError`."""
        loop = asyncio.get_running_loop()
        handshake = Handshake(self._token, "server")
        await loop.sock_sendall(connection, MAGIC + handshake.nonce)
        kind, length, raw = parse_head(await _receive_exactly(connection, HEAD_SIZE), HELLO_JSON)
        if kind != Kind.HELLO or raw:
            raise ProtocolError("the first frame is no HELLO")
        try:
            hello = orjson.loads(await _receive_exactly(connection, length))
            nonce = bytes.fromhex(hello["nonce"])
        except (ValueError, TypeError, KeyError):
            raise ProtocolError("a HELLO that is none") from None
        if len(nonce) != NONCE:
            raise ProtocolError(f"a HELLO without {NONCE} random bytes")
        if self._token is not None:
            hello["answer"] = handshake.make_proof(nonce)
        if connection.family == socket.AF_UNIX:
            # The kernel's word for the peer's user: it cannot be forged, so no token is needed here.
            _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if user not in (os.getuid(), 0):
                raise DeviceError("you are another user than the one who lends")
        else:
            assert self._token is not None
            if not handshake.is_proven("client", nonce, hello.get("proof")):
                raise DeviceError("the token is not the one of this server")
        return dict(hello)

    def _hand_over(self, connection: socket.socket, hello: dict[str, Any]) -> None:
        number = hello.get("device")
        if type(number) is not int or not 0 <= number < len(self._workers):
            raise DeviceError(f"found no device {str(number)[:20]}, there are {len(self._workers)}")
        worker = self._workers[number]
        if worker.missing is not None:
            raise DeviceError(worker.missing)
        if worker.ready is None:
            raise DeviceError(f"device {number} is being started; try again")
        content = {key: hello.get(key) for key in ("pid", "job", "answer")}
        message = orjson.dumps({"hello": content, "most": self.lent.clients})
        try:
            # The socket itself goes to the worker, which reads on from the first byte after the HELLO: the
            # server must therefore never have buffered more than that frame (`_receive_exactly`).
            socket.send_fds(worker.control, [message], [connection.fileno()])
        except OSError:
            raise DeviceError(f"device {number} is busy or has just ended; try again") from None

    async def _tell_status(self, connection: socket.socket, hello: dict[str, Any]) -> None:
        found = await asyncio.gather(*[self._status_of(worker) for worker in self._workers])
        data = _make_frame(Kind.WELCOME, {"devices": found, "proof": hello.get("answer")})
        await asyncio.get_running_loop().sock_sendall(connection, data)

    async def _status_of(self, worker: _Worker) -> dict[str, Any]:
        base = {"number": worker.number, "device": worker.device, "pid": worker.process.pid}
        if worker.missing is not None:
            return {**base, "state": worker.missing}
        # A stopped process would let every question time out; this answers at once.
        if _is_stopped(worker.process.pid):
            return {**base, "state": "stopped", "stopped": True}
        self._questions += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        worker.waiting[self._questions] = answer
        try:
            worker.control.send(orjson.dumps({"status": self._questions}))
            return {**base, **await asyncio.wait_for(answer, HANDSHAKE / 2)}
        except (OSError, TimeoutError):
            return {**base, "state": "busy or being started"}


def _is_stopped(pid: int) -> bool:
    """Whether a process has been stopped by a signal: the kernel knows, the process cannot answer."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")


def _make_frame(kind: Kind, content: Any) -> bytes:
    text = orjson.dumps(content)
    return frame_head(kind, len(text)) + text


async def _receive_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes and no more: what follows is for the worker. Raises `ProtocolError`."""
    loop = asyncio.get_running_loop()
    parts: list[bytes] = []
    while count:
        part = await loop.sock_recv(connection, count)
        if not part:
            raise ProtocolError("the connection was closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _end_worker(worker: _Worker) -> None:
    worker.control.close()
    if worker.process.poll() is None:
        worker.process.kill()
    worker.process.wait()


def _unix_listener(path: str) -> socket.socket:
    """A socket that only this user may use, in the place of one that a killed server left behind."""
    folder = Path(path).parent
    try:
        private_folder(folder)
        if os.path.lexists(path):
            _remove_socket(path)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # The mask closes the window between `bind` and a later `chmod`.
        mask = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(mask)
        listener.listen(128)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"the socket cannot be made ({reason})", where=path) from None
    listener.setblocking(False)
    return listener


def _remove_socket(path: str) -> None:
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise InputError("found a file, expected a path for a socket", where=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A socket that refuses is of a server that was killed; one that answers is alive and must stay.
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise InputError("another device server listens there", where=path)


def _tcp_listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"found {host}:{port}, where listening is impossible ({reason})") from None
    listener.setblocking(False)
    return listener
