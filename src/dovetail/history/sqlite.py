"""The history database: raw runs and Table 1's averages in one SQLite file.

WAL journal, one writer at a time (``BEGIN IMMEDIATE``), readers never wait. A run and the averages that it
changes are one transaction, so a process killed at any moment leaves either both or neither. Several
processes may use one file; each sees the others' runs at its next question.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from dovetail.files.folders import state_folder
from dovetail.history.base import (
    Aggregate,
    Group,
    InputsKey,
    RequestKey,
    inputs_text,
)
from dovetail.history.cache import AppCache, Cache, Stamp
from dovetail.history.file import TROUBLE, HistoryBusy, HistoryFile
from dovetail.history.rows import (
    KEY_COLUMNS,
    KILLED,
    RUN_COLUMNS,
    RUN_TABLES,
    Writer,
    aggregate_of,
    group_of,
    pack_uid,
    run_of,
)
from dovetail.history.schema import AVERAGE_ALL
from dovetail.model import DeviceClass, Run, Seconds

_log = logging.getLogger(__name__)

__all__ = ["HistoryBusy", "SqliteHistory", "default_history_path"]

PIECE = 250
"""Runs that are recorded in one transaction where there are many: others write in between."""
TURN, PAUSE = 0.15, 0.11
"""Seconds of writing many runs after which others have their turn, and how long that is: who waits for
SQLite's lock looks every 0.1 s at least."""
CARRIED = 100
"""Up to so many runs recorded together, what has been read is carried forward; beyond, read anew."""
REMEMBERED = 10_000
"""Keys whose ids and averages are remembered for the next transaction."""


def default_history_path() -> Path:
    """``dovetail/history.sqlite`` in the `state_folder`. Raises `InputError` where there is none."""
    return state_folder() / "dovetail" / "history.sqlite"


class _Still:
    """Entered while this process does not look for what others have written."""

    def __init__(self) -> None:
        self.depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


class SqliteHistory(HistoryFile):
    """Measured runs in a SQLite file, made with mode 0600 if it is not there.

    ``wait`` is how many seconds a writer waits for another before it gives up. ``must_exist`` refuses to
    make a new file (for commands that only look). Raises `HistoryError` with one sentence when the file
    cannot be used. Usable from several threads; one transaction at a time.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, wait: float = 10.0, must_exist: bool = False
    ) -> None:
        super().__init__(
            default_history_path() if path is None else Path(path), wait=wait, must_exist=must_exist
        )
        self._cache = Cache()
        self._writer: Writer | None = None
        self._still = _Still()
        self._look_every = self._look_at = 0.0

    def __enter__(self) -> SqliteHistory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what has changed ------------------------------------------------------------------------------

    def hold_still(self) -> AbstractContextManager[object]:
        """For several questions at one moment: within, what other processes record may go unseen."""
        return self._still

    def look_seldom(self, every: Seconds) -> None:
        """From now on what other processes record may go unseen for so long: to look takes locks."""
        self._look_every = every

    def _notice_changes(self, *, anyway: bool = False) -> None:
        """Notice what other processes have committed. 20 microseconds; raises `sqlite3.Error`."""
        # Between the questions of one instant the answers must agree: another's commit may wait.
        if self._still.depth and not anyway:
            return
        if self._look_every:
            now = time.monotonic()
            if now < self._look_at and not anyway:
                return
            self._look_at = now + self._look_every
        (seen,) = self._db.execute("PRAGMA data_version").fetchone()
        if self._cache.notice_version(seen):
            self._writer = None

    @property
    def version(self) -> int:
        """Grows with every change by this process or another. A few microseconds."""
        with self._lock:
            try:
                self._notice_changes()
            except TROUBLE as error:
                raise self._make_failure("read", error) from error
            return self._cache.version

    def app_stamp(self, app: str) -> Hashable:
        """Changes whenever anything about this app has changed. A few microseconds."""
        with self._lock:
            try:
                self._notice_changes()
                return self._cached_stamp(app)
            except TROUBLE as error:
                raise self._make_failure("read", error) from error

    def count(self, app: str, implementation: str, device: DeviceClass) -> int:
        """Number of completed runs. O(1)."""
        with self._lock:
            place = (app, implementation, device)
            try:
                self._notice_changes()
                found = self._cache.counts.get(place)
                if found is None:
                    (found,) = self._db.execute(
                        "SELECT coalesce(sum(completed), 0) FROM groups "
                        "WHERE app = ? AND implementation = ? AND kind = ? AND model = ?",
                        (app, implementation, device.kind, device.model),
                    ).fetchone()
                    self._cache.counts[place] = found
            except TROUBLE as error:
                raise self._make_failure("read", error) from error
            return int(found)

    def _cached_stamp(self, app: str) -> Stamp:
        found = self._cache.stamps.get(app)
        if found is None:
            found = self._cache.stamps[app] = self._read_stamp(app)
        return found

    def _read_stamp(self, app: str) -> Stamp:
        return tuple(
            sorted(self._db.execute("SELECT id, changes FROM groups WHERE app = ?", (app,)).fetchall())
        )

    # -- writing ---------------------------------------------------------------------------------------

    def record(self, run: Run) -> bool:
        """Keep a run and bring its averages up to date, in one transaction.

        ``False`` if a run of this uid was there already: nothing changes then. Raises `InputError` for a
        run that makes no sense, `HistoryError` when the file cannot be written.
        """
        return self.record_many((run,)) == 1

    def record_many(self, runs: Iterable[Run]) -> int:
        """Keep many runs in one transaction, all or none; returns how many were new.

        What is cached of an app is carried forward with its runs, unless there are more than `CARRIED`.
        """
        with self._lock:
            # A generator may be long, or wait for its reader: it is not held in memory to be carried forward.
            if not (isinstance(runs, Sequence) and len(runs) <= CARRIED):
                with self._explain_errors("written"), self._write_transaction() as db:
                    writer = Writer(db)
                    new = sum(map(writer.add, runs))
                    writer.finish()
                if new:
                    # More than a few runs: to read anew costs less than to carry each one forward.
                    self._forget_all_seen()
                return new
            try:
                with self._write_transaction() as db:
                    # Under the write lock no other process changes anything: what is cached here can be
                    # carried forward with these runs instead of being read again.
                    self._notice_changes(anyway=True)
                    # Without an owner until the end: broken off, it would remember what was taken back.
                    kept, self._writer = self._writer, None
                    writer = Writer(db) if kept is None or kept.size > REMEMBERED else kept
                    before = {app: self._cached_stamp(app) for app in {run.app for run in runs}}
                    added = [run for run in runs if writer.add(run)]
                    after = self._stamps_after(before, writer.finish())
            except TROUBLE as error:
                raise self._make_failure("written", error) from error
            self._writer = writer
            if added:
                self._cache.carry_forward(added, before, after)
            return len(added)

    def record_in_pieces(self, runs: Iterable[Run]) -> int:
        """Keep many runs, `PIECE` of them a transaction; returns how many were new.

        Other processes write in between, and see what is there so far. Broken off, what was committed stays:
        the uids of the runs make it safe to begin again. Raises as `record`.
        """
        new, held = 0, 0.0
        waiting = iter(runs)
        while piece := list(islice(waiting, PIECE)):
            since = time.monotonic()
            new += self.record_many(piece)
            held += time.monotonic() - since
            # SQLite's lock is not fair: the next piece would take it before a waiting process looks again.
            if held >= TURN:
                time.sleep(PAUSE)
                held = 0.0
        return new

    def _stamps_after(self, before: dict[str, Stamp], touched: frozenset[int]) -> dict[str, Stamp]:
        """The stamps after our changes: worked out where all groups were there before, else read."""
        if touched.issubset(group for stamp in before.values() for group, _ in stamp):
            return {
                app: tuple((group, changes + (group in touched)) for group, changes in stamp)
                for app, stamp in before.items()
            }
        return {app: self._read_stamp(app) for app in before}

    def _forget_all_seen(self) -> None:
        self._cache.forget_all()
        self._writer = None

    def delete_runs(
        self,
        app: str | None = None,
        implementation: str | None = None,
        device: DeviceClass | None = None,
        *,
        before: float | None = None,
    ) -> int:
        """Delete the runs that match everything given (nothing given: all); returns how many.

        ``before`` takes only runs that ended before that Unix time; averages are then made anew from the
        runs that stay.
        """
        where, values = _group_condition(app, implementation, device)
        with self._explain_errors("written"), self._write_transaction() as db:
            groups = [row[0] for row in db.execute(f"SELECT id FROM groups g WHERE {where}", values)]
            deleted = 0
            for group in groups:
                cut, bound = ("", ()) if before is None else (" AND finished < ?", (before,))
                deleted += db.execute(f"DELETE FROM runs WHERE group_id = ?{cut}", (group, *bound)).rowcount
            if before is not None:
                # For this deletion only: kept, the index would cost at every recorded run.
                db.execute("CREATE INDEX runs_of_key ON runs (key_id)")
                for group in groups:
                    db.execute(
                        "DELETE FROM keys WHERE group_id = ? "
                        "AND NOT EXISTS (SELECT 1 FROM runs WHERE key_id = keys.id)",
                        (group,),
                    )
                    for statement in AVERAGE_ALL:
                        db.execute(statement.format(where=f"group_id = {group}", where_group=f"id = {group}"))
                db.execute("DROP INDEX runs_of_key")
            else:
                db.executemany("DELETE FROM keys WHERE group_id = ?", [(g,) for g in groups])
            db.executemany(
                "DELETE FROM groups WHERE id = ? AND NOT EXISTS (SELECT 1 FROM keys WHERE group_id = ?)",
                [(g, g) for g in groups],
            )
        if deleted:
            self._forget_all_seen()
            _log.info("history %s: %d runs are forgotten", self.path, deleted)
        return deleted

    def vacuum_file(self) -> tuple[int, int]:
        """Give unused space back; returns the file's bytes before and after. Needs as much free disk."""
        with self._lock, self._explain_errors("vacuumed"):
            # The log of changes goes into the file first: the size before is that of the whole history.
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            before = self.path.stat().st_size
            self._db.execute("VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            after = self.path.stat().st_size
            _log.info("history %s: vacuumed from %d to %d bytes", self.path, before, after)
            return before, after

    # -- reading ---------------------------------------------------------------------------------------

    def _fetch_rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        with self._lock, self._explain_errors("read"):
            return self._db.execute(sql, values).fetchall()

    def list_groups(self, app: str | None = None) -> Sequence[Group]:
        """What there is, by app, implementation, class, request. Of one app: read once, as averages are."""
        if app is None:
            return self._read_groups(None)
        with self._lock:
            kept = self._cached_app(app)
            # By the key of a group, since carried runs change their counts in place.
            if kept.groups is None:
                kept.groups = {
                    (g.implementation, g.device_class, g.request): g for g in self._read_groups(app)
                }
            return sorted(kept.groups.values(), key=_group_order)

    def _read_groups(self, app: str | None) -> list[Group]:
        where, values = _group_condition(app, None, None)
        rows = self._fetch_rows(
            "SELECT app, implementation, kind, model, nodes, cpus, gpus, completed, failed FROM groups g "
            f"WHERE {where} ORDER BY 1, 2, 3, 4, 5, 6, 7",
            values,
        )
        return self._convert_rows(group_of, rows)

    def _group_ids(self, app: str, implementation: str, device: DeviceClass) -> list[tuple[int, RequestKey]]:
        where, values = _group_condition(app, implementation, device)
        rows = self._fetch_rows(
            f"SELECT id, nodes, cpus, gpus FROM groups g WHERE {where} ORDER BY id", values
        )
        return [(row[0], (row[1], row[2], row[3])) for row in rows]

    def _cached_app(self, app: str) -> AppCache:
        """What this process has read of the app, if it has not changed since."""
        return self._cache.find_app(app, self.app_stamp(app))

    def list_aggregates(
        self, app: str, implementation: str, device: DeviceClass, limit: int | None = None
    ) -> Sequence[Aggregate]:
        """Averages by key, in the order in which keys appeared; the newest ``limit`` keys.

        Read once, then kept up to date in memory while only this process records.
        """
        with self._lock:
            kept = self._cached_app(app)
            found = kept.newest_aggregates(implementation, device, limit)
            if found is None:
                found = self._read_aggregates(app, implementation, device, limit)
                kept.keep_aggregates(implementation, device, limit, found)
            return found

    def _read_aggregates(
        self, app: str, implementation: str, device: DeviceClass, limit: int | None
    ) -> list[Aggregate]:
        found: list[tuple[int, Aggregate]] = []
        for group, request in self._group_ids(app, implementation, device):
            rows = self._fetch_rows(
                # By this index the newest keys come first, without a sort of all keys of the group.
                f"SELECT keys.id, {KEY_COLUMNS} FROM keys INDEXED BY keys_of_group "
                "WHERE group_id = ? ORDER BY id DESC LIMIT ?",
                (group, -1 if limit is None else limit),
            )
            place = (app, implementation, device, request)
            made = self._convert_rows(partial(aggregate_of, *place), (row[1:] for row in rows))
            found.extend(zip((row[0] for row in rows), made, strict=True))
        found.sort(key=lambda pair: pair[0])
        return [aggregate for _, aggregate in (found if limit is None else found[-limit:])]

    def find_aggregate(
        self, app: str, implementation: str, device: DeviceClass, request: RequestKey, inputs: InputsKey
    ) -> Aggregate | None:
        """The averages of one key. O(1) where they were read before, else O(log n)."""
        with self._lock:
            known, found = self._cached_app(app).known_aggregate(implementation, device, request, inputs)
            if known:
                return found
        rows = self._fetch_rows(
            f"SELECT {KEY_COLUMNS} FROM groups g JOIN keys ON keys.group_id = g.id AND keys.inputs = ? "
            "WHERE app = ? AND implementation = ? AND kind = ? AND model = ? "
            "AND nodes = ? AND cpus = ? AND gpus = ?",
            (inputs_text(inputs), app, implementation, device.kind, device.model, *request),
        )
        made = self._convert_rows(partial(aggregate_of, app, implementation, device, request), rows[:1])
        return made[0] if made else None

    def recent(self, app: str, implementation: str, device: DeviceClass, limit: int) -> Sequence[Run]:
        """The last ``limit`` completed runs in order of recording, oldest first. Cached as above."""
        if limit <= 0:
            return []
        with self._lock:
            kept = self._cached_app(app)
            runs = kept.recent(implementation, device, limit)
            if runs is None:
                runs = self._read_recent(app, implementation, device, limit)
                kept.keep_recent(implementation, device, limit, runs)
            return runs

    def _read_recent(self, app: str, implementation: str, device: DeviceClass, limit: int) -> list[Run]:
        found: list[tuple[int, Run]] = []
        for group, _ in self._group_ids(app, implementation, device):
            rows = self._fetch_rows(
                f"SELECT {RUN_COLUMNS} FROM {RUN_TABLES} WHERE runs.group_id = ? AND runs.state = 0 "
                "ORDER BY runs.id DESC LIMIT ?",
                (group, limit),
            )
            found.extend(zip((row[0] for row in rows), self._convert_rows(run_of, rows), strict=True))
        found.sort(key=lambda pair: pair[0])
        return [run for _, run in found[-limit:]]

    def device_kills(self, app: str, implementation: str, limit: int) -> Sequence[Run]:
        """The last ``limit`` runs that a device had too little memory for, oldest first. O(log n + runs)."""
        with self._lock:
            rows = self._fetch_rows(
                f"SELECT {RUN_COLUMNS} FROM {RUN_TABLES} WHERE g.app = ? AND g.implementation = ? "
                f"AND runs.state = {KILLED} AND runs.gpu_memory IS NOT NULL ORDER BY runs.id DESC LIMIT ?",
                (app, implementation, max(0, limit)),
            )
            return self._convert_rows(run_of, rows)[::-1]

    def total(self) -> int:
        """Number of completed runs of all apps. O(1)."""
        with self._lock:
            try:
                self._notice_changes()
                if self._cache.total is None:
                    (found,) = self._db.execute("SELECT coalesce(sum(completed), 0) FROM groups").fetchone()
                    self._cache.total = int(found)
            except TROUBLE as error:
                raise self._make_failure("read", error) from error
            return self._cache.total

    def latest_runs(self, limit: int) -> Sequence[Run]:
        """The last ``limit`` completed runs of any app, in order of recording, oldest first.

        Read once, then kept up to date in memory while only this process records.
        """
        if limit <= 0:
            return []
        with self._lock, self._explain_errors("read"):
            self._notice_changes()
            kept = self._cache.latest
            if kept is None or (kept.maxlen or 0) < limit:
                # The newest by id, of all apps, before the joins: a join first would read every run.
                newest = "SELECT * FROM runs WHERE state = 0 ORDER BY id DESC LIMIT ?"
                rows = self._db.execute(
                    f"SELECT {RUN_COLUMNS} FROM ({newest}) AS {RUN_TABLES} ORDER BY runs.id DESC", (limit,)
                ).fetchall()
                kept = self._cache.latest = deque(reversed(self._convert_rows(run_of, rows)), maxlen=limit)
            return list(kept)[-limit:]

    def runs(
        self, app: str, implementation: str | None = None, device: DeviceClass | None = None
    ) -> Sequence[Run]:
        """Completed runs, oldest first (by time, then order of recording)."""
        where, values = _group_condition(app, implementation, device)
        rows = self._fetch_rows(
            f"SELECT {RUN_COLUMNS} FROM {RUN_TABLES} WHERE {where} AND runs.state = 0 "
            "ORDER BY runs.finished, runs.id",
            values,
        )
        return self._convert_rows(run_of, rows)

    def all_runs(self, app: str | None = None) -> Iterator[Run]:
        """Every run, failed ones too, in order of recording; read in pages, so memory stays small."""
        where, values = _group_condition(app, None, None)
        last = -1
        while True:
            rows = self._fetch_rows(
                f"SELECT {RUN_COLUMNS} FROM {RUN_TABLES} WHERE {where} AND runs.id > ? "
                "ORDER BY runs.id LIMIT 10000",
                (*values, last),
            )
            if not rows:
                return
            last = rows[-1][0]
            yield from self._convert_rows(run_of, rows)

    def known_uids(self, uids: Iterable[str]) -> set[str]:
        """Those of the uids that are recorded already."""
        with self._lock, self._explain_errors("read"):
            find = self._db.execute
            sql = "SELECT 1 FROM runs WHERE uid = ?"
            return {uid for uid in uids if uid and find(sql, (pack_uid(uid),)).fetchone()}


def _group_order(group: Group) -> tuple[str, DeviceClass, RequestKey]:
    return group.implementation, group.device_class, group.request


def _group_condition(
    app: str | None, implementation: str | None, device: DeviceClass | None
) -> tuple[str, tuple[str, ...]]:
    """A condition on groups (as ``g``) and its values."""
    wanted = {"g.app": app, "g.implementation": implementation}
    if device is not None:
        wanted |= {"g.kind": device.kind, "g.model": device.model}
    given = {column: value for column, value in wanted.items() if value is not None}
    return " AND ".join(f"{column} = ?" for column in given) or "true", tuple(given.values())
