"""Where a map's items come from: sequences are cut, anything else is read ahead by a thread of its own."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

__all__ = ["SequenceSource", "Source", "StreamSource", "source_of"]

SLICED = (list, tuple, range)


class Source(Protocol):
    """Gives out items in their order."""

    error: BaseException | None
    """What the user's iterable raised; there are no items after it."""

    @property
    def left(self) -> float:
        """Items not given out; infinite where that is not known yet."""
        ...

    @property
    def at_hand(self) -> int:
        """Items that can be had at once."""
        ...

    @property
    def taken(self) -> int:
        """Items given out."""
        ...

    def take(self, most: int) -> list[Any]:
        """The next items, up to ``most``; fewer, or none, where there are no more at hand."""
        ...

    def ahead(self, items: int) -> None:
        """How many items to hold ready."""
        ...

    def close(self) -> None:
        """No more are wanted."""
        ...


class SequenceSource:
    """Items of a sequence; nothing is copied before it is given out."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items
        self._length = len(items)
        self._sliced = isinstance(items, SLICED)
        self.taken = 0
        self.error: BaseException | None = None

    @property
    def left(self) -> float:
        """Items not given out."""
        return self._length - self.taken

    @property
    def at_hand(self) -> int:
        """All that are left."""
        return self._length - self.taken

    def take(self, most: int) -> list[Any]:
        """The next items."""
        start, stop = self.taken, min(self.taken + most, self._length)
        self.taken = stop
        if self._sliced:
            return list(self._items[start:stop])
        return [self._items[i] for i in range(start, stop)]

    def ahead(self, items: int) -> None:
        """All are at hand."""

    def close(self) -> None:
        """Nothing to close."""


class StreamSource:
    """Items of any iterable, read ahead by a thread: a slow generator keeps nobody from anything else.

    ``total`` is their number where it is known; ``arrived`` is called when the first items come after none
    were there, and at the end.
    """

    def __init__(self, items: Iterable[Any], total: int | None, arrived: Callable[[], None]) -> None:
        self._items = items
        self._total = total
        self._arrived = arrived
        self._buffer: deque[Any] = deque()
        self._most = 2
        self._room = threading.Condition()
        self._ended = False
        self._closed = False
        self.taken = 0
        self.error: BaseException | None = None
        threading.Thread(target=self._read, name="dovetail-map-items", daemon=True).start()

    @property
    def left(self) -> float:
        """Items not given out, as far as is known."""
        if self._ended:
            return len(self._buffer)
        return math.inf if self._total is None else max(self._total - self.taken, len(self._buffer))

    @property
    def at_hand(self) -> int:
        """Items that were read."""
        return len(self._buffer)

    def take(self, most: int) -> list[Any]:
        """The next items."""
        with self._room:
            count = min(most, len(self._buffer))
            found = [self._buffer.popleft() for _ in range(count)]
            self.taken += count
            self._room.notify()
        return found

    def ahead(self, items: int) -> None:
        """How many items to hold ready."""
        with self._room:
            if items > self._most:
                self._most = items
                self._room.notify()

    def close(self) -> None:
        """The thread ends at the next item."""
        with self._room:
            self._closed = True
            self._room.notify()

    def _read(self) -> None:
        try:
            for item in self._iterator():
                self._buffer.append(item)
                if len(self._buffer) == 1:
                    self._arrived()
                if len(self._buffer) >= self._most and not self._wait():
                    return
        except BaseException as error:  # noqa: BLE001 - raised where the map is used
            self.error = error
        self._ended = True
        self._arrived()

    def _iterator(self) -> Iterator[Any]:
        return iter(self._items)

    def _wait(self) -> bool:
        """Until there is room; whether more are wanted."""
        with self._room:
            self._room.wait_for(lambda: self._closed or len(self._buffer) < self._most)
            return not self._closed


def source_of(items: Iterable[Any], arrived: Callable[[], None]) -> Source:
    """The source for an iterable: sequences (arrays too) by index, anything else by reading ahead."""
    if isinstance(items, Sequence) or hasattr(items, "__array_interface__"):  # a list, a NumPy array, …
        return SequenceSource(items)  # type: ignore[arg-type]
    try:
        total = len(items)  # type: ignore[arg-type]
    except TypeError:
        total = None
    return StreamSource(items, total, arrived)
