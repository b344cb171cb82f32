"""HTTP on sockets: uvicorn's protocol in our own loop, with limits, and with who is at a socket's other end.

Nothing ticks: an idle service uses no CPU, which uvicorn's own server loop would.
"""

from __future__ import annotations

import asyncio
import functools
import grp
import logging
import os
import resource
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dovetail.errors import InputError
from dovetail.files.writing import private_folder

HEAD_TIMEOUT = 10.0
"""Seconds within which a request's head must have come."""
KEEP_ALIVE = 75
MOST_HEAD = 64 << 10
MOST_CONNECTIONS = 500
"""Connections at a time, over the network and at the socket."""
MOST_OF_ONE = 200
"""Connections of one address, or of one user of the machine."""
OURS = 40
"""Descriptors that a service needs itself."""
AT_ONCE = 4
"""Connections that are taken before those that make room for them are closed; asyncio takes its backlog."""
WAITING = 1024
"""Connections that the kernel keeps until they are taken."""


class Limits:
    """All connections, the oldest first, each of an address or a user (``peer``).

    Where there are too many, the oldest makes room that waits for nothing, or is a stranger's. So one who
    opens many has the use of none, and others find the door open.
    """

    def __init__(self) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = max(8, min(MOST_CONNECTIONS, files - OURS))
        self.connections: dict[Protocol, str] = {}

    def admit_connection(self, protocol: Protocol, peer: str) -> bool:
        """One more, if there is room for it or can be made."""
        alike = [one for one, other in self.connections.items() if other == peer]
        crowded = alike if len(alike) >= MOST_OF_ONE else self.connections
        if len(self.connections) >= self.most or crowded is alike:
            # A connection that is idle gives way to a new one: clients keep theirs open for the next request.
            idle = next((one for one in crowded if one.idle), None)
            if idle is None:
                return False
            self.connections.pop(idle)
            idle.transport.abort()
        self.connections[protocol] = peer
        return True


class Protocol(H11Protocol):
    """One connection. ``client`` is (``unix:UID:PID``, 0) at a socket: so the application knows who it is."""

    def __init__(self, *, limits: Limits, **rest: Any) -> None:
        super().__init__(**rest)
        self._limits = limits
        self._slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Who is it, and are there too many?"""
        super().connection_made(transport)
        found = transport.get_extra_info("socket")
        if found is not None and found.family == socket.AF_UNIX:
            credentials = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid, uid, _ = struct.unpack("3i", credentials)
            self.client, peer = (f"unix:{uid}:{pid}", 0), f"unix:{uid}"
        else:
            peer = self.client[0] if self.client else ""
        if not self._limits.admit_connection(self, peer):
            transport.abort()
            return
        # A stranger who never finishes a head would hold a connection for ever.
        self._slow = self.loop.call_later(HEAD_TIMEOUT, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        """One fewer."""
        self._limits.connections.pop(self, None)
        self._patience_over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A head that does not come to its end is not waited for."""
        super().data_received(data)
        waits = self.conn.their_state is h11.IDLE
        if waits and self._slow is None and getattr(self.cycle, "response_complete", True):
            # The next request of a connection that is kept may already be half there.
            if self.conn.trailing_data[0]:
                self._slow = self.loop.call_later(HEAD_TIMEOUT, self._too_slow)
        elif not waits:
            self._patience_over()

    @property
    def idle(self) -> bool:
        """Whether no person that we know waits for an answer here."""
        cycle: Any = self.cycle  # None before the first request, whatever its type declares
        return cycle is None or cycle.response_complete or "person" not in cycle.scope

    def _patience_over(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _too_slow(self) -> None:
        self._slow = None
        if not self.transport.is_closing():
            self.transport.abort()


class Listeners:
    """The sockets at which one application is served."""

    def __init__(self, app: Any) -> None:
        quiet = {"version": 1, "disable_existing_loggers": False}
        self._config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=quiet,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE,
            h11_max_incomplete_event_size=MOST_HEAD,
        )
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # strangers' mistakes are no news
        self._config.load()
        self._state = ServerState()
        self._limits = Limits()
        self._servers: list[asyncio.Server] = []
        self.urls: list[str] = []

    def _protocol_factory(self) -> Any:
        return functools.partial(
            Protocol, limits=self._limits, config=self._config, server_state=self._state, app_state={}
        )

    async def at_socket(self, found: socket.socket) -> None:
        """Listen at a socket file that was made by `unix_socket`."""
        server = await asyncio.get_running_loop().create_unix_server(
            self._protocol_factory(), sock=found, backlog=AT_ONCE
        )
        found.listen(WAITING)
        self._servers.append(server)

    async def at_address(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> str:
        """Listen on the network; returns the URL. Raises `InputError`."""
        try:
            server = await asyncio.get_running_loop().create_server(
                self._protocol_factory(),
                host,
                port,
                ssl=tls,
                backlog=AT_ONCE,
                ssl_handshake_timeout=10 if tls else None,
            )
        except OSError as error:
            raise InputError(
                f"cannot listen on {host}:{port}: {error.strerror or error}", where="--listen"
            ) from error
        # Through another file object: asyncio has no way to listen with another backlog after binding.
        self._servers.append(server)
        for one in server.sockets:
            with socket.socket(fileno=os.dup(one.fileno())) as same:
                same.listen(WAITING)
        bound = server.sockets[0].getsockname()
        shown = f"[{bound[0]}]" if ":" in bound[0] else bound[0]
        url = f"{'https' if tls else 'http'}://{shown}:{bound[1]}"
        self.urls.append(url)
        return url

    async def close(self) -> None:
        """Take no more, and end what is open."""
        for server in self._servers:
            server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        # What is being answered may finish within a second; the rest is cut off.
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=1.0)
        for connection in list(self._state.connections):
            connection.transport.abort()


def unix_socket(path: Path, group: str | None) -> socket.socket:
    """A socket at this path, in place of one without a server: mode 0600, or 0660 for a ``group``.

    Raises `InputError`.
    """
    mode, gid = 0o600, -1
    if group is not None:
        try:
            gid, mode = grp.getgrnam(group).gr_gid, 0o660
        except KeyError:
            raise InputError(
                f"found the group {group!r}, expected one of this machine", where="--group"
            ) from None
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        private_folder(path.parent)
        place = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            short = f"/proc/self/fd/{place}/{path.name}"  # a socket's name has 107 bytes at most
            if os.path.lexists(short):
                os.unlink(short)
            before = os.umask(0o177)
            try:
                found.bind(short)
            finally:
                os.umask(before)
            if group is not None:
                os.chown(short, -1, gid, follow_symlinks=False)
            os.chmod(short, mode)
        finally:
            os.close(place)
    except OSError as error:
        found.close()
        raise InputError(f"{path}: the socket cannot be made: {error.strerror or error}") from error
    found.setblocking(False)
    return found


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::1]:PORT``, ``:PORT`` (loopback). Raises `InputError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"found {text!r}, expected HOST:PORT, e.g. 127.0.0.1:8765", where="--listen")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    if host == "localhost":
        return True
    try:
        packed = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return all(_is_loopback(str(one[4][0])) for one in packed)


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """TLS with this certificate. Raises `InputError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InputError(
            f"{certificate}: is no certificate with a key: {error}", where="--tls-cert"
        ) from error
    return context


def names_of(url: str) -> list[str]:
    """``HOST:PORT`` under which browsers may know this address; ``*:PORT``: any number."""
    host, _, port = url.partition("://")[2].rpartition(":")
    names = [f"{host}:{port}"]
    if _is_loopback(host.strip("[]")):
        names.append(f"localhost:{port}")
    if host in ("0.0.0.0", "[::]"):
        names += [
            f"*:{port}",
            f"localhost:{port}",
            f"{socket.gethostname()}:{port}",
            f"{socket.getfqdn()}:{port}",
        ]
    return names
