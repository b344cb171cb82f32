"""A study's tasks over several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed
from typing import TypeVar

from dovetail.native.interrupts import interrupts_later
from dovetail.process.worker_pool import worker_pool

Task = TypeVar("Task")
Found = TypeVar("Found")


def map_tasks(
    work: Callable[[Task], Found],
    tasks: Sequence[Task],
    workers: int | None = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Found]:
    """``work`` of every task, in order, by up to ``workers`` processes (1: in this one; ``None``: one a CPU).

    ``work`` and the tasks are sent between processes, so ``work`` is a function of a module. ``progress``
    gets how many of how many are done. An interruption ends them all. Raises what ``work`` raises, and
    `DovetailError` for a worker that was killed.

    >>> map_tasks(abs, [-3, 2, -1])
    [3, 2, 1]
    """
    total = len(tasks)
    count = min(len(os.sched_getaffinity(0)) if workers is None else workers, total)
    report = progress or (lambda done, total: None)
    found: dict[int, Found] = {}
    if count <= 1:
        for i, task in enumerate(tasks):
            found[i] = work(task)
            report(len(found), total)
    else:
        with worker_pool(count) as pool:
            with interrupts_later():
                futures = {pool.submit(work, task): i for i, task in enumerate(tasks)}
            for future in as_completed(futures):
                found[futures[future]] = future.result()
                report(len(found), total)
    return [found[i] for i in range(total)]
