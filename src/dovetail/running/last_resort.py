"""The end of a process that was signalled and cannot end: its loop is stuck, or a thread that it waits for.

The loop ends a run in time (`dovetail.driver.live`) for as long as it goes round itself. Whether it
does, only another thread sees it. Where the main thread waits in the kernel for a file system that does not
answer, not even a handler is called: the signal stays pending, which that thread looks for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from dovetail.model import Seconds

SPARE: Seconds = 2.0
"""Seconds beyond those within which the loop is to have ended everything by itself."""
AGAIN: Seconds = 5.0
"""So long until the next look at what takes so long because it makes progress."""
HURRIED: Seconds = 7.0
"""So long at most after a second Ctrl-C: it has a run end what it still can."""
TWICE: Seconds = 0.3
"""Signals that come closer together than this are one press of Ctrl-C."""
LOOK: Seconds = 1.0
"""Between two looks for signals that have not come through."""
MOST_CALLS = 4
"""Calls that are named of what a thread is stuck in."""


class LastResort:
    """Ends the process `SPARE` seconds later than `within` its first signal, unless `disarm_timer` was
    called.

    What runs is not touched: jobs outlive Dovetail, and the next one takes them up.
    """

    def __init__(self, within: Seconds = 0.0) -> None:
        self.within = within
        self.spares: Callable[[], bool] = lambda: False  # whether what takes so long is meant to
        self._timer: threading.Timer | None = None
        self._signalled = 0.0
        self._is_hurried = False
        self._is_over = False
        self._handled: set[int] = set()
        self._over = threading.Event()

    def handle_signal(self, number: int, act: Callable[[], None]) -> None:
        """Have the running loop call ``act`` at this signal, and end the process where it does not help."""
        asyncio.get_running_loop().add_signal_handler(number, act)
        # The loop reads the signal from its pipe; Python calls this also while the loop does not go round.
        signal.signal(number, self._arm_timer)
        signal.siginterrupt(number, False)
        if not self._handled:
            threading.Thread(target=self._watch_pending, name="signals", daemon=True).start()
        self._handled.add(number)

    def _watch_pending(self) -> None:
        """Arm for a signal that is pending at two looks: the main thread is where it takes none."""
        before: set[int] = set()
        while not self._over.wait(LOOK):
            now = pending_signals() & self._handled
            for number in before & now:
                self._arm_timer(number, None)
            before = now

    def _arm_timer(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._timer is None:
            self._signalled = now
            self._start_timer(number, self.within + SPARE)
        elif number == signal.SIGINT and not self._is_hurried and now - self._signalled >= TWICE:
            self._is_hurried = True
            self._timer.cancel()
            left = self._signalled + self.within + SPARE - now
            self._start_timer(number, max(0.0, min(HURRIED, left)))

    def _start_timer(self, number: int, seconds: Seconds) -> None:
        if not self._is_over:
            self._timer = threading.Timer(seconds, self._end_process, (number,))
            self._timer.daemon = True
            self._timer.start()

    def _end_process(self, number: int) -> None:
        if self.spares():
            self._start_timer(number, AGAIN)
            return
        name, spent = signal.Signals(number).name, time.monotonic() - self._signalled
        why = f"dovetail: still not at its end {spent:.0f} s after {name}, so it ends without; "
        why += f"'dovetail recover' shows what runs on; it is stuck in {stuck_in()}\n"
        writing = threading.Thread(target=_write_error, args=(why.encode(),), daemon=True)
        writing.start()
        # The reader of this may be what is stuck.
        writing.join(1.0)
        os._exit(128 + number)

    def disarm_timer(self) -> None:
        """It has come to its end."""
        self._is_over = True
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()


def pending_signals() -> set[int]:
    """Signals of this process that no thread has taken yet; none where the kernel lists none."""
    try:
        with open("/proc/self/status", "rb") as file:
            line = next((line for line in file if line.startswith(b"ShdPnd:")), b"ShdPnd: 0")
    except OSError:
        return set()
    mask = int(line.split()[1], 16)
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


def _write_error(text: bytes) -> None:
    with suppress(OSError):
        os.write(2, text)


def stuck_in() -> str:
    """The calls in which the main thread is now, the innermost first."""
    return calls_of(sys._current_frames().get(threading.main_thread().ident or 0))


def calls_of(frame: FrameType | None) -> str:
    """The innermost calls of a stack, one after the other: where each is, and of what."""
    names: list[str] = []
    while frame is not None and len(names) < MOST_CALLS:
        code = frame.f_code
        # An import: its importer shows more.
        if not code.co_filename.startswith("<frozen"):
            names.append(f"{code.co_name} ({os.path.basename(code.co_filename)}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(names) or "no call"
