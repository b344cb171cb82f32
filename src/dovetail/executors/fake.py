"""An executor that runs nothing: jobs take their true time on the loop's clock.

Under a virtual-time loop it shows that a live run and a simulation decide identically.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dovetail.model import Ended, Event, JobId, Placed, Started, State, Truth

__all__ = ["FakeExecutor"]


class FakeExecutor:
    """Implements `dovetail.interfaces.Executor` over a table of true times."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._happened: asyncio.Queue[Event] = asyncio.Queue()
        self._timers: dict[JobId, asyncio.TimerHandle] = {}

    async def launch(self, placed: Placed) -> None:
        """Report the start now and the end after the true time."""
        job = placed.job
        seconds = self._truth.seconds(job, placed.implementation, placed.allocation.request)
        self._happened.put_nowait(Started(job.id))
        if seconds is None:
            self._happened.put_nowait(Ended(job.id, State.FAILED, None, "its run time is unknown"))
            return
        loop = asyncio.get_running_loop()
        # From the start as the engine has it, so that the sum is the very float of a simulation.
        self._timers[job.id] = loop.call_at(placed.start_time + seconds, self._end, job.id)

    def _end(self, job: JobId) -> None:
        del self._timers[job]
        self._happened.put_nowait(Ended(job))

    async def stop(self, job: JobId, reason: str) -> None:
        """End the job at once with the state ``reason``."""
        timer = self._timers.pop(job, None)
        if timer is not None:
            timer.cancel()
            self._happened.put_nowait(Ended(job, State(reason), None, "stopped"))

    async def events(self) -> AsyncIterator[Event]:
        """What happens, in order."""
        while True:
            yield await self._happened.get()

    async def close(self) -> None:
        """Forget all timers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
