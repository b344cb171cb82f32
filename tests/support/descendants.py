"""Which processes there are below this one."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

__all__ = ["below", "descendants"]


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
