"""The cached forecast of a service: wanted when a client looks, made by a process beside."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from dovetail.errors import DovetailError, InputError
from dovetail.model import JobId, Seconds

log = logging.getLogger(__name__)

GAP: Seconds = 1.0
"""Between two forecasts, at least; and so many times as long as the last one took."""
SHARE = 5.0
IDLE: Seconds = 60.0
"""After which an unused process ends."""
BEGINS: Seconds = 10.0
"""That the start of its process may take on a busy machine."""
LONGEST = 64 << 20
PATIENCE: Seconds = 300.0
PAUSE: Seconds = 10.0
"""After a forecast that failed, until the next attempt, however much has happened."""
UNKNOWN_SPAN = (None, None, None, None)


class Forecast:
    """Predicted starts and ends of all jobs, as of some moment.

    ``changes`` counts what has happened: a forecast is made anew only where something has.
    """

    def __init__(self, folder: Path, changes: Callable[[], int]) -> None:
        self._folder, self._changes = folder, changes
        self._jobs: Mapping[JobId, tuple[Seconds, Seconds | None]] = {}
        self._spans: Mapping[JobId, Sequence[Seconds | None]] = {}
        self._unknown = 0
        self._at: Seconds | None = None  # of the loop's clock
        self._seen = -1
        self._lasts: Seconds | None = None
        self._took: Seconds = 0.0
        self._failed_at: Seconds | None = None
        self._failure = ""
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._leaves: asyncio.TimerHandle | None = None

    def predicted_times(self, job: JobId) -> tuple[Seconds | None, Seconds | None]:
        """Start and end, seconds since the epoch."""
        return self._jobs.get(job, (None, None))

    def predicted_spans(self, job: JobId) -> Sequence[Seconds | None]:
        """Between when and when it starts, then ends, seconds since the epoch; ``None`` where unknown."""
        return self._spans.get(job, UNKNOWN_SPAN)

    def describe_forecast(self) -> dict[str, Any]:
        """How old it is, and of how many jobs it is not known how long they take."""
        at = self._at
        age = None if at is None else asyncio.get_running_loop().time() - at
        return {"forecast_age": age, "forecast_unknown": self._unknown}

    def request_forecast(self, patience: Seconds = 0.0) -> None:
        """A client looks: make a new one, if there is news and the last one is old enough.

        Where a reader has the ``patience`` for a new one to be made, no earlier one is new enough.
        """
        now = asyncio.get_running_loop().time()
        # A forecast may take a fifth of the time at most, however often clients look.
        enough = 0.0 if self._took < patience else max(GAP, SHARE * self._took)
        fresh = self._at is not None and now - self._at < enough
        if self._failed_at is not None:
            # Readers may have the patience for a new one; what fails must not be made again at every look.
            fresh = now - self._failed_at < max(PAUSE, enough)
        # Nothing has changed since the last one: it still holds.
        if self._task is None and not fresh and not self._still_holds(now):
            self._task = asyncio.create_task(self._renew_forecast())
            self._task.add_done_callback(self._end_task)

    def _still_holds(self, now: Seconds) -> bool:
        """Whether nothing has changed since; what a batch system does shows only when it is read again."""
        over = self._lasts is not None and self._at is not None and now - self._at >= self._lasts
        return self._seen == self._changes() and not over

    async def wait(self, patience: Seconds) -> None:
        """Have one of all that has happened so far, if that can be had within so many seconds.

        And those that its process may need: the first look after a while starts it, which is no reason to
        show what was. One that is being made began before the look, and may not know what has happened since:
        another one follows it.
        """
        wanted = self._changes()
        self.request_forecast(patience)
        if patience <= 0:
            return
        loop = asyncio.get_running_loop()
        begins = self._process is None or self._process.returncode is not None
        until = loop.time() + patience + (BEGINS if begins else 0.0)
        while self._task is not None and (left := until - loop.time()) > 0:
            await asyncio.wait({self._task}, timeout=left)
            if self._seen < wanted:
                self.request_forecast(patience)

    async def _renew_forecast(self) -> None:
        loop = asyncio.get_running_loop()
        # Before the question: what changes while it is being made belongs to the next one.
        began, seen = loop.time(), self._changes()
        found = await self.ask({})
        jobs = {job: (start, end) for job, (start, end) in found["jobs"].items()}
        self._jobs, self._spans, self._unknown = jobs, found.get("spans", {}), found["unknown"]
        self._at, self._seen, self._lasts = began, seen, found.get("lasts")
        self._failed_at, self._failure = None, ""

    def _end_task(self, task: asyncio.Task[None]) -> None:
        """Note why there is no new forecast, if there is none: nothing awaits the task's error."""
        self._task = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, DovetailError | OSError):
            # There is none now; `whatif`, which needs it, gets the error itself.
            if str(error) != self._failure:
                log.warning("there is no forecast of the queue: %s", error)
            self._note_failure(str(error))
        elif error is not None:
            log.error("there is no forecast of the queue, by a mistake in Dovetail", exc_info=error)
            self._note_failure("")

    def _note_failure(self, reason: str) -> None:
        """No forecast is better than an old one; the next look after a pause tries again."""
        self._jobs, self._spans, self._unknown = {}, {}, 0
        self._at, self._seen = None, -1
        self._failed_at, self._failure = asyncio.get_running_loop().time(), reason

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """One question to the process beside. Raises `InputError`, `DovetailError`."""
        # One question at a time: the answers on the pipe carry no number.
        async with self._turn:
            process = await self._running_process()
            assert process.stdin is not None
            assert process.stdout is not None
            began = asyncio.get_running_loop().time()
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                await process.stdin.drain()
                line = await asyncio.wait_for(process.stdout.readline(), PATIENCE)
                found: dict[str, Any] = json.loads(line)
            except (OSError, ValueError, TimeoutError) as error:
                await self._end_process()
                raise DovetailError("the forecast could not be made") from error
            # The answer would come later and be read as that of the next question.
            except asyncio.CancelledError:
                await self._end_process()
                raise
            self._took = asyncio.get_running_loop().time() - began  # a process that begins is not counted
            self._leaves = asyncio.get_running_loop().call_later(IDLE, self._end_idle_process)
        if "error" in found:
            raise (InputError if found["status"] == 2 else DovetailError)(found["error"])
        return found

    async def _running_process(self) -> asyncio.subprocess.Process:
        if self._leaves is not None:
            self._leaves.cancel()
            self._leaves = None
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "dovetail.forecasts.queue", str(self._folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=LONGEST,
                cwd="/",
                start_new_session=True,
            )
        return self._process

    def forget_process(self) -> None:
        """The ledger is another file now: the next question is for a new process."""
        self._end_idle_process()

    def _end_idle_process(self) -> None:
        """Unused for long: its memory is better used elsewhere."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process = None

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        if self._task is not None:
            self._task.cancel()
        await self._end_process()
