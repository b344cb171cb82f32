"""From the map's thread to the consumer of the results: a queue of segments, kept in order on request."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dovetail.errors import ItemError

Segment: TypeAlias = Sequence[Any] | ItemError
"""Results of neighbouring items (or nodes of a fold), or the error of one item."""


class Delivery:
    """Segments on their way. ``room``: whether more may be put; `wanted` is called when room appears.

    In order, what comes too early waits here; it counts as much as what has not been fetched.
    """

    def __init__(self, ordered: bool, most: int, most_bytes: int, wanted: Callable[[], None]) -> None:
        self._ordered, self._most, self._most_bytes, self._wanted = ordered, most, most_bytes, wanted
        self._changed = threading.Condition()
        self._ready: deque[tuple[Segment, int]] = deque()
        self._early: dict[int, tuple[int, Segment, int]] = {}
        self._next = 0
        self._bytes = 0
        self._ended = False
        self._error: BaseException | None = None
        self._listener: Callable[[], None] | None = None
        self.closed = False

    # -- the map's thread ------------------------------------------------------------------------------

    @property
    def room(self) -> bool:
        """Whether what waits is within bounds."""
        return len(self._ready) + len(self._early) < self._most and self._bytes < self._most_bytes

    def put(self, start: int, count: int, segment: Segment, size: int = 0) -> None:
        """The results of ``count`` items from ``start`` on; ``size`` is in bytes."""
        with self._changed:
            self._bytes += size
            if not self._ordered:
                self._ready.append((segment, size))
            else:
                self._early[start] = (count, segment, size)
                while self._next in self._early:
                    count, segment, size = self._early.pop(self._next)
                    self._next += count
                    self._ready.append((segment, size))
            if self._ready:
                self._notify_listeners()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more will come; ``error`` is raised after what has come."""
        with self._changed:
            self._ended, self._error = True, error
            self._notify_listeners()

    def _notify_listeners(self) -> None:
        self._changed.notify_all()
        if self._listener is not None:
            self._listener()

    # -- the user's thread -----------------------------------------------------------------------------

    def get(self, *, wait: bool = True) -> Segment | None:
        """The next segment; ``None`` at the end, or (without ``wait``) if there is none now.

        Raises what the map ended with.
        """
        with self._changed:
            while not self._ready:
                if self._ended:
                    if self._error is not None:
                        raise self._error
                    return None
                if not wait:
                    return None
                self._changed.wait()
            full = not self.room
            segment, size = self._ready.popleft()
            self._bytes -= size
            wanted = full and self.room
        if wanted:
            self._wanted()
        return segment

    @property
    def is_over(self) -> bool:
        """Whether everything has been fetched, and nothing went wrong."""
        return self._ended and not self._ready and self._error is None

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call this whenever there is something to get (from the map's thread)."""
        with self._changed:
            self._listener = listener
            if listener is not None and (self._ready or self._ended):
                listener()

    def close(self) -> None:
        """The consumer wants no more results."""
        self.closed = True
        self._wanted()
