"""Another order of the same jobs: what a seed changes in a workload that is not drawn at random."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from dovetail.files.arrays import np
from dovetail.model import Job, Workload

__all__ = ["shuffled"]


def shuffled(workload: Workload, rng: np.random.Generator) -> Workload:
    """The workload with the jobs that are submitted together in a random order. Linear.

    Their places in the file change; ids, times and everything else stay.
    """
    jobs: list[Job] = []
    for _, together in groupby(workload.jobs, key=lambda job: job.submit_time):
        group = list(together)
        jobs.extend(group[i] for i in rng.permutation(len(group)))
    return replace(workload, jobs=[replace(job, index=i) for i, job in enumerate(jobs)])
