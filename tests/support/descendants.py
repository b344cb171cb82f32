"""Which processes there are below this one, and what they may leave in shared memory."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

__all__ = ["below", "descendants", "named_memory"]


def descendants(of: int | None = None, *, but: Collection[int] = ()) -> set[int]:
    """Processes below this one, or below another, but for some and what they have started.

    What stays from one test to the next may start a process at any time: who asks what *it* has left behind
    leaves those out with all that is below them.
    """
    found: set[int] = set()
    todo = [of or os.getpid()]
    while todo:
        pid = todo.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except FileNotFoundError:
                continue
            new = set(children).difference(but)
            found |= new
            todo += new
    return found


def below(word: bytes, of: int | None = None, *, but: Collection[int] = ()) -> list[int]:
    """Those of the `descendants` in whose command line the word stands; some may end while we look."""
    found = []
    for pid in descendants(of, but=but):
        with suppress(FileNotFoundError, ProcessLookupError):
            if word in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def named_memory(size: int) -> set[str]:
    """Files of shared memory that hold ``size`` bytes, and little more.

    What other programs have there comes and goes: who looks for what an array left behind gives it a size
    that nothing else has.
    """
    found = set()
    for entry in os.scandir("/dev/shm"):
        with suppress(FileNotFoundError):
            if size <= entry.stat().st_size < size + (1 << 16):
                found.add(entry.name)
    return found
