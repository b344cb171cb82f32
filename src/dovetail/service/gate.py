"""Who comes in: an ASGI layer in front of the application. Nothing behind it sees a stranger.

At the socket the kernel names the caller. Over the network there is a token (``Authorization: Bearer``), or a
browser's cookie, which stands for one; the host and the origin that a browser names must be ours. A stranger
gets 400, 401, 403 or 413, whatever the request.

Whatever came from a token has the rights of that token as they are now: sessions, one-time addresses and what
is still being answered are looked up again at each use, and end with it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, MutableMapping
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from dovetail.client.errors import Forbidden
from dovetail.errors import InputError
from dovetail.files.shortage import describe_lack, lack_of
from dovetail.records import dataclass
from dovetail.service.daemon import Throttle
from dovetail.service.people import Principal, at_socket
from dovetail.service.tokens import Tokens
from dovetail.version import API, API_HEADER

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BODY = 8_000_000
"""Bytes of a request, unless its service takes more (`serve --max-request`)."""
BODY_TIMEOUT = 60.0
PIECE_TIMEOUT = 10.0
"""Seconds between two pieces of a body."""
LOGIN_TIMEOUT = 10.0
"""Seconds for the body of a stranger."""
CODE_LIVES = 300.0
SESSION_LIVES = 7 * 86400.0
MOST_SESSIONS = 1000
LOOK = 0.5
"""Seconds between two looks at whether the token stands by which something long is being answered."""
COOKIE = "dovetail"
HEADERS: list[tuple[bytes, bytes]] = [
    (API_HEADER.encode(), str(API).encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
]
GONE = "the token of this request was removed or replaced"
_LOGIN = Path(__file__).with_name("web") / "login.html"


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A browser that was let in."""

    person: Principal
    until: float


class Sessions:
    """Browsers that were let in, and codes with which one may come in once.

    Browsers send a cookie to every port of a host (RFC 6265 knows none), but only to its path. So all that a
    session may see lies below ``place``, a secret path: a page of another server on this host can
    neither get the cookie sent there nor take it away.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.place = f"/d-{secrets.token_urlsafe(12)}"
        self._tokens = tokens
        self._sessions: dict[str, BrowserSession] = {}
        self._codes: dict[str, BrowserSession] = {}

    def make_code(self, person: Principal) -> str:
        """A code that lets a browser in once, as this person."""
        code = secrets.token_urlsafe(24)
        _drop_old(self._codes)
        self._codes[code] = BrowserSession(person, time.monotonic() + CODE_LIVES)
        return code

    def enter_with_code(self, code: str) -> str | None:
        """The session for a code, which is then used up; ``None`` for any other."""
        found = None
        # Compared in constant time, one after the other: the time must not show how much of a code was right.
        for known in self._codes:
            if secrets.compare_digest(known.encode(), code.encode("utf-8", "replace")):
                found = known
        session = None if found is None else self._codes.pop(found)
        person = None if session is None else self._current_person(session)
        return None if person is None else self.begin_session(person)

    def begin_session(self, person: Principal) -> str:
        """A new session."""
        key = secrets.token_urlsafe(32)
        _drop_old(self._sessions)
        self._sessions[key] = BrowserSession(person, time.monotonic() + SESSION_LIVES)
        return key

    def person_of_session(self, key: str) -> Principal | None:
        """Whose session that is, with the rights that its token gives now."""
        session = self._sessions.get(key)
        person = None if session is None else self._current_person(session)
        if session is not None and person is None:
            del self._sessions[key]
        return person

    def _current_person(self, session: BrowserSession) -> Principal | None:
        return None if session.until < time.monotonic() else as_of_now(session.person, self._tokens)


def as_of_now(person: Principal, tokens: Tokens) -> Principal | None:
    """The person with the rights that the token gives now; ``None`` where it was removed or replaced."""
    # At the socket there is no token: the kernel has named the account.
    if not person.token:
        return person
    try:
        token = tokens.with_digest(person.token)
    except InputError:  # the file is damaged: no person has a token
        return None
    return None if token is None else Principal(token.name, token.admin, token.digest)


def _drop_old(kept: dict[str, BrowserSession]) -> None:
    now = time.monotonic()
    for key in [key for key, session in kept.items() if session.until < now]:
        del kept[key]
    while len(kept) >= MOST_SESSIONS:
        del kept[next(iter(kept))]


class Rejection(Exception):  # noqa: N818 - reads as what it is
    """An answer in place of the application's."""

    def __init__(self, status: int, text: str, *headers: tuple[bytes, bytes], page: bool = False) -> None:
        super().__init__(text)
        self.status, self.text, self.headers, self.page = status, text, headers, page


class Authentication:
    """Lets people in, and hands the application a ``person`` in the scope.

    ``hosts`` are the names (``HOST:PORT``) under which browsers may know the service; ``as_job`` gives the
    user of the job that has started a process (``None``: no job has).
    """

    def __init__(
        self,
        app: Any,
        tokens: Tokens,
        sessions: Sessions,
        hosts: Callable[[], Iterable[str]],
        as_job: Callable[[int], str | None],
        most_body: int = MOST_BODY,
    ) -> None:
        self.most_body = most_body
        self.app, self.tokens, self.sessions, self.hosts = app, tokens, sessions, hosts
        self.as_job = as_job
        self._refusals = Throttle(logging.getLogger(__name__))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = _header_mapping(scope)
        place = self.sessions.place
        at_home = scope["path"].startswith(f"{place}/")
        if at_home:
            scope["path"] = scope["path"].removeprefix(place)
            scope["raw_path"] = scope["path"].encode()
        try:
            person = await self._authenticate_request(scope, headers, receive, at_home)
            _check_length(headers, self.most_body)
            scope["person"] = person  # from here on the connection is not one of a stranger
            limited = _Limited(receive, self.most_body)
            whole = await limited.whole()
            # Looked at again: a token may have been removed while a slow body was arriving.
            if not self._has_same_rights(person):  # a body may take its time
                raise Rejection(401, GONE, (b"www-authenticate", b"Bearer"), page=True)
        except Rejection as refused:
            if refused.status != 200:
                self._log_refusal(scope, refused.status, refused.text)
            await _send_refusal(refused, headers, scope, send)
            return
        except OSError as error:  # of the file of tokens
            if not lack_of(error):
                raise
            await _send_refusal(Rejection(503, describe_lack(error)), headers, scope, send)
            return
        messages = [{"type": "http.request", "body": bytes(whole), "more_body": False}]

        async def body() -> MutableMapping[str, Any]:
            return messages.pop() if messages else await receive()

        begun = False

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                if message["status"] in (401, 403):
                    self._log_refusal(scope, message["status"], f"{person.name} may not")
                message["headers"] = [*message.get("headers", []), *HEADERS]
            await send(message)

        # A request that changes something is never cut off half-way by a removed token.
        if not person.token or not _only_looks(scope):  # what changes something is done, or not begun
            await self.app(scope, body, with_headers)
        elif not await self._while_it_stands(person, self.app(scope, body, with_headers)):
            self._log_refusal(scope, 401, f"{person.name}: {GONE}")
            if begun:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await _send_refusal(Rejection(401, GONE), headers, scope, send)

    def _has_same_rights(self, person: Principal) -> bool:
        """Whether the person has the very rights with which the request came in."""
        return as_of_now(person, self.tokens) == person

    async def _while_it_stands(self, person: Principal, answering: Coroutine[Any, Any, None]) -> bool:
        """Answer for as long as the token stands; whether it did to the end."""
        task = asyncio.create_task(answering)
        try:
            while not (await asyncio.wait({task}, timeout=LOOK))[0]:
                if not self._has_same_rights(person):
                    return False
            await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        return True

    def _log_refusal(self, scope: Scope, status: int, why: str) -> None:
        """Log a refusal; strangers fill no disk with them."""
        client = (scope.get("client") or ("?", 0))[0]
        what = (status, scope["method"], scope["path"][:200], client, why)
        self._refusals.info(time.monotonic(), "refused (%d) %s %s from %s: %s", *what)

    async def _authenticate_request(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, at_home: bool
    ) -> Principal:
        client = (scope.get("client") or ("", 0))[0]
        if client.startswith("unix:"):
            uid, pid = map(int, client[5:].split(":"))
            return self._at_socket(uid, pid)
        self._check_host(scope, headers)
        given = headers.get(b"authorization")
        if given is not None:
            return self._with_token(given)
        person = self._with_cookie(headers) if at_home else None
        if scope["path"].startswith("/login"):
            await self._handle_login(scope, headers, receive)
        if person is None:
            raise Rejection(401, "a token is needed", (b"www-authenticate", b"Bearer"), page=True)
        return person

    def _at_socket(self, uid: int, pid: int) -> Principal:
        """The account that the kernel names; but a job counts as its user, whatever account it runs as."""
        person = at_socket(uid)
        if not person.admin:
            return person
        try:
            user = self.as_job(pid)
        except Forbidden as error:
            raise Rejection(403, str(error)) from None
        return person if user is None else Principal(user)

    def _check_host(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """Only names of ours: a page elsewhere cannot have its name resolved to us, nor speak for another."""
        host = headers.get(b"host", b"").decode("latin-1").lower()
        known = {name.lower() for name in self.hosts()}
        name, _, port = host.rpartition(":")
        if host not in known and not (f"*:{port}" in known and _is_number(name)):
            raise Rejection(403, "this is not a name of this service")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower() != f"{scope['scheme']}://{host}":
            raise Rejection(403, "this request comes from a page elsewhere")
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise Rejection(403, "this request comes from a page elsewhere")

    def _with_token(self, given: bytes) -> Principal:
        scheme, _, secret = given.decode("latin-1").partition(" ")
        try:
            token = self.tokens.find_token(secret.strip()) if scheme.lower() == "bearer" else None
        except InputError:
            token = None
        if token is None:
            raise Rejection(401, "this is no token of this service", (b"www-authenticate", b"Bearer"))
        return Principal(token.name, token.admin, token.digest)

    def _with_cookie(self, headers: dict[bytes, bytes]) -> Principal | None:
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            return None
        return None if cookie is None else self.sessions.person_of_session(cookie.value)

    async def _handle_login(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> None:
        """A one-time address, or a token from the login page."""
        if scope["method"] == "POST" and scope["path"] == "/login":
            _check_length(headers, 4096)
            form = parse_qs(
                bytes(await _Limited(receive, 4096, LOGIN_TIMEOUT).whole()).decode("utf-8", "replace")
            )
            token = None
            with suppress(InputError):
                token = self.tokens.find_token(form.get("token", [""])[0].strip())
            if token is None:
                raise Rejection(403, "this is no token of this service", page=True)
            key: str | None = self.sessions.begin_session(Principal(token.name, token.admin, token.digest))
        else:
            key = self.sessions.enter_with_code(scope["path"].removeprefix("/login").strip("/"))
        if key is None:
            raise Rejection(403, "this address was used already, or is too old", page=True)
        secure = "; Secure" if scope["scheme"] == "https" else ""
        home = f"{self.sessions.place}/"
        cookie = (
            f"{COOKIE}={key}; Path={home}; Max-Age={int(SESSION_LIVES)}; HttpOnly; SameSite=Strict{secure}"
        )
        # A browser sends no strict cookie with a redirection from elsewhere: the page goes on by itself.
        raise Rejection(200, "", (b"set-cookie", cookie.encode()), (b"refresh", f"0; url={home}".encode()))


def _only_looks(scope: Scope) -> bool:
    """Whether a request changes nothing, and may be left at any moment."""
    return scope["method"] in ("GET", "HEAD") or scope["path"] == "/api/v1/wait"


def _is_number(host: str) -> bool:
    """Whether a host is an address in numbers, which no name server can have made to point at us."""
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _header_mapping(scope: Scope) -> dict[bytes, bytes]:
    return dict(reversed(scope["headers"]))


def _check_length(headers: dict[bytes, bytes], most: int = MOST_BODY) -> None:
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 18:
        raise Rejection(400, "content-length: expected a number")
    if int(length) > most:
        raise Rejection(413, _too_long(most))


def _too_long(most: int) -> str:
    return (
        f"the request is longer than {most:,} bytes: send it in several, or have the service take more "
        "(serve --max-request)"
    )


class _Limited:
    """A body within limits of size and time."""

    def __init__(self, receive: Receive, most: int = MOST_BODY, seconds: float = BODY_TIMEOUT) -> None:
        self._receive, self._left, self._most = receive, most, most
        self._deadline = time.monotonic() + seconds
        self._whole = False

    async def __call__(self) -> MutableMapping[str, Any]:
        """The next piece."""
        try:
            left = min(PIECE_TIMEOUT, self._deadline - time.monotonic())
            message = await asyncio.wait_for(self._receive(), max(0.1, left))
        except TimeoutError:
            raise Rejection(408, "the request did not come in time") from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._left < 0:
                raise Rejection(413, _too_long(self._most))
        return message

    async def whole(self) -> bytearray:
        """All of it."""
        body = bytearray()
        while not self._whole:
            message = await self()
            if message["type"] != "http.request":
                break
            body += message.get("body", b"")
        return body


async def _send_refusal(refused: Rejection, headers: dict[bytes, bytes], scope: Scope, send: Send) -> None:
    wants_page = refused.page and b"text/html" in headers.get(b"accept", b"")
    if wants_page:
        body, kind = _LOGIN.read_bytes(), b"text/html; charset=utf-8"
    else:
        import json

        body, kind = json.dumps({"error": refused.text}).encode(), b"application/json"
    close = [] if refused.status == 200 else [(b"connection", b"close")]
    about = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send(
        {
            "type": "http.response.start",
            "status": refused.status,
            "headers": [*about, *close, *refused.headers, *HEADERS],
        }
    )
    await send({"type": "http.response.body", "body": body if scope["method"] != "HEAD" else b""})
