"""The tasks of a study over several processes; its progress, its folder."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, get_context
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from dovetail.errors import DovetailError, InputError
from dovetail.workers import begin_worker, deaf_to_interrupts

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
    context = get_context("forkserver")
    with deaf_to_interrupts():
        forkserver.ensure_running()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, total), mp_context=context, initializer=begin_worker)
    try:
        futures = {pool.submit(work, task): i for i, task in enumerate(tasks)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            if tell is not None:
                tell(len(found), total)
    except BrokenProcessPool:
        raise DovetailError(
            "a worker process was killed, perhaps for want of memory; --workers 1 needs the least"
        ) from None
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.kill()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
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
