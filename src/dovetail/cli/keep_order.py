"""``--keep-order``: what jobs wrote, in the order of the list, each as soon as all before it have ended."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dovetail.engine.state.core import Engine
from dovetail.interfaces import KeepsOutput
from dovetail.model import JobId
from dovetail.running.session import Session


class KeepOrder:
    """Copies outputs to ours: standard output to standard output, standard error to standard error."""

    def __init__(self) -> None:
        self._left: list[JobId] = []
        self._executor: KeepsOutput | None = None

    def started(self, session: Session) -> None:
        """The run begins: its jobs in their order."""
        jobs = sorted(session.workload.jobs, key=lambda job: job.index)
        self._left = [job.id for job in reversed(jobs)]
        if isinstance(session.executor, KeepsOutput):
            self._executor = session.executor

    def changed(self, engine: Engine) -> None:
        """Copy what has ended, up to the first job that has not."""
        while self._left:
            record = engine.records.get(self._left[-1])
            if record is None or record.end is None:
                return
            self._copy_output(self._left.pop())

    def rest(self) -> None:
        """At the end: what is left, of jobs that were cancelled as well."""
        while self._left:
            self._copy_output(self._left.pop())

    def _copy_output(self, job: JobId) -> None:
        paths: Iterable[Path] = (self._executor and self._executor.output_paths(job)) or ()
        for path, stream in zip(paths, (sys.stdout, sys.stderr), strict=False):
            with suppress(FileNotFoundError), path.open("rb") as file:  # it never wrote there
                stream.flush()
                shutil.copyfileobj(file, stream.buffer)
                stream.buffer.flush()
