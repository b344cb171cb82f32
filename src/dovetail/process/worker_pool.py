"""Work in several processes, so that Ctrl-C, and the end of their parent, leave nothing behind."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, DovetailWarning

if TYPE_CHECKING:
    from concurrent.futures import Executor


@contextmanager
def worker_pool(
    count: int,
    begin: Callable[..., None] | None = None,
    arguments: tuple[Any, ...] = (),
    *,
    preload: Sequence[str] = (),
) -> Iterator[Executor]:
    """So many worker processes, each set up by ``begin(*arguments)``; `begin_worker` where there is none.

    Where the block is left early they are killed. Raises `DovetailError` if one was killed by others.
    """
    # Imported here: a simulation that has no workers waits for none of it.
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import forkserver, get_context

    # Not fork: the parent may have threads, whose locks would stay taken in the child.
    context = get_context("forkserver")
    if preload:
        context.set_forkserver_preload(list(preload))
    # The server inherits what is ignored, and every worker inherits it from the server.
    with _deaf_to_interrupts():
        forkserver.ensure_running()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        count, mp_context=context, initializer=begin or begin_worker, initargs=arguments
    )
    finished = False
    try:
        yield pool
        finished = True
    except BrokenProcessPool:
        raise DovetailError(
            "a worker process was killed, perhaps for want of memory; --workers 1 needs the least"
        ) from None
    finally:
        # `shutdown` alone would wait for what the workers are doing.
        if not finished:
            for child in set(multiprocessing.active_children()) - others:
                child.kill()
            _hang_up(pool)
        pool.shutdown(cancel_futures=True)


def _hang_up(pool: Executor) -> None:
    """Close our end of the pipe of results.

    Else the pool waits for ever for the rest of what a worker was writing when it was killed.
    """
    writer = getattr(getattr(pool, "_result_queue", None), "_writer", None)  # has no public name
    if writer is not None:
        writer.close()


def begin_worker() -> None:
    """Set a worker up: Ctrl-C and warnings are the parent's, and without the parent there is no work."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", DovetailWarning)  # the parent has issued it
    threading.Thread(target=_leave_with_parent, daemon=True).start()


def _leave_with_parent() -> None:
    import multiprocessing

    # `join` wakes when the parent's end of a pipe is closed, however the parent has ended.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What starts meanwhile ignores Ctrl-C for good: it would answer with a traceback of its own."""
    # Only the main thread may change handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
