"""Defaults and limits that the command line, files and the Python API share."""

from __future__ import annotations

__all__ = ["DEFAULT_MODEL", "MOST_RETRIES"]

DEFAULT_MODEL = "learned"
"""How run times are predicted where nothing else is said."""
MOST_RETRIES = 1_000
"""So often, at most, may a job start again after failures."""
