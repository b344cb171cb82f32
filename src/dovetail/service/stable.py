"""What was written is brought to disk by a thread beside; who waits for it shares one sync with others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


class GroupCommit:
    """Group commit: `wait` returns when all that was written before it was called is on the disk.

    ``sync`` blocks until it is (`Ledger.sync`). Meanwhile the loop goes on, and so do others' writes.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._pool = ThreadPoolExecutor(1, "stable")
        self._waiting: list[asyncio.Future[None]] = []
        self._busy = False

    async def wait(self) -> None:
        """Raises `OSError` where the disk refuses."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        if not self._busy:
            self._busy = True
            self._begin_sync()
        await future

    def _begin_sync(self) -> None:
        """Sync for all who wait now; those who come meanwhile need another one."""
        waiting, self._waiting = self._waiting, []
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._pool, self._sync)
        done.add_done_callback(lambda found: self._end_sync(found, waiting))

    def _end_sync(self, found: asyncio.Future[None], waiting: list[asyncio.Future[None]]) -> None:
        error = found.exception()
        for future in waiting:
            if future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)
        if self._waiting:
            self._begin_sync()
        else:
            self._busy = False

    def close(self) -> None:
        """Wait for what the thread still does."""
        self._pool.shutdown(wait=True)
