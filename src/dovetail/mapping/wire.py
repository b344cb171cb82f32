"""Objects between processes of this machine: pickle 5, and shared memory for what is large.

A message is one packet of a ``SOCK_SEQPACKET`` socket. What is large travels beside it in an anonymous
file in memory (memfd) whose descriptor is passed along: the sender copies each buffer into it once, and
the receiver's arrays lie in its mapping. Such a file has no name, so nothing is left behind by whoever
is killed.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
from collections.abc import Sequence
from typing import Any

import cloudpickle

__all__ = ["Closed", "Connection", "Parcel", "pack", "unpack"]

INLINE = 32 * 1024
"""Bytes that a packet may hold; more goes through shared memory."""
LARGE = 8 * 1024
"""Bytes from which a buffer is left out of the pickle, to be copied once."""
PACKET = 2 * INLINE + 32 * 1024
"""Bytes of the largest packet: the small tuple may be as large again."""
ALIGN = 64
MOST_FDS = 4
HEADER = struct.Struct("<II")
"""Length of the pickled tuple; number of parts in shared memory, 0 if the parcel is in the packet."""


class Closed(Exception):  # noqa: N818 - not an error: the other side has gone
    """The other side of a connection has gone."""


class Parcel:
    """An object ready to travel: its pickle, then its large buffers. ``size`` is in bytes."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.parts = parts
        self.size = sum(len(part) for part in parts)


def pack(thing: Any) -> Parcel:
    """Pickle an object; what cannot be imported elsewhere (functions of scripts, notebooks) by value.

    Large contiguous buffers are not copied yet. Raises whatever pickling raises.
    """
    buffers: list[memoryview] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < LARGE:
            return True  # in the pickle
        buffers.append(view)
        return False

    head = cloudpickle.dumps(thing, protocol=5, buffer_callback=keep)
    return Parcel([head, *buffers])


def unpack(parts: Sequence[bytes | memoryview]) -> Any:
    """The object of a parcel; its large arrays lie in the parts' memory."""
    return pickle.loads(parts[0], buffers=parts[1:])


class Connection:
    """One end of a socket pair. A message is a small tuple and, if need be, a parcel and descriptors."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    @staticmethod
    def pair() -> tuple[Connection, Connection]:
        """Two connected ends; their descriptors are not inherited."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Connection(ours), Connection(theirs)

    def send(self, message: tuple[Any, ...], parcel: Parcel | None = None, fds: Sequence[int] = ()) -> None:
        """Send one message. Raises `Closed`, also of our own end; `OSError` where shared memory is short."""
        if self.closed:
            raise Closed
        head = pickle.dumps(message, protocol=5)
        parts = parcel.parts if parcel is not None else ()
        # An array that was left out of the pickle lies in shared memory always: there it can be changed.
        shared = parcel is not None and (len(parts) > 1 or parcel.size > INLINE)
        frame: list[bytes | memoryview] = [HEADER.pack(len(head), len(parts) if shared else 0), head]
        made: list[int] = []
        try:
            if shared:
                made.append(_share(parts))
            else:
                frame.extend(parts)
            socket.send_fds(self.sock, frame, [*made, *fds])
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        finally:
            for fd in made:
                os.close(fd)

    def receive(self, *, wait: bool = True) -> tuple[tuple[Any, ...], Sequence[Any], list[int]] | None:
        """One message, the parts of its parcel, and further descriptors; ``None`` if there is none yet.

        Raises `Closed` when the other side has gone.
        """
        flags = socket.MSG_CMSG_CLOEXEC | (0 if wait else socket.MSG_DONTWAIT)
        try:
            data, ancillary, _, _ = self.sock.recvmsg(PACKET, socket.CMSG_SPACE(4 * MOST_FDS), flags)
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        fds = [fd for *_, raw in ancillary for fd in struct.unpack(f"{len(raw) // 4}i", raw)]
        view = memoryview(data)
        length, count = HEADER.unpack_from(view)
        end = HEADER.size + length
        message = pickle.loads(view[HEADER.size : end])
        if not count:
            return message, [view[end:]] if end < len(view) else [], fds
        fd = fds.pop(0)
        try:
            return message, _map(fd, count), fds
        finally:
            os.close(fd)

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self.sock.fileno() < 0

    def close(self) -> None:
        """Close this end."""
        self.sock.close()


def _share(parts: Sequence[bytes | memoryview]) -> int:
    """A memfd with a table of lengths, then all parts, each at a multiple of `ALIGN`; its descriptor."""
    fd = os.memfd_create("dovetail", os.MFD_CLOEXEC)
    try:
        table = struct.pack(f"<{len(parts)}Q", *(len(part) for part in parts))
        at = 0
        for part in (table, *parts):
            view = memoryview(part)
            done = 0
            while done < len(view):  # a single write takes 2 GiB at most
                done += os.pwrite(fd, view[done:], at + done)
            at += _padded(len(view))
        os.ftruncate(fd, at)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _map(fd: int, count: int) -> list[memoryview]:
    """The parts of a memfd, in place; the mapping lives as long as something in it is used."""
    size = os.fstat(fd).st_size
    mapping = memoryview(mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE))
    at = _padded(8 * count)
    found = []
    for length in struct.unpack_from(f"<{count}Q", mapping):
        found.append(mapping[at : at + length])
        at += _padded(length)
    return found


def _padded(length: int) -> int:
    return -(-length // ALIGN) * ALIGN
