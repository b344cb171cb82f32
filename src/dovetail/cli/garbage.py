"""Few searches for reference cycles in a command that makes a great deal and ends with its process."""

from __future__ import annotations

import atexit
import gc

from dovetail.engine.simulation.request import MADE


def collect_rarely() -> None:
    """From now on: what is made lives to the end, or dies by its count. Nor is there a search at exit."""
    first, *others = gc.get_threshold()
    if 0 < first < MADE:
        gc.set_threshold(MADE, *others)
        atexit.register(gc.freeze)
