"""What executors have in common: a run's folder, the delivery of events, what goes on beside."""

from __future__ import annotations

import asyncio
import os
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from dovetail.interfaces import RunFolder
from dovetail.model import Cluster, Event, Job, JobId, Seconds
from dovetail.process.background import keep_going
from dovetail.process.outputs import Outputs


class Reporting(ABC):
    """Events as they come in, to a listener or an iterator; used in one event loop."""

    def __init__(self, folder: RunFolder, cluster: Cluster) -> None:
        self.cluster = cluster
        self.run_dir = Path(folder.path).absolute()
        self.run_uid = folder.uid or uuid.uuid4().hex
        self._cwd = os.path.abspath(folder.cwd)
        self._grace = folder.grace
        self._environ: Mapping[str, str] = dict(os.environ if folder.environ is None else folder.environ)
        self._outputs = Outputs(self.run_dir, endless=folder.endless)
        self._tasks: set[asyncio.Task[None]] = set()
        self._events: deque[Event] = deque()
        self._news: asyncio.Event = asyncio.Event()
        self._heard: Callable[[Event], None] | None = None
        self._closing = False
        self._closed = False
        self._fail: Callable[[Exception], None] | None = None
        self._error: Exception | None = None

    @property
    def ends_within(self) -> Seconds:
        """Seconds after which jobs that were stopped have ended, or will report no more."""
        return self._grace + 3.0

    def when_failed(self, fail: Callable[[Exception], None]) -> None:
        """Call this where what goes on beside cannot go on: the run is to end with that error."""
        self._fail = fail

    def _handle_failure(self, error: Exception) -> None:
        # A run ends through `when_failed`; a caller that reads `events` gets the error where it waits.
        if self._fail is not None:
            self._fail(error)
            return
        self._error = error  # `events` raises it
        self._news.set()

    @abstractmethod
    def _attach_to_loop(self) -> None:
        """Begin, in the running loop, to receive what happens; may be called again."""

    async def events(self) -> AsyncIterator[Event]:
        """What happens, in its order; finishes when `close` is done and all were read."""
        self._attach_to_loop()
        while True:
            while self._events:
                yield self._events.popleft()
            if self._error is not None:
                raise self._error
            if self._closed:
                return
            # Cleared before the wait and after the queue was emptied: an event in between sets it again.
            self._news.clear()
            await self._news.wait()

    def listen(self, receiver: Callable[[Event], None]) -> None:
        """Instead of `events`: call ``receiver`` with every event, from the loop that runs, at once."""
        # What came before there was a listener is handed over first, so that the order holds.
        self._heard = receiver
        self._attach_to_loop()
        while self._events:
            # Popped one by one: the receiver may cause the next event.
            receiver(self._events.popleft())

    def output_paths(self, job: JobId) -> tuple[Path, Path] | None:
        """Files of standard output and error of the job's last attempt; ``None`` before its first."""
        files = self._outputs.paths.get(job)
        return None if files is None else (Path(files[0]), Path(files[1]))

    def _job_surroundings(self, job: Job) -> tuple[str, tuple[tuple[str, str], ...] | None]:
        """The job's working folder, and the environment that it brought along, if it did."""
        launch = job.launch
        folder = self._cwd if launch is None or launch.folder is None else launch.folder
        return folder, None if launch is None else launch.environ

    def _report_event(self, event: Event) -> None:
        if self._heard is not None:
            self._heard(event)
            return
        self._events.append(event)
        self._news.set()

    def _all_reported(self) -> None:
        """Nothing more will happen."""
        self._closed = True
        self._news.set()

    def _begin_task(self, work: Callable[..., Coroutine[Any, Any, None]], *about: Any) -> None:
        """Have it done beside, whatever comes in between (`keep_going`)."""
        what = f"a task of the executor ({work.__name__.strip('_').replace('_', ' ')})"
        going = keep_going(lambda: work(*about), what, self._handle_failure)
        task = asyncio.get_running_loop().create_task(going)
        # A loop holds its tasks by weak references alone: one that no set keeps may vanish halfway.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_tasks(self) -> None:
        """End what goes on beside."""
        # A copy: a task that ends takes itself out of the set.
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
