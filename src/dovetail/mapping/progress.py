"""The progress bar of a map: items, the rate of each kind, the factor between them, the predicted end."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING, Any

from dovetail.model import CPU

if TYPE_CHECKING:
    from dovetail.mapping.scheduler import MapScheduler

PATIENCE = 1.0
"""Seconds that a map runs before it shows a bar."""


def wants_bar(progress: bool | None) -> bool:
    """Whether to show a bar: by default, on a terminal and in a notebook."""
    if progress is not None:
        return progress
    shell = sys.modules.get("IPython")
    in_notebook = shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
    return in_notebook or (sys.stderr is not None and sys.stderr.isatty())


class ProgressBar:
    """Draws on standard error, from the map's own thread."""

    def __init__(self, *, at_once: bool = False) -> None:
        self._began = time.monotonic()
        self._patience = 0.0 if at_once else PATIENCE
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, scheduler: MapScheduler) -> None:
        """Show how far the map is."""
        now = time.monotonic()
        if now - self._began < self._patience:
            return
        if self._bar is None:
            self._start_bar()
        done = sum(scheduler.tally.tasks.values())
        left = scheduler.waiting.left + scheduler.count_unfinished()
        total = None if math.isinf(left) else done + left
        self._bar.update(
            self._task, completed=done, total=total, rates=describe_progress(scheduler, now - self._began)
        )

    def _start_bar(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(stderr=True)
        columns = ("map", BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rates]}"))
        self._bar = Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("map", total=None, rates="")
        self._bar.start()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def describe_progress(scheduler: MapScheduler, spent: float) -> str:
    """``cpu 41/s, gpu 118/s, factor 2.9, 12 s left``."""
    parts = [f"{kind} {count / spent:.3g}/s" for kind, count in scheduler.tally.tasks.items() if spent > 0]
    paces = scheduler.pace.known_seconds(dict.fromkeys(slot.kind for slot in scheduler.crew.slots))
    other = next((kind for kind in paces if kind != CPU), None)
    if CPU in paces and other is not None:
        parts.append(f"factor {paces[CPU] / paces[other]:.2f}")
    end = scheduler.predicted_end()
    if end is not None:
        parts.append(f"{max(0.0, end - scheduler.clock()):.0f} s left")
    return ", ".join(parts)
