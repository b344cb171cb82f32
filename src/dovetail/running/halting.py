"""When a run ends early by itself: ``--halt``, in the words of GNU parallel."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Literal

from dovetail.driver.driver import RETRIED
from dovetail.errors import InputError
from dovetail.model import Ended, Event, Job, JobId, State
from dovetail.records import dataclass

_log = logging.getLogger(__name__)

_FORM = re.compile(r"(soon|now),(fail|success|done)=(\d{1,9})(%?)")

When = Literal["soon", "now"]
What = Literal["fail", "success", "done"]


@dataclass(frozen=True, slots=True)
class Halt:
    """After so many jobs (or so large a ``share`` of all) have ended so: start no more, or stop all at once.

    ``soon`` lets what runs go on to its end.
    """

    when: When
    what: What
    number: int
    share: bool = False

    @classmethod
    def parse_halt(cls, text: str) -> Halt | None:
        """``now,fail=1``, ``soon,fail=10%``, ``now,success=1``; ``never`` is ``None``. Raises `InputError`.

        >>> Halt.parse_halt("soon,fail=10%")
        Halt(when='soon', what='fail', number=10, share=True)
        """
        if text == "never":
            return None
        match = _FORM.fullmatch(text)
        number = 0 if match is None else int(match[3])
        if match is None or not number or (match[4] and number > 100):
            raise InputError(
                f"found {text!r}, expected never, or soon or now with fail, success or done and a number or "
                "share of jobs, such as now,fail=1 or soon,fail=10%",
                where="--halt",
            )
        when: When = "soon" if match[1] == "soon" else "now"
        what: What = "fail" if match[2] == "fail" else "success" if match[2] == "success" else "done"
        return cls(when, what, number, bool(match[4]))

    def least_count(self, jobs: int) -> int:
        """How many of so many jobs it takes."""
        return max(1, -(-self.number * jobs // 100)) if self.share else self.number


class HaltWatch:
    """Counts how jobs end, and decides when that is enough. A failure that is retried is no end."""

    def __init__(self, halt: Halt, jobs: Sequence[Job]) -> None:
        self._halt = halt
        self._least, self._jobs = halt.least_count(len(jobs)), len(jobs)
        self._reached = False
        self._retries = {job.id: job.retries for job in jobs}
        self._ended = {"fail": 0, "success": 0}

    def __call__(self, events: Sequence[Event]) -> When | None:
        """Take in what has happened; whether, and how, the run is to end."""
        for event in events:
            if isinstance(event, Ended):
                self._took_in(event.job, event.state)
        what = self._halt.what
        count = sum(self._ended.values()) if what == "done" else self._ended[what]
        if count < self._least:
            return None
        if not self._reached:
            self._reached = True
            _log.info(
                "the run stops (%s): %d of %d jobs have come to %s", self._halt.when, count, self._jobs, what
            )
        return self._halt.when

    def _took_in(self, job: JobId, state: State) -> None:
        if state in RETRIED and self._retries.get(job, 0) > 0:
            self._retries[job] -= 1
        else:
            self._ended["success" if state is State.COMPLETED else "fail"] += 1
