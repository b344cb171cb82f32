"""Learned times as true times: what a simulation of jobs that give no times runs on."""

from __future__ import annotations

from dataclasses import replace

from dovetail.interfaces import RuntimeModel
from dovetail.model import Choice, Cluster, Implementation, Job, JobId, Request, Seconds, Truth, Workload
from dovetail.model.ways import ModelOn, known_predictions
from dovetail.records import dataclass


@dataclass(slots=True)
class _Expected:
    """The truth where it is known, then what the model expected at the outset."""

    truth: Truth
    table: dict[tuple[JobId, str, int], Seconds]

    def seconds(self, job: Job, implementation: Implementation, request: Request) -> Seconds | None:
        """True seconds, else expected ones, ``None`` where both are unknown. O(1)."""
        found = self.truth.seconds(job, implementation, request)
        return self.table.get((job.id, implementation.name, request.nodes)) if found is None else found


def with_expected_times(workload: Workload, cluster: Cluster, model: RuntimeModel) -> Workload:
    """The workload, with the times that the model expects for jobs that give none at all.

    Of a workload that ``ran`` every way without a time has the expected one: a run measures one way of each.
    A job takes as long as expected on the first device class that it can use and of which something is known.
    Jobs of which the model knows nothing stay without a time. One prediction for each such job and way.
    """
    truth = workload.truth
    table: dict[tuple[JobId, str, int], Seconds] = {}
    for job in workload.jobs:
        silent = [c for c in job.choices if truth.seconds(job, c.implementation, c.request) is None]
        if len(silent) < len(job.choices) and not workload.ran:
            continue
        for choice in silent:
            seconds = expected_seconds(job, choice.implementation, choice.request, cluster, model)
            if seconds is not None:
                table[job.id, choice.implementation.name, choice.request.nodes] = seconds
    return replace(workload, truth=_Expected(truth, table)) if table else workload


def expected_seconds(
    job: Job, implementation: Implementation, request: Request, cluster: Cluster, model: RuntimeModel
) -> Seconds | None:
    """What a model expects on the first device class of the cluster about which something is known."""
    found = next(
        iter(known_predictions(ModelOn(cluster, model.predict), job, Choice(implementation, request))), None
    )
    return None if found is None else found.expected
