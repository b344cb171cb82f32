"""Searches for reference cycles: rare, or none, where much is made that lives to the end."""

from __future__ import annotations

import atexit
import gc
from collections.abc import Iterator
from contextlib import contextmanager

MADE = 200_000
"""Objects made between two searches for reference cycles at least."""
FEW = 10_000
"""So many objects are searched in less than a millisecond."""


def collect_rarely() -> None:
    """Few searches for reference cycles from now on, and none at exit: what is made lives to the end."""
    # Results of large runs make millions of objects that live to the end: searching them gains nothing.
    first, *others = gc.get_threshold()
    if 0 < first < MADE:
        gc.set_threshold(MADE, *others)
        atexit.register(gc.freeze)


@contextmanager
def rare_collections() -> Iterator[None]:
    """Search for reference cycles rarely: what a run makes lives to its end or dies by its count."""
    before, old = gc.get_threshold(), gc.get_count()[0]
    gc.set_threshold(max(before[0], MADE) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        # All that has been made counts as old: no search because of it. Not after a small run: to see whether
        # its caller has frozen anything takes as long as all that is frozen.
        if gc.get_count()[0] - old > FEW and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*before)


@contextmanager
def no_collections() -> Iterator[None]:
    """Search for no reference cycles: what is made has none. All of it counts as old afterwards."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        gc.enable()
