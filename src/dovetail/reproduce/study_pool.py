"""The tasks of a study over several processes; its progress, its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from dovetail.errors import InputError
from dovetail.workers import interrupts_later, worker_pool

__all__ = ["StudyProgress", "make_folder", "mapped"]

Task = TypeVar("Task")
Found = TypeVar("Found")


def mapped(
    work: Callable[[Task], Found],
    tasks: Sequence[Task],
    workers: int,
    tell: Callable[[int, int], None] | None = None,
) -> list[Found]:
    """``work`` of every task, in order, by up to ``workers`` processes (1: in this one).

    ``tell`` hears how many of how many are done. An interruption ends them all.
    """
    total = len(tasks)
    if workers <= 1 or total <= 1:
        results = []
        for done, task in enumerate(tasks, 1):
            results.append(work(task))
            if tell is not None:
                tell(done, total)
        return results
    found: dict[int, Found] = {}
    with worker_pool(min(workers, total)) as pool:
        with interrupts_later():
            futures = {pool.submit(work, task): i for i, task in enumerate(tasks)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            if tell is not None:
                tell(len(found), total)
    return [found[i] for i in range(total)]


def make_folder(out: Path) -> None:
    """Make the folder that a study will write to; raises `InputError` if it could not write there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(out)) from error
    if not os.access(out, os.W_OK):
        raise InputError("cannot be written: permission denied", where=str(out))


class StudyProgress:
    """A bar over the tasks of a study, on standard error, on a terminal only."""

    def __init__(self, label: str, *, hidden: bool = False) -> None:
        console = Console(stderr=True)
        shown = console.is_terminal and not hidden
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not shown)
        self._task = self._bar.add_task(label, total=None)

    def __enter__(self) -> StudyProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def tell(self, done: int, total: int) -> None:
        """So many of all tasks are done."""
        self._bar.update(self._task, completed=done, total=total)
