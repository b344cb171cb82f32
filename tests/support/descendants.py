"""Which processes there are below this one."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["descendants"]


def descendants(of: int | None = None) -> set[int]:
    """Processes below this one, or below another."""
    found: set[int] = set()
    todo = [of or os.getpid()]
    while todo:
        pid = todo.pop()
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                children = [int(word) for word in task.read_text().split()]
            except FileNotFoundError:
                continue
            found.update(children)
            todo += children
    return found
