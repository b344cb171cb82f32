"""Which processes there are, by /proc: not every machine has ``ps`` and ``pgrep``."""

from __future__ import annotations

from pathlib import Path

__all__ = ["command_lines"]


def command_lines() -> list[str]:
    """The command line of every process that lives, its words joined by spaces."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        if words:
            found.append(words.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace"))
    return found
