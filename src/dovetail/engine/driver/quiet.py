"""A live run in which nothing happens any more says so, and why."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from dovetail.engine.driver.driver import Driver
from dovetail.interfaces import Executor, TellsTrouble
from dovetail.model import Seconds

__all__ = ["QUIET", "Quiet"]

QUIET: Seconds = 60.0
"""Seconds without anything until that is told, and then twice as many each time."""
MOST = 3600.0
REASONS = 3
"""So many reasons of waiting jobs are told, the most frequent first."""


class Quiet:
    """Watches a run by its event loop's clock, between `begin` and `end`."""

    def __init__(self, driver: Driver, executor: Executor, tell: Callable[[str], None]) -> None:
        self._driver, self._tell = driver, tell
        self._executor = executor if isinstance(executor, TellsTrouble) else None
        self._since = 0.0
        self._pause = QUIET
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """From now on."""
        self.stir()
        self._arm()

    def end(self) -> None:
        """No more."""
        if self._timer is not None:
            self._timer.cancel()

    def stir(self) -> None:
        """Something has happened. O(1)."""
        self._since = asyncio.get_running_loop().time()
        self._pause = QUIET

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(max(self._since + self._pause, loop.time() + 1.0), self._look)

    def _look(self) -> None:
        silence = asyncio.get_running_loop().time() - self._since
        if silence >= self._pause:
            why = self._why()
            if why:
                self._tell(f"nothing has happened for {silence:.0f} s: {why}")
            self._pause = min(2 * self._pause, self._pause + MOST)
        self._arm()

    def _why(self) -> str:
        """What jobs wait for, in a sentence; empty where some run, or none waits, and there is no trouble."""
        engine = self._driver.engine
        trouble = "" if self._executor is None else self._executor.trouble()
        waiting = [job.id for job in engine.queue]
        waiting += [job.id for fifo in engine.device_queues.values() for job, _ in fifo]
        if any(not placed.job.foreign for placed in engine.running.values()) or engine.ending:
            return trouble
        count = len(waiting) + len(engine.handed_over)
        if not count:
            return trouble
        reasons = Counter(engine.records[job].wait_reason for job in waiting)
        for job, submitted in engine.handed_over.items():
            said = engine.records[job].wait_reason
            reasons["they are in the cluster's queue" if said == submitted.reason else said] += 1
        told = [trouble, *(reason for reason, _ in reasons.most_common(REASONS))]
        if not any(told) and any(placed.job.foreign for placed in engine.running.values()):
            told.append("others use this machine")
        jobs = "1 job waits" if count == 1 else f"{count} jobs wait"
        return f"nothing runs, {jobs}: {'; '.join(filter(None, told)) or 'no reason is known'}"
