"""Our end of the connection with one supervisor: requests out, ends in, without ever blocking.

The other end is `dovetail.process.supervisor`, on this machine or (`dovetail.process.agent`) another.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import IO, Any

import orjson

_log = logging.getLogger(__name__)
_RECEIVE = 1 << 16
MOST_SETUPS = 2000
"""Setups that a supervisor is to remember, beside those of jobs that have not ended."""
_SLOWLY = json.JSONEncoder(separators=(",", ":")).encode


def line_of(request: dict[str, Any]) -> bytes:
    """A request as the supervisor reads it."""
    try:
        return orjson.dumps(request) + b"\n"
    except TypeError:
        # Names that are no UTF-8, integers beyond 64 bits.
        return _SLOWLY(request).encode() + b"\n"


def said_in(line: bytes) -> dict[str, Any]:
    """The message that one line of the supervisor holds."""
    try:
        message: dict[str, Any] = orjson.loads(line)
    except orjson.JSONDecodeError:  # names that are no UTF-8
        message = json.loads(line)
    return message


class Link:
    """One supervisor, its requests, and the jobs that have not ended yet.

    ``ended`` is called with the request and the end record of every job that ends, ``left`` when the
    supervisor is gone, ``on_message`` with its other messages; from the loop in which `attach_to_loop` was
    called.
    ``requests`` holds the jobs that have not ended, by uid; those that were launched are also written to
    ``copy``, where the supervisor keeps its log at a place that may be lost with it.
    """

    def __init__(
        self,
        ended: Callable[[dict[str, Any], dict[str, Any]], None],
        left: Callable[[], None],
        on_message: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._ended = ended
        self._left = left
        self._on_message = on_message
        self.requests: dict[str, dict[str, Any]] = {}
        self.copy: IO[bytes] | None = None
        self.first_setup = 0  # the next number; a setup and an environment never have the same one
        self._full = 0  # setups at which to forget some
        self._setups: dict[Hashable, dict[str, Any]] = {}  # requests, in order of their numbers
        self._environs: dict[Hashable, dict[str, Any]] = {}
        self._stops: dict[str, dict[str, Any]] = {}  # requested, by uid
        self._inbox = b""
        self._lines: deque[bytes] = deque()  # received, and not taken in yet
        self._outbox = b""
        self._gathers = False  # whether what is in the outbox goes at the loop's next turn
        self._writes = False  # whether the loop watches for the socket to take more
        self._socket: socket.socket | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.gone: asyncio.Event = asyncio.Event()
        self.gone.set()

    @property
    def is_connected(self) -> bool:
        """Whether there is a supervisor at the other end, as far as we know."""
        return self._socket is not None

    @property
    def is_attached(self) -> bool:
        """Whether a loop listens."""
        return self._loop is not None

    # ------------------------------------------------------------------- connecting

    def connect_socket(self, found: socket.socket, data: bytes = b"") -> None:
        """Talk through this socket; ``data`` has come from it already. A new supervisor gets all setups."""
        found.setblocking(False)
        self._socket = found
        self._inbox = data
        self.gone.clear()

    def attach_to_loop(self) -> None:
        """Listen in the loop that runs."""
        assert self._socket is not None
        self.gone.clear()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._receive_lines)
        # What came with the handshake is taken in now: no reader event announces it again.
        self._take_in(b"")
        self._flush_outbox()

    def detach(self) -> None:
        """Close our end."""
        if self._socket is not None:
            if self._loop is not None:
                self._loop.remove_reader(self._socket)
                self._loop.remove_writer(self._socket)
                self._loop, self._writes = None, False
            self._socket.close()
            self._socket = None
        if self.copy is not None:
            self.copy.close()
            self.copy = None
        self._inbox = self._outbox = b""
        self.gone.set()

    # ------------------------------------------------------------------- requests

    def setup_number(self, key: Hashable, make: Callable[[], dict[str, Any]]) -> int:
        """Number of what a job shares with others; the first use sends it to the supervisor."""
        known = self._setups.get(key)
        if known is None:
            if len(self._setups) >= max(MOST_SETUPS, self._full):
                self._forget_older_half()
            # Which may send an environment, so that the number is taken after it.
            made = make()
            known = self._setups[key] = {"t": "setup", "setup": self._next_number(), **made}
            self.send_line(known)
        number: int = known["setup"]
        return number

    def environment_number(self, variables: tuple[tuple[str, str], ...]) -> int:
        """Number of an environment that setups are built on; the first use sends it to the supervisor."""
        known = self._environs.get(variables)
        if known is None:
            known = {"t": "environ", "environ": self._next_number(), "vars": dict(variables)}
            self._environs[variables] = known
            self.send_line(known)
        number: int = known["environ"]
        return number

    def _next_number(self) -> int:
        number = self.first_setup
        self.first_setup += 1
        return number

    def _forget_older_half(self) -> None:
        """Forget the older half of all setups, those of jobs that run excepted, here and there."""
        used = {request["setup"] for request in self.requests.values()}
        older = list(self._setups.items())[: MOST_SETUPS // 2]
        self._drop_setups({known["setup"] for _, known in older} - used)
        # While that many are in use, not for each new one.
        self._full = 2 * len(self._setups)

    def _drop_setups(self, gone: set[int]) -> None:
        """Forget setups, and environments on which no setup is built any more, here and there."""
        self._setups = {key: known for key, known in self._setups.items() if known["setup"] not in gone}
        used = {known.get("outer") for known in self._setups.values()}
        numbers = [known["environ"] for known in self._environs.values() if known["environ"] not in used]
        self._environs = {key: known for key, known in self._environs.items() if known["environ"] in used}
        self.send_line({"t": "forget", "numbers": [*gone, *numbers]})

    def send_setups(self) -> None:
        """Send all setups to a new supervisor."""
        for known in (*self._environs.values(), *self._setups.values()):
            self.send_line(known)

    def launch(self, request: dict[str, Any]) -> None:
        """Have a job started."""
        self.requests[request["uid"]] = request
        # On our side too, since a log on a node's own disk may be lost with the node.
        if self.copy is not None:
            self.copy.write(line_of(request))
        self.send_line(request, soon="after" in request)

    def stop(self, uid: str, reason: str, grace: float, why: str = "") -> None:
        """Have a job ended; the first reason stays, and the sentence that goes with it."""
        request: dict[str, Any] = {"t": "stop", "uid": uid, "reason": reason, "grace": grace}
        # The moment of the decision, not of its arrival: a job that ends in between has ended by itself.
        request["at"] = time.monotonic()
        if why:
            request["why"] = why
        self.send_line(self._stops.setdefault(uid, request))

    def repeat_request(self, request: dict[str, Any]) -> None:
        """Send a new supervisor what the one before never received."""
        self.launch(request)
        if request["uid"] in self._stops:
            self.send_line(self._stops[request["uid"]])

    def done(self, uid: str) -> dict[str, Any]:
        """The job has ended: forget it; returns its request."""
        self._stops.pop(uid, None)
        return self.requests.pop(uid)

    def send_line(self, request: dict[str, Any], *, soon: bool = False) -> None:
        """Send a line, without blocking; kept until there is a supervisor.

        ``soon``: the sender does not wait for it, so it goes with other lines before the loop's next turn.
        """
        # Bytes that wait for the socket keep their order: nothing is sent past them.
        full = bool(self._outbox) and not self._gathers
        self._outbox += line_of(request)
        if soon and self._loop is not None and not full:
            if not self._gathers:
                self._gathers = True
                self._loop.call_soon(self._flush_outbox)
        elif not full:
            self._flush_outbox()

    def _flush_outbox(self) -> None:
        self._gathers = False
        if self._socket is None:
            return
        try:
            sent = self._socket.send(self._outbox) if self._outbox else 0
        except ConnectionError:
            # The supervisor is gone: its end of file follows.
            self._outbox = b""
            return
        except OSError:
            # The socket is full, or the kernel lacks memory for a moment.
            sent = 0
        self._outbox = self._outbox[sent:]
        if self._loop is not None and self._writes is not bool(self._outbox):
            self._writes = not self._writes
            if self._writes:
                self._loop.add_writer(self._socket, self._flush_outbox)
            else:
                self._loop.remove_writer(self._socket)

    # ------------------------------------------------------------------- answers

    def _receive_lines(self) -> None:
        """Take in what the supervisor sends."""
        assert self._socket is not None
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._take_in(data)
        else:
            self.detach()
            self._left()

    def _take_in(self, data: bytes) -> None:
        *lines, self._inbox = (self._inbox + data).split(b"\n")
        # Into a queue first: a callback may raise, or receive more, and no line may be lost or reordered.
        self._lines += lines
        try:
            while self._lines:
                self._take_in_line(said_in(self._lines.popleft()))
        finally:
            # An error in one line loses no other.
            if self._lines and self._loop is not None:
                self._loop.call_soon(self._take_in, b"")

    def _take_in_line(self, message: dict[str, Any]) -> None:
        if message["t"] == "end":
            # It is not there where the log already had this end at the take-over.
            if message["uid"] in self.requests:
                self._ended(self.done(message["uid"]), message)
            return
        if message["t"] == "fault":
            about = message["uid"] or "no job"
            _log.error("the supervisor met an error in %s (%s): %s", message["of"], about, message["why"])
            number = message.get("number")
            # It has not got that: the next job that needs it sends it again.
            if number is not None:
                about_it = [k for k in self._setups.values() if number in (k["setup"], k.get("outer"))]
                self._drop_setups({known["setup"] for known in about_it})
        if self._on_message is not None:
            self._on_message(message)
