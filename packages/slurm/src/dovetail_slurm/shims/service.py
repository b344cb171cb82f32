"""The service, called with little: one request on its socket, without the library of a client.

Importing Python's HTTP client takes as long as all else of a call. Where the service is not at a socket of
this machine, or is just starting, `dovetail.client.connection` sends the request.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from typing import Any

from dovetail_slurm.shims.options import Wrong

VARIABLE = "DOVETAIL_SERVICE"
TIMEOUT = 120.0
MOST_NAME = 100
"""Bytes of a path that a socket can have as its name."""


class Refused(Exception):  # noqa: N818 - reads as what it is
    """The service refused a request; ``status`` is that of HTTP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class Service:
    """The service of this account, or of ``$DOVETAIL_SERVICE``, else of ``place``."""

    def __init__(self, command: str, place: str = "") -> None:
        self._command = command
        self._place = os.environ.get(VARIABLE) or place
        self._socket = ""
        self._other: Any = None

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """What a route answers. Raises `Refused`, and `Wrong` where no service answers."""
        return self._send_request("GET", _with_query(path, query or {}), None)

    def post_form(self, path: str, form: Mapping[str, Any]) -> Any:
        """Have something done. Raises as `get`."""
        return self._send_request("POST", path, form)

    def read(self, path: str, query: Mapping[str, Any]) -> tuple[bytes, Mapping[str, str]]:
        """What a route answers, as it stands, with its headers."""
        status, headers, body = self._exchange_once("GET", _with_query(path, query), None)
        if status >= 300:
            raise Refused(status, _error_of(status, body))
        return body, headers

    def _send_request(self, method: str, path: str, form: Mapping[str, Any] | None) -> Any:
        status, _, body = self._exchange_once(method, path, form)
        if status < 300:
            return json.loads(body)
        raise Refused(status, _error_of(status, body))

    def _exchange_once(
        self, method: str, path: str, form: Mapping[str, Any] | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._other is None:
            try:
                status, headers, body = _exchange_request(self._socket_path(), method, path, form)
            # The small client of this module starts in milliseconds; what it cannot reach (another machine, a
            # service that begins anew) is left to the usual one.
            except OSError:
                pass
            else:
                if status != 503 or "retry-after" not in headers:
                    return status, headers, body
            self._other = self._open_client()
        reply = self._other.ask(method, path, form)
        return reply.status, reply.headers, reply.body

    def _socket_path(self) -> str:
        """The path of the socket. Raises `OSError` where the place is no folder of a service here."""
        if not self._socket:
            place = self._place
            if place and not os.path.isdir(place):
                self._socket = place
            else:
                folder = place or _default_folder()
                with open(f"{folder}/address.json", "rb") as file:
                    self._socket = str(json.loads(file.read())["socket"])
        return self._socket

    def folder(self) -> str:
        """The folder of the service, if that is one of this machine; else empty."""
        if self._place and not os.path.isdir(self._place):
            return ""
        folder = self._place or _default_folder()
        return folder if os.path.exists(f"{folder}/address.json") else ""

    def _open_client(self) -> Any:
        from dovetail.client.connection import open_connection
        from dovetail.errors import DovetailError

        try:
            return _Other(open_connection(self._place or None), self._command)
        except DovetailError as error:
            raise Wrong(f"{self._command}: error: {error}") from None


class _Other:
    """The usual client, whose errors are this command's."""

    def __init__(self, found: Any, command: str) -> None:
        self._found, self._command = found, command

    def ask(self, method: str, path: str, form: Mapping[str, Any] | None) -> Any:
        from dovetail.errors import DovetailError

        try:
            return self._found.ask(method, path, form)
        except DovetailError as error:
            raise Wrong(f"{self._command}: error: {error}") from None


def _default_folder() -> str:
    named = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return f"{named}/dovetail/service"
    from dovetail.files.folders import state_folder

    return str(state_folder() / "dovetail" / "service")


def _exchange_request(
    path: str, method: str, target: str, form: Mapping[str, Any] | None
) -> tuple[int, Mapping[str, str], bytes]:
    """One request with one answer, after which the other side closes. Raises `OSError`."""
    body = b"" if form is None else json.dumps(form).encode()
    head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    if form is not None:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    place = -1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as found:
        found.settimeout(TIMEOUT)
        name = path
        try:
            if len(os.fsencode(name)) > MOST_NAME:
                place = os.open(os.path.dirname(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                name = f"/proc/self/fd/{place}/{os.path.basename(name)}"
            found.connect(name)
        finally:
            if place >= 0:
                os.close(place)
        found.sendall(head.encode() + b"\r\n" + body)
        parts = []
        while part := found.recv(1 << 16):
            parts.append(part)
    top, separator, rest = b"".join(parts).partition(b"\r\n\r\n")
    first, *lines = top.decode("latin-1").split("\r\n")
    words = first.split(None, 2)
    if not separator or len(words) < 2 or not words[1].isdecimal():
        raise OSError("no answer")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        rest = _join_chunks(rest)
    elif len(rest) < int(headers.get("content-length", "0")):
        raise OSError("half an answer")
    return int(words[1]), headers, rest


def _join_chunks(body: bytes) -> bytes:
    """A body that came in chunks. Raises `OSError` where its end is missing."""
    found: list[bytes] = []
    while True:
        size, _, body = body.partition(b"\r\n")
        try:
            length = int(size.partition(b";")[0], 16)
        except ValueError:
            raise OSError("half an answer") from None
        if not length:
            return b"".join(found)
        found.append(body[:length])
        body = body[length + 2 :]


def _error_of(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {status}"


_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    """The path with a query; of a list each part is one of its name."""
    pairs = [
        f"{name}={_quote_path(str(one))}"
        for name, value in query.items()
        for one in (value if isinstance(value, list) else [] if value is None else [value])
    ]
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _quote_path(text: str) -> str:
    data = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
