"""Instants that take long: how long they took, what they took in, and in which calls the time was spent.

While an instant lasts nothing else is done in its loop: no request is answered, no end of a job taken in.
Where the time goes is seen by a thread that looks at the stack from time to time; while no instant comes it
sleeps.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

from dovetail.model import Event, Seconds
from dovetail.running.last_resort import calls_of

_log = logging.getLogger(__name__)
LONG: Seconds = 1.0
"""An instant that takes longer is worth a warning."""
LOOK: Seconds = 0.25
"""Between two looks at the stack, while instants come."""
IDLE: Seconds = 2.0
"""So long after the last instant the thread looks no more, until the next one."""
MOST_KINDS = 4


class Watchdog:
    """Watches the instants of a loop, in whose thread it is made; ``longest`` is that of all, in seconds.

    ``looks`` counts those at the stack."""

    def __init__(self, long: Seconds = LONG) -> None:
        self.longest: Seconds = 0.0
        self.looks = 0
        self._long = long
        self._thread = threading.get_ident()
        self._began = 0.0  # 0: none goes on
        self._last = 0.0
        self._news = threading.Event()
        self._asleep = True
        self._closed = False
        self._seen: Counter[str] = Counter()
        self._looking = threading.Thread(target=self._watch_instants, name="watchdog", daemon=True)
        self._looking.start()

    def close(self) -> None:
        """Let the thread go."""
        self._closed = True
        self._news.set()
        self._looking.join()

    def begin_instant(self) -> None:
        """An instant begins. O(1)."""
        self._began = time.perf_counter()
        if self._asleep:
            self._news.set()

    def end(self, events: Sequence[Event]) -> None:
        """It is over; ``events`` are those that it took in. O(1), unless it was long."""
        self._last = time.perf_counter()
        took, self._began = self._last - self._began, 0.0
        self.longest = max(self.longest, took)
        if took > self._long:
            self._warn_slow(took, events)

    def _warn_slow(self, took: Seconds, events: Sequence[Event]) -> None:
        seen, self._seen = self._seen, Counter()
        kinds = Counter(type(event).__name__ for event in events).most_common(MOST_KINDS)
        what = ", ".join(f"{count:,} {kind}" for kind, count in kinds) or "nothing"
        total = sum(seen.values())
        where = "; ".join(f"{100 * count / total:.0f} % in {calls}" for calls, count in seen.most_common(2))
        _log.warning(
            "an instant took %.1f s, in which nothing was answered; it took in %s%s",
            took,
            what,
            f"; {where}" if where else "",
        )

    def _watch_instants(self) -> None:
        while not self._closed:
            self._asleep = True
            if time.perf_counter() - self._last > IDLE and not self._began:
                self._news.wait()
            self._news.clear()
            self._asleep = False
            self.looks += 1
            time.sleep(LOOK)
            began = self._began
            if not began:
                self._seen.clear()
            elif time.perf_counter() - began > LOOK:
                self._seen[calls_of(sys._current_frames().get(self._thread))] += 1
