"""A job's side of the control socket, through which a scheduler moves its devices.

A process of the job that opens a namespace connects to the socket that ``DOVETAIL_CONTROL`` names
(``unix:PATH`` in the run's folder, or ``tcp:HOST:PORT`` with a token), identifies itself, learns where its
devices are by now, and carries out its orders from then on, in a thread of its own. Each message is a line of
JSON with one key::

    scheduler   {"nonce": HEX}                         tcp only: what the proof is over
    process     {"hello": {"uid": …, "pid": …, "nonce": …, "proof": …}}
    scheduler   {"welcome": {"addresses": [ADDRESS, …], "proof": …}}   or  {"refused": WHY}
    process     {"holding": [ADDRESS, …]}              its devices are open
    scheduler   {"migrate": {"id": N, "device": K, "to": ADDRESS}}
    process     {"moved": {"id": N, …}}                with the fields of `Moved`
                or  {"failed": {"id": N, "why": WHY}}  the device is where it was

`dovetail_remote.switchboard` is the scheduler's side. A process whose scheduler is gone goes on, and looks
for it again once a second: a run can be taken up by another scheduler. So does one that finds no scheduler at
its start, if all its devices are in its own process.
"""

from __future__ import annotations

import atexit
import os
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import orjson

from dovetail.errors import DeviceError, DovetailError
from dovetail.process.channel import Handshake, nonce_of
from dovetail_remote.address import ADDRESSES, Address, parse_address
from dovetail_remote.connection import CONNECT_TIMEOUT, token_from_environment
from dovetail_remote.device import Device
from dovetail_remote.failures import CALL_ERRORS

CONTROL = "DOVETAIL_CONTROL"
"""The environment variable with the address of the control socket."""
MOST_LINE = 1 << 16
"""Bytes of a message."""
_AGAIN = 1.0
_LAST_WORD = 5.0
"""Seconds that a program's end waits for its last answer."""
_ERRORS: tuple[type[Exception], ...] = (DovetailError, *CALL_ERRORS)


class SchedulerAwayError(DeviceError):
    """No scheduler answers."""


class ControlClient:
    """This process at the scheduler's control socket; ``known`` is where its devices were at its start.

    Raises:
        DeviceError: the scheduler does not know this job, or does not answer, and not all devices are here.
        InputError: a token is needed and cannot be read.
    """

    def __init__(self, address: Address, known: Sequence[str] = ()) -> None:
        self._address = address
        self._answering = threading.Lock()
        self._connection = socket.socket()
        self._connection.close()  # until there is one to a scheduler
        self.addresses = tuple(known)
        try:
            self._connect_socket()
        except SchedulerAwayError:
            # With every device in its own process the job computes without us; a scheduler may come back
            # later.
            if not known or not all(parse_address(one).is_local for one in known):
                raise

    def _connect_socket(self) -> None:
        try:
            self._connection = self._address.connect_to_server(CONNECT_TIMEOUT)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise SchedulerAwayError(f"{self._address}: no scheduler answers there ({reason})") from None
        self._lines = self._connection.makefile("rb")
        _seats.add(self)
        try:
            self.addresses = self._introduce_process()
            self._connection.settimeout(None)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._connection.close()
            raise DeviceError(f"{self._address}: what answers there is no scheduler ({error})") from None
        except DovetailError:
            self._connection.close()
            raise

    def _introduce_process(self) -> tuple[str, ...]:
        hello: dict[str, Any] = {"uid": os.environ.get("DOVETAIL_UID", ""), "pid": os.getpid()}
        handshake, theirs = None, b""
        if self._address.kind == "tcp":
            token = token_from_environment()
            if token is None:
                raise DeviceError(f"{self._address}: a scheduler on the network needs a token")
            handshake, theirs = Handshake(token, "process"), nonce_of(self._read_message()["nonce"])
            hello |= {"nonce": handshake.nonce.hex(), "proof": handshake.make_proof(theirs)}
        self._send_message({"hello": hello})
        answer = self._read_message()
        if "refused" in answer:
            raise DeviceError(f"{self._address}: the scheduler refuses: {answer['refused']}")
        welcome = answer["welcome"]
        if handshake is not None and not handshake.is_proven("scheduler", theirs, welcome["proof"]):
            raise DeviceError(f"{self._address}: who answers there does not know the token")
        return tuple(str(address) for address in welcome["addresses"])

    def leave(self) -> None:
        """Close the connection, without a word."""
        self._lines.close()
        self._connection.close()

    def finish(self) -> None:
        """Wait for an order that is being carried out: a program may end as soon as its device is home."""
        if self._answering.acquire(timeout=_LAST_WORD):
            self._answering.release()

    def watch(self, devices: Sequence[Device]) -> None:
        """Move these devices when the scheduler orders it, from now on and in another thread."""
        self._devices = tuple(devices)
        threading.Thread(target=self._serve_orders, name="dovetail-control", daemon=True).start()

    def _serve_orders(self) -> None:
        while True:
            try:
                self._send_message({"holding": [device.address for device in self._devices]})
                while True:
                    order = self._read_message().get("migrate")
                    if isinstance(order, dict):
                        with self._answering:
                            self._send_message(self._move_devices(order))
            except (OSError, ValueError):
                self._connection.close()
            # Not at once: many jobs look for one scheduler that is being started again.
            time.sleep(_AGAIN)
            try:
                self._connect_socket()
            except DovetailError:
                continue  # not there yet
            # The scheduler moved on without us: carry out what was missed before anything new.
            for device, address in zip(self._devices, self.addresses, strict=False):
                if device.address != address:  # it was moved while we were not connected
                    self._move_devices({"id": -1, "device": self._devices.index(device), "to": address})

    def _move_devices(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out an order; what to answer."""
        number = order.get("id")
        try:
            device = self._devices[order["device"]]
            return {"moved": {"id": number, **asdict(device.migrate(str(order["to"])))}}
        except _ERRORS as error:
            return {"failed": {"id": number, "why": " ".join(str(error).split())[:1000]}}

    def _send_message(self, message: dict[str, Any]) -> None:
        self._connection.sendall(orjson.dumps(message) + b"\n")

    def _read_message(self) -> dict[str, Any]:
        """The next message. Raises `OSError` at the end, `ValueError` for what is none."""
        line = self._lines.readline(MOST_LINE)
        if not line.endswith(b"\n"):
            raise ConnectionError("the connection was closed")
        message = orjson.loads(line)
        if not isinstance(message, dict):
            raise ValueError("a message that is no object")
        return message


_seats: weakref.WeakSet[ControlClient] = weakref.WeakSet()


def _in_child() -> None:
    """A fork does not sit in its parent's seat: the scheduler has to see the parent's end."""
    # Closing is enough here: the parent's file description stays open in the parent.
    for seat in list(_seats):
        seat.leave()
    _seats.clear()


@atexit.register
def _at_exit() -> None:
    for seat in list(_seats):
        seat.finish()


os.register_at_fork(after_in_child=_in_child)


def join_switchboard() -> ControlClient | None:
    """A seat at the control socket, if the environment names one. Raises `DeviceError`, `InputError`."""
    text = os.environ.get(CONTROL)
    return ControlClient(parse_address(text), os.environ.get(ADDRESSES, "").split()) if text else None
