"""Memory of large arrays that came over a connection, kept for those that come next.

The pages of fresh memory are cleared by the kernel as they are first touched, which takes as long as copying
100 MB into them does. An array that is put again and again, as programs with loops do, needs them only once.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.records import dataclass

SMALLEST, LARGEST = 1 << 20, 1 << 27
"""Bytes of an array whose memory is kept."""
KEPT = 2
"""Arrays whose memory is kept at most, of all owners together."""


@dataclass(frozen=True, slots=True, eq=False)
class _Memory:
    owner: object
    block: NDArray[np.uint8]


def _count_references(memory: _Memory) -> int:
    return sys.getrefcount(memory.block)


_UNUSED = _count_references(_Memory(None, np.empty(0, dtype=np.uint8)))


def _is_unused(memory: _Memory, size: int) -> bool:
    """Whether it is of this size and unused; arrays over it and their views count, wherever held."""
    return memory.block.nbytes == size and _count_references(memory) == _UNUSED


class BlockPool:
    """Blocks of memory by owner: an owner only ever gets what itself has written. For several threads."""

    def __init__(self) -> None:
        self._kept: deque[_Memory] = deque(maxlen=KEPT)
        self._lock = threading.Lock()

    def empty(self, owner: object, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        """A C-contiguous array that is in no other use, to be overwritten. Raises `MemoryError`."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if not SMALLEST <= size <= LARGEST:
            return np.empty(shape, dtype=dtype)
        with self._lock:
            memory = next((m for m in self._kept if m.owner is owner and _is_unused(m, size)), None)
            if memory is None:
                memory = _Memory(owner, np.empty(size, dtype=np.uint8))
            else:
                self._kept.remove(memory)
            self._kept.append(memory)  # the least recently used one makes room
            return memory.block.view(dtype).reshape(shape)

    def forget_owner(self, owner: object) -> None:
        """Keep nothing of an owner who has left."""
        with self._lock:
            kept = [memory for memory in self._kept if memory.owner is not owner]
            self._kept.clear()
            self._kept.extend(kept)
