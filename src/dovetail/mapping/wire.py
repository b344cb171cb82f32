"""Objects between processes of this machine: pickle 5, and shared memory for what is large.

A message is one packet of a ``SOCK_SEQPACKET`` socket. What is large travels beside it in an anonymous
file in memory (memfd) whose descriptor is passed along: the sender copies each buffer into it once, and
the receiver's arrays lie in its mapping. When these are gone the file is used for the next parcel. It has
no name, so nothing is left behind by a process that is killed.
"""

from __future__ import annotations

import functools
import io
import mmap
import os
import pickle
import socket
import struct
import weakref
from collections import ChainMap, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import cloudpickle

INLINE = 32 * 1024
"""Bytes that a packet may hold; more goes through shared memory."""
LARGE = 8 * 1024
"""Bytes from which a buffer is left out of the pickle, to be copied once."""
PACKET = 2 * INLINE + 32 * 1024
"""Bytes of the largest packet: the small tuple may be as large again."""
ALIGN = 64
MOST_IDLE = 2
"""Pieces of shared memory that are kept for the next parcel of about their size."""
WAITING = int(socket.MSG_CMSG_CLOEXEC)
AT_ONCE = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
"""Flags as numbers: to combine them anew costs as much as the call itself."""
FD_SPACE = socket.CMSG_SPACE(4)
HEADER = struct.Struct("<I")
"""Length of what is pickled: the message, where its parcel lies, and notes on shared memory."""


class Closed(Exception):  # noqa: N818 - not an error: the other side has gone
    """The other side of a connection has gone."""


class Parcel:
    """An object ready to travel: its pickle, then its large buffers. ``size`` is in bytes."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: Sequence[bytes | memoryview]) -> None:
        self.parts = parts
        self.size = sum(len(part) for part in parts)


def _reduce_cached(cached: Any) -> Any:
    if getattr(cached, "__module__", None) != "__main__":
        return cached.__reduce__()
    return _cache_again, (cached.__wrapped__, cached.cache_parameters())


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Also a function of `__main__` that `functools.cache` has wrapped goes by value, with an empty cache."""

    dispatch_table: ClassVar[ChainMap[Any, Any]] = ChainMap(
        {functools._lru_cache_wrapper: _reduce_cached}, cloudpickle.Pickler.dispatch_table
    )


def _cache_again(function: Any, parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def dump_object(thing: Any, buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None) -> bytes:
    """The pickle of an object; what cannot be imported elsewhere by value. Raises what pickling raises."""
    with io.BytesIO() as file:
        _Pickler(file, protocol=5, buffer_callback=buffer_callback).dump(thing)
        return file.getvalue()


def pack_object(thing: Any) -> Parcel:
    """Pickle an object; what cannot be imported elsewhere (functions of scripts, notebooks) by value.

    Large contiguous buffers are not copied yet. Raises whatever pickling raises.
    """
    buffers: list[memoryview] = []

    def keep_in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < LARGE:
            return True  # in the pickle
        buffers.append(view)
        return False

    head = dump_object(thing, keep_in_band)
    return Parcel([head, *buffers])


def pack_sealed(thing: Any) -> Parcel:
    """Pickle what consists of plain values, bytes and buffers alone, which costs a tenth of `pack_object`."""
    buffers: list[memoryview] = []
    head = pickle.dumps(thing, protocol=5, buffer_callback=lambda buffer: buffers.append(buffer.raw()))
    return Parcel([head, *buffers])


def unpack_object(parts: Sequence[bytes | memoryview]) -> Any:
    """The object of a parcel; its large arrays lie in the parts' memory."""
    return pickle.loads(parts[0], buffers=parts[1:])


class _Room:
    """An anonymous file in memory that parcels are written to, one after the other."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.fd = os.memfd_create("dovetail", os.MFD_CLOEXEC)
        self._mapping: mmap.mmap | None = None

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """A table of lengths, then all parts, each at a multiple of `ALIGN`."""
        table = struct.pack(f"<{len(parts)}Q", *(len(part) for part in parts))
        at = 0
        for part in (table, *parts):
            self._put_view(memoryview(part), at)
            at += _padded_length(len(part))

    def _put_view(self, view: memoryview, at: int) -> None:
        if self._mapping is not None:
            memoryview(self._mapping)[at : at + len(view)] = view
            return
        done = 0
        # A single write takes 2 GiB at most.
        while done < len(view):
            done += os.pwrite(self.fd, view[done:], at + done)

    def finish(self) -> None:
        """All has been written for the first time."""
        # To its full size: the last part is padded, and a mapping must not end within a page of it.
        os.ftruncate(self.fd, self.size)

    def write_again(self) -> None:
        """To be written to once more: its pages are there, so that to copy takes half as long."""
        if self._mapping is None:
            # MAP_POPULATE: one call instead of a page fault for each 4 KiB.
            self._mapping = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            self.close()

    def close(self) -> None:
        """Close the descriptor; the pages stay as long as they are mapped."""
        os.close(self.fd)
        self.fd = -1


class Connection:
    """One end of a socket pair. A message is a small tuple and, if need be, a parcel.

    Shared memory in which large arrays have travelled is used again as soon as the receiver has none of them
    any more, which its next message reports: pages that are there already cost half of new ones.
    """

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._rooms: dict[int, _Room] = {}  # ours, that the other end knows
        self._idle: list[int] = []
        self._dropped: list[int] = []
        self._numbers = 0
        self._theirs: dict[int, mmap.mmap] = {}
        self._lent: dict[int, weakref.ref[Any]] = {}
        self._freed: deque[int] = deque()  # from whichever thread lets an array go

    @staticmethod
    def make_pair() -> tuple[Connection, Connection]:
        """Two connected ends; their descriptors are not inherited."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Connection(ours), Connection(theirs)

    def send_message(self, message: tuple[Any, ...], parcel: Parcel | None = None) -> None:
        """Send one message. Raises `Closed`, also of our own end; `OSError` where shared memory is short."""
        if self.is_closed:
            raise Closed
        parts = parcel.parts if parcel is not None else ()
        # An array that was left out of the pickle lies in shared memory always: there it can be changed.
        shared = parcel is not None and (len(parts) > 1 or parcel.size > INLINE)
        room = self._find_room(parts) if shared else None
        place = None if room is None else (room.number, len(parts))
        dropped, self._dropped = self._dropped, []
        freed = [self._freed.popleft() for _ in range(len(self._freed))]
        head = pickle.dumps((message, place, freed, dropped), protocol=5)
        frame: list[bytes | memoryview] = [HEADER.pack(len(head)), head]
        if room is None:
            frame.extend(parts)
        # The descriptor travels the first time only; then the number names the mapping.
        made = [] if room is None or room.fd < 0 else [room.fd]
        try:
            if made:
                socket.send_fds(self.sock, frame, made)
            else:
                self.sock.sendmsg(frame)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error
        finally:
            # A parcel of one use: the receiver's mapping keeps the pages.
            if room is not None and not room.number:
                room.close()

    def _find_room(self, parts: Sequence[bytes | memoryview]) -> _Room:
        """Shared memory with these parts in it: one that is idle, or a new one."""
        size = _padded_length(8 * len(parts)) + sum(_padded_length(len(part)) for part in parts)
        for number in self._idle:
            # Not much larger than needed, or small parcels would hold large rooms.
            if size <= (room := self._rooms[number]).size <= 2 * size:
                self._idle.remove(number)
                room.write_again()
                room.write(parts)
                return room
        # What does not fit now would not soon.
        self.trim_rooms()
        if len(parts) > 1:
            self._numbers += 1
        room = _Room(self._numbers if len(parts) > 1 else 0, size)
        with ExitStack() as undo:
            undo.callback(room.close)
            room.write(parts)
            room.finish()
            undo.pop_all()
        if room.number:
            self._rooms[room.number] = room
        return room

    def trim_rooms(self, most: int = 0) -> None:
        """Keep no more than so many idle pieces of shared memory."""
        while len(self._idle) > most:
            number = self._idle.pop(0)
            room = self._rooms.pop(number)
            if room.fd >= 0:
                room.close()
            self._dropped.append(number)

    def receive_message(self, *, wait: bool = True) -> tuple[tuple[Any, ...], list[Any]] | None:
        """One message and the parts of its parcel; ``None`` if there is none yet.

        Raises `Closed` when the other side has gone.
        """
        try:
            data, ancillary, _, _ = self.sock.recvmsg(PACKET, FD_SPACE, WAITING if wait else AT_ONCE)
        except BlockingIOError:
            return None
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        fds = [fd for *_, raw in ancillary for fd in struct.unpack(f"{len(raw) // 4}i", raw)]
        view = memoryview(data)
        end = HEADER.size + HEADER.unpack_from(view)[0]
        message, place, freed, dropped = pickle.loads(view[HEADER.size : end])
        self._idle += freed
        self.trim_rooms(MOST_IDLE)
        for number in dropped:
            del self._theirs[number]
        if place is None:
            return message, [view[end:]] if end < len(view) else []
        number, count = place
        return message, self._map_parts(number, count, fds)

    def _map_parts(self, number: int, count: int, fds: list[int]) -> list[memoryview]:
        """The parts of a parcel in shared memory, in place; it lives as long as something in it is used."""
        mapping = self._theirs.get(number)
        if mapping is None:
            fd = fds.pop(0)
            try:
                size = os.fstat(fd).st_size
                mapping = mmap.mmap(fd, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            finally:
                os.close(fd)
        if not number:
            return _split_parts(memoryview(mapping), count)
        # Here, since a worker whose items have no arrays needs none.
        from numpy import frombuffer, uint8

        # All views of the parcel refer to this one object: when it goes, nothing of the parcel is used.
        whole, freed = frombuffer(mapping, uint8), self._freed
        self._theirs[number] = mapping
        self._lent[number] = weakref.ref(whole, lambda _: freed.append(number))
        return _split_parts(whole.data, count)

    @property
    def is_closed(self) -> bool:
        """Whether this end was closed."""
        return self.sock.fileno() < 0

    def close(self) -> None:
        """Close this end."""
        self.sock.close()
        for room in self._rooms.values():
            if room.fd >= 0:
                room.close()
        self._rooms.clear()
        self._idle.clear()
        self._theirs.clear()


def _split_parts(whole: memoryview, count: int) -> list[memoryview]:
    at = _padded_length(8 * count)
    found = []
    for length in struct.unpack_from(f"<{count}Q", whole):
        found.append(whole[at : at + length])
        at += _padded_length(length)
    return found


def _padded_length(length: int) -> int:
    return -(-length // ALIGN) * ALIGN
