"""How clients talk to a service: HTTP on its socket or over the network, with the standard library alone."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from dovetail.client.errors import Forbidden, Full, NotFound
from dovetail.client.folder import Address, ServiceFolder
from dovetail.errors import DovetailError, InputError
from dovetail.files.folders import home_folder
from dovetail.files.little_memory import refuse_little_memory
from dovetail.files.streams import print_note
from dovetail.records import dataclass
from dovetail.version import API, API_HEADER

STARTS_WITHIN = 60.0
"""Seconds that a service may take to answer: it probes the drivers of devices first."""
MOVES_WITHIN = 10.0
"""Seconds in which one whose socket has been removed makes another: it looks every 2 s."""
AGAIN = 0.1
"""Seconds between two requests to a service that is starting."""
TIMEOUT = 120.0
MOST_HEAD, LONGEST_SHOWN = 1 << 16, 100
"""Bytes of a reply's head, and characters of a line that is no HTTP, in the error of it."""
WAIT = "/api/v1/wait"
PATIENCE = 300.0
"""Seconds for which a client that waits for jobs waits for a service that does not answer."""
PAUSE = 0.5
"""Seconds between two attempts to reach it."""
VARIABLE = "DOVETAIL_SERVICE"
TOKEN = "DOVETAIL_TOKEN"
AROUND = frozenset({"umask", "limits"})
"""What goes along with jobs since API 2, and is not needed."""
NO_ROUTE = ("not found", "method not allowed")
"""What a service answers to a request of which it knows nothing."""
NO_FIELD = re.compile(r"found an unknown key ('[^']*')")


class OlderService(DovetailError):  # noqa: N818 - reads as what it is
    """The service is older than its client, and lacks what is needed here."""

    exit_status = 2

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the service is older than this command, and {what}: it needs a restart ('dovetail serve "
            "--stop', then 'dovetail serve'; what runs goes on)"
        )


class OlderAnswer(dict[str, Any]):
    """What an older service answered: a field that it does not know is a sentence where it is needed."""

    def __missing__(self, name: str) -> Any:
        raise OlderService(f"lacks the field {name!r}")


class NoService(DovetailError):  # noqa: N818 - reads as what it is
    """No service answers."""

    exit_status = 2


class NoAccess(NoService):
    """The service's folder cannot be looked into: whether a service runs there is not known."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def api(self) -> int:
        """What the service that answered knows (`dovetail.version.API`)."""
        api = self.headers.get(API_HEADER, "1")
        return int(api) if api.isdecimal() and len(api) < 9 else 1

    def read_json(self) -> Any:
        """The body; raises the service's error, `OlderService` where the service is too old.

        An older service's objects raise it where a field is needed that they lack.
        """
        older = self.api < API
        try:
            found = json.loads(self.body, object_hook=OlderAnswer) if older else json.loads(self.body)
        except ValueError:
            found = None
        if 200 <= self.status < 300:
            return found
        text = found.get("error") if isinstance(found, dict) else None
        text = str(text or f"the service answered {self.status}")
        if older:
            field = NO_FIELD.search(text)
            if text in NO_ROUTE or field is not None:
                raise OlderService("cannot do this" if field is None else f"does not take {field[1]}")
        if self.status == 404:
            raise NotFound(text)
        if self.status in (401, 403):
            raise Forbidden(text)
        if self.status == 503:
            raise Full(text)
        if 400 <= self.status < 500:
            raise InputError(text)
        raise DovetailError(text)


class _AtSocket(http.client.HTTPConnection):
    """HTTP on a socket file, whose path may be longer than a socket's name can be."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        place = -1
        try:
            found.settimeout(self.timeout)
            name = self._path
            if len(os.fsencode(name)) > 100:
                place = os.open(os.path.dirname(name), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                name = f"/proc/self/fd/{place}/{os.path.basename(name)}"
            found.connect(name)
        except OSError:
            found.close()
            raise
        finally:
            if place >= 0:
                os.close(place)
        self.sock = found

    def exchange(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        """One request and its reply, whose length the service gives always.

        `http.client` writes a head and a body one by one and reads heads as those of mail, which takes more
        than all else of a small request. Raises `OSError`, `http.client.HTTPException`.
        """
        # A line break would begin a head, or a request, of the text's own.
        if not (path.isascii() and path.isprintable()) or " " in path:
            raise http.client.InvalidURL(f"found {path[:LONGEST_SHOWN]!r}, expected printable ASCII")
        for name, value in headers.items():
            if not (value.isascii() and value.isprintable()):
                # Without the value, which may be a token.
                raise http.client.InvalidURL(f"{name}: expected printable ASCII")
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Accept-Encoding: identity"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode("ascii") + (body or b""))
        return self.read_reply()

    def read_reply(self) -> Reply:
        """The reply that comes next."""
        data = bytearray()
        while (end := data.find(b"\r\n\r\n")) < 0:
            if len(data) > MOST_HEAD:
                raise http.client.LineTooLong("head")
            self._receive_into(data)
        first, *rest = data[:end].decode("latin-1").split("\r\n")
        version, _, status = first.partition(" ")
        pairs = (line.partition(":") for line in rest)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        length = headers.get("content-length", "")
        if version != "HTTP/1.1" or not status[:3].isdecimal() or not length.isdecimal():
            raise http.client.BadStatusLine(first[:LONGEST_SHOWN])
        body = data[end + 4 :]
        while len(body) < int(length):
            self._receive_into(body)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Reply(int(status[:3]), headers, bytes(body))

    def _receive_into(self, data: bytearray) -> None:
        some = self.sock.recv(1 << 16)
        if not some:
            # As `http.client` raises it: an idle connection was closed meanwhile, which is no error yet.
            raise http.client.RemoteDisconnected("the service closed the connection")
        data += some

    def peer_account(self) -> int:
        """The account of the process that listens there."""
        found = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(found[4:8], sys.byteorder)


class Connection:
    """One service. Use it in one thread; it keeps its connection open.

    ``where`` is the path of a socket, or an URL; raises `InputError` for anything else.
    """

    def __init__(self, where: str, token: str | None = None, *, timeout: float = TIMEOUT) -> None:
        self.where = where
        self._token = token
        self._timeout = timeout
        self._open: http.client.HTTPConnection | None = None
        self._patience = 0.0
        self._tell: Callable[[str], None] = lambda sentence: None
        self._address: Callable[[], str | None] = lambda: None  # where the service is now
        self.api = API
        """What the service knows, as of its last answer (`dovetail.version.API`)."""
        self.peers: set[int | None] = set()
        """The accounts of those who have answered here; ``None`` for one over the network."""

    def _open_connection(self) -> http.client.HTTPConnection:
        if self._open is not None and self._open.sock is not None and _has_ended(self._open.sock):
            self.close()  # as the service does with one that was idle for long
        if self._open is None:
            if os.path.isabs(self.where):
                self._open = _AtSocket(self.where, self._timeout)
            else:
                parts = urlsplit(self.where)
                if parts.scheme == "https":
                    context = ssl.create_default_context(cafile=os.environ.get("DOVETAIL_CA") or None)
                    self._open = http.client.HTTPSConnection(
                        parts.netloc, timeout=self._timeout, context=context
                    )
                else:
                    self._open = http.client.HTTPConnection(parts.netloc, timeout=self._timeout)
        return self._open

    def be_patient(self, seconds: float, tell: Callable[[str], None]) -> None:
        """From now on wait so long for a service that does not answer, and send the request again.

        That holds for what only looks, for `wait`, and for what has not been sent: the rest may have been
        done. ``tell``
        gets one sentence each time.
        """
        self._patience, self._tell = seconds, tell

    def follow_folder(self, folder: ServiceFolder) -> None:
        """The service of this folder may be elsewhere after a restart."""

        def current_address() -> str | None:
            known = folder.address() if folder.is_locked() else None
            return None if known is None else known.socket

        self._address = current_address

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(
        self,
        method: str,
        path: str,
        form: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Reply:
        """One request; a service that is just starting is waited for. Raises `NoService`."""
        deadline = time.monotonic() + STARTS_WITHIN
        # Only what looks is sent again by itself: a submission may have been taken in before the answer was
        # lost.
        waits = self._patience > 0 and (method == "GET" or path == WAIT)
        gives_up = 0.0
        while True:
            try:
                reply = self._send_with_retries(method, path, form, query)
            except NoService as error:
                now = time.monotonic()
                # Where no connection came about, nothing has been sent.
                sent = not isinstance(error.__cause__, ConnectionRefusedError | FileNotFoundError)
                if not (waits or (self._patience > 0 and not sent)) or (gives_up and now > gives_up):
                    raise
                if not gives_up:
                    gives_up = now + self._patience
                    self._tell(
                        f"the service at {self.where} does not answer; waiting for it, "
                        f"{self._patience:.0f} s at most"
                    )
                # The service may have come back elsewhere: its folder names the new socket.
                time.sleep(PAUSE)
                self.where = self._address() or self.where
                continue
            if gives_up:  # the time that it takes to start counts anew
                deadline, gives_up = time.monotonic() + STARTS_WITHIN, 0.0
            if reply.status != 503 or "retry-after" not in reply.headers or time.monotonic() > deadline:
                return reply
            time.sleep(AGAIN)

    def _send_with_retries(
        self, method: str, path: str, form: Mapping[str, Any] | None, query: Mapping[str, Any] | None
    ) -> Reply:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        if given:
            words = urlencode(given, doseq=True, errors="surrogateescape")
            path = f"{path}?{words}"
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        body = None
        if form is not None:
            body = json.dumps(form).encode()
            headers["Content-Type"] = "application/json"
        again = self._open is not None and method == "GET"  # what else was sent may have been carried out
        while True:
            try:
                return self._send_once(method, path, body, headers)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # An idle connection may have been closed between two requests: one new try, without a word.
                if not (again and isinstance(error, ConnectionResetError | BrokenPipeError)):
                    raise self._make_no_service(error) from error
                again = False

    def _send_once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Reply:
        connection = self._open_connection()
        if isinstance(connection, _AtSocket):
            return self._exchange_once(connection, method, path, body, headers)
        try:
            connection.request(method, path, body, dict(headers))
        except (BrokenPipeError, ConnectionResetError) as error:
            if body is None:
                raise
            # A body that is too long is refused while it is still being sent: read the refusal before giving
            # up.
            try:  # one that is too long is refused before all of it has come
                refused = connection.getresponse()
                text, status = refused.read(), refused.status
            except (OSError, http.client.HTTPException):
                raise error from None
            self.close()
            return Reply(status, {k.lower(): v for k, v in refused.getheaders()}, text)
        self.peers.add(None)
        answer = connection.getresponse()
        data = answer.read()
        reply = Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, data)
        return self._note_api(reply)

    def _exchange_once(
        self, connection: _AtSocket, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply:
        if connection.sock is None:
            connection.connect()
            self.peers.add(connection.peer_account())
        try:
            reply = connection.exchange(method, path, body, headers)
        except (BrokenPipeError, ConnectionResetError) as error:
            if body is None:
                raise
            try:  # one that is too long is refused before all of it has come
                reply = connection.read_reply()
            except (OSError, http.client.HTTPException):
                raise error from None
            self.close()
        return self._note_api(reply)

    def _note_api(self, reply: Reply) -> Reply:
        if 200 <= reply.status < 300:  # one that is starting answers without
            self.api = reply.api
        return reply

    def _make_no_service(self, error: Exception) -> NoService:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return NoService(f"no service answers at {self.where}: {why}; 'dovetail serve' starts one")

    def get(self, path: str, **query: Any) -> Any:
        """The answer of a route. Raises the service's error."""
        return self.ask("GET", path, query=query).read_json()

    def post(self, path: str, form: Mapping[str, Any] | None = None) -> Any:
        """Have something done; ``form`` goes along as JSON."""
        form = form or {}
        try:
            return self.ask("POST", path, form).read_json()
        # Sent once more without the fields that an older service does not know.
        except OlderService:  # it has done nothing
            if AROUND.isdisjoint(form):
                raise
            print_note(
                "the service is older than this command: its own umask and limits hold, until its restart"
            )
            return self.ask("POST", path, {k: v for k, v in form.items() if k not in AROUND}).read_json()

    def stream(self, path: str) -> http.client.HTTPResponse:
        """An answer that comes piece by piece; `close` the connection after it. Raises `NoService`."""
        connection = self._open_connection()
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            connection.request("GET", path, None, headers)
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._make_no_service(error) from error

    def events(self) -> Iterator[dict[str, Any]]:
        """What happens, as it happens (the first at once). Raises `NoService`."""
        connection = self._open_connection()
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            connection.request("GET", "/api/v1/events", None, headers)
            answer = connection.getresponse()
            if answer.status != 200:
                Reply(answer.status, {}, answer.read()).read_json()
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])
        except (OSError, http.client.HTTPException) as error:
            raise self._make_no_service(error) from error
        finally:
            self.close()


def _has_ended(idle: socket.socket) -> bool:
    """Whether the other side has closed a connection that is idle."""
    poll = select.poll()
    poll.register(idle, select.POLLIN)
    return bool(poll.poll(0))


def open_connection(
    where: str | os.PathLike[str] | None = None,
    token: str | None = None,
    *,
    start: Callable[[str], None] | None = None,
) -> Connection:
    """The service at an URL, at a socket, of a state folder, or (default) of this account.

    ``$DOVETAIL_SERVICE`` and ``$DOVETAIL_TOKEN`` stand in for the arguments. With ``start``, which
    gets a sentence, one is started where none runs. Raises `NoService`.
    """
    place = os.fspath(where) if where is not None else os.environ.get(VARIABLE, "")
    token = token or os.environ.get(TOKEN) or None
    if place.startswith(("http://", "https://")):
        return Connection(place.rstrip("/"), token)
    if place and not os.path.isdir(place) and os.path.exists(place):
        return Connection(os.path.abspath(place))
    folder = ServiceFolder(place or None)
    try:
        folder.check_access()
    except InputError as error:
        raise NoAccess(str(error)) from error
    other = folder.elsewhere()
    if other is not None:
        raise NoService(
            f"{other}; use it there, or over the network: 'dovetail serve --listen' there and "
            "--service URL here"
        )
    if folder.is_locked():
        found = _when_ready(folder)
    elif start is None:
        raise NoService("no service runs here; 'dovetail serve' or 'dovetail submit' starts one")
    else:
        found = start_service(folder, start)
    found.follow_folder(folder)
    return found


def _when_ready(folder: ServiceFolder, process: subprocess.Popen[bytes] | None = None) -> Connection:
    """The connection, as soon as the service answers. Raises `NoService`."""
    began = time.monotonic()
    seen: Address | None = None
    while time.monotonic() < began + STARTS_WITHIN:
        address = folder.address()
        gone = address is not None and not os.path.exists(address.socket)
        long = time.monotonic() > began + MOVES_WITHIN
        # Its process lives but its socket was removed: it makes a new one within seconds, so wait that long.
        if address is not None and gone and long and address.pid == folder.holder_process():
            break  # it has written where it listens, and nothing is there
        if address != seen:
            seen, began = address, time.monotonic()
        if address is not None:
            found = Connection(address.socket)
            try:
                found.get("/api/v1/info")
            except NoService:
                found.close()
            else:
                return found
        ended = process is not None and process.poll() is not None
        if (process is None or ended) and not folder.is_locked():
            raise NoService(f"the service has ended; its last words are in {folder.log}")
        time.sleep(0.02)
    waited = f"within {time.monotonic() - began:.0f} s"
    holder = folder.holder_process()
    if seen is None or not holder:
        raise NoService(f"the service did not answer {waited}; see {folder.log}")
    raise NoService(
        f"the service of {folder.path} (process {holder}) did not answer at {seen.socket} {waited}; "
        f"'kill {holder}' ends it, what runs goes on, and the next 'dovetail serve' takes it up; "
        f"see {folder.log}"
    )


def start_service(folder: ServiceFolder, tell: Callable[[str], None], *options: str) -> Connection:
    """Start a service in the background, and report it.

    Raises `NoService` where it does not come up, `InputError` where our limit of memory, which it has too, is
    too low for it.
    """
    refuse_little_memory()
    try:
        folder.make_private()
    except OSError as error:
        where = os.fsdecode(error.filename or folder.path)
        raise NoService(f"{where}: cannot be used: {error.strerror}") from error
    with open(folder.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dovetail", "serve", "--folder", str(folder.path), *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home_folder(),
            start_new_session=True,
        )
    found = _when_ready(folder, process)
    tell(f"no service was running: started one (process {process.pid}); 'dovetail serve --stop' ends it")
    return found
