"""Frames between a client and a device server, and how each proves to the other that it knows the token.

A frame is a header of 16 bytes, a JSON text, and raw bytes (arrays as they lie in memory)::

    1 byte   what it is (`Kind`)
    3 bytes  zero
    4 bytes  length of the JSON text, little-endian
    8 bytes  length of the raw bytes, little-endian

The JSON text is small (`MOST_JSON`); the raw bytes are of the length that the JSON text implies. Nothing that
comes from the network is unpickled, evaluated or looked up as an attribute.

A connection begins with a greeting of the server (`MAGIC` and 32 random bytes), then a HELLO frame of the
client: which device, its own 32 random bytes and, where a token is needed, its proof that it knows it (see
`dovetail.process.channel`). The server's WELCOME holds its own. What follows is neither encrypted nor signed:
the network is one that is trusted, or a tunnel.
"""

from __future__ import annotations

import io
import socket
import struct
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import orjson

from dovetail.process.channel import keep_alive

MAGIC = b"DVTLARR1"
MOST_JSON = 1 << 20
"""Bytes of the JSON text of a frame."""
HELLO_JSON = 4096
"""The same before the client has proved anything."""
_HEAD = struct.Struct("<B3xIQ")
_BUFFER = 1 << 18
_NEAR, _FAR = 1 << 18, 1 << 20
"""Bytes of a socket's buffers. Where nothing is long on its way, what is sent should still be in the cache of
the core when it is received: 100 MB over TCP take half as long as with the larger buffers."""
HEAD_SIZE = _HEAD.size


class Kind(IntEnum):
    """What a frame is."""

    HELLO = 1
    """client: which device; its proof"""
    WELCOME = 2
    """server: what the device is; its proof"""
    CALLS = 3
    """client: calls to carry out; no reply"""
    PUT = 4
    """client: an array, as raw bytes; no reply"""
    FETCH = 5
    """client: fetches an array"""
    SYNC = 6
    """client: waits until all calls are carried out, and wants types and shapes"""
    DUMP = 7
    """client: fetches all arrays"""
    LOAD = 8
    """client: arrays of another server, as raw bytes; a reply when they are there"""
    REPLY = 9
    """server: the answer to FETCH, SYNC, DUMP or LOAD"""
    ERROR = 10
    """server: why not; the connection goes on"""
    REFUSED = 11
    """server: why not; the connection ends"""
    PROBE = 13
    """client: raw bytes that are thrown away; no reply. What the connection itself can do"""
    LEAVE = 12
    """client: give everything back; a reply when that is done, and the connection ends"""


class ProtocolError(Exception):
    """The other side does not keep to the protocol; the connection ends."""


class ClosedError(ConnectionError):
    """The other side has closed the connection, between frames or within one."""


def frame_head(kind: int, json_length: int, raw_length: int = 0) -> bytes:
    """The header of a frame."""
    return _HEAD.pack(kind, json_length, raw_length)


def parse_head(head: bytes | bytearray | memoryview, most: int) -> tuple[int, int, int]:
    """Kind, length of the JSON text, length of the raw bytes. Raises `ProtocolError`."""
    kind, json_length, raw_length = _HEAD.unpack(head)
    if json_length > most:
        raise ProtocolError(f"a frame with {json_length} bytes of JSON, expected at most {most}")
    return kind, json_length, raw_length


def set_options(connection: socket.socket) -> None:
    """No delays, and a peer whose machine has vanished is noticed within a minute."""
    size = _NEAR if _is_near(connection) else _FAR
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        connection.setsockopt(socket.SOL_SOCKET, option, size)
    if connection.family == socket.AF_UNIX:
        return
    keep_alive(connection, 20, 10)


def _is_near(connection: socket.socket) -> bool:
    """Whether the other side is on this machine."""
    if connection.family == socket.AF_UNIX:
        return True
    try:
        return bool(connection.getpeername()[0] == connection.getsockname()[0])
    except OSError:  # it has left already
        return True


class Channel:
    """Frames over a connected, blocking socket; one thread at a time on each side of it.

    Raises `ClosedError` or another `OSError` when the other side is gone, `ProtocolError` when it sends what
    is no frame.

    Attributes:
        silent: called whenever `watch`'s time has passed and nothing has come or could be sent; what it
            raises ends the waiting.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.silent: Callable[[], None] | None = None
        # Of the kernel's time limits (`watch`) it makes None; what is long goes by its buffer.
        reader = io.BufferedReader(socket.SocketIO(connection, "r"), _BUFFER)
        self._readinto: Callable[[memoryview], int | None] = reader.readinto
        # Not `__del__`: of a circle of garbage the socket might go first, and warn that it was left open.
        weakref.finalize(self, connection.close).atexit = False

    def watch(self, seconds: float, silent: Callable[[], None]) -> None:
        """From now on wait no longer than this without calling ``silent``; for blocking sockets."""
        self.silent = silent
        self.connection.settimeout(None)
        whole = int(seconds)
        time = struct.pack("ll", whole, int((seconds - whole) * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # the kernel's: no extra poll per call
            self.connection.setsockopt(socket.SOL_SOCKET, option, time)

    def send_frame(
        self, kind: int, text: bytes, raw: Sequence[Any] = (), *, before: Sequence[bytes] = ()
    ) -> None:
        """Send a frame in one go, after the frames ``before`` that are ready to be sent."""
        views = [memoryview(part).cast("B") for part in raw if memoryview(part).nbytes]
        length = sum(view.nbytes for view in views)
        parts: list[Any] = [*before, _HEAD.pack(kind, len(text), length), text]
        if length <= 1 << 16:
            self.send_all(b"".join([*parts, *views]))
        else:
            self.send_all(b"".join(parts), *views)

    def send_all(self, *parts: Any) -> None:
        """Send parts of frames, as they are."""
        send = self.connection.send
        for part in parts:
            sent, size = 0, memoryview(part).nbytes
            # After a timeout of the kernel part of it may have been sent: go on from there.
            while sent < size:
                try:
                    sent += send(memoryview(part)[sent:] if sent else part)
                except BlockingIOError:
                    self._still_there()

    def receive_frame(self, most: int = MOST_JSON) -> tuple[int, Any, int]:
        """Kind, JSON value and number of raw bytes of the next frame; read the raw bytes next."""
        kind, length, raw = parse_head(self._receive_exactly(HEAD_SIZE, begins=True), most)
        try:
            return kind, orjson.loads(self._receive_exactly(length)) if length else None, raw
        except orjson.JSONDecodeError:
            raise ProtocolError("a frame whose text is no JSON") from None

    def receive_into(self, target: memoryview, *, begins: bool = False) -> None:
        """The next bytes, as many as ``target`` takes (contiguous, of bytes); whether a frame ``begins``."""
        ready = 0
        while ready < target.nbytes:
            count = self._readinto(target[ready:])
            if count is None:
                self._still_there()
            elif count:
                ready += count
            else:
                # Between frames a close is the normal end; within one it is an error.
                within = "" if begins and not ready else " within a frame"
                raise ClosedError("the connection was closed" + within)

    def skip(self, count: int) -> None:
        """Read so many raw bytes and forget them."""
        forgotten = memoryview(bytearray(min(count, _BUFFER)))
        for begin in range(0, count, _BUFFER):
            self.receive_into(forgotten[: count - begin])

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _receive_exactly(self, count: int, *, begins: bool = False) -> bytearray:
        found = bytearray(count)
        self.receive_into(memoryview(found), begins=begins)
        return found

    def _still_there(self) -> None:
        if self.silent is None:
            raise TimeoutError("no answer")
        self.silent()
