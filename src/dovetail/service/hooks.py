"""Hooks of a service: what gets a job as JSON when it begins, ends, fails or goes back to the queue.

A hook never keeps the queue waiting: events go into a bounded list, threads of their own deliver them, each
delivery has a time limit, and what became of it is one line of the log.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from dovetail.errors import InputError
from dovetail.model import Seconds
from dovetail.records import dataclass

_log = logging.getLogger(__name__)

EventName = Literal[
    "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "TIME_LIMIT",
    "TIME_LIMIT_90",
    "TIME_LIMIT_80",
    "TIME_LIMIT_50",
    "GPU_IDLE",
]
MOST_WAITING = 1000
"""Events that wait for delivery; later ones are dropped, and counted in the log."""
THREADS = 2
PATIENCE: Seconds = 30.0
"""Within which one delivery has to be over."""
CLOSING: Seconds = 5.0
"""For what still waits when the service ends."""
MOST_COMPLAINT = 300
"""Characters of a command's standard error that stand in the log."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """Something that happened to a job: ``job`` is its row as HTTP has it, ``when`` seconds since 1970.

    ``more`` has what a hook of one kind adds to the document, such as the recipient of a mail.
    """

    event: EventName
    job: Mapping[str, Any]
    when: Seconds
    more: Mapping[str, Any] = field(default_factory=dict)

    def encode_document(self) -> bytes:
        """The JSON that a hook gets, with a line end."""
        return (
            json.dumps({"event": self.event, "time": self.when, "job": self.job, **self.more}).encode()
            + b"\n"
        )


class HookError(Exception):
    """A delivery that failed, with the reason as a phrase."""


class Hook(Protocol):
    """Where events go."""

    @property
    def name(self) -> str:
        """What the log calls it."""
        ...

    def deliver_event(self, event: JobEvent) -> None:
        """Deliver one event, in a thread of its own, within `PATIENCE`. Raises `HookError`."""
        ...


@dataclass(frozen=True, slots=True)
class CommandHook:
    """A command that gets each event as JSON on its standard input; no shell reads its words.

    It fails where it ends with another status than 0, or not within ``seconds``. ``folder`` and
    ``environment`` are where it runs; ``None``: those of the service.
    """

    words: Sequence[str]
    seconds: Seconds = PATIENCE
    folder: str | None = None
    environment: Mapping[str, str] | None = None

    @classmethod
    def parse_command(cls, text: str, where: str) -> CommandHook:
        """The command of an option, split as a shell splits words. Raises `InputError`."""
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise InputError(f"found {text!r}: {error}; expected a command", where=where) from None
        if not words:
            raise InputError(f"found {text!r}, expected a command", where=where)
        return cls(tuple(words))

    @property
    def name(self) -> str:
        """Its program."""
        return os.path.basename(self.words[0])

    def deliver_event(self, event: JobEvent) -> None:
        """Run it once. Raises `HookError`."""
        deadline = time.monotonic() + self.seconds
        # As a file rather than a pipe: a hook that never reads would hold this thread.
        with tempfile.TemporaryFile() as given:  # a pipe without a reader would hold this thread
            given.write(event.encode_document())
            given.seek(0)
            try:
                process = subprocess.Popen(
                    self.words,
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    cwd=self.folder,
                    env=self.environment,
                )
            except OSError as error:
                raise HookError(f"cannot be started: {error.strerror}") from None
        assert process.stderr is not None
        # Open until it has ended: a command that writes to a closed pipe would end by that.
        with process.stderr:
            complaint = _complaint_of(process, deadline)
            try:
                status = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                # The whole group: a hook's own children would go on holding the pipe.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise HookError(f"ran longer than {self.seconds:g} s and was killed") from None
        if status:
            how = f"ended with status {status}" if status > 0 else f"was ended by signal {-status}"
            raise HookError(f"{how}{f': {complaint}' if complaint else ''}")


def _complaint_of(process: subprocess.Popen[bytes], deadline: float) -> str:
    """The end of what a process writes to its standard error, until it closes that, ends or is too late."""
    assert process.stderr is not None
    last, poll = b"", select.poll()
    poll.register(process.stderr, select.POLLIN)
    while (left := deadline - time.monotonic()) > 0:
        if not poll.poll(min(left, 0.2) * 1000):
            if process.poll() is not None:  # what it left behind may hold the pipe open
                break
            continue
        some = os.read(process.stderr.fileno(), 65536)
        if not some:
            break
        last = (last + some)[-MOST_COMPLAINT:]
    return " ".join(last.decode(errors="replace").split())


class Hooks:
    """Delivers events to hooks, in the order in which they were given for each thread that is free.

    Any thread may `post_event`; it never waits.
    """

    def __init__(self, *, most_waiting: int = MOST_WAITING, threads: int = THREADS) -> None:
        self._waiting: queue.Queue[tuple[Hook, JobEvent] | None] = queue.Queue(most_waiting)
        self._threads: list[threading.Thread] = []
        self._most_threads = threads
        self._dropped = 0
        self._closed = False

    def post_event(self, hook: Hook, event: JobEvent) -> None:
        """Have an event delivered, or dropped with a line in the log where too many wait."""
        # After `close` an event would wait in a queue that no thread reads.
        if self._closed:
            return
        if len(self._threads) < self._most_threads:
            thread = threading.Thread(
                target=self._deliver_queued, name=f"hook-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        # Never wait here: this runs in the loop that starts jobs.
        try:
            self._waiting.put_nowait((hook, event))
        except queue.Full:
            self._dropped += 1
            job = event.job["id"]
            _log.warning(
                "hook %s: %s of job %s is dropped, since %d events wait (%d dropped so far)",
                hook.name, event.event, job, self._waiting.qsize(), self._dropped, extra={"job": job},
            )  # fmt: skip

    def close(self, patience: Seconds = CLOSING) -> None:
        """Deliver what waits, within ``patience``; what is left then is dropped, with a line in the log."""
        self._closed = True
        deadline = time.monotonic() + patience
        for _ in self._threads:
            try:
                self._waiting.put(None, timeout=max(0.0, deadline - time.monotonic()))
            except queue.Full:
                break
        for thread in self._threads:
            # The deadline is for all threads together.
            thread.join(max(0.0, deadline - time.monotonic()))
        left = sum(one is not None for one in _drain_queue(self._waiting))
        if left:
            _log.warning("hooks: %d events are dropped: the service ends", left)

    def _deliver_queued(self) -> None:
        while (one := self._waiting.get()) is not None:
            hook, event = one
            job = event.job["id"]
            try:
                hook.deliver_event(event)
            except HookError as error:
                _log.warning(
                    "hook %s: %s of job %s: %s", hook.name, event.event, job, error, extra={"job": job}
                )
            except Exception:  # noqa: BLE001 - a thread that ended would leave all later events undelivered
                _log.exception("hook %s: %s of job %s", hook.name, event.event, job, extra={"job": job})
            else:
                _log.info("hook %s: %s of job %s delivered", hook.name, event.event, job, extra={"job": job})


def _drain_queue(
    waiting: queue.Queue[tuple[Hook, JobEvent] | None],
) -> Iterable[tuple[Hook, JobEvent] | None]:
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return
