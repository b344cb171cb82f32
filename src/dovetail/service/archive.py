"""Jobs that have left memory: questions to the ledger, on a connection and a thread of their own."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from dovetail.client.errors import Full
from dovetail.engine.journal.checked import DAMAGED
from dovetail.engine.journal.codec import decode_app, decode_fields, decode_job, decode_json
from dovetail.files.sentences import show_value
from dovetail.files.shortage import why_unwritable
from dovetail.history.rows import pack_uid
from dovetail.model import App, Cluster, JobId, Launch, Seconds, Usage
from dovetail.running.entry import COLUMNS, Entry, entry_of
from dovetail.running.ledger import LedgerDamageError, storable_text
from dovetail.service.rows import Row, row_of_entry

MOST_FOUND = 200_000
"""Jobs that a selector may mean."""
_FOUND = "SELECT id, state, user FROM job WHERE"
_OPEN = "state IN ('PENDING', 'RUNNING')"
_AMONG = "id IN (SELECT value FROM json_each(?))"
"""Whose ids are in a list, however long it is."""
KnownRows = dict[int, tuple[tuple[object, ...], Entry]]
"""Rows as they were read, and what they mean, by their numbers."""


class Archive:
    """Reads the ledger while the service writes it. Methods block: call them in its thread
    (`query_thread`)."""

    def __init__(self, path: Path, cluster: Callable[[], Cluster]) -> None:
        self._path = path
        self._cluster = cluster
        self._pool = ThreadPoolExecutor(1, "archive")
        self._db: sqlite3.Connection | None = None

    @property
    def query_thread(self) -> ThreadPoolExecutor:
        """The thread in which all reads run."""
        return self._pool

    def ask_here(
        self, where: str, values: Sequence[object] = (), known: KnownRows | None = None
    ) -> list[Entry]:
        """`entries`, called from another thread than the archive's own."""
        return self._pool.submit(self.entries, where, values, known=known).result()

    def close(self) -> None:
        """Close the connection, in its thread."""

        def close_database() -> None:
            if self._db is not None:
                self._db.close()

        self._pool.submit(close_database).result()
        self._pool.shutdown()

    def reopen_database(self) -> None:
        """Close the connection, in its thread: the ledger is another file. The next question opens one."""

        def close_database() -> None:
            if self._db is not None:
                self._db.close()
                self._db = None

        self._pool.submit(close_database).result()

    def _fetch_rows(self, sql: str, values: Sequence[object] = ()) -> list[Any]:
        """Rows of the file. Raises `Full` where its disk does not answer now."""
        if self._db is None:
            # Read-only, and opened late: a new ledger file is made only once the writer has opened it.
            self._db = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, isolation_level=None)
        # Words of a request may hold bytes that are no UTF-8: they are on record as the ledger spells them.
        stored = [storable_text(one) if isinstance(one, str) else one for one in values]
        try:
            return self._db.execute(sql, stored).fetchall()
        except sqlite3.OperationalError as error:
            if "I/O" not in str(error):
                raise
            why = why_unwritable(os.path.dirname(self._path)) or str(error)
            raise Full(f"{self._path}: cannot be read: {why}") from error

    def entries(
        self,
        where: str,
        values: Sequence[object] = (),
        *,
        whole: bool = False,
        known: KnownRows | None = None,
    ) -> list[Entry]:
        """Jobs for which a condition holds, in that order; only ``whole`` ones with their launches.

        ``known`` are the rows of the last call of its kind: what has not changed since is not decoded again.
        """
        found = []
        before = {} if known is None else dict(known)
        if known is not None:
            known.clear()
        apps: dict[tuple[str, bytes], App] = {}
        launches: dict[int | None, Launch | None] = {None: None}
        columns = f"{COLUMNS}, launch, app.name, app.doc"
        sql = f"SELECT {columns} FROM job JOIN app ON app.number = job.app WHERE {where}"
        for every in self._fetch_rows(sql, values):
            *row, launch, name, app = every
            if known is not None:
                same = before.get(row[0])
                if same is not None and same[0] == every:
                    known[row[0]] = same
                    found.append(same[1])
                    continue
            try:
                # Many jobs share an app and a launch: each is decoded once.
                if (name, app) not in apps:
                    apps[name, app] = decode_app(name, decode_json(app))
                if whole and launch not in launches:
                    ((doc,),) = self._fetch_rows("SELECT doc FROM launch WHERE number = ?", (launch,))
                    launches[launch] = decode_fields(Launch, decode_json(doc))
                starts_in = launches[launch] if whole else None
                found.append(entry_of(row, decode_job(decode_json(row[1]), apps[name, app], starts_in)))
                if known is not None:
                    known[row[0]] = every, found[-1]
            except DAMAGED as error:
                what = f"{self._path}: job {row[0]} is damaged"
                raise LedgerDamageError(f"{what}: {show_value(str(error))}") from error
        return found

    @staticmethod
    def encode_ids(ids: Sequence[JobId]) -> str:
        """Ids as one value, for a condition such as ``id IN (SELECT value FROM json_each(?))``."""
        return json.dumps(list(ids))

    # By chunks: SQLite allows a bounded number of values in one statement.
    @staticmethod
    def fetch_usage(uids: Sequence[str], history: Path) -> dict[str, Usage]:
        """What these attempts used, as far as that history has them; by their unique ids."""
        if not uids or not history.exists():
            return {}
        stored = {pack_uid(uid): uid for uid in uids}
        found: dict[str, Usage] = {}
        with closing(sqlite3.connect(f"file:{history}?mode=ro", uri=True)) as db:
            keys = list(stored)
            for at in range(0, len(keys), 500):
                some = keys[at : at + 500]
                holes = ", ".join("?" * len(some))
                sql = f"SELECT uid, cpu_time, peak_memory FROM runs WHERE uid IN ({holes})"
                for uid, cpu, peak in db.execute(sql, some):
                    found[stored[uid]] = Usage(cpu_time=cpu, peak_memory=peak)
        return found

    def page(
        self,
        *,
        states: Sequence[str] = (),
        user: str | None = None,
        name: str | None = None,
        since: Seconds | None = None,
        until: Seconds | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Row]:
        """Ended jobs, the last to end first."""
        conditions, values = ["ended IS NOT NULL"], list[object]()
        if states:
            conditions.append(f"state IN ({', '.join('?' * len(states))})")
            values += states
        for condition, value in (
            ("user = ?", user),
            ("job.name = ?", name),
            ("ended >= ?", since),
            ("ended < ?", until),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        where = " AND ".join(conditions) + " ORDER BY ended DESC, seq DESC LIMIT ? OFFSET ?"
        return [
            row_of_entry(entry, self._cluster()) for entry in self.entries(where, (*values, limit, offset))
        ]

    def job(self, job: JobId) -> Entry | None:
        """One job, whatever its state."""
        return next(iter(self.entries("id = ?", (job,))), None)

    def jobs(self, ids: Sequence[JobId]) -> list[Entry]:
        """Several jobs, whatever their states, in order of submission."""
        return self.entries(f"{_AMONG} ORDER BY seq", (json.dumps(ids),))

    def summarize_apps(self, since: Seconds | None = None) -> list[dict[str, Any]]:
        """Of each app and implementation: completed runs, and how far predictions were off."""
        sql = (
            "SELECT app.name, implementation, count(*), avg(ended - started), count(predicted),"
            " avg(abs(predicted - (ended - started)) / max(ended - started, 1e-3))"
            " FROM job JOIN app ON app.number = job.app"
            " WHERE state = 'COMPLETED' AND started IS NOT NULL AND ended >= ? AND ended IS NOT NULL"
            " GROUP BY app.name, implementation ORDER BY count(*) DESC LIMIT 1000"
        )
        names = ("app", "implementation", "runs", "mean_seconds", "predicted_runs", "mean_error")
        return [dict(zip(names, row, strict=True)) for row in self._fetch_rows(sql, (since or 0.0,))]

    def find_by_numbers(
        self, first: int, last: int, elements: Sequence[int] = (), limit: int = MOST_FOUND
    ) -> list[tuple[JobId, str, str | None]]:
        """(id, state, user) of jobs of these numbers; of one array, these elements. O(what is found).

        At most ``limit`` of numbers, the first ones.
        """
        if elements:  # by their ids: one element costs no look at the others
            ids = [f"{first}_{element}" for element in elements]
            return self._fetch_rows(f"{_FOUND} {_AMONG} ORDER BY seq", (json.dumps(ids),))
        return self._fetch_rows(f"{_FOUND} number BETWEEN ? AND ? ORDER BY seq LIMIT ?", (first, last, limit))

    def of_array(self, number: int) -> list[tuple[JobId, str, str | None]]:
        """The job of an array whose jobs have numbers of their own, if this is the one of one of them."""
        before = self._fetch_rows("SELECT max(number) FROM job WHERE number < ?", (number,))
        if not before or before[0][0] is None:
            return []
        first = before[0][0]
        return self._fetch_rows(f"{_FOUND} number = ? ORDER BY seq LIMIT 1 OFFSET ?", (first, number - first))

    def find_by_name(self, name: str) -> list[tuple[JobId, str, str | None]]:
        """All jobs of this name, whatever their states, in order of submission."""
        return self._fetch_rows(f"{_FOUND} name = ? ORDER BY seq LIMIT ?", (name, MOST_FOUND))

    def failed(self, user: str, states: Sequence[str]) -> list[tuple[JobId, str, str | None]]:
        """Jobs of this user that ended in one of these states, in order of submission. O(ended jobs)."""
        holes = ", ".join("?" * len(states))
        condition = f"ended IS NOT NULL AND user = ? AND state IN ({holes})"
        return self._fetch_rows(f"{_FOUND} {condition} ORDER BY seq LIMIT ?", (user, *states, MOST_FOUND))

    def last_batch(self, user: str) -> list[tuple[JobId, str, str | None]]:
        """What this user has submitted last."""
        sql = "SELECT batch FROM job WHERE user = ? AND batch IS NOT NULL ORDER BY seq DESC LIMIT 1"
        found = self._fetch_rows(sql, (user,))
        if not found:
            return []
        return self._fetch_rows(f"{_FOUND} batch = ? ORDER BY seq", found[0])

    def open_jobs(self) -> list[tuple[JobId, str, str | None]]:
        """Everything that has not ended."""
        return self._fetch_rows(f"{_FOUND} {_OPEN} ORDER BY seq")

    # ------------------------------------------------------------------ what is old

    def last_recorded_time(self) -> Seconds | None:
        """When something last happened, as far as it is on record: a submission, or an end."""
        ended = self._fetch_rows("SELECT max(ended) FROM job WHERE ended IS NOT NULL")
        submitted = self._fetch_rows("SELECT submitted FROM job ORDER BY seq DESC LIMIT 1")
        return max((row[0] for row in (*ended, *submitted) if row[0] is not None), default=None)

    def measure_extent(self) -> tuple[int, Seconds | None]:
        """How many jobs are on record, and when the first of them was submitted. O(jobs)."""
        ((count,),) = self._fetch_rows("SELECT count(*) FROM job")
        first = self._fetch_rows("SELECT submitted FROM job ORDER BY seq LIMIT 1")
        return count, first[0][0] if first else None

    def ended_before(
        self, before: Seconds, last: tuple[Seconds, int], limit: int
    ) -> list[tuple[int, JobId, int | None, Seconds]]:
        """(row, id, number, end) of jobs that ended before then and after ``last`` (end, row), the next few.

        Without those of the highest number, and the last row: by them the next ones are found.
        """
        sql = (
            "SELECT seq, id, number, ended FROM job WHERE ended IS NOT NULL AND ended < ?"
            " AND (ended, seq) > (?, ?) AND seq < (SELECT max(seq) FROM job)"
            " AND coalesce(number, 0) < (SELECT coalesce(max(number), 1) FROM job)"
            " ORDER BY ended, seq LIMIT ?"
        )
        return self._fetch_rows(sql, (before, *last, limit))

    def open_numbers(self) -> list[int]:
        """Numbers of jobs, and arrays, of which one has not ended. O(such jobs)."""
        return [n for (n,) in self._fetch_rows(f"SELECT DISTINCT number FROM job WHERE {_OPEN}")]

    def known_numbers(self, numbers: Sequence[int]) -> list[int]:
        """Those of these numbers that a job has."""
        sql = "SELECT DISTINCT number FROM job WHERE number IN (SELECT value FROM json_each(?))"
        return [number for (number,) in self._fetch_rows(sql, (json.dumps(numbers),))]

    def unused(self, table: Literal["app", "launch"]) -> tuple[int, list[int]]:
        """Rows of apps, or launches, that no job has, and the last row of a job at that moment. O(jobs)."""
        ((last,),) = self._fetch_rows("SELECT coalesce(max(seq), 0) FROM job")
        used = f"SELECT {table} FROM job WHERE {table} IS NOT NULL"
        return last, [
            n for (n,) in self._fetch_rows(f"SELECT number FROM {table} WHERE number NOT IN ({used})")
        ]

    def attempts(self, job: JobId) -> list[dict[str, Any]]:
        """Earlier attempts of a job, oldest first."""
        names = (
            "attempt",
            "state",
            "implementation",
            "nodes",
            "devices",
            "started",
            "ended",
            "exit_code",
            "detail",
        )
        columns = ", ".join(f"attempt.{name}" for name in names)
        sql = f"SELECT {columns} FROM attempt JOIN job USING (seq) WHERE id = ? ORDER BY attempt.attempt"
        return [dict(zip(names, row, strict=True)) for row in self._fetch_rows(sql, (job,))]
