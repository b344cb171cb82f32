"""``squeue --steps``: what runs in jobs, as far as ``srun`` keeps records of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dovetail_slurm.shims import jobs as of
from dovetail_slurm.shims.columns import Field
from dovetail_slurm.shims.jobs import Job
from dovetail_slurm.shims.options import Wrong
from dovetail_slurm.shims.service import Service
from dovetail_slurm.shims.step_records import path_of, read_records
from dovetail_slurm.shims.times import format_moment, format_short

USUAL = "%.15i %.8j %.9P %.8u %.9M %N"


class Step(NamedTuple):
    """A step that runs: ``number`` is ``batch`` for the script of its job. ``start`` is since the epoch."""

    job: Job
    number: str
    name: str
    tasks: int
    start: float
    nodes: str

    @property
    def id(self) -> str:
        """Job and number, such as ``12.0``."""
        return f"{self.job.id}.{self.number}"


FIELDS: Sequence[Field] = (
    Field("A", "numtasks", "TASKS", lambda s: str(s.tasks)),
    Field("i", "stepid", "STEPID", lambda s: s.id),
    Field("j", "stepname", "NAME", lambda s: s.name),
    Field("l", "timelimit", "TIME_LIMIT", lambda s: s.job.time_limit),
    Field("M", "timeused", "TIME", lambda s: format_short(max(0.0, time.time() - s.start))),
    Field("N", "nodes", "NODELIST", lambda s: s.nodes),
    Field("P", "partition", "PARTITION", lambda s: s.job.partition),
    Field("S", "starttime", "START_TIME", lambda s: format_moment(s.start)),
    Field("u", "username", "USER", lambda s: s.job.user),
    Field("U", "userid", "USER", lambda s: str(of.uid_of(s.job.user))),
    Field("", "jobid", "JOBID", lambda s: str(s.job.number)),
    Field("", "stepstate", "STATE", lambda s: "RUNNING"),
)


def choose_steps(jobs: Sequence[Job], wanted: str, service: Service) -> list[Step]:
    """The running steps of these jobs; ``wanted`` has some of their ids, with commas. Raises `Wrong`."""
    ids = of.split_list(wanted)
    for text in ids:
        if not text.replace("_", ".").replace("batch", "0").replace(".", "").isdecimal():
            raise Wrong(f"squeue: error: Invalid job_step id: {text}")
    found = [step for job in jobs if job.state == "RUNNING" for step in _steps_of(job, service)]
    return [step for step in found if not ids or step.id in ids or step.job.id in ids]


def _steps_of(job: Job, service: Service) -> Iterator[Step]:
    nodes = str(job["nodes"])
    for one in read_records(path_of(service, job.id)):
        if one.end is None:
            yield Step(job, str(one.number), one.name, one.tasks, one.start, one.where)
    if job["script"]:
        yield Step(job, "batch", "batch", 1, job.start or time.time(), nodes)
