"""Waiting for what other processes do in their own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    found: Callable[[], T], what: str = "what was waited for did not happen", seconds: float = 100
) -> T:
    """Ask until the answer is true; return it."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, f"{what} within {seconds:g} s: {value!r}"
        time.sleep(0.02)
    return value
