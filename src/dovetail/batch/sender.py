"""Hands jobs over: many of one shape together as an array, and what finds no place now, later.

Before each submission its jobs are noted in the run's folder, and after it the id: a Dovetail that is killed
between the two finds the batch in the queue by its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from dovetail.batch.backlog import Backlog
from dovetail.batch.folder import HandedOverStart, QueueFolder
from dovetail.batch.system import BatchError, BatchJob, BatchSystem, UserScript
from dovetail.errors import ExecutorError
from dovetail.model import Delayed, Ended, Event, JobId, Seconds, Shape, State, Usage
from dovetail.process.environment import THREAD_COUNTS
from dovetail.records import dataclass

_log = logging.getLogger(__name__)
TASK = Path(__file__).with_name("task.py")
GATHER = 0.05
"""Seconds in which jobs of one shape gather for one array."""
AWAY = 2.0
"""Seconds between looks for a batch whose submission got no answer."""

Variables = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job on its way: what is noted of it, and the command of its batch."""

    handed: HandedOverStart
    run: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BatchKey:
    """What jobs have in common that may go as one array; of a user's ``script`` only tasks of its own array.

    ``script`` is its file and its arguments, ``walltime`` what replaces its own. ``outer`` is the environment
    that the job brought along, ``None`` for this process's.
    """

    shape: Shape
    implementation: str
    name: str
    tasks: int
    own: Variables
    cwd: str
    outer: Variables | None
    script: tuple[str, ...] = ()
    walltime: Seconds | None = None


class BatchSender:
    """Jobs that are not with the batch system yet; use it in one event loop.

    ``happened`` gets what the engine is to know, ``ended`` each job that ends before it was handed over, and
    ``sent`` the jobs of a batch that has its id.
    """

    def __init__(
        self,
        system: BatchSystem,
        files: QueueFolder,
        environ: Mapping[str, str],
        *,
        happened: Callable[[Event], None],
        ended: Callable[[HandedOverStart, Ended], None],
        sent: Callable[[Sequence[HandedOverStart]], None],
    ) -> None:
        self._system, self._files, self._environ = system, files, environ
        self._happened, self._ended, self._sent = happened, ended, sent
        self._backlog: Backlog[BatchKey, Waiting] = Backlog(system.longest_array)
        # Kept until a job has started: one that the system loses before goes to it again.
        self._commands: dict[JobId, tuple[BatchKey, Waiting]] = {}
        self._delayed: set[JobId] = set()  # whose delay the engine knows
        self._news = asyncio.Event()

    def add(self, key: BatchKey, waiting: Waiting) -> None:
        """A job that is to be handed over, now or, after `remember`, once more."""
        self._commands[waiting.handed.job] = key, waiting
        self.send_again(waiting.handed.job)

    def remember(self, key: BatchKey, waiting: Waiting) -> None:
        """A job whose batch job is in the queue already; `send_again` hands it over should that be lost."""
        self._commands[waiting.handed.job] = key, waiting

    def send_again(self, job: JobId) -> bool:
        """Put a job in line; whether its command is known."""
        found = self._commands.get(job)
        if found is None:
            return False
        key, waiting = found
        why = self._backlog.add(key, waiting)
        if why:
            self._keep_back([waiting], why)
        self._news.set()
        return True

    def take_out(self, handed: HandedOverStart) -> bool:
        """Whether the job was still in line; it goes no more."""
        return self._backlog.take_out(lambda one: one.handed is handed)

    def forget_command(self, job: JobId) -> None:
        """A job that has started is handed over no more."""
        self._commands.pop(job, None)

    def forget(self, handed: HandedOverStart) -> None:
        """A job is over, or goes another way."""
        self._commands.pop(handed.job, None)
        self._delayed.discard(handed.job)

    def free_place(self) -> None:
        """A batch job has ended: the next one may find a place."""
        self._backlog.freed()
        self._news.set()

    async def send_all(self) -> None:
        """Hand over what has gathered, one batch after the other."""
        while True:
            due = self._backlog.due() - time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), due if due < inf else None)
            # A moment for others of the same shape to come: one array costs the system as much as one job.
            await asyncio.sleep(GATHER)
            self._news.clear()
            while (found := self._backlog.next(time.monotonic())) is not None:
                await self._try_send(*found)

    async def _try_send(self, key: BatchKey, waiting: Sequence[Waiting]) -> None:
        try:
            await self._send(key, waiting)
        except (ExecutorError, OSError) as error:  # a full disk, too: nothing was handed over yet
            self._files.note_later(t="refused", batch=waiting[0].handed.batch)
            for one in waiting:  # it is written anew with the next try, under another name
                one.handed.batch = ""
            kept = self._backlog.refused(key, waiting, time.monotonic(), str(error))
            self._keep_back(kept, str(error))
            for handed in [one.handed for one in waiting if one.handed.stop]:
                if self.take_out(handed):
                    self._ended(handed, end_unsent(handed))
        except Exception as error:  # noqa: BLE001 - whatever it is ends these jobs only
            _log.exception("%d jobs could not be handed over", len(waiting))
            self._fail(waiting, str(error) or type(error).__name__)
        else:
            self._backlog.accepted(key)
            for job in [one.handed.job for one in waiting if one.handed.job in self._delayed]:
                self._delayed.discard(job)
                self._happened(Delayed(job, ""))

    def _keep_back(self, waiting: Sequence[Waiting], why: str) -> None:
        """There is no place for these now; the engine gets each delay once."""
        for job in [one.handed.job for one in waiting if one.handed.job not in self._delayed]:
            self._delayed.add(job)
            self._happened(Delayed(job, why))

    def _fail(self, waiting: Sequence[Waiting], why: str) -> None:
        now = time.time()
        for handed in [one.handed for one in waiting]:
            self._ended(handed, Ended(handed.job, State.FAILED, None, why, Usage(), now, now))

    async def _send(self, key: BatchKey, waiting: Sequence[Waiting]) -> None:
        """Raises `BatchError` where the system has no place for so many jobs."""
        batch = uuid.uuid4().hex[:12]
        handed = [one.handed for one in waiting]
        for number, one in enumerate(handed):
            one.batch, one.number, one.count = batch, number, len(handed)
        prepare = self._prepare_script if key.script else self._prepare_commands
        job = prepare(key, waiting, batch)
        # Before the submission: after a crash in between the batch is found in the queue.
        self._files.note_batch(batch, handed)
        id = await self._deliver(job, waiting)
        if not id:
            return
        self._files.note_later(t="sent", batch=batch, id=id)
        for one in handed:
            one.batch_id = id
            _log.info("job %s is %s of %s", one.job, id, self._system.title)
        self._sent(handed)  # which cancels those that were stopped meanwhile

    def _prepare_commands(self, key: BatchKey, waiting: Sequence[Waiting], batch: str) -> BatchJob:
        """A script of ours, and the commands that it runs."""
        outer = self._outer(key)
        cpus = str(self._system.cpus_of(key.shape, key.tasks))
        names = self._system.variables
        path = self._files.write_batch(
            batch,
            {
                "cwd": key.cwd,
                "env": {**dict.fromkeys(THREAD_COUNTS, cpus), **dict(key.own)},
                "restore": {name: outer.get(name) for name in self._system.changed},
                "hide_devices": not key.shape.request.devices,
                "variables": {
                    "index": names.index,
                    "restarts": names.restarts,
                    "node": names.node,
                    "nodes": names.nodes,
                },
                "runs": [one.run for one in waiting],
            },
        )
        words = [sys.executable, "-I", "-S", str(TASK), str(path)]
        text = f"#!/bin/sh\nexec {shlex.join(words)}\n"
        indices = range(len(waiting)) if len(waiting) > 1 else None
        return self._job(key, batch, os.fsencode(text), indices, outer)

    def _prepare_script(self, key: BatchKey, waiting: Sequence[Waiting], batch: str) -> BatchJob:
        """A user's script as it is; one without lines for its output writes where Dovetail's jobs do."""
        path, *arguments = key.script
        text = _read_script(path)
        first = waiting[0]
        files = first.run["files"]
        if files is not None:
            files = tuple(name if first.handed.task < 0 else _of_all(name, first.handed) for name in files)
        script = UserScript(
            text.decode(errors="replace"),
            tuple(arguments),
            key.cwd,
            {**dict(key.own), **first.run["env"]},
            files,
            key.walltime,
        )
        indices = [one.handed.task for one in waiting] if first.handed.task >= 0 else None
        return self._job(key, batch, text, indices, self._outer(key), script)

    def _outer(self, key: BatchKey) -> Mapping[str, str]:
        return self._environ if key.outer is None else self._system.clean_environment(dict(key.outer))

    def _job(
        self,
        key: BatchKey,
        batch: str,
        text: bytes,
        indices: Sequence[int] | None,
        environ: Mapping[str, str],
        script: UserScript | None = None,
    ) -> BatchJob:
        path, log = self._files.write_script(batch, text), self._files.path / f"{batch}.log"
        return BatchJob(batch, path, log, key.name, key.shape, key.tasks, indices, environ, script)

    async def _deliver(self, job: BatchJob, waiting: Sequence[Waiting]) -> str:
        """Submit until the system has taken the batch, once; its id, or empty where it is refused."""
        while True:
            try:
                return await asyncio.to_thread(self._system.submit, job)
            except BatchError as error:
                if error.no_place:
                    raise
                if error.passing:
                    # No answer is no refusal: the batch may be in the queue, and must not go there twice.
                    known = await self._find_batch(job.batch)
                    if known:
                        return known
                    continue
                self._files.note_later(t="refused", batch=job.batch)
                self._fail(waiting, str(error))
                return ""

    async def _find_batch(self, batch: str) -> str:
        """The id of a batch in the queue, as soon as the system shows its queue; empty if it is not there."""
        while True:
            await asyncio.sleep(AWAY)
            try:
                seen = await asyncio.to_thread(self._system.look)
            except (ExecutorError, OSError):
                continue
            found = (one.id for one in seen.values() if one.batch == batch)
            return next((self._system.id_of_batch(id) for id in found), "")


def end_unsent(handed: HandedOverStart) -> Ended:
    """The end of a job that was stopped before the batch system had it."""
    now = time.time()
    return Ended(handed.job, State(handed.stop), None, "it was never handed over", Usage(), now, now)


def _read_script(path: str) -> bytes:
    """A script as it was submitted. Raises `ExecutorError`."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ExecutorError(f"{path}: cannot be read: {error.strerror}") from error


def _of_all(path: str, handed: HandedOverStart) -> str:
    """The output file of one task as the pattern of all."""
    return path.replace(f"_{handed.task}", "_%a")
