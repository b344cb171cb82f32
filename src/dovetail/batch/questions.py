"""Questions for a start, one after the other: a batch system that others use too is spared all but a few."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from dovetail.batch.system import BatchError, BatchSystem
from dovetail.model import Foreseen, Shape

AWAY = 5.0
"""Seconds until a question is put again to a batch system that did not answer."""


class Questions:
    """A line of questions; ``answered`` gets each answer."""

    def __init__(self, system: BatchSystem, answered: Callable[[Foreseen], None]) -> None:
        self._system, self._answered = system, answered
        self._shapes: deque[Shape] = deque()
        self._news = asyncio.Event()

    def put(self, shape: Shape) -> None:
        """Find out when such a job would start."""
        self._shapes.append(shape)
        self._news.set()

    async def put_all(self) -> None:
        """Work through the line, with the system's pause between two questions; it may be away."""
        while True:
            await self._news.wait()
            while self._shapes:
                shape = self._shapes[0]
                try:
                    answer = await asyncio.to_thread(self._system.foresee, shape)
                except BatchError as error:
                    if error.passing or error.no_place:
                        await asyncio.sleep(AWAY)
                        continue
                    answer = Foreseen(shape, None, why=str(error))
                # Only now: a question that `put_all` was cancelled in is put again.
                self._shapes.popleft()
                self._answered(answer)
                await asyncio.sleep(self._system.pause)
            self._news.clear()
