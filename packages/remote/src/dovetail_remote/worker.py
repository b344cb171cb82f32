"""The process of one lent device: clients are handed to it, each is served by a thread of its own.

Started by `dovetail_remote.server` with a socket as its only way to the world. It ends when that socket is
closed, or with its parent: nothing is left, whatever is killed.
"""

from __future__ import annotations

import array
import contextlib
import math
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from dovetail.errors import DovetailError
from dovetail.process.channel import end_with
from dovetail_remote.backends import Backend, open_backend
from dovetail_remote.failures import CALL_ERRORS, FailedError, Failure
from dovetail_remote.session import Session
from dovetail_remote.snapshot import parse_manifest, take_snapshot
from dovetail_remote.spares import BlockPool
from dovetail_remote.standard import DTYPES
from dovetail_remote.wire import (
    Channel,
    ClosedError,
    Kind,
    ProtocolError,
    frame_head,
    set_options,
)

MESSAGE = 1 << 16
"""Bytes of a message between server and worker."""
_SWITCH_INTERVAL = 5e-4


class DeviceWorker:
    """One device, and everybody who borrows it."""

    def __init__(self, backend: Backend, memory: int, quota: int) -> None:
        self.backend = backend
        self.memory = memory
        self.quota = min(quota, memory)
        self.clients: list[Client] = []
        self.spares = BlockPool()

    def used(self) -> int:
        """Bytes of all clients' arrays."""
        return sum(client.session.used for client in self.clients)

    def describe_device(self) -> dict[str, Any]:
        """The server's description of the device."""
        backend = self.backend
        return {
            "library": backend.library,
            "name": backend.device_name,
            "dtypes": list(backend.dtypes),
            "defaults": dict(backend.default_dtypes),
            "quota": self.quota,
            "memory": self.memory,
        }

    def status(self) -> dict[str, Any]:
        """The device and its clients now."""
        clients = [
            {"pid": c.pid, "job": c.job, "arrays": len(c.session.values), "bytes": c.session.used}
            for c in list(self.clients)
        ]
        return {**self.describe_device(), "bytes": self.used(), "clients": clients}


class Client:
    """One connection, and the arrays behind it, which end with it."""

    def __init__(self, lender: DeviceWorker, connection: socket.socket, hello: dict[str, Any]) -> None:
        self.pid = hello.get("pid")
        self.job = str(hello.get("job", ""))
        self.session = Session(lender.backend, lender.quota, total=(lender.used, lender.memory))
        self._lender = lender
        self._backend = lender.backend
        set_options(connection)
        self._channel = Channel(connection)
        self._proof = hello.get("answer")
        self._errors: tuple[type[Exception], ...] = (*CALL_ERRORS, *lender.backend.errors)

    def serve(self) -> None:
        """Until the client leaves, or breaks the protocol: the life of a thread."""
        try:
            # As libraries do on a device: a division by 0 gives inf there, without a warning for each
            # element.
            with np.errstate(all="ignore"):
                self._backend.enter_thread()
                self._channel.send_frame(
                    Kind.WELCOME, orjson.dumps({**self._lender.describe_device(), "proof": self._proof})
                )
                while True:
                    self._serve_frame()
        except (ProtocolError, MemoryError) as error:
            self._refuse_client(str(error) or "no memory is left for what was sent")
        except OSError:
            pass  # it has left
        finally:
            # Whatever the reason: its memory must be free for the next client.
            self._end_client()
            self._channel.close()

    def _end_client(self) -> None:
        """All memory is free, and the client disappears from every list."""
        self.session.close()
        self._lender.spares.forget_owner(self)
        if self in self._lender.clients:
            self._lender.clients.remove(self)

    def turn_away(self, why: str) -> None:
        """Refuse the client with the reason."""
        self._refuse_client(why)
        self._channel.close()

    def _serve_frame(self) -> None:
        kind, content, size = self._channel.receive_frame()
        if kind == Kind.CALLS and not size:
            self.session.run(content)
        elif kind == Kind.PUT:
            self._put_array(content, size)
        elif kind == Kind.FETCH and not size:
            self._answer_question(self._fetch_answer, _check_question(content))
        elif kind == Kind.SYNC and not size:
            self._answer_question(self._synchronize_answer, _check_question(content))
        elif kind == Kind.DUMP and not size:
            self._dump_snapshot()
        elif kind == Kind.LOAD:
            self._load_snapshot(content, size)
        elif kind == Kind.PROBE:
            self._channel.skip(size)
        # Freed before the answer, so that the next client already finds the memory.
        elif kind == Kind.LEAVE and not size:
            self._end_client()
            self._send_reply({})
            raise ClosedError("the client has left")
        else:
            raise ProtocolError(f"a frame {kind} with {size} bytes")

    def _put_array(self, content: Any, size: int) -> None:
        handle, dtype, shape, site = _read_array_head(content, size)
        refused: Exception | None = self.session.room(size)
        # Decided before the bytes are read: an array beyond the quota is never put into memory at all.
        if refused is None and dtype not in self._backend.dtypes:
            refused = TypeError(f"the device has no {dtype}")
        if refused is not None:
            self._channel.skip(size)
            self.session.keep_failure(handle, Failure.of(refused, "asarray", site))
            return
        elements = self._lender.spares.empty(self, shape, dtype)
        if size:
            self._channel.receive_into(elements.reshape(-1).data.cast("B"))
        try:
            self.session.store(handle, self._backend.from_host(elements))
        except self._errors as error:
            self.session.keep_failure(handle, Failure.of(error, "asarray", site))

    def _answer_question(
        self, question: Callable[[dict[str, Any]], tuple[dict[str, Any], NDArray[Any] | None]], content: Any
    ) -> None:
        """Answer a question, or with the oldest failure that the client has not received, if there is one."""
        # Oldest first: a failure of an earlier call explains the later ones.
        if self.session.unheard:
            self._send_failure(self.session.unheard.popleft(), unheard=True)
            return
        try:
            found = question(content)
        except FailedError as failed:
            self._send_failure(failed.failure, unheard=False)
        except self._errors as error:
            self._send_failure(Failure.of(error, "computing", -1), unheard=False)
        else:
            self._send_reply(*found)

    def _fetch_answer(self, content: dict[str, Any]) -> tuple[dict[str, Any], NDArray[Any]]:
        elements = self._backend.to_host(self.session.get(content.get("array")))
        return {"shape": elements.shape, "dtype": elements.dtype.name}, elements

    def _synchronize_answer(self, content: dict[str, Any]) -> tuple[dict[str, Any], None]:
        answer: dict[str, Any] = {"used": self.session.used}
        if content.get("wait"):
            self._backend.synchronize()
        if "describe" in content:
            answer["described"] = self._backend.describe_value(self.session.get(content["describe"]))
        return answer, None

    def _dump_snapshot(self) -> None:
        manifest, sources = take_snapshot(self._backend, self.session.values, self.session.failed)
        text = orjson.dumps(manifest.as_json())
        # The head has the size already, so the pieces follow one by one: no second copy in memory.
        self._channel.send_all(frame_head(Kind.REPLY, len(text), manifest.size) + text)
        for source in sources:
            if source.high > source.low:
                self._channel.send_all(self._backend.read(source.value, source.low, source.high).data)

    def _load_snapshot(self, content: Any, size: int) -> None:
        manifest = parse_manifest(content)
        if manifest.size != size:
            raise ProtocolError(f"a snapshot of {size} bytes whose manifest gives another size")
        left = size

        def fill_region(target: memoryview) -> None:
            nonlocal left
            self._channel.receive_into(target)
            left -= target.nbytes

        try:
            self.session.load(manifest, fill_region)
        except self._errors as error:
            # The rest must be read, or the next frame would begin within it.
            self._channel.skip(left)
            self.session.keep_failure(None, Failure.of(error, "load", -1))

    def _send_failure(self, failure: Failure, *, unheard: bool) -> None:
        answer = {"failure": failure.as_json(), "unheard": unheard, "told": self.session.told_so_far()}
        self._channel.send_frame(Kind.ERROR, orjson.dumps(answer))

    def _send_reply(self, answer: dict[str, Any], elements: NDArray[Any] | None = None) -> None:
        text = orjson.dumps({**answer, "told": self.session.told_so_far()})
        raw = [elements.reshape(-1).data] if elements is not None and elements.size else []
        self._channel.send_frame(Kind.REPLY, text, raw)

    def _refuse_client(self, why: str) -> None:
        with contextlib.suppress(OSError):  # it may have left already
            self._channel.send_frame(Kind.REFUSED, orjson.dumps(why[:500]))


def _read_array_head(content: Any, size: int) -> tuple[int, str, tuple[int, ...], int]:
    """Handle, data type, shape and site of an array of so many bytes. Raises `ProtocolError`."""
    try:
        handle, dtype, shape, site = content
        good = dtype in DTYPES and all(type(n) is int for n in (handle, *shape, site)) and len(shape) <= 64
        if good and min(shape, default=0) >= 0 and np.dtype(dtype).itemsize * math.prod(shape) == size:
            return handle, dtype, tuple(shape), site
    except (TypeError, ValueError):
        pass
    raise ProtocolError(f"an array of {size} bytes whose description gives another size")


def _check_question(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise ProtocolError("a question that is no object")
    return content


# -- the process ---------------------------------------------------------------------------------------


def _receive_handover(control: socket.socket) -> tuple[bytes, list[int]]:
    """The next message of the server, with the connection that comes along, if one does."""
    size = array.array("i").itemsize
    message, ancillary, _, _ = control.recvmsg(MESSAGE, socket.CMSG_SPACE(size))
    descriptors = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % size])
    return message, list(descriptors)


def main(arguments: list[str]) -> int:
    """``FD PARENT``: the socket to the server, and its process id. The first message names what to open."""
    control = socket.socket(fileno=int(arguments[0]))
    # Before anything is opened: a server that is killed meanwhile would leave this process with the GPU.
    end_with(int(arguments[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server receives it, and decides what is to be done
    warnings.simplefilter("ignore")
    # Short, so that threads of several clients take turns in calls that take microseconds.
    sys.setswitchinterval(_SWITCH_INTERVAL)
    task = orjson.loads(control.recv(MESSAGE))
    begin = time.perf_counter()
    try:
        backend = open_backend(task["device"])
        backend.warm_up()
        memory = task["memory"] or backend.memory()
        backend.limit(memory)
    except DovetailError as error:
        control.send(orjson.dumps({"failed": str(error)}))
        return 2
    lender = DeviceWorker(backend, memory, task["quota"] or memory)
    control.send(orjson.dumps({"ready": lender.describe_device(), "seconds": time.perf_counter() - begin}))
    while True:
        message, descriptors = _receive_handover(control)
        if not message:
            os._exit(0)  # threads may be computing; their results have no receiver any more
        content = orjson.loads(message)
        if "status" in content:
            control.send(orjson.dumps({"status": content["status"], "is": lender.status()}))
        for descriptor in descriptors:
            connection = socket.socket(fileno=descriptor)
            connection.setblocking(True)
            client = Client(lender, connection, content["hello"])
            # Only this thread adds clients, so the count cannot be exceeded between check and append.
            if len(lender.clients) < content["most"]:
                lender.clients.append(client)
                threading.Thread(target=client.serve, daemon=True).start()
            else:
                client.turn_away(f"{len(lender.clients)} clients use the device already")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
