"""The waiting jobs that no policy sees, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from dovetail.model import Job, JobId, Record


class HeldJobs(dict[JobId, str]):
    """Why each is held back, in the order in which that began, or to which they were moved.

    Written by its own methods only.
    """

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

    def move_job(self, job: JobId, after: JobId | None) -> None:
        """Give one of them the place right after another one; the first, where that is none of them. O(n)."""
        reasons = dict(self)
        order = [one for one in reasons if one != job]
        # As it is shown: all of the queue comes before what is held back.
        order.insert(order.index(after) + 1 if after in reasons else 0, job)
        self.clear()
        self.update({one: reasons[one] for one in order})
        for of, found in self._alike.items():
            value = of(self._records[job].job)
            found[value] = {one: None for one in order if one in found[value]}

    def group_alike(self, of: Callable[[Job], Any]) -> Mapping[Any, Collection[JobId]]:
        """Those that have this in common, by what it is, which is the same for as long as a job is known.

        Kept up to date from the first call on: O(1) for each job.
        """
        if of not in self._alike:
            found = self._alike[of] = {}
            for job in self:
                found.setdefault(of(self._records[job].job), {})[job] = None
        return self._alike[of]
