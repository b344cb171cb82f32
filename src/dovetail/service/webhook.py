"""``serve --notify COMMAND|URL``: what gets each job when it begins, ends and fails."""

from __future__ import annotations

import http.client
import os
import ssl
from urllib.parse import urlsplit

from dovetail.errors import InputError
from dovetail.model import Record, Seconds
from dovetail.records import dataclass
from dovetail.service.hooks import PATIENCE, CommandHook, EventName, Hook, HookError, JobEvent
from dovetail.service.notices import Subscription, Wanted

TOKEN = "DOVETAIL_NOTIFY_TOKEN"
"""The variable whose value an address gets as its bearer token; it stands in no command line and no log."""
EVENTS = frozenset({"BEGIN", "END", "FAIL"})


@dataclass(frozen=True, slots=True)
class WebHook:
    """An address that gets each event as a POST of JSON; it fails where the answer is no 2xx in time."""

    url: str
    token: str | None = None
    seconds: Seconds = PATIENCE

    @property
    def name(self) -> str:
        """Its host: paths may hold secrets."""
        # Without the part before @, which holds a password.
        return urlsplit(self.url).netloc.rpartition("@")[2]

    def deliver_event(self, event: JobEvent) -> None:
        """Post it once. Raises `HookError`."""
        parts = urlsplit(self.url)
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            secure = ssl.create_default_context(cafile=os.environ.get("DOVETAIL_CA") or None)
            connection = http.client.HTTPSConnection(parts.netloc, timeout=self.seconds, context=secure)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=self.seconds)
        headers = {"Content-Type": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request("POST", path, event.encode_document(), headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HookError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise HookError(f"answered {status}")


def parse_notify(text: str, where: str) -> Hook:
    """An address where it begins as one, else a command. Raises `InputError`."""
    if not text.startswith(("http://", "https://")):
        return CommandHook.parse_command(text, where)
    parts = urlsplit(text)
    try:
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        named = False
    # A line break in an address would end the request's first line.
    if not named or any(sign <= " " or sign == "\x7f" for sign in text):
        raise InputError(f"found {text!r}, expected an address such as https://host/path", where=where)
    return WebHook(text, os.environ.get(TOKEN) or None)


def notify_subscription(hook: Hook) -> Subscription:
    """Have a hook get each job's begin, end and failure."""

    def wants_event(record: Record, event: EventName) -> Wanted | None:
        del record
        return Wanted(event) if event in EVENTS else None

    return Subscription(hook, wants_event)
