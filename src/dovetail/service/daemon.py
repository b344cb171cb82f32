"""What an operator needs of a service that runs for months: a log, and signs of life.

The log is standard `logging` on standard error: lines with time and level, or JSON for a collector. Under
systemd the journal has the time, and the level is the line's prefix. A log that is a file is opened anew on
SIGHUP, so that the system may rotate it. Where systemd wants it (``Type=notify``, ``WatchdogSec=``) the
service reports when it answers, when it ends, and again and again that its loop goes round.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import sys
from datetime import UTC, datetime
from typing import TextIO

from dovetail.files.sentences import make_printable
from dovetail.model import Seconds
from dovetail.spec.values import LogFormat, LogLevel

PREFIX = {"DEBUG": "<7>", "INFO": "<6>", "WARNING": "<4>", "ERROR": "<3>", "CRITICAL": "<2>"}
"""As sd-daemon(3) has them."""
PATIENCE = 1.0
"""Seconds that the service waits for systemd to take word of its beginning, or of its end."""


class LogFormatter(logging.Formatter):
    """One line for each record; a traceback follows in lines of its own, but in JSON."""

    def __init__(self, form: LogFormat, journal: bool) -> None:
        super().__init__()
        self._form, self._journal = form, journal

    def format(self, record: logging.LogRecord) -> str:
        """The record's text."""
        text = make_printable(record.getMessage())
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if self._form == "json":
            line = {"time": when, "level": record.levelname, "logger": record.name, "message": text}
            job = getattr(record, "job", None)
            line |= {"job": job} if job is not None else {}
            return json.dumps(line | ({"traceback": trace} if trace else {}))
        head = PREFIX[record.levelname] if self._journal else f"{when} {record.levelname} "
        return f"{head}{record.name}: {text}" + (f"\n{trace}" if trace else "")


class Handler(logging.StreamHandler[TextIO]):
    """To standard error, wherever that leads by then."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self._file = ""
        # Only a file can be opened anew by its name; a pipe or the journal leads to where it leads.
        if stat.S_ISREG(os.fstat(2).st_mode):
            self._file = os.readlink("/proc/self/fd/2")

    def reopen_file(self) -> None:
        """Open the log's file anew: the old one may have another name by now."""
        if self._file:
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            # The number stays 2, so that children and C libraries write to the new file as well.
            os.dup2(fd, 2)
            os.close(fd)


def log_to_stderr(level: LogLevel, form: LogFormat) -> Handler:
    """Send what all of Dovetail logs, from this level on, to standard error."""
    handler = Handler()
    handler.setFormatter(LogFormatter(form, journal="JOURNAL_STREAM" in os.environ))
    logger = logging.getLogger("dovetail")
    # A second service in one process (tests) must not write each line twice.
    for old in list(logger.handlers):
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    logger.propagate = False
    return handler


class Throttle:
    """At most ``most`` records within ``seconds``, and how many were left out: strangers fill no disk."""

    def __init__(self, logger: logging.Logger, most: int = 20, seconds: float = 60.0) -> None:
        self._logger, self._most, self._seconds = logger, most, seconds
        self._since, self._count = -seconds, 0

    def info(self, now: float, sentence: str, *args: object) -> None:
        """Log at INFO, unless there was too much of it."""
        if now - self._since >= self._seconds:
            if self._count > self._most:
                self._logger.info("and %d more of the like", self._count - self._most)
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= self._most:
            self._logger.info(sentence, *args)


class SystemdNotifier:
    """Signs of life for systemd, where it wants them; jobs do not inherit the request."""

    def __init__(self) -> None:
        self._address = os.environ.pop("NOTIFY_SOCKET", "")
        # systemd names the process that it watches; a child that inherits the variables must not answer for
        # it.
        usec, pid = os.environ.pop("WATCHDOG_USEC", ""), os.environ.pop("WATCHDOG_PID", "")
        ours = usec.isdecimal() and pid in ("", str(os.getpid()))
        self._every = int(usec) / 2e6 if ours else 0.0

    def send_lines(self, *states: str, patience: Seconds = PATIENCE) -> None:
        """Send ``READY=1`` and its like; without systemd nothing.

        A systemd that does not read holds the service up for ``patience`` at most, and its loop not at all.
        """
        if not self._address:
            return
        # A leading @ stands for a socket without a file, whose name begins with a zero byte.
        name = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.settimeout(patience)
            try:
                to.sendto("\n".join(states).encode(), name)
            except BlockingIOError:
                return  # as many as its queue takes are unread: those show as well that the loop goes round
            except OSError as error:
                logging.getLogger(__name__).warning("systemd did not take %s: %s", states[0], error)

    async def watch(self) -> None:
        """Send that the loop goes round, twice as often as systemd expects."""
        while self._address and self._every:
            self.send_lines("WATCHDOG=1", patience=0.0)
            await asyncio.sleep(self._every)
