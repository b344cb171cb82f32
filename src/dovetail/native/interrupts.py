"""Ctrl-C while C or a start of processes must not be broken off."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Ctrl-C takes effect after the block: a worker whose start was broken off would be known to no one."""
    before = signal.getsignal(signal.SIGINT)
    # Where it is ignored already there is nothing to hold back.
    if before is signal.SIG_IGN or threading.current_thread() is not threading.main_thread():
        yield
        return
    pressed = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: pressed.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed.is_set():
        raise KeyboardInterrupt
