"""Measured runs: what predictions rest on."""

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
