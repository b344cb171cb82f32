"""What goes on beside the driver is looked after: it starts again after an error, or ends the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dovetail.errors import ExecutorError
from dovetail.model import Seconds

_log = logging.getLogger(__name__)
FIRST, MOST = 1.0, 30.0
"""Seconds until what has failed starts again; twice as many each time, unless it went well for long."""
FRUITLESS = 5
"""Errors in Dovetail, one soon after the other, after which it is not tried again."""


async def keep_going(
    work: Callable[[], Awaitable[None]], what: str, fail: Callable[[Exception], None], first: Seconds = FIRST
) -> None:
    """Do this work to its end, and begin it anew where an error ends it before.

    What the machine or a cluster refuses for now (the disk is full, no more processes) is tried again and
    again. An error of ours is logged with its traceback; where it comes back each time, ``fail`` gets one
    sentence about it.
    """
    loop = asyncio.get_running_loop()
    pause, fruitless = first, 0
    while True:
        began = loop.time()
        try:
            await work()
        except (OSError, ExecutorError) as error:
            if loop.time() - began > MOST:
                pause = first
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            _log.warning("%s was cut short: %s; it goes on in %.0f s", what, why, pause)
        except Exception as error:  # noqa: BLE001 - it is logged, and tried again or reported
            fruitless = 1 if loop.time() - began > MOST else fruitless + 1
            if fruitless == 1:
                pause = first
            _log.exception("%s was cut short by an error in Dovetail", what)
            if fruitless >= FRUITLESS:
                fail(ExecutorError(f"{what} ended {fruitless} times by an error in Dovetail: {error!r}"))
                return
        else:
            return
        await asyncio.sleep(pause)
        pause = min(MOST, 2 * pause)
