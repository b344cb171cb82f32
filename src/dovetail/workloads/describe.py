"""What is in a workload: jobs, span, load, sizes, run times, users."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.model import Cluster, Workload
from dovetail.workloads.resources import (
    asked_request,
    offered_load,
    requested_counts,
    submission_span,
    uses_devices,
)

MOST_NAMED = 10


def describe_workload(workload: Workload, cluster: Cluster | None = None) -> dict[str, Any]:
    """A summary in JSON's own types. O(jobs log jobs).

    ``jobs`` counts the jobs that can run, ``rejected`` lists the ids of those that cannot, ``skipped``
    counts malformed lines. ``span`` is the seconds from the first to the last submission. ``load`` is
    resources times run time over capacity times span; resources are GPUs where any job uses GPUs, else
    CPUs; it is null without a cluster. Distributions give least, median, mean, p95 and most.
    """
    jobs = workload.jobs
    devices = uses_devices(jobs)
    runs: list[float] = []
    for job in jobs:
        choice = next((c for c in job.choices if c.request.nodes == job.nodes), job.choices[0])
        seconds = workload.truth.seconds(job, choice.implementation, choice.request)
        if seconds is not None:
            runs.append(seconds)
    submits = sorted(job.submit_time for job in jobs)
    limits = [job.walltime for job in jobs if job.walltime is not None]
    return {
        "workload": workload.name,
        "cluster": cluster.label if cluster is not None else None,
        "jobs": len(jobs),
        "rejected": [r.id for r in workload.rejected],
        "skipped": workload.skipped,
        "span": submission_span(workload),
        "load": offered_load(workload, cluster) if cluster is not None else None,
        "resources": "gpus" if devices else "cpus",
        "first_submit": submits[0] if submits else None,
        "sizes": _value_spread(
            [c for c in requested_counts(workload, cluster, devices=devices) if c is not None]
        ),
        "nodes": _value_spread([asked_request(job).nodes for job in jobs]),
        "runtimes": _value_spread(runs),
        "walltimes": _value_spread(limits),
        "gaps": _value_spread(np.diff(submits).tolist() if len(submits) > 1 else []),
        "users": _name_frequencies([job.user for job in jobs]),
        "groups": _name_frequencies([job.group for job in jobs]),
        "queues": _name_frequencies([job.queue for job in jobs]),
        "apps": _name_frequencies([job.app.name for job in jobs]),
        "rejected_reasons": dict(Counter(r.reason for r in workload.rejected).most_common(MOST_NAMED)),
    }


def _value_spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """How many values there are, and where they lie."""
    if not values:
        return {"count": 0, "min": None, "median": None, "mean": None, "p95": None, "max": None}
    array = np.asarray(values, dtype=np.float64)
    return {
        "count": len(values),
        "min": float(array.min()),
        "median": float(np.median(array)),
        "mean": float(array.mean()),
        "p95": float(np.percentile(array, 95)),
        "max": float(array.max()),
    }


def _name_frequencies(values: Sequence[str | None]) -> dict[str, Any]:
    """How many names there are, and the jobs of the most frequent."""
    found = Counter(value for value in values if value is not None)
    return {"count": len(found), "jobs": dict(found.most_common(MOST_NAMED))}
