"""What worker processes need so that Ctrl-C, and the end of their parent, leave nothing behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["begin_worker", "deaf_to_interrupts"]


def begin_worker() -> None:
    """Set a worker up: Ctrl-C is the parent's to handle, and without the parent there is no work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def deaf_to_interrupts() -> Iterator[None]:
    """What starts meanwhile ignores Ctrl-C for good: it would answer with a traceback of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
