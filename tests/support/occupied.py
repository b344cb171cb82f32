"""Work that notes on which cores it ran, and when: what several programs at once may not have in common."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def occupy(folder: str, name: str, seconds: float) -> str:
    """Compute for so long, and leave a note."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        sum(range(1000))
    note = {"name": name, "pid": os.getpid(), "cores": sorted(os.sched_getaffinity(0)), "began": began}
    path = Path(folder, f"{name}.{os.getpid()}.{time.monotonic_ns()}")
    path.write_text(json.dumps({**note, "ended": time.monotonic()}))
    return name


def notes(folder: Path) -> list[dict[str, Any]]:
    """All notes in a folder."""
    return [json.loads(path.read_text()) for path in folder.iterdir()]


def shared(found: list[dict[str, Any]]) -> list[tuple[str, str, int]]:
    """Pairs of work of two processes that had a core at one moment; O(n log n) where none do."""
    pairs: list[tuple[str, str, int]] = []
    for core in {core for note in found for core in note["cores"]}:
        last: dict[str, Any] | None = None
        for note in sorted(
            (one for one in found if core in one["cores"]), key=lambda one: float(one["began"])
        ):
            if last is not None and last["pid"] != note["pid"] and note["began"] < last["ended"]:
                pairs.append((last["name"], note["name"], core))
            if last is None or note["ended"] > last["ended"]:
                last = note
    return pairs


if __name__ == "__main__":
    occupy(sys.argv[1], sys.argv[2], float(sys.argv[3]))
