"""What executors have in common: how they tell of what happens, and what goes on beside."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from dovetail.executors.outputs import Outputs
from dovetail.model import Event, JobId


class Reporting(ABC):
    """Events as they come in, to whoever listens or asks; used in one event loop."""

    def __init__(self, outputs: Outputs) -> None:
        self._outputs = outputs
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: deque[Event] = deque()
        self._news: asyncio.Event = asyncio.Event()
        self._heard: Callable[[Event], None] | None = None
        self._closing = False
        self._closed = False

    @abstractmethod
    def _attach(self) -> None:
        """Begin, in the loop that runs, what there is to hear; may be called again."""

    async def events(self) -> AsyncIterator[Event]:
        """What happens, in its order; finishes when `close` is done and all were read."""
        self._attach()
        while True:
            while self._events:
                yield self._events.popleft()
            if self._closed:
                return
            self._news.clear()
            await self._news.wait()

    def listen(self, heard: Callable[[Event], None]) -> None:
        """Instead of `events`: call ``heard`` with every event, from the loop that runs, as it comes in."""
        self._heard = heard
        self._attach()
        while self._events:
            heard(self._events.popleft())

    def output_paths(self, job: JobId) -> tuple[Path, Path] | None:
        """Files of standard output and error of the job's last attempt; ``None`` before its first."""
        files = self._outputs.paths.get(job)
        return None if files is None else (Path(files[0]), Path(files[1]))

    def _happened(self, event: Event) -> None:
        if self._heard is not None:
            self._heard(event)
            return
        self._events.append(event)
        self._news.set()

    def _all_reported(self) -> None:
        """Nothing more will happen."""
        self._closed = True
        self._news.set()

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_tasks(self) -> None:
        """End what goes on beside."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
