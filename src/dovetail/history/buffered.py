"""A history in front of the database: one writer beside the loop, with a queue and patience.

A run is seen at once by readers of this object, and written by a thread in batches. Another process that
holds the database for as long as it likes, or a full disk, delays the writing and nothing else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from dovetail.errors import HistoryError
from dovetail.history.memory import MemoryHistory
from dovetail.history.sqlite import HistoryBusy, SqliteHistory
from dovetail.model import Run, Seconds

GATHER: Seconds = 0.05
"""What is recorded within this time is written together, and what others record is seen after it."""
RETRY: Seconds = 0.05
"""Between attempts while another process writes."""
RETRY_BROKEN: Seconds = 1.0
"""Between attempts where the file cannot be written at all (a full disk)."""
SAID_AFTER: Seconds = 10.0
"""A writer that waits this long reports it, once."""
PIECE = 100
"""Runs of one transaction; more of them where many wait."""
MOST = 2000


class Spool(Protocol):
    """Where runs are kept on disk until they are in the history (`dovetail.running.ledger`)."""

    def spool(self, runs: Iterable[Run]) -> None:
        """Keep these."""
        ...

    def recorded(self, uids: Iterable[str]) -> None:
        """These are in the history."""
        ...


class BufferedHistory(MemoryHistory):
    """Measured runs of ``store`` and those that are still to be written to it.

    ``spool`` gets every run before it is written, and after that; both from the thread that records.
    ``tell`` gets a sentence when writing has to wait for long, and when it goes on. Several threads may read,
    one may record.
    """

    def __init__(
        self,
        store: SqliteHistory,
        *,
        spool: Spool | None = None,
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        super().__init__(base=store)
        self.store = store
        self.tell = tell
        self._spool = spool
        lock = threading.RLock()
        self._lock, self._some = lock, threading.Condition(lock)
        self._waiting: list[Run] = []
        self._written: list[str] = []
        self._hurried = self._closing = False
        self._trouble: str | None = None
        self._thread: threading.Thread | None = None
        store.never_wait()
        store.look_seldom(GATHER)

    # ------------------------------------------------------------------- writing

    def record(self, run: Run) -> bool:
        """Keep a run; ``False`` if a run of this uid waits already. Raises `InputError`."""
        return self.record_many((run,)) == 1

    def record_many(self, runs: Sequence[Run]) -> int:
        """Keep several runs; returns how many of them are new here."""
        with self._lock:
            # `super` within a comprehension needs its arguments: there is no implicit class there.
            new = [run for run in runs if super(BufferedHistory, self).record(run)]
            written, self._written = self._written, []
            self._waiting += new
            if new and self._thread is None:
                self._thread = threading.Thread(target=self._write_batches, name="history", daemon=True)
                self._thread.start()
            # Only where nothing waited before: the writer then sleeps, and else gathers already.
            if len(self._waiting) == len(new):
                self._some.notify_all()
        # The spool is the thread's own that records: the ledger is used in one thread.
        if self._spool is not None:
            self._spool.recorded(written)
            self._spool.spool(new)
        return len(new)

    @property
    def count_waiting(self) -> int:
        """How many runs are still to be written."""
        return len(self._waiting)

    def close(self, patience: Seconds = 30.0) -> int:
        """Write what waits, for ``patience`` seconds at most; returns how many runs could not be written.

        They stay in the spool. The store is not closed.
        """
        deadline = time.monotonic() + patience
        with self._some:
            # At the end nothing is gathered any more: each batch goes at once.
            self._hurried = True
            self._some.notify_all()
            while self._waiting and time.monotonic() < deadline:
                self._some.wait(min(RETRY, max(0.0, deadline - time.monotonic())))
            self._closing = True
            self._some.notify_all()
            left, written = len(self._waiting), self._written
            self._written = []
        if self._thread is not None:
            self._thread.join()
        if self._spool is not None:
            self._spool.recorded(written)
        return left

    def _write_batches(self) -> None:
        """The writer: gathers, writes, waits."""
        since: float | None = None
        while True:
            with self._some:
                while not self._waiting and not self._closing:
                    self._some.wait()
                if self._closing:
                    return
                if not self._hurried:
                    self._some.wait(GATHER)
            try:
                self._write_some()
                since = None
            except HistoryError as error:
                busy = isinstance(error, HistoryBusy)
                since = time.monotonic() if since is None else since
                if time.monotonic() - since > SAID_AFTER:
                    self._report_trouble(f"{error}; runs are kept aside until they can be written")
                with self._some:
                    self._some.wait(RETRY if busy else RETRY_BROKEN)

    def _write_some(self) -> None:
        """One transaction: when it is over, the store shows what the overlay showed."""
        with self._lock:
            piece = self._waiting[: max(PIECE, min(MOST, len(self._waiting) // 4))]
            self.store.record_many(piece)
            del self._waiting[: len(piece)]
            self._written += [run.uid for run in piece]
            self._restart_with(self._waiting)
            self._some.notify_all()
        if self._trouble is not None:
            self._trouble = None
            self.tell("the history can be written again")

    def _report_trouble(self, sentence: str) -> None:
        if self._trouble is None:
            self._trouble = sentence
            self.tell(sentence)
