"""Measured runs: what predictions rest on. A part is imported when one of its names is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.history.base import Aggregate, Group, MeasuredHistory
    from dovetail.history.memory import MemoryHistory
    from dovetail.history.sqlite import SqliteHistory, default_history_path

__all__ = [
    "Aggregate",
    "Group",
    "MeasuredHistory",
    "MemoryHistory",
    "SqliteHistory",
    "default_history_path",
]

_HOMES = {
    "Aggregate": "base",
    "Group": "base",
    "MeasuredHistory": "base",
    "MemoryHistory": "memory",
    "SqliteHistory": "sqlite",
    "default_history_path": "sqlite",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
