"""How long the next run of a job takes, which has run before: its work, its checkpoints, what it takes up."""

from __future__ import annotations

from math import inf

from dovetail.model import Checkpoints, Implementation, Job, JobId, Placed, Request, Seconds, Truth
from dovetail.records import dataclass

NO_CHECKPOINTS = Checkpoints(inf)


@dataclass(slots=True)
class _Standing:
    """What a job has done, as parts of its work: in all, and that which is safe in a checkpoint.

    ``resumes``: its next run takes up a checkpoint. ``spent`` is what counts towards its walltime already.
    """

    done: float = 0.0
    safe: float = 0.0
    resumes: bool = False
    spent: Seconds = 0.0


class WorkLeft:
    """A `Truth` of the runs that jobs have before them, over that of their work alone."""

    def __init__(self, truth: Truth, checkpoints: Checkpoints | None) -> None:
        self._truth = truth
        self._checkpoints = checkpoints or NO_CHECKPOINTS
        self._jobs: dict[JobId, _Standing] = {}

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds | None:
        """True seconds of the job's next run in this way, ``None`` where unknown. O(1)."""
        work = self._truth.seconds(job, implementation, request)
        if work is None:
            return None
        standing = self._jobs.get(job.id)
        if standing is None:
            return self._checkpoints.lengthened(work)
        return self._checkpoints.lengthened(work * (1.0 - standing.done)) + self._first(standing)

    def _first(self, standing: _Standing) -> Seconds:
        """Seconds before a run does work."""
        return self._checkpoints.restart if standing.resumes else 0.0

    def limit(self, job: Job, walltime: Seconds) -> Seconds:
        """After how long the next run is at its limit: checkpoints are beside what a walltime counts."""
        standing = self._jobs.get(job.id)
        most = self._checkpoints.lengthened(walltime)
        return most if standing is None else most + self._first(standing) - standing.spent

    def lose(self, job: JobId) -> None:
        """A job that stands still has lost its node: what is not in a checkpoint is lost."""
        standing = self._jobs.get(job)
        if standing is not None:
            standing.done, standing.spent, standing.resumes = standing.safe, 0.0, standing.safe > 0

    def cut(self, placed: Placed, now: Seconds, *, kept: bool = False) -> None:
        """A run ends before its time: with all that it has done ``kept``, or but for its checkpoints lost."""
        work = self._truth.seconds(placed.job, placed.implementation, placed.allocation.request)
        assert work is not None, "jobs without a true time were rejected"
        standing = self._jobs.setdefault(placed.job.id, _Standing())
        ran = now - placed.start_time
        left = work * (1.0 - standing.done)
        done, safe = self._checkpoints.progress(ran - self._first(standing), left)
        if work > 0:
            standing.safe = standing.done + safe / work if safe > 0 else standing.safe
        if kept:
            standing.done = min(1.0, standing.done + done / work) if work > 0 else 0.0
            standing.spent += ran
            # What is left of taking up a checkpoint is done again: a suspension within it is rare.
            standing.resumes = standing.resumes and ran < self._checkpoints.restart
        else:
            standing.done, standing.spent = standing.safe, 0.0
            standing.resumes = standing.safe > 0
