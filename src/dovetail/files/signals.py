"""Signals as people write them: ``USR1``, ``SIGTERM``, ``10``."""

from __future__ import annotations

import signal

EXPECTED = "the name of a signal such as USR1, or its number"


def signal_of(text: str) -> int:
    """The number of a signal; raises `ValueError` for anything else.

    >>> signal_of("usr1") == signal_of("SIGUSR1") == signal.SIGUSR1, signal_of("9")
    (True, 9)
    """
    try:
        if text.isascii() and text.isdecimal():
            return signal.Signals(int(text)).value
        return signal.Signals[f"SIG{text.upper().removeprefix('SIG')}"].value
    except (KeyError, ValueError):
        raise ValueError(f"found {text[:60]!r}, expected {EXPECTED}") from None
