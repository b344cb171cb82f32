"""``--notify COMMAND|URL`` of serve and of a job: what gets a job when it begins, ends and fails."""

from __future__ import annotations

import http.client
import logging
import os
import ssl
from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from dovetail.errors import InputError
from dovetail.model import Job, Record, Seconds
from dovetail.records import dataclass
from dovetail.service.hooks import PATIENCE, CommandHook, EventName, Hook, HookError, JobEvent
from dovetail.service.notices import Subscription, Wanted

TOKEN = "DOVETAIL_NOTIFY_TOKEN"
"""The variable whose value an address gets as its bearer token; it stands in no command line and no log."""
EVENTS = frozenset({"BEGIN", "END", "FAIL"})
_log = logging.getLogger(__name__)


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


def parse_notify(text: str, where: str, environment: Mapping[str, str] = os.environ) -> Hook:
    """An address where it begins as one, else a command; the environment has the token of an address.

    Raises `InputError`.
    """
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
    return WebHook(text, environment.get(TOKEN) or None)


def check_notify(text: str, where: str, *, owner: bool) -> None:
    """Refuse what a job cannot notify; commands are for the service's own account. Raises `InputError`."""
    if isinstance(parse_notify(text, where), CommandHook) and not owner:
        # It would run as the service's account, outside of the job and its limits.
        raise InputError(
            "found a command, expected an address such as https://host/path: the service runs commands of "
            "its own account alone",
            where=where,
        )


def job_subscription() -> Subscription:
    """Have the hook of each job that has one get the job's begin, end and failure."""

    def wants_event(record: Record, event: EventName) -> Wanted | None:
        text = record.job.options.get("notify")
        if text is None or event not in EVENTS:
            return None
        try:
            return Wanted(event, hook=_hook_of_job(record.job, str(text)))
        except InputError as error:
            # It was checked when the job was submitted; the ledger may be another version's.
            _log.warning("job %s: notify: %s", record.job.id, error, extra={"job": record.job.id})
            return None

    return Subscription(None, wants_event)


def _hook_of_job(job: Job, text: str) -> Hook:
    """A command runs in the job's folder and environment; an address gets the token of that alone."""
    environ, folder = (job.launch.environ, job.launch.folder) if job.launch is not None else (None, None)
    around = dict(environ) if environ is not None else dict(os.environ)
    hook = parse_notify(text, "notify", around)
    if isinstance(hook, CommandHook):
        return replace(hook, folder=folder, environment=around)
    return hook


def notify_subscription(hook: Hook) -> Subscription:
    """Have a hook get each job's begin, end and failure."""

    def wants_event(record: Record, event: EventName) -> Wanted | None:
        del record
        return Wanted(event) if event in EVENTS else None

    return Subscription(hook, wants_event)
