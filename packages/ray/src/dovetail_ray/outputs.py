"""Where a run's jobs on Ray wrote their output; read without Ray."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dovetail.process.notes import read_notes

LOG = "ray.jsonl"
"""The notes of a run, in its folder."""


def find_outputs(folder: Path, job: str) -> dict[int, Sequence[str]]:
    """Standard output and error of each attempt of a job that a run's folder notes."""
    records = (
        record for record in read_notes(folder / LOG) if record.get("job") == job and "files" in record
    )
    return {record.get("attempt", 1): record["files"] for record in records}
