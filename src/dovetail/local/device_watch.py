"""What the devices of this machine hold now, queried from their driver again and again.

The driver is loaded by a process of its own (`dovetail.local.probes`), which answers one line for each
line. A driver that hangs or crashes costs a sentence: the caller waits a moment at most, and goes on.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from dovetail.local.device_processes import DeviceProcess, process_of
from dovetail.records import dataclass

_log = logging.getLogger(__name__)
WATCHED: Mapping[str, str] = {"nvidia": "nvidia.py", "amd": "amd.py"}
"""Makers whose drivers report which processes compute on a device."""
PATIENCE = 0.25
"""Seconds that one question may take before the caller goes on."""
SILENT = 10.0
"""Seconds after which a driver that does not answer is taken to have stopped."""
AGAIN = 5.0
"""Seconds after which a watcher that has ended is started again."""
_SCRIPTS = Path(__file__).with_name("probes")


@dataclass(frozen=True, slots=True)
class DeviceState:
    """What a device holds. ``fault`` is why it can run nothing; ``memory`` and ``used`` are bytes.

    ``used`` is ``None`` where that is not known.
    """

    name: str
    index: int
    memory: int = 0
    used: int | None = None
    utilisation: float | None = None
    processes: tuple[DeviceProcess, ...] = ()
    fault: str = ""
    parent: str | None = None
    old_name: str = ""

    def is_called(self, name: str) -> bool:
        """Whether this is its number, (the start of) its UUID, or the older form of that."""
        if name == str(self.index):
            return not self.parent
        return bool(self.name) and (self.name.startswith(name) or name == self.old_name)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All devices of a maker at one moment, which is in seconds of the machine's monotonic clock.

    ``took`` is for how many seconds the driver read their state.
    """

    at: float
    devices: Sequence[DeviceState] = field(default_factory=tuple)
    took: float = 0.0

    def device(self, name: str) -> DeviceState | None:
        """The device of this name: (the start of) its UUID, or its number."""
        return next((one for one in self.devices if one.is_called(name)), None)


class DeviceWatch:
    """The devices of one maker. ``trouble`` is what is wrong with their driver; empty while it answers."""

    def __init__(self, maker: str) -> None:
        self.trouble = ""
        self._command = [sys.executable, str(_SCRIPTS / WATCHED[maker]), "--watch"]
        self._maker = maker
        self._process: subprocess.Popen[bytes] | None = None
        self._queried: float | None = None  # when, of a question without an answer
        self._ended = -AGAIN
        self._inbox = b""

    @property
    def alive(self) -> bool:
        """Whether the process that queries the driver runs."""
        return self._process is not None

    def start(self) -> None:
        """Have the driver loaded before the first look."""
        self._start_process(time.monotonic())

    def take_snapshot(self, patience: float = PATIENCE) -> Snapshot | None:
        """The devices as they are now; ``None`` where the driver does not answer in time.

        Where only the answer to the question before comes in time, the devices as they were then.
        """
        now = time.monotonic()
        process = self._process or self._start_process(now)
        if process is None:
            return None
        late: Snapshot | None = None
        if self._queried is not None:
            answer = self._read_line(process, patience)
            if not answer:
                self._handle_silence(process, time.monotonic())
                return None
            # A driver may need longer for each answer than the caller waits: then there are only late ones.
            late = self._parse_snapshot(process, answer, self._queried)
            if late is None:
                return None
            self._queried = None
            patience = max(0.0, patience - (time.monotonic() - now))
        try:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        except OSError:
            self._handle_exit(process)
            return late
        self._queried = now = time.monotonic()
        answer = self._read_line(process, patience)
        if not answer:
            self._handle_silence(process, time.monotonic())
            return late
        self._queried = None
        return self._parse_snapshot(process, answer, now)

    def _start_process(self, now: float) -> subprocess.Popen[bytes] | None:
        # A driver that ends its watcher at once would otherwise cost a process at every look.
        if now - self._ended < AGAIN:
            return None
        self._inbox = b""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes], patience: float) -> bytes:
        """One line; empty where none comes in time, or ever."""
        assert process.stdout is not None
        deadline = time.monotonic() + patience
        while b"\n" not in self._inbox:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([process.stdout], [], [], max(0.0, left))
            if not ready:
                return b""
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                return b""
            self._inbox += data
        line, _, self._inbox = self._inbox.partition(b"\n")
        return line

    def _handle_silence(self, process: subprocess.Popen[bytes], now: float) -> None:
        """It has not answered: it hangs, or has ended."""
        if process.poll() is not None:
            self._handle_exit(process)
        # Once it is silent for long, a sentence; its answer may still come, so the process stays.
        elif self._queried is not None and now - self._queried >= SILENT:
            self._log_trouble(f"the {self._maker} driver does not answer")

    def _handle_exit(self, process: subprocess.Popen[bytes]) -> None:
        self._log_trouble(
            f"the {self._maker} driver ended the process that watches it (status {process.wait()})"
        )
        self._close_pipes(process)
        self._process, self._queried, self._ended = None, None, time.monotonic()

    def _parse_snapshot(self, process: subprocess.Popen[bytes], answer: bytes, at: float) -> Snapshot | None:
        try:
            form = json.loads(answer)
            devices = tuple(_state_of(one) for one in form["devices"])
            took = float(form["took"])
        except (ValueError, KeyError, TypeError):
            process.kill()
            self._handle_exit(process)
            return None
        if self.trouble:
            _log.warning("the %s driver answers again", self._maker)
            self.trouble = ""
        return Snapshot(at, devices, took)

    def _log_trouble(self, trouble: str) -> None:
        # The sentence stays as it is, however long it lasts.
        if not self.trouble:
            _log.warning("%s", trouble)
            self.trouble = trouble

    def close(self) -> None:
        """End the process; one that hangs in its driver is left behind."""
        process, self._process = self._process, None
        if process is None:
            return
        self._close_pipes(process)
        try:
            process.wait(timeout=0.5 if self._queried is None else 0.01)
        except subprocess.TimeoutExpired:
            # It hangs in its driver; where even this does not end it, it is left behind below.
            os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(timeout=1.0)
            except subprocess.TimeoutExpired:
                process.returncode = -signal.SIGKILL

    @staticmethod
    def _close_pipes(process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    # A question is left in it that is read no more.
                    continue


def _state_of(about: Mapping[str, Any]) -> DeviceState:
    """A device as a probe describes it."""
    return DeviceState(
        about.get("uuid") or "",
        about["index"],
        about.get("memory", 0),
        about.get("memory_used"),
        about.get("utilisation"),
        tuple(process_of(**one) for one in about.get("processes", ())),
        about.get("fault", ""),
        about.get("parent"),
        about.get("old_uuid") or "",
    )
