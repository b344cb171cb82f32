"""The ledger: every job of a run or a service, in SQLite, from its submission to its end.

It is written before anything is done: a job is on disk before it is acknowledged, and where it runs before
it starts. So the next Dovetail knows of every job whether it waits, ran, or may still run, and where.

Where the disk is full, what an instant has brought is owed: the ledger is `blocked` until all of it is
written, and a driver that finds it so starts nothing meanwhile.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import sqlite3
import struct
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

from dovetail.driver.admission import HELD
from dovetail.driver.driver import INTERRUPTED
from dovetail.driver.orders import Order
from dovetail.driver.prepare import NO_NODE
from dovetail.engine.journal.checked import DAMAGED, check_fields
from dovetail.engine.journal.codec import (
    decode_app,
    decode_fields,
    decode_job,
    decode_json,
    encode_app,
    encode_job,
    encode_json,
    encode_value,
)
from dovetail.engine.state.core import Engine
from dovetail.errors import HistoryError
from dovetail.files.sentences import make_printable, show_value
from dovetail.files.shortage import WORDS, why_unwritable
from dovetail.model import (
    Allocation,
    App,
    Cancelled,
    Cluster,
    Ended,
    Event,
    Held,
    Job,
    JobId,
    Launch,
    Migrated,
    Moved,
    Node,
    NodeJoined,
    Placed,
    Released,
    Requeued,
    Run,
    Seconds,
    Sized,
    Started,
    State,
    Submitted,
    Updated,
    Withdrawn,
)
from dovetail.model.hostlist import compress_names
from dovetail.model.job import TURN
from dovetail.running.entry import COLUMNS, Entry, entry_of
from dovetail.running.ledger_schema import TABLES, VERSION

__all__ = ["Action", "Entry", "Ledger", "LedgerDamageError", "Number", "storable_text"]

_log = logging.getLogger(__name__)
_CLEAR = (
    "state = 'PENDING', implementation = NULL, allocation = NULL, nodes = NULL, devices = NULL,"
    " started = NULL, ended = NULL, exit_code = NULL, detail = NULL, asked = NULL"
)
_INSERT = (
    "INSERT INTO job (seq, id, app, launch, doc, name, user, state, held, submitted, batch, number, element)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, 'PENDING', ?, ?, ?, ?, ?)"
)
_START = (
    "UPDATE job SET state = 'RUNNING', held = NULL, attempt = ?, implementation = ?, allocation = ?,"
    " nodes = ?, devices = ?, started = ?, predicted = ? WHERE seq = ?"
)
_END = (
    "UPDATE job SET state = ?, ended = ?, exit_code = ?, detail = ?, started = coalesce(?, started),"
    " held = NULL WHERE seq = ?"
)
_HOLD = "UPDATE job SET held = ? WHERE seq = ?"
_SIZE = "UPDATE job SET doc = ? WHERE seq = ?"
_UPDATE = "UPDATE job SET app = ?, launch = ?, doc = ?, name = ? WHERE seq = ?"
_MOVE = "UPDATE job SET allocation = ?, nodes = ?, devices = ? WHERE seq = ?"
_KEEP_ATTEMPT = (
    "INSERT OR IGNORE INTO attempt SELECT seq, attempt, state, implementation, nodes, devices, started,"
    " ended, exit_code, detail FROM job WHERE seq = ? AND attempt > 0"
)
_WAIT = f"UPDATE job SET {_CLEAR} WHERE seq = ?"
_NOT_BEGUN = f"UPDATE job SET attempt = ?, {_CLEAR} WHERE seq = ?"
_OPEN = "state IN ('PENDING', 'RUNNING')"
_REMEMBERED = 4096
"""Apps, launches and places of which the numbers are remembered."""

WAL_HEAD, FILE_HEAD = 32, 32
"""Bytes of the beginnings of SQLite's files that are looked at (https://sqlite.org/fileformat2.html)."""
_WAL_MAGIC = {0x377F0682: "little", 0x377F0683: "big"}

_OURS = (sqlite3.IntegrityError, sqlite3.ProgrammingError)
"""SQLite's errors for mistakes of ours, not of the disk."""

T = TypeVar("T")
Action = Literal["cancel", "hold", "release", "requeue"]
"""The requests that a user may make about a job that is there."""
Number = tuple[int, int | None]
"""Number of a job of a service, and of its element of an array."""
_Statement = tuple[str, tuple[object, ...]]


def _held_as(number: int, path: str | os.PathLike[str]) -> int:
    """A descriptor of this file, of this number unless that is negative. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if number < 0:
        return fd
    os.dup2(fd, number, inheritable=False)
    os.close(fd)
    return number


def _begins_as_wal(head: bytes) -> bool:
    """Whether a write-ahead log, which may be empty, begins with a header whose checksum is right.

    >>> _begins_as_wal(b""), _begins_as_wal(bytes(32))
    (True, False)
    """
    if not head:
        return True
    order = _WAL_MAGIC.get(int.from_bytes(head[:4], "big"))
    if order is None or len(head) < WAL_HEAD:
        return False
    first = second = 0
    words = struct.unpack(f"{'<' if order == 'little' else '>'}6I", head[:24])
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack(">2I", head[24:])


def _begins_as_database(head: bytes, size: int) -> bool:
    """Whether a database of so many bytes begins as one, and has the pages of which its header knows.

    >>> _begins_as_database(b"", 0), _begins_as_database(b"SQLite format 3" + bytes(17), 100)
    (True, True)
    >>> _begins_as_database(b"something else", 100)
    False
    """
    if not head:
        return True
    if len(head) < FILE_HEAD or not head.startswith(b"SQLite format 3\0"):
        return False
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    return size >= pages * (65536 if page == 1 else page)


class LedgerDamageError(HistoryError):
    """The file cannot be understood, and will not be by waiting."""


class Ledger:
    """The jobs of one run or service, of which it is the only writer. Use it in the thread that made it.

    ``durable``: a transaction survives a power loss once `sync` has been called after it (a service
    acknowledges then); else only our death. ``epoch`` is the wall-clock time of the driver's time 0, in
    seconds. Raises `HistoryError` where the file is no ledger, or of another version.
    """

    def __init__(self, path: str | os.PathLike[str], *, epoch: Seconds = 0.0, durable: bool = False) -> None:
        self.path = Path(path)
        self.epoch = epoch
        self.why_blocked = ""
        self._owed: list[_Statement] = []
        self._apps: dict[int, App] = {}
        self._launches: dict[int, Launch] = {}
        self._numbers: dict[int, tuple[object, int]] = {}  # by identity, which what is kept here secures
        self._seq: dict[JobId, int] = {}
        self._places: dict[object, tuple[bytes, str, str]] = {}
        try:
            if not self.path.exists():
                # O_EXCL and O_NOFOLLOW: SQLite would open, and write through, a link that was planted here.
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
            self._db = sqlite3.connect(self.path, isolation_level=None, timeout=1.0)
            self._prepare_schema(durable)
        except sqlite3.Error as error:
            raise LedgerDamageError(
                f"{self.path}: this is no ledger that can be read: {_error_reason(error, self.path)}"
            ) from error
        except OSError as error:
            raise HistoryError(f"{self.path}: cannot be opened: {error.strerror}") from error
        self._file, self._wal, self._main = os.stat(self.path), -1, -1
        self._longest, self._begun = 0, False  # of the file beside it, and whether it has anything itself
        self._heads = (b"", b"")  # how both began when they were looked at last, and were as they should be
        self._beside: dict[str, os.stat_result] = {}
        if durable:
            self._know_files()

    def _prepare_schema(self, durable: bool) -> None:
        db = self._db
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            expected = f"at most {VERSION}" if version > VERSION else f"{VERSION}"
            raise HistoryError(f"{self.path}: found a ledger of version {version}, expected {expected}")
        # Readers (the commands) then do not block the writer, nor it them.
        db.execute("PRAGMA journal_mode = WAL")
        # NORMAL syncs at checkpoints, so the file is never damaged; `sync` is for what must not be lost.
        db.execute(f"PRAGMA synchronous = {'NORMAL' if durable else 'OFF'}")
        if not version:
            db.executescript(f"BEGIN IMMEDIATE; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        # SQLite made the files; that they are there is to survive too.
        if durable:
            folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.fsync(folder)
            os.close(folder)
        (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM job").fetchone()
        self._last_seq = int(last)

    def close(self) -> None:
        """Write what is owed, if that can be done now, and close the file."""
        if self._owed:
            self.settle()
        if self._wal >= 0:
            os.close(self._wal)
            self._wal = -1
        self._db.close()
        if self._main >= 0:
            os.close(self._main)
            self._main = -1

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------- writing

    @property
    def is_there(self) -> bool:
        """Whether the file that is open is still the one of its name: SQLite writes to deleted ones, too."""
        try:
            return os.path.samestat(os.stat(self.path), self._file)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # Its folder cannot be looked into: that it is gone is not known.
            return True

    @property
    def is_whole(self) -> bool:
        """Whether the files beside it are still those of their names: what was written last is only there.

        It is not either where they, or the ledger itself, were cut, or begin otherwise than SQLite's.
        """
        if self._wal < 0:
            return True
        try:
            same = all(
                os.path.samestat(os.stat(f"{self.path}-{name}"), known)
                for name, known in self._beside.items()
            )
            return same and self._is_uncut()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            # As above: what cannot be looked at is not known to be gone.
            return True

    def _is_uncut(self) -> bool:
        """Whether both files are as long as they have to be, and begin as SQLite's do. Raises `OSError`."""
        wal, main = os.fstat(self._wal).st_size, os.fstat(self._main).st_size
        # SQLite begins this file anew in its place; it cuts it only for a stranger who wishes it.
        is_cut = wal < self._longest or (self._begun and not main)
        self._longest, self._begun = max(wal, self._longest), self._begun or main > 0
        heads = os.pread(self._wal, WAL_HEAD, 0), os.pread(self._main, FILE_HEAD, 0)
        if is_cut or heads == self._heads:
            return not is_cut
        if not (_begins_as_wal(heads[0]) and _begins_as_database(heads[1], main)):
            return False
        self._heads = heads
        return True

    def write_anew(self) -> None:
        """Put all that is known into a new file in the place of this one, whose files beside it are gone.

        What SQLite has open it still reads. Other connections see the old file: they are to be opened anew.
        Blocks for as long as the whole ledger takes to write. Raises `HistoryError`; then all is as it was.
        """
        part = self.path.with_name(f"{self.path.name}.{os.urandom(4).hex()}.new")
        try:
            os.close(
                os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            )
            try:
                self._db.execute("VACUUM INTO ?", (str(part),))
                for path in (part, self.path.parent):
                    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                    try:
                        os.fsync(fd)
                    finally:
                        os.close(fd)
                # Those of the old file would be taken for the new one's.
                for ending in ("-wal", "-shm"):
                    Path(f"{self.path}{ending}").unlink(missing_ok=True)
                os.rename(part, self.path)
            finally:
                part.unlink(missing_ok=True)
            old, self._db = self._db, sqlite3.connect(self.path, isolation_level=None, timeout=1.0)
            # Sees that its file has moved, and leaves those beside it alone.
            old.close()
            self._prepare_schema(self._wal >= 0)
            self._know_files()
            _log.warning("%s: files beside it were removed, so it is written anew", self.path)
        except sqlite3.Error as error:
            raise HistoryError(
                f"{self.path}: cannot be written anew: {_error_reason(error, self.path)}"
            ) from error
        except OSError as error:
            raise HistoryError(f"{self.path}: cannot be written anew: {error.strerror}") from error

    def _know_files(self) -> None:
        """What is at our names now is ours; the descriptor keeps its number, which another thread syncs."""
        self._file = os.stat(self.path)
        self._wal = _held_as(self._wal, f"{self.path}-wal")
        # Held for as long as the database: to close any descriptor of it drops SQLite's locks on it.
        self._main = _held_as(self._main, self.path)
        self._longest, self._begun, self._heads = 0, False, (b"", b"")
        self._beside = {name: os.stat(f"{self.path}-{name}") for name in ("wal", "shm")}

    @property
    def is_blocked(self) -> bool:
        """Whether something could not be written: until it is, nothing may start."""
        return bool(self.why_blocked)

    def sync(self) -> None:
        """Bring all that was written so far to the disk; for a thread beside. Raises `OSError`."""
        os.fdatasync(self._wal)

    def settle(self) -> bool:
        """Try to write what is owed; whether nothing is owed any more."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:  # commits, or rolls back
                self._write_owed()
        except sqlite3.DatabaseError as error:
            # A mistake of ours would fail at every attempt, and block the run for good.
            if isinstance(error, _OURS):
                self._drop_refused()
                return self.settle()
            self.why_blocked = f"{self.path}: cannot be written: {_error_reason(error, self.path)}"
            return False
        self._owed.clear()
        self.why_blocked = ""
        return True

    def _drop_refused(self) -> None:
        """Of what is owed, leave out what SQLite refuses whenever it is tried: a mistake of ours, logged."""
        left: list[_Statement] = []
        try:
            self._db.execute("BEGIN IMMEDIATE")
            for sql, values in self._owed:
                try:
                    self._db.execute(sql, values)
                except _OURS:
                    _log.exception("the ledger refuses a statement, which is left out")
                else:
                    left.append((sql, values))
        finally:
            if self._db.in_transaction:
                self._db.rollback()
        self._owed[:] = left

    def _write_owed(self) -> None:
        # Neighbours of one text as one call: most instants repeat a few statements.
        for sql, alike in groupby(self._owed, itemgetter(0)):
            self._db.executemany(sql, map(itemgetter(1), alike))

    def submit(
        self,
        jobs: Sequence[Job],
        when: Seconds,
        *,
        held: Container[JobId] = (),
        batch: int | None = None,
        numbers: Sequence[Number] | None = None,
        docs: Sequence[bytes] | None = None,
    ) -> None:
        """Take in jobs, all or none, at ``when`` plus their submit times; their users hold some ``held``.

        ``docs`` is `docs_of` them, made beforehand.

        Raises `HistoryError` where they cannot be written, `sqlite3.IntegrityError` for an id that is known.
        """
        last = self._last_seq
        try:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                self._write_owed()
                given: Iterable[Number | tuple[None, None]]
                given = [(None, None)] * len(jobs) if numbers is None else numbers
                rows = [
                    self._job_row(
                        job, doc, when + job.submit_time, HELD if job.id in held else "", batch, *number
                    )
                    for job, doc, number in zip(jobs, docs or docs_of(jobs), given, strict=True)
                ]
                self._db.executemany(_INSERT, rows)
        except sqlite3.DatabaseError as error:
            # The transaction is rolled back, so what was remembered of its rows is wrong.
            self._undo_submission(jobs, last)
            if isinstance(error, _OURS):
                raise
            raise HistoryError(
                f"{self.path}: cannot be written: {_error_reason(error, self.path)}"
            ) from error
        self._owed.clear()

    def _undo_submission(self, jobs: Sequence[Job], last: int) -> None:
        self._last_seq = last
        self._numbers.clear()
        for job in jobs:
            if self._seq.get(job.id, 0) > last:
                del self._seq[job.id]

    def _job_row(
        self,
        job: Job,
        doc: bytes,
        when: Seconds,
        held: str = "",
        batch: int | None = None,
        number: int | None = None,
        element: int | None = None,
    ) -> tuple[object, ...]:
        self._last_seq += 1
        self._seq[job.id] = self._last_seq
        return (
            self._last_seq,
            storable_text(job.id),
            self._app_number(job.app),
            None if job.launch is None else self._launch_number(job.launch),
            doc,
            None if job.name is None else storable_text(job.name),
            None if job.user is None else storable_text(job.user),
            held or None,
            when,
            batch,
            number,
            element,
        )

    def _app_number(self, app: App) -> int:
        known = self._numbers.get(id(app))
        if known is not None:
            return known[1]
        # The name belongs to the key: apps of one form under two names are two.
        doc, name = encode_json(encode_app(app)), app.name.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(name + b"\0" + doc, digest_size=16).digest()
        columns: dict[str, object] = {"hash": digest, "name": storable_text(app.name), "doc": doc}
        return self._number_of("app", app, columns)

    def _launch_number(self, launch: Launch) -> int:
        known = self._numbers.get(id(launch))
        if known is not None:
            return known[1]
        doc = encode_json(encode_value(launch))
        return self._number_of(
            "launch", launch, {"hash": hashlib.blake2b(doc, digest_size=16).digest(), "doc": doc}
        )

    def _number_of(self, table: str, what: object, columns: dict[str, object]) -> int:
        """The number of an app or a launch; written once."""
        row = self._db.execute(f"SELECT number FROM {table} WHERE hash = ?", (columns["hash"],)).fetchone()
        if row is None:
            holes = ", ".join("?" * len(columns))
            sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({holes})"
            row = (self._db.execute(sql, tuple(columns.values())).lastrowid,)
        if len(self._numbers) >= _REMEMBERED:
            self._numbers.clear()
        # The object is kept beside its number: an id() without its object may be given to another one.
        self._numbers[id(what)] = what, int(row[0])
        return int(row[0])

    def keep(self, now: Seconds, events: Sequence[Event], orders: Sequence[Order], engine: Engine) -> None:
        """What an instant has brought, in one transaction, before its orders are carried out.

        Never raises because of the disk: what cannot be written is owed, and the ledger `is_blocked`.
        """
        # In the same transaction as what is owed, and before it reaches the executor: a start on record may
        # not have happened, a start that is not on record must never happen.
        when, statements = self.epoch + now, self._owed
        for event in events:
            try:
                self._note_event(event, when, engine, statements)
            except Exception:  # noqa: BLE001 - what it is stands in the log, and ends nothing else
                _log.exception("%s at one instant could not be put on record", type(event).__name__)
        for order in orders:
            if isinstance(order, Placed) and not order.job.foreign:
                statements.append(self._start_statement(order, engine))
        if statements:
            self.settle()

    def _note_event(self, event: Event, when: Seconds, engine: Engine, add: list[_Statement]) -> None:
        if isinstance(event, Submitted):
            if event.job.foreign:
                return
            if self._sequence_number(event.job.id) is None:
                add.append(
                    (
                        _INSERT,
                        self._job_row(
                            event.job,
                            encode_json(encode_job(event.job)),
                            self.epoch + event.job.submit_time,
                            event.held,
                        ),
                    )
                )
            elif event.held:
                add.append((_HOLD, (event.held, self._sequence_number(event.job.id))))
        elif isinstance(event, Ended):
            ended = when if event.ended_at is None else event.ended_at
            values = (event.state.value, ended, event.exit_code, event.detail or None, event.started_at)
            add.append((_END, (*values, self._sequence_number(event.job))))
        elif isinstance(event, Held):
            add.append((_HOLD, (event.reason, self._sequence_number(event.job))))
        elif isinstance(event, Released):
            add.append((_HOLD, (None, self._sequence_number(event.job))))
        elif isinstance(event, Cancelled):
            values = (State.CANCELLED.value, when, None, event.detail or None, None)
            add.append((_END, (*values, self._sequence_number(event.job))))
        elif isinstance(event, Moved):
            doc = self._doc_of(engine.choices.whole(event.job))
            add.append((_SIZE, (doc, self._sequence_number(event.job))))
        elif isinstance(event, Updated):
            job = engine.records[event.job].job if event.job in engine.running else event.into
            launch = None if job.launch is None else self._launch_number(job.launch)
            name = None if job.name is None else storable_text(job.name)
            doc = encode_json(encode_job(job)) if "depends" in event.fields else self._doc_of(job)
            add.append(
                (_UPDATE, (self._app_number(job.app), launch, doc, name, self._sequence_number(job.id)))
            )
        elif isinstance(event, Requeued):
            add += self._requeue_statements(event.job)
        # Others are sized anew by the next Dovetail.
        elif isinstance(event, Sized) and (event.kills or event.gpu_kills):
            doc = self._doc_of(engine.records[event.job].job)
            add.append((_SIZE, (doc, self._sequence_number(event.job))))
        elif isinstance(event, Withdrawn):
            attempts = engine.records[event.job].attempts
            add.append((_NOT_BEGUN, (attempts, self._sequence_number(event.job))))
        elif isinstance(event, Started) and event.job in engine.running:
            add.append(self._start_statement(_where_it_is(event.job, engine), engine))
        elif isinstance(event, NodeJoined) and event.new is not None:
            doc = encode_json(encode_value(event.new))
            add.append(("INSERT OR REPLACE INTO node VALUES (?, ?)", (event.node, doc)))
        elif isinstance(event, Migrated) and event.job in engine.running:
            where = self._allocation_columns(_where_it_is(event.job, engine).allocation, engine)
            add.append((_MOVE, (*where, self._sequence_number(event.job))))

    def _requeue_statements(self, job: JobId) -> list[_Statement]:
        """The attempt that has ended becomes a row of its own, and the job waits."""
        seq = self._sequence_number(job)
        return [(_KEEP_ATTEMPT, (seq,)), (_WAIT, (seq,)), *self._waive_statements(seq)]

    def _waive_statements(self, seq: int | None) -> list[_Statement]:
        """A requeued job depends on nothing any more: the next Dovetail does not wait for it again."""
        row = self._db.execute("SELECT doc FROM job WHERE seq = ?", (seq,)).fetchone()
        if row is None or b'"depends"' not in row[0]:
            return []
        try:
            form = decode_json(row[0])
            del form["depends"]
        except DAMAGED:
            # The reader of the row names the damage.
            return []
        return [(_SIZE, (encode_json(form), seq))]

    def _doc_of(self, job: Job) -> bytes:
        """A job that is on record, as it is now; what it depended on stays waived where it is
        (`_waive_statements`)."""
        row = self._db.execute(
            "SELECT doc FROM job WHERE seq = ?", (self._sequence_number(job.id),)
        ).fetchone()
        form = encode_job(job)
        if row is not None and b'"depends"' not in row[0]:
            form.pop("depends", None)
        return encode_json(form)

    def _allocation_columns(self, allocation: Allocation, engine: Engine) -> tuple[bytes, str, str]:
        """An allocation as it is written, and its nodes and devices for people."""
        # What a mapping reads as is not hashable; equal places of a gang's jobs are written once.
        key = (allocation.request, allocation.parts, tuple(allocation.cores.items()), allocation.donors)
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= _REMEMBERED:
                self._places.clear()
            cluster = engine.cluster
            nodes = compress_names(allocation.node_names(cluster))
            devices = ",".join(allocation.device_names(cluster))
            found = self._places[key] = encode_json(encode_value(allocation)), nodes, devices
        return found

    def _start_statement(self, placed: Placed, engine: Engine) -> _Statement:
        started, name = self.epoch + placed.start_time, placed.implementation.name
        where = self._allocation_columns(placed.allocation, engine)
        values = (
            placed.attempt,
            name,
            *where,
            started,
            placed.predicted,
            self._sequence_number(placed.job.id),
        )
        return _START, values

    def record_wish(self, action: Action, jobs: Iterable[JobId]) -> None:
        """Put a user's request about jobs on record, before it is done: for all of them or for none.

        To cancel, or to requeue what runs, is kept until they have ended: the next Dovetail does it too. What
        is held, released or (`requeue`, once it has ended) waits again is so from now on. Raises
        `HistoryError`; then nothing of it is kept.
        """
        owed, why = self._owed, self.why_blocked
        # Of many at once, in one statement.
        if action == "cancel":
            places = json.dumps([self._sequence_number(job) for job in jobs])
            some = f"seq IN (SELECT value FROM json_each(?)) AND {_OPEN}"
            self._owed = [*owed, (f"UPDATE job SET asked = 'cancel' WHERE {some}", (places,))]
        else:
            self._owed = [
                *owed,
                *(one for job in jobs for one in self._wish_statements(action, self._sequence_number(job))),
            ]
        if not self.settle():
            # All or none: a wish that is not on disk must not be done either.
            self._owed = owed
            previous, self.why_blocked = self.why_blocked, why
            raise HistoryError(f"{previous}: nothing was done")

    def _wish_statements(self, action: Action, seq: int | None) -> list[_Statement]:
        if action in ("hold", "release"):
            return [(f"{_HOLD} AND state = 'PENDING'", (HELD if action == "hold" else None, seq))]
        noted = (f"UPDATE job SET asked = ? WHERE seq = ? AND {_OPEN}", (action, seq))
        ended = f" AND NOT ({_OPEN})"
        again = [(_KEEP_ATTEMPT + ended, (seq,)), (_WAIT + ended, (seq,))]
        return [noted, *again, *self._waive_statements(seq)] if action == "requeue" else [noted]

    def cancel(self, entry: Entry, when: Seconds) -> None:
        """A job that waits, though its user cancelled it: the Dovetail that was to do it was killed."""
        self._db.execute(_END, (State.CANCELLED.value, when, None, "cancelled", None, entry.seq))

    def correct_wish(self, job: JobId, wanted: Literal["cancel", "requeue"] | None) -> None:
        """Of a job of which a wish was refused, keep only what is still to be done. With the next instant."""
        self._owed.append(
            (f"UPDATE job SET asked = ? WHERE seq = ? AND {_OPEN}", (wanted, self._sequence_number(job)))
        )

    def _sequence_number(self, job: JobId) -> int | None:
        seq = self._seq.get(job)
        if seq is None:
            row = self._db.execute("SELECT seq FROM job WHERE id = ?", (storable_text(job),)).fetchone()
            if row is not None:
                seq = self._seq[job] = row[0]
        return seq

    def turn_of(self, job: Job) -> float:
        """The number of a job's place in the order of all: of its submission, or where it was moved to."""
        moved = job.options.get(TURN)
        return float(self._sequence_number(job.id) or 0) if moved is None else float(moved)

    def forget_job(self, job: JobId) -> None:
        """Keep nothing in memory of a job that has ended; the file keeps it."""
        self._seq.pop(job, None)

    def forget_ended(self, rows: Sequence[int], before: Seconds) -> int:
        """Remove those of these rows whose jobs ended before then, with their attempts; how many.

        O(rows). Raises `HistoryError` where they cannot be removed.
        """
        # The rows were read in another transaction: one may have been requeued since.
        old = "seq IN (SELECT value FROM json_each(?)) AND ended IS NOT NULL AND ended < ?"
        values = (json.dumps(rows), before)
        attempts = f"DELETE FROM attempt WHERE seq IN (SELECT seq FROM job WHERE {old})"
        return self._count_removed((attempts, values), (f"DELETE FROM job WHERE {old}", values))

    def drop_unused(self, table: Literal["app", "launch"], numbers: Sequence[int], last: int) -> None:
        """Remove these apps, or launches, which no job had at row ``last``, where none has them now.

        O(open jobs). Raises `HistoryError` where they cannot be removed.
        """
        now = f"SELECT {table} FROM job WHERE {table} IS NOT NULL AND (seq > ? OR {_OPEN})"
        sql = (
            f"DELETE FROM {table} WHERE number IN (SELECT value FROM json_each(?)) AND number NOT IN ({now})"
        )
        self._count_removed((sql, (json.dumps(numbers), last)))
        for known in (self._numbers, self._apps, self._launches):
            known.clear()

    def _count_removed(self, *statements: _Statement) -> int:
        """The rows that the last of these statements removed."""
        count = 0
        try:
            self._db.execute("BEGIN IMMEDIATE")
            with self._db:
                for statement in statements:
                    count = self._db.execute(*statement).rowcount
        except sqlite3.DatabaseError as error:
            if isinstance(error, _OURS):
                raise
            raise HistoryError(
                f"{self.path}: cannot be written: {_error_reason(error, self.path)}"
            ) from error
        return count

    # -------------------------------------------------------- runs for the history

    def spool(self, runs: Iterable[Run]) -> None:
        """Keep runs, with the next instant, until they are known to be in the history."""
        sql = "INSERT OR IGNORE INTO unrecorded VALUES (?, ?)"
        self._owed += [(sql, (storable_text(run.uid), encode_json(encode_value(run)))) for run in runs]

    def recorded(self, uids: Iterable[str]) -> None:
        """These are in the history: forget them with the next instant."""
        self._owed += [("DELETE FROM unrecorded WHERE uid = ?", (storable_text(uid),)) for uid in uids]

    def unrecorded_runs(self) -> list[Run]:
        """Runs that are not known to be in the history."""
        rows = self._fetch_rows("SELECT uid, doc FROM unrecorded")
        return [self._convert_row(f"run {uid}", Run, doc) for uid, doc in rows]

    # ------------------------------------------------------------------- reading

    def open_entries(self) -> list[Entry]:
        """Jobs that have not ended, in order of submission. O(such jobs)."""
        return list(self._query_entries(_OPEN + " ORDER BY seq"))

    def interrupted_entries(self) -> list[Entry]:
        """Jobs that were cancelled by an interrupt before they ever started, or for want of a node."""
        why = "(detail = ? AND attempt = 0 OR detail LIKE ? || '%')"
        cancelled = (State.CANCELLED.value, INTERRUPTED, NO_NODE)
        return list(self._query_entries(f"state = ? AND {why} ORDER BY seq", cancelled))

    def wait_again(self, entry: Entry) -> None:
        """A job on record as running, or cancelled, that never started: it waits, as before that."""
        attempt = max(0, entry.attempt - (entry.state is State.RUNNING))
        self._db.execute(_NOT_BEGUN, (attempt, entry.seq))

    def attempts(self, jobs: Iterable[JobId]) -> dict[JobId, int]:
        """How often each of these has been started; without those that are not known."""
        sql = "SELECT id, attempt FROM job WHERE id IN (SELECT value FROM json_each(?))"
        names = {storable_text(job): job for job in jobs}
        return {names[id]: attempt for id, attempt in self._fetch_rows(sql, (json.dumps(list(names)),))}

    def note_attempts(self, attempts: Mapping[JobId, int]) -> None:
        """These have been started so often, by another record than this one; their states stay."""
        rows = [(attempt, storable_text(job)) for job, attempt in attempts.items()]
        self._db.executemany("UPDATE job SET attempt = ? WHERE id = ?", rows)

    def entries(self) -> Iterator[Entry]:
        """All jobs, in order of submission."""
        return self._query_entries("1 ORDER BY seq")

    def find_entry(self, job: JobId) -> Entry | None:
        """One job by its id."""
        return next(self._query_entries("id = ?", (storable_text(job),)), None)

    def cluster(self, begun_with: Cluster) -> Cluster:
        """The cluster with which the run began, and the nodes that have joined since."""
        rows = self._fetch_rows("SELECT number, doc FROM node ORDER BY number")
        if not rows:
            return begun_with
        joined = tuple(self._convert_row(f"node {number}", Node, doc) for number, doc in rows)
        return Cluster((*begun_with.nodes, *joined), begun_with.label, closed=begun_with.closed)

    def state(self, job: JobId) -> State | None:
        """Its final state; ``None`` where it has not ended, or is not known."""
        rows = self._fetch_rows("SELECT state FROM job WHERE id = ?", (storable_text(job),))
        state = State(rows[0][0]) if rows else None
        return None if state in (State.PENDING, State.RUNNING) else state

    def has_next(self, job: JobId) -> bool:
        """Whether a later job is the next run of this one. Linear in the jobs after it."""
        sql = "SELECT 1 FROM job WHERE seq > (SELECT seq FROM job WHERE id = ?) AND instr(doc, ?) LIMIT 1"
        return bool(self._fetch_rows(sql, (storable_text(job), encode_json({"follows": job})[1:-1])))

    def last_number(self) -> int:
        """The highest number that a service has given, 0 before the first; arrays may have several."""
        count = "SELECT coalesce(max(number), 0), count(*) FROM job"
        ((found, jobs),) = self._fetch_rows(f"{count} WHERE number = (SELECT max(number) FROM job)")
        return int(found) + max(0, int(jobs) - 1)

    def count_states(self) -> dict[State, int]:
        """How many jobs are in each state."""
        rows = self._fetch_rows("SELECT state, count(*) FROM job GROUP BY state")
        return {State(state): count for state, count in rows}

    # An array's jobs start in order, as a rule: the first that began and the last that is open are found at
    # their ends of the array.

    def array_began_before(self, number: int, job: JobId) -> bool:
        """Whether another job of this array began before this one did."""
        mine = "SELECT coalesce(started, 1e300) FROM job WHERE id = ?"
        began = f"number = ? AND id != ? AND started < ({mine})"
        text = storable_text(job)
        return bool(
            self._fetch_rows(f"SELECT 1 FROM job WHERE {began} ORDER BY seq LIMIT 1", (number, text, text))
        )

    def array_is_open(self, number: int) -> bool:
        """Whether a job of this array has not ended."""
        is_open = "number = ? AND state IN ('PENDING', 'RUNNING')"
        return bool(
            self._fetch_rows(f"SELECT 1 FROM job WHERE {is_open} ORDER BY seq DESC LIMIT 1", (number,))
        )

    def array_states(self, number: int) -> dict[str, int]:
        """How many jobs of an array are in each state. O(array)."""
        rows = self._fetch_rows("SELECT state, count(*) FROM job WHERE number = ? GROUP BY state", (number,))
        return {str(state): count for state, count in rows}

    def _query_entries(self, where: str, values: tuple[object, ...] = ()) -> Iterator[Entry]:
        columns = f"{COLUMNS}, launch, job.app, app.name, app.doc"
        sql = f"SELECT {columns} FROM job LEFT JOIN app ON app.number = job.app WHERE {where}"
        for *row, launch, number, name, app in self._fetch_rows(sql, values):
            seq, doc, _, _, attempt, _, _, _, _, submitted, *_ = row
            try:
                data = decode_json(doc)
                # Jobs know times since this driver's start; the file has those of the wall clock.
                if self.epoch:
                    data["submit_time"] = submitted - self.epoch
                starts_in = None if launch is None else self._launch_of(launch)
                job = decode_job(data, self._app_of(number, name, app), starts_in)
                entry = entry_of(row, job, self._count_failures(seq) if attempt else 0)
            except DAMAGED as error:
                raise self._make_damage_error(f"job {seq}", error) from error
            self._seq[entry.job.id] = entry.seq
            yield entry

    def _count_failures(self, seq: int) -> int:
        sql = "SELECT count(*) FROM attempt WHERE seq = ? AND state IN ('FAILED', 'NODE_FAIL')"
        ((found,),) = self._fetch_rows(sql, (seq,))
        return int(found)

    def _app_of(self, number: int, name: str, doc: bytes) -> App:
        app = self._apps.get(number)
        if app is None:
            _make_room(self._apps)
            app = self._apps[number] = check_fields(decode_app(name, decode_json(doc)))
        return app

    def _launch_of(self, number: int) -> Launch:
        launch = self._launches.get(number)
        if launch is None:
            ((doc,),) = self._fetch_rows("SELECT doc FROM launch WHERE number = ?", (number,))
            _make_room(self._launches)
            launch = self._launches[number] = decode_fields(Launch, decode_json(doc))
        return launch

    def _fetch_rows(self, sql: str, values: tuple[object, ...] = ()) -> list[Any]:
        """Rows of the file. Raises `HistoryError` where it is damaged."""
        try:
            return self._db.execute(sql, values).fetchall()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            if isinstance(error, _OURS):
                raise
            raise LedgerDamageError(f"{self.path}: cannot be read: {make_printable(str(error))}") from error

    def _convert_row(self, what: str, kind: type[T], doc: bytes) -> T:
        """What a row stands for. Raises `HistoryError` where that cannot be read."""
        try:
            return check_fields(decode_fields(kind, decode_json(doc)))
        except DAMAGED as error:
            raise self._make_damage_error(what, error) from error

    def _make_damage_error(self, what: str, error: Exception) -> LedgerDamageError:
        return LedgerDamageError(f"{self.path}: {what} is damaged: {show_value(str(error))}")


def _where_it_is(job: JobId, engine: Engine) -> Placed:
    """A running job at its place: one that moves holds both places, and is still at the first."""
    placed = engine.running[job]
    if job not in engine.moving:
        return placed
    before, _ = engine.moving[job]
    return replace(placed, allocation=before.allocation)


def docs_of(jobs: Sequence[Job]) -> list[bytes]:
    """Jobs as they are kept on record; in any thread."""
    return [encode_json(encode_job(job)) for job in jobs]


def _make_room(known: dict[int, Any]) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()


def _error_reason(error: sqlite3.Error, path: Path) -> str:
    text = make_printable(str(error))  # a damaged schema is quoted
    if "full" in text or "I/O" in text:
        return why_unwritable(str(path.parent)) or text.replace(
            "database or disk is full", WORDS[errno.ENOSPC]
        )
    return text


def storable_text(name: str) -> str:
    """A name as SQLite takes it: bytes that were no UTF-8 are spelt out."""
    return name.encode("utf-8", "backslashreplace").decode()
