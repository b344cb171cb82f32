"""An asyncio event loop whose clock jumps from timer to timer: a day passes in a millisecond."""

from __future__ import annotations

import asyncio
import heapq
import math
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NoWait(selectors.SelectSelector):
    """Never blocks: nothing outside the process is waited for in virtual time."""

    def select(self, timeout: float | None = None) -> Any:
        # With the timeout the loop would sleep until its next timer, in real time.
        return super().select(0)


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Starts at time 0; when nothing is ready, the clock is set to the next timer, exactly."""

    def __init__(self) -> None:
        self._virtual = 0.0
        super().__init__(_NoWait())

    @property
    def _clock_resolution(self) -> float:
        return math.ulp(self._virtual)  # timers are due at their very moment, not a nanosecond before

    @_clock_resolution.setter
    def _clock_resolution(self, value: float) -> None:
        """The base class sets the real clock's."""

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual

    def _run_once(self) -> None:
        scheduled: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        ready = self._ready  # type: ignore[attr-defined]
        # The base class drops cancelled timers later than this, and the clock would have jumped to one of
        # them.
        while scheduled and scheduled[0].cancelled():
            handle = heapq.heappop(scheduled)
            handle._scheduled = False  # type: ignore[attr-defined]
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        if not ready and scheduled:
            # A timer that was set into the past must not turn the clock back.
            self._virtual = max(self._virtual, scheduled[0].when())
        super()._run_once()  # type: ignore[misc]


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    loop = VirtualTimeLoop()
    try:
        return loop.run_until_complete(main)
    # Asynchronous generators are closed while their loop can still run.
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
