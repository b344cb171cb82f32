"""The lines of ``sacct``: jobs, their batch steps, and their steps of ``srun``."""

from __future__ import annotations

from typing import NamedTuple

from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.step_records import StepRecord


class Line(NamedTuple):
    """A job, its batch step, or a step of ``srun``'s in it."""

    job: Job
    step: str = ""
    own: StepRecord | None = None


def step_state(line: Line, one: StepRecord) -> str:
    """The state of a step of ``srun``."""
    if one.end is None:  # what its job took along has no end of its own
        return "RUNNING" if line.job["end"] is None else "CANCELLED"
    if one.code or one.signal:
        return "CANCELLED" if line.job.state in ("CANCELLED", "TIMEOUT") else "FAILED"
    return "COMPLETED"


def step_elapsed(line: Line, one: StepRecord) -> float:
    """Seconds that a step of ``srun`` has run."""
    end = one.end if one.end is not None else line.job["end"]
    return max(0.0, (line.job.now if end is None else float(end)) - one.start)
