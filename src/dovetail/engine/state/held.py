"""The waiting jobs that no policy sees, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dovetail.model import Job, JobId, Record


class HeldJobs(dict[JobId, str]):
    """Why each is held back, in the order in which that began; written by `hold` and `let_go` only."""

    def __init__(self, records: Mapping[JobId, Record]) -> None:
        super().__init__()
        self._records = records
        self._alike: dict[Callable[[Job], Any], dict[Any, dict[JobId, None]]] = {}

    def hold(self, job: JobId, reason: str) -> None:
        """A job with a record waits, and no policy sees it."""
        self[job] = reason
        for of, found in self._alike.items():
            found.setdefault(of(self._records[job].job), {})[job] = None

    def let_go(self, job: JobId) -> bool:
        """It is held back no more; whether it was."""
        if self.pop(job, None) is None:
            return False
        for of, found in self._alike.items():
            value = of(self._records[job].job)
            del found[value][job]
            if not found[value]:
                del found[value]
        return True

    def group_alike(self, of: Callable[[Job], Any]) -> Mapping[Any, Collection[JobId]]:
        """Those that have this in common, by what it is, which is the same for as long as a job is known.

        Kept up to date from the first call on: O(1) for each job.
        """
        if of not in self._alike:
            found = self._alike[of] = {}
            for job in self:
                found.setdefault(of(self._records[job].job), {})[job] = None
        return self._alike[of]
