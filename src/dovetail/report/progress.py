"""How far work is: one bar, on standard error, on a terminal only."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:  # a bar that is hidden, or too short, waits for none of it
    from rich.progress import Progress, TaskID

PATIENCE = 1.0
"""Seconds of work before a bar is shown."""
STEPS = 200
"""The bar moves at most so often."""


class Bar:
    """A bar over so many parts of work, which may be done in fractions; gone when the block is left."""

    def __init__(self, label: str, *, hidden: bool = False) -> None:
        self._console = Console(stderr=True)
        self._hidden = hidden or not self._console.is_terminal
        self._label = label
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._shown = 0.0
        self._since = time.monotonic()

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    @property
    def progress_callback(self) -> Callable[[float, float], None] | None:
        """`tell`, or ``None`` where the bar is hidden."""
        return None if self._hidden else self.tell

    def tell(self, done: float, total: float) -> None:
        """So many parts of all are done. Cheap: what the eye could not see is not shown."""
        if self._hidden or done - self._shown < total / STEPS:
            return
        if self._progress is None or self._task is None:
            if time.monotonic() - self._since < PATIENCE:
                return
            self._progress = self._make_progress()
            self._task = self._progress.add_task(self._label, total=total, whole=0)
            self._progress.start()
        self._shown = done
        self._progress.update(self._task, completed=done, total=total, whole=int(done))

    def _make_progress(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}, {task.fields[whole]:,} of {task.total:,.0f} done", markup=False),
            BarColumn(),
            TimeRemainingColumn(),
        )
        return Progress(*columns, console=self._console, transient=True)
