"""What a service keeps of jobs that ended long ago: rows of the ledger, batch scripts, files of output.

Once an hour what is older than it is to be kept is removed, a few hundred jobs at a time. What is wanted
stays, however old: what waiting jobs depend on, what a client waits for, an array of which a job has not
ended, and the job of the highest number, so that no number is given twice.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from dovetail.client.errors import Full
from dovetail.client.folder import ServiceFolder
from dovetail.errors import HistoryError
from dovetail.model import JobId, Seconds
from dovetail.records import dataclass
from dovetail.running.ledger import Ledger
from dovetail.service.archive import Archive

_log = logging.getLogger(__name__)
DAY: Seconds = 86_400.0
FORGET_AFTER: Seconds = 90 * DAY
KEEP_OUTPUT: Seconds = 30 * DAY
EVERY: Seconds = 3600.0
"""Seconds between two looks, and before the first."""
SLICE = 500
"""Jobs that are forgotten at once; others have their turn in between."""
PAUSE: Seconds = 0.05
"""Seconds between two of these."""
RARELY = 100.0
"""A count holds for so many times as long as it took."""
AT_MOST: Seconds = 0.2
"""So long a look at the service waits for a count."""
STEP: Seconds = 600.0
"""So much the clock may have been set forward since the last look: else all may only seem old."""
IDLE: Seconds = 7 * DAY
"""Where nothing has happened for so long before a start, the clock may be wrong as well."""
_NAME = re.compile(r"(\d+(?:_\d+)?)(?:\.\d+)?\.(?:out|err|steps)(?:\.[0-9a-f]{8}\.old)?")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long what is kept of a job stays after its end, in seconds; 0: for ever."""

    forget_after: Seconds = FORGET_AFTER
    keep_output: Seconds = KEEP_OUTPUT


@dataclass(slots=True)
class Kept:
    """What is on disk, as of the last count; ``since`` is when the oldest of the jobs was submitted."""

    jobs: int = 0
    since: Seconds | None = None
    ledger_bytes: int = 0
    output_files: int = 0
    output_bytes: int = 0


@dataclass(slots=True)
class Removed:
    """What one look has removed."""

    jobs: int = 0
    files: int = 0


class Tidying:
    """Removes what is old; in the loop of the ledger's writer.

    ``wanted`` are ids of jobs that stay, as of now; ``named`` gathers those that a submission names while a
    look goes on.
    """

    def __init__(
        self,
        folder: ServiceFolder,
        ledger: Ledger,
        archive: Archive,
        limits: Limits,
        wanted: Callable[[], set[JobId]],
    ) -> None:
        self.limits = limits
        self.kept = Kept()
        self.named: set[JobId] = set()
        self._folder, self._ledger, self._archive, self._wanted = folder, ledger, archive, wanted
        self._one = asyncio.Lock()
        self._offset = time.time() - time.monotonic()
        self._not_before = 0.0
        self._counted_until = 0.0

    async def watch(self) -> None:
        """Look again and again (to be kept going by `dovetail.process.background`)."""
        await self._count_kept()
        newest = await self._query_archive(Archive.last_recorded_time)
        # A machine that was off for long, or whose clock was wrong: for a day nothing counts as old.
        if newest is not None and time.time() - newest > IDLE:
            self._not_before = time.monotonic() + DAY
        while True:
            await asyncio.sleep(EVERY)
            if self._clock_is_sound():
                limits = self.limits
                await self.remove_old_jobs(limits.forget_after or None, limits.keep_output or None)

    def _clock_is_sound(self) -> bool:
        """Whether the clock has gone as fast as time since the last look; where not, a day is waited."""
        now = time.monotonic()
        before, self._offset = self._offset, time.time() - now
        if self._offset - before > STEP:
            ahead = self._offset - before
            self._not_before = now + DAY
            _log.warning("the clock was set forward by %.0f s: nothing is taken for old within a day", ahead)
        return now >= self._not_before

    async def remove_old_jobs(self, forget_after: Seconds | None, keep_output: Seconds | None) -> Removed:
        """Remove what ended longer ago than so many seconds (``None``: nothing); what it was.

        Raises `HistoryError` where the ledger cannot be written.
        """
        async with self._one:
            # Names that come in from here on are gathered, since the look goes on while jobs are submitted.
            self.named.clear()
            removed, now, wanted = Removed(), time.time(), self._wanted()
            if keep_output is not None:
                loop = asyncio.get_running_loop()
                removed.files = await loop.run_in_executor(
                    None,
                    sweep_output,
                    self._folder.ledger_path,
                    self._folder.path / "output",
                    now - keep_output,
                    wanted,
                )
            if forget_after is not None:
                removed.jobs = await self._forget_old_jobs(now - forget_after, wanted)
            # Apps and launches are shared, so they go only after the jobs that had them.
            if removed.jobs:
                await self._drop_unused()
            await self._count_kept()
        if removed.jobs or removed.files:
            _log.info("%d old jobs are forgotten, %d files of output removed", removed.jobs, removed.files)
        return removed

    async def _query_archive(self, question: Callable[[Archive], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(
            self._archive.query_thread, question, self._archive
        )

    async def _forget_old_jobs(self, before: Seconds, wanted: set[JobId]) -> int:
        count, last = 0, (float("-inf"), 0)
        numbers: set[int] = set()
        # A number of an array stays as long as any of its elements is open: they share a script.
        open_numbers = set(await self._query_archive(Archive.open_numbers))
        while True:
            question = partial(Archive.ended_before, before=before, last=last, limit=SLICE)
            rows = await self._query_archive(question)
            if not rows:
                break
            last = (rows[-1][3], rows[-1][0])
            old = [
                row
                for row in rows
                if row[1] not in wanted and row[1] not in self.named and row[2] not in open_numbers
            ]
            if old:
                self._note_forgotten(max(row[2] or 0 for row in old))
                count += self._ledger.forget_ended([row[0] for row in old], before)
                numbers.update(row[2] for row in old if row[2] is not None)
            # In slices with pauses, so that requests are answered in between.
            await asyncio.sleep(PAUSE)
        left = set(await self._query_archive(lambda archive: archive.known_numbers(sorted(numbers))))
        for number in numbers - left:
            # The script goes last: rows that still name it would show a file that is not there.
            with suppress(OSError):
                (self._folder.scripts_path / str(number)).unlink()
        return count

    def _note_forgotten(self, number: int) -> None:
        """First: the executor's record may have these for long, and would be taken to know more."""
        try:
            self._folder.note_forgotten(number)
        except OSError as error:
            raise HistoryError(f"{self._folder.path}: cannot be written: {error.strerror}") from error

    async def _drop_unused(self) -> None:
        """Apps and launches that no job has any more, which the ledger keeps once however many jobs have."""
        tables: tuple[Literal["app", "launch"], ...] = ("app", "launch")
        for table in tables:
            last, unused = await self._query_archive(partial(Archive.unused, table=table))
            for first in range(0, len(unused), SLICE):
                self._ledger.drop_unused(table, unused[first : first + SLICE], last)
                await asyncio.sleep(PAUSE)

    async def count_again(self) -> None:
        """Count what is kept anew, unless that was done just now for what it costs; `AT_MOST` is waited."""
        if time.monotonic() >= self._counted_until and not self._one.locked():
            # It goes on, for those that look next; where the disk does not answer, the last count stands.
            with suppress(TimeoutError, Full):
                await asyncio.wait_for(asyncio.shield(self._count_alone()), AT_MOST)

    async def _count_alone(self) -> None:
        async with self._one:
            await self._count_kept()

    async def _count_kept(self) -> None:
        began = time.monotonic()
        kept = self.kept = await self._query_archive(lambda archive: Kept(*archive.measure_extent()))
        with suppress(OSError):
            kept.ledger_bytes = self._folder.ledger_path.stat().st_size
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(None, extent_of, self._folder.path / "output")
        kept.output_files, kept.output_bytes = found
        ended = time.monotonic()
        self._counted_until = ended + RARELY * (ended - began)


def _output_buckets(output: Path) -> list[os.DirEntry[str]]:
    """Folders of output, those of the lowest numbers first; none that a job has replaced by a link."""
    try:
        entries = [one for one in os.scandir(output) if one.name.isdecimal()]
    except OSError:
        return []
    return sorted((one for one in entries if one.is_dir(follow_symlinks=False)), key=lambda e: int(e.name))


def _bucket_files(bucket: os.DirEntry[str]) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(bucket.path) as entries:
        yield from (one for one in entries if one.is_file(follow_symlinks=False))


def extent_of(output: Path) -> tuple[int, int]:
    """How many files of output there are, and their bytes. O(files)."""
    count = total = 0
    for bucket in _output_buckets(output):
        for one in _bucket_files(bucket):
            with suppress(OSError):
                total += one.stat(follow_symlinks=False).st_size
                count += 1
    return count, total


def sweep_output(ledger: Path, output: Path, before: Seconds, wanted: set[JobId]) -> int:
    """Remove output of jobs that ended before then, and are not wanted; how many files.

    Of jobs that the ledger does not have any more, what was written last before then. For a thread beside.
    """
    removed = 0
    buckets = _output_buckets(output)
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as db:
        (highest,) = db.execute("SELECT coalesce(max(number), 0) FROM job").fetchone()
        is_open = "SELECT DISTINCT number FROM job WHERE state IN ('PENDING', 'RUNNING')"
        unfinished = {number for (number,) in db.execute(is_open)}
        for bucket in buckets:
            found = [(match[1], one) for one in _bucket_files(bucket) if (match := _NAME.fullmatch(one.name))]
            ids = json.dumps(sorted({id for id, _ in found}))
            sql = "SELECT id, number, ended FROM job WHERE id IN (SELECT value FROM json_each(?))"
            known = {id: (number, ended) for id, number, ended in db.execute(sql, (ids,))}
            top = max((int(id.partition("_")[0]) for id, _ in found), default=0)
            for id, one in found:
                number, ended = known.get(id, (None, None))
                if id in wanted or number in unfinished or number == highest:
                    continue
                if bucket is buckets[-1] and int(id.partition("_")[0]) == top:
                    continue  # by it a queue that begins anew knows which numbers were given
                with suppress(OSError):
                    if id not in known:
                        ended = one.stat(follow_symlinks=False).st_mtime
                    if ended is not None and ended < before:
                        os.unlink(one.path)
                        removed += 1
            if bucket is not buckets[-1]:
                with suppress(OSError):  # others are in it
                    os.rmdir(bucket.path)
    return removed


def tidy_folder(folder: ServiceFolder, age: Seconds) -> Removed:
    """Forget the jobs, and their output, that ended ``age`` seconds ago or more, of a service that is down.

    Raises `HistoryError` where the ledger is damaged, or cannot be written.
    """
    with Ledger(folder.ledger_path) as ledger:
        waiting = ledger.open_entries()
        wanted = {entry.job.id for entry in waiting}
        wanted.update(one.job for entry in waiting for one in entry.job.depends)
        archive = Archive(folder.ledger_path, lambda: ledger_cluster())
        try:
            return asyncio.run(_remove_from_folder(folder, ledger, archive, wanted, age))
        finally:
            archive.close()


def ledger_cluster() -> Any:
    """No cluster is known of a service that is down."""
    raise HistoryError("a service that is down has no cluster")


async def _remove_from_folder(
    folder: ServiceFolder, ledger: Ledger, archive: Archive, wanted: set[JobId], age: Seconds
) -> Removed:
    return await Tidying(folder, ledger, archive, Limits(), lambda: wanted).remove_old_jobs(age, age)
