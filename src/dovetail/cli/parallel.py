"""Many simulations at once: worker processes, one progress bar over all, an end at Ctrl-C.

What takes less than a second in all is done here, without processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dovetail import api
from dovetail.model import Result
from dovetail.workers import begin_worker, interrupts_later, worker_pool

__all__ = ["Task", "simulate_all"]

Task: TypeAlias = tuple[str, dict[str, Any]]
"""A workload, and the options of `api.simulate_result`."""

PATIENCE = 1.0
"""Seconds of work before worker processes are started, which takes about as long."""
BEAT = 0.2
"""Seconds between two looks at how far the workers are."""


class _TooLong(Exception):  # noqa: N818 - no error: it ends an attempt
    """The work is worth worker processes."""


def simulate_all(tasks: Sequence[Task], workers: int | None = None, *, hidden: bool = True) -> list[Result]:
    """The result of every task, in their order; ``workers`` processes, by default one for each CPU.

    ``hidden`` hides the progress bar, which is only shown on a terminal. Raises what a simulation raised
    (`InputError` and others), and `DovetailError` for a worker that was killed.
    """
    count = min(workers or len(os.sched_getaffinity(0)), len(tasks))
    results = _at_once(tasks)
    done = len(results)
    if done == len(tasks):
        return results
    with _bar(len(tasks), hidden) as show:
        for i in range(done):
            show(i, 1.0)
        if count == 1:
            return results + [_simulate(tasks[i], partial(show, i)) for i in range(done, len(tasks))]
        return results + _in_workers(tasks[done:], count, lambda i, part: show(done + i, part))


def _simulate(task: Task, tell: Callable[[float], None]) -> Result:
    """One task; ``tell`` hears which part of its jobs has ended."""
    file, options = task
    result = api.simulate_result(file, progress=lambda done, total: tell(done / total), **options)
    tell(1.0)
    return result


def _at_once(tasks: Sequence[Task]) -> list[Result]:
    """Results of the first tasks, as many as can be had in a second."""
    since = time.monotonic()

    def tell(part: float) -> None:
        if part < 1.0 and time.monotonic() - since > PATIENCE:
            raise _TooLong

    results: list[Result] = []
    try:
        for task in tasks:
            results.append(_simulate(task, tell))
            if time.monotonic() - since > PATIENCE:
                break
    except _TooLong:
        pass
    return results


# ------------------------------------------------------------------------------------------ the workers

_parts: MutableSequence[float] = []
"""In a worker: which part of each task is done; shared with the parent."""


def _begin(parts: MutableSequence[float]) -> None:
    """Set a worker up."""
    global _parts
    _parts = parts
    begin_worker()


def _work(place: int, task: Task) -> Result:
    def tell(part: float) -> None:
        _parts[place] = part

    return _simulate(task, tell)


def _in_workers(tasks: Sequence[Task], count: int, show: Callable[[int, float], None]) -> list[Result]:
    parts = get_context("forkserver").RawArray("d", len(tasks))
    with worker_pool(min(count, len(tasks)), _begin, (parts,), preload=["dovetail.api"]) as pool:
        with interrupts_later():
            futures = [pool.submit(_work, i, task) for i, task in enumerate(tasks)]
        waiting: set[Future[Result]] = set(futures)
        while waiting:
            done, waiting = wait(waiting, timeout=BEAT, return_when=FIRST_COMPLETED)
            for future in done:
                future.result()
            for i, part in enumerate(parts):
                show(i, part)
        return [future.result() for future in futures]


@contextmanager
def _bar(total: int, hidden: bool) -> Iterator[Callable[[int, float], None]]:
    """A bar over all tasks: told which part of which task is done."""
    console = Console(stderr=True)
    parts = [0.0] * total
    columns = (
        TextColumn("comparing, {task.fields[whole]} of {task.total:.0f} done"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=hidden or not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=total, whole=0)

        def show(place: int, part: float) -> None:
            parts[place] = part
            whole = sum(p >= 1.0 for p in parts)
            progress.update(task, completed=sum(parts), whole=whole)

        yield show
