"""Which batch job each job is, for readers beside the executor: of the notes only what is new is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dovetail.model import JobId

LONGEST = 64 << 20
"""Bytes of the notes that are taken in at once."""


class BatchIds:
    """The batch jobs of those whose end the engine does not know yet, as of the notes in ``queue/``."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "queue" / "handed.jsonl"
        self._forget()

    def _forget(self) -> None:
        self._read = 0
        self._jobs: dict[str, dict[JobId, tuple[str, int | None]]] = {}
        """Of each batch: the start and the task of a job."""
        self._batch: dict[str, tuple[str, JobId]] = {}
        """Where a start is."""
        self._ids: dict[str, str] = {}

    def known_ids(self) -> dict[JobId, tuple[str, int | None]]:
        """The batch system's id of a batch, and the number of a task within it. O(what was added)."""
        self._read_new()
        return {
            job: (id, index)
            for batch, id in self._ids.items()
            for job, (_, index) in self._jobs.get(batch, {}).items()
        }

    def _read_new(self) -> None:
        try:
            with self._path.open("rb") as file:
                if file.seek(0, 2) < self._read:  # another file by now
                    self._forget()
                file.seek(self._read)
                data = file.read(LONGEST)
        except FileNotFoundError:
            self._forget()
            return
        # What follows the last line's end is still being written.
        lines = data[: data.rfind(b"\n") + 1]
        self._read += len(lines)
        for line in lines.splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # torn by a full disk or a crash
                continue
            if isinstance(record, dict):
                self._take_in(record)

    def _take_in(self, record: Mapping[str, Any]) -> None:
        kind, batch = record.get("t"), record.get("batch", "")
        if kind == "batch":
            jobs, tasks = record["jobs"], record.get("tasks")
            numbers = range(len(jobs)) if tasks is None else tasks
            alone = len(jobs) == 1 and tasks is None
            self._jobs[batch] = {}
            for (job, _, uid, *_), number in zip(jobs, numbers, strict=True):
                # A script that is no array's has the number -1.
                self._jobs[batch][job] = uid, None if alone or number < 0 else number
                self._batch[uid] = batch, job
        elif kind == "sent":
            self._ids[batch] = record["id"]
        elif kind == "refused":
            for job in list(self._jobs.get(batch, ())):
                self._leave(batch, job)
        elif kind == "withdrawn":
            self._leave(batch, record["job"])
        elif kind == "told":
            self._leave(*self._batch.get(record["uid"], ("", "")))
        elif kind == "again":
            number = record["number"]
            for at, (job, (uid, index)) in enumerate(self._jobs.get(batch, {}).items()):
                if number == (at if index is None else index):
                    self._batch.pop(uid, None)
                    self._batch[record["uid"]] = batch, job
                    self._jobs[batch][job] = record["uid"], index
                    break

    def _leave(self, batch: str, job: JobId) -> None:
        found = self._jobs.get(batch)
        if found is not None and job in found:
            self._batch.pop(found.pop(job)[0], None)
            if not found:
                self._jobs.pop(batch, None)
                self._ids.pop(batch, None)
