"""The end of a process that was signalled and cannot end: its loop is stuck, or a thread that it waits for.

The loop ends a run in time (`dovetail.engine.driver.live`) for as long as it goes round itself. Whether it
does, only another thread can tell.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from dovetail.model import Seconds

SPARE: Seconds = 20.0
"""Seconds beyond those within which the loop is to have ended everything by itself."""


class LastResort:
    """Ends the process `SPARE` seconds later than ``within`` its first signal, unless `over` was called.

    What runs is not touched: jobs outlive Dovetail, and the next one takes them up.
    """

    def __init__(self, within: Seconds) -> None:
        self._within = within + SPARE
        self._timer: threading.Timer | None = None
        self._is_over = False

    def handle(self, number: int, act: Callable[[], None]) -> None:
        """Have the running loop call ``act`` at this signal, and end the process where it does not help."""
        asyncio.get_running_loop().add_signal_handler(number, act)
        # The loop reads the signal from its pipe; Python calls this also while the loop does not go round.
        signal.signal(number, self._arm)
        signal.siginterrupt(number, False)

    def _arm(self, number: int, frame: FrameType | None) -> None:
        if self._timer is None and not self._is_over:
            self._timer = threading.Timer(self._within, self._end, (number,))
            self._timer.daemon = True
            self._timer.start()

    def _end(self, number: int) -> None:
        name = signal.Signals(number).name
        why = f"dovetail: still not at its end {self._within:.0f} s after {name}, so it ends without; "
        with suppress(OSError):
            os.write(2, f"{why}'dovetail recover' shows what runs on\n".encode())
        os._exit(128 + number)

    def over(self) -> None:
        """It has come to its end."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
