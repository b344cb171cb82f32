"""The file of a history: made, opened and checked; transactions; what goes wrong as one sentence."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from dovetail.errors import HistoryError
from dovetail.files.locks import has_locks
from dovetail.files.sentences import make_printable
from dovetail.files.shortage import WORDS, why_unwritable
from dovetail.files.writing import private_folder
from dovetail.history.schema import APPLICATION_ID, SCHEMA_VERSION, create_or_migrate

_log = logging.getLogger(__name__)

T = TypeVar("T")
TROUBLE = (sqlite3.Error, UnicodeDecodeError)
"""What the sqlite3 module raises; over a damaged schema it stumbles over the text of its own message."""


class HistoryBusy(HistoryError):  # noqa: N818 - reads as what it is
    """Another process is writing to the history."""


class HistoryFile:
    """An open history database; one transaction at a time, from any thread.

    ``wait`` is how many seconds a writer waits for another before it gives up. ``must_exist`` refuses to
    make a new file. Raises `HistoryError` with one sentence when the file cannot be used.
    """

    def __init__(self, path: Path, *, wait: float, must_exist: bool) -> None:
        self.path = path
        self._wait = wait
        self._lock = threading.RLock()
        self._make_file(must_exist)
        with self._explain_errors("opened"):
            name, uri = self._connection_name(only_looks=must_exist)
            # isolation_level None: transactions are ours; the module's own begin at unexpected statements.
            self._db = sqlite3.connect(
                name, wait, isolation_level=None, check_same_thread=False, cached_statements=64, uri=uri
            )
        with ExitStack() as undo:
            undo.callback(self._db.close)
            self._prepare_schema()
            undo.pop_all()

    def _make_file(self, must_exist: bool) -> None:
        if self.path.is_dir():
            raise HistoryError(f"history {self.path}: found a folder, expected a database file")
        if self.path.exists():
            return
        if must_exist:
            raise HistoryError(
                f"history {self.path}: no such file, expected a history database (`dovetail run` makes one)"
            )
        try:
            private_folder(self.path.parent)
            # SQLite gives its -wal and -shm files the mode of the database.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        except (FileExistsError, NotADirectoryError) as error:
            raise HistoryError(
                f"history {self.path}: cannot be made: found a file, expected a folder above it"
            ) from error
        except OSError as error:
            raise HistoryError(f"history {self.path}: cannot be made: {error.strerror}") from error

    def _connection_name(self, *, only_looks: bool) -> tuple[str, bool]:
        """The name that SQLite gets, and whether it is a URI.

        To read a database SQLite writes two small files beside it. Where it may not, and no writer has left
        any (a finished history on a read-only disk, a colleague's), it is read as a file that never changes.
        """
        path = os.path.abspath(self.path)
        fixed = not (os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK))
        # A -wal beside it means a writer: then it is not a file that never changes.
        if only_looks and fixed and os.access(path, os.R_OK) and not os.path.exists(f"{path}-wal"):
            return f"file:{quote(path)}?mode=ro&immutable=1", True
        return path, False

    def _prepare_schema(self) -> None:
        with self._explain_errors("opened"):
            version = self._schema_version()
            if version > SCHEMA_VERSION:
                raise HistoryError(
                    f"history {self.path}: found schema version {version}, expected at most "
                    f"{SCHEMA_VERSION}: it was written by a newer Dovetail"
                )
            if version < SCHEMA_VERSION:
                self._turn_on_wal()
                with self._write_transaction():
                    # Another process may have been faster.
                    self._schema_version()
                    before = create_or_migrate(self._db)
                if before:
                    _log.info("history %s: brought from version %d to %d", self.path, before, SCHEMA_VERSION)
                else:
                    _log.info("history %s: made", self.path)
            # NORMAL: a killed process loses nothing; a power cut may lose the last runs, never the file.
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute("PRAGMA temp_store = MEMORY")

    def _turn_on_wal(self) -> None:
        """Switch the journal; SQLite does not wait for another process here, so we do."""
        deadline = time.monotonic() + self._wait
        while True:
            try:
                # The shared memory of a WAL is of no use between machines.
                journal = "DELETE" if is_on_network(self.path) else "WAL"
                self._db.execute(f"PRAGMA journal_mode = {journal}")
                if journal == "DELETE":
                    _log.info("history %s: on a network file system, where writers wait longer", self.path)
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _schema_version(self) -> int:
        """The schema version; refuses a database that another program made."""
        # One snapshot: between two reads another process may make the tables.
        whole = not self._db.in_transaction
        if whole:
            self._db.execute("BEGIN")
        try:
            (tables,) = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            (application,) = self._db.execute("PRAGMA application_id").fetchone()
        finally:
            if whole and self._db.in_transaction:
                self._db.execute("ROLLBACK")
        # An empty file has neither mark: SQLite makes one before its first table.
        if application != APPLICATION_ID and (tables or version):
            raise HistoryError(
                f"history {self.path}: found the SQLite database of another program, expected a history"
            )
        return int(version)

    def _make_failure(self, what: str, error: Exception) -> HistoryError:
        """SQLite's error as one sentence about this file."""
        text = str(error)
        if ("locked" in text or "busy" in text) and not has_locks(self.path.parent):
            reason = WORDS[errno.ENOLCK]
        elif "locked" in text or "busy" in text:
            waited = f"has been writing for more than {self._wait:g} s" if self._wait else "is writing"
            return HistoryBusy(f"history {self.path}: cannot be {what}: another process {waited}")
        elif "not a database" in text:
            reason = "found a file that is no SQLite database, expected a history"
        elif "malformed" in text or isinstance(error, UnicodeDecodeError):
            reason = "the database is damaged (`sqlite3 FILE .recover` may save what is left)"
        elif "readonly" in text:
            reason = "the file or its folder is read-only"
        elif "full" in text or "I/O" in text:
            full = WORDS[errno.ENOSPC] if "full" in text else text
            reason = why_unwritable(str(self.path.parent)) or full
        elif "unable to open" in text:
            reason = "no permission to open the file, or to write in its folder"
        else:
            reason = text
        return HistoryError(f"history {self.path}: cannot be {what}: {reason}")

    @contextmanager
    def _explain_errors(self, what: str) -> Iterator[None]:
        """Turn SQLite's errors into `HistoryError`. What runs per job raises `_make_failure` itself."""
        try:
            yield
        except TROUBLE as error:
            raise self._make_failure(what, error) from error

    @contextmanager
    def _write_transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction: everything or nothing."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                # Broken off; a full disk has rolled back by itself.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def never_wait(self) -> None:
        """From now on a writer that finds another one raises `HistoryBusy` at once."""
        with self._lock, self._explain_errors("opened"):
            self._wait = 0.0
            self._db.execute("PRAGMA busy_timeout = 0")

    def close(self) -> None:
        """Close the file. Nothing is waiting to be written: every run was committed when recorded."""
        with self._lock:
            self._db.close()

    def _convert_rows(self, make: Callable[[Any], T], rows: Iterable[Any]) -> list[T]:
        """What rows stand for. Raises `HistoryError` where a row cannot be: pages get damaged."""
        try:
            return [make(row) for row in rows]
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            raise HistoryError(
                f"history {self.path}: cannot be read: a row is damaged ({make_printable(str(error))}); "
                "`sqlite3 FILE .recover` may save the others"
            ) from error


NETWORK = frozenset(
    ["nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.glusterfs", "afs"]
)
"""File systems that several machines write to."""


def is_on_network(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a file lies on a file system that other machines may write to; not, where that is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    whole = path.absolute()
    best, kind = 0, ""
    for line in lines:
        fields, _, about = line.partition(" - ")
        point = fields.split(" ")[4].replace("\\040", " ")
        # The longest mount point counts; of equal ones the last, which hides those before it.
        if len(point) >= best and whole.is_relative_to(point):
            best, kind = len(point), about.split(" ")[0]
    return kind in NETWORK
