"""Reader of the Standard Workload Format (Feitelson's archive, version 2.2), plain or gzip.

Mapping, field by field (fields count from 1, -1 is unknown):

====================  ==================================================================================
job                   from
====================  ==================================================================================
id                    field 1 as text; a number used again becomes ``N#2``, ``N#3`` … in file order
submit time           field 2, seconds, counted from the file's own zero
true time             field 4, seconds; kept in the workload's truth, never in the job
processors            field 5 where positive, else field 8
walltime              field 9 where positive, else none
user, group, queue    fields 12, 13, 15 as text where not negative
app                   ``swf``, or ``swf-N`` where field 14 names the application N (positive)
====================  ==================================================================================

One processor is one CPU of a single-CPU node: k processors ask for k nodes with one CPU each. With
``cpus_per_node=N``, fewer than N processors ask for that many CPUs of one node, and more for
ceil(k / N) nodes with N CPUs each, so a count that N does not divide is rounded up to whole nodes.

Rejected, with a reason: jobs with a negative run or submit time (-1 is unknown), without processors, or
with more than the machine has. Fields 3 (what the site's own scheduler did), 6, 7, 10, 11 (status) and 16
to 18 are not used: a failed or cancelled job used the machine as long as field 4 says.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dovetail.errors import InputError
from dovetail.model import Cluster, Job, Rejected, Request, TableTruth, Workload
from dovetail.model.hostlist import MOST_NAMES
from dovetail.workloads.builder import Interned, unique_ids
from dovetail.workloads.fitting import Fitting
from dovetail.workloads.swf_arrays import SwfArrays, read_swf_arrays

__all__ = ["read_swf", "swf_machine", "swf_request", "swf_workload"]


def read_swf(
    path: str | Path, cluster: Cluster | None = None, *, lenient: bool = False, cpus_per_node: int = 1
) -> Workload:
    """Jobs of an SWF file, with the mapping that the module states. O(lines).

    ``cluster`` decides which jobs are too large (``None``: none is). Raises `InputError` naming file and
    line at the first malformed line unless ``lenient``, which skips and counts.
    """
    return swf_workload(
        read_swf_arrays(path, lenient=lenient), cluster, name=str(path), cpus_per_node=cpus_per_node
    )


def swf_request(processors: int, cpus_per_node: int = 1) -> Request:
    """What a job of that many processors asks for; see the module for nodes with several CPUs."""
    if processors < cpus_per_node:
        return Request(nodes=1, cpus=processors)
    return Request(nodes=-(-processors // cpus_per_node), cpus=cpus_per_node)


def swf_machine(arrays: SwfArrays) -> int | None:
    """Processors of the logged machine: the header's MaxProcs, else MaxNodes, else ``None``.

    A number beyond what a cluster can have is taken for none.
    """
    for key in ("MaxProcs", "MaxNodes"):
        text = arrays.header.get(key, "").split(" ")[0]
        if text.isascii() and text.isdigit() and len(text) < 10 and 0 < int(text) <= MOST_NAMES:
            return int(text)
    return None


def swf_workload(
    arrays: SwfArrays, cluster: Cluster | None = None, *, name: str = "swf", cpus_per_node: int = 1
) -> Workload:
    """The workload of arrays that were read before. Raises `InputError` for ``cpus_per_node`` below 1."""
    if cpus_per_node < 1:
        raise InputError(f"found {cpus_per_node}, expected at least 1", where="cpus_per_node")
    numbers = arrays.number.tolist()
    ids = [str(n) for n in numbers]
    if np.unique(arrays.number).size != len(ids):
        ids = unique_ids(ids)
    reasons = _reasons(arrays, cluster, cpus_per_node)
    rejected = [Rejected(ids[i], reasons[i]) for i in sorted(reasons)]
    kept = np.ones(len(ids), dtype=np.bool_)
    kept[list(reasons)] = False
    order = np.flatnonzero(kept)
    order = order[np.argsort(arrays.submit[order], kind="stable")]
    jobs = _jobs(arrays, order.tolist(), ids, cpus_per_node)
    runs = arrays.run.tolist()
    fixed = {ids[i]: runs[i] for i in order.tolist()}
    return Workload(name, jobs, TableTruth(fixed=fixed), rejected, arrays.skipped)


def _reasons(arrays: SwfArrays, cluster: Cluster | None, cpus_per_node: int) -> dict[int, str]:
    """Why jobs are rejected, by place in the file."""
    fitting = Fitting(cluster)
    reasons: dict[int, str] = {}
    for count in np.unique(arrays.processors).tolist():
        if count > 0:
            refusal = fitting.refusal(swf_request(count, cpus_per_node))
            if refusal is not None:
                for i in np.flatnonzero(arrays.processors == count).tolist():
                    reasons[i] = f"asks for {count} processors: {refusal}"
    for i in np.flatnonzero(arrays.processors <= 0).tolist():
        reasons[i] = "asks for no processors"
    for i in np.flatnonzero(arrays.submit < 0).tolist():
        reasons[i] = f"negative submit time ({arrays.submit[i]:g})"
    for i in np.flatnonzero(arrays.run < 0).tolist():
        reasons[i] = f"negative run time ({arrays.run[i]:g})"
    return reasons


def _jobs(arrays: SwfArrays, order: list[int], ids: list[str], cpus_per_node: int) -> list[Job]:
    interned = Interned()
    processors, applications = arrays.processors.tolist(), arrays.application.tolist()
    forms = {
        (k, a): interned.get("swf" if a <= 0 else f"swf-{a}", swf_request(k, cpus_per_node))
        for k, a in {(processors[i], applications[i]) for i in order}
    }
    nodes = {key: choices[0].request.nodes for key, (_, choices) in forms.items()}
    submits = arrays.submit.tolist()
    walltimes = [None if limit != limit else limit for limit in arrays.walltime.tolist()]
    names: dict[int, str | None] = {
        n: str(n) if n >= 0 else None
        for column in (arrays.user, arrays.group, arrays.queue)
        for n in np.unique(column).tolist()
    }
    users, groups, queues = arrays.user.tolist(), arrays.group.tolist(), arrays.queue.tolist()
    jobs: list[Job] = []
    for i in order:
        key = (processors[i], applications[i])
        app, choices = forms[key]
        jobs.append(
            Job(
                ids[i],
                app,
                choices,
                i,
                submits[i],
                nodes=nodes[key],
                walltime=walltimes[i],
                user=names[users[i]],
                group=names[groups[i]],
                queue=names[queues[i]],
            )
        )
    return jobs
