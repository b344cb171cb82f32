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
preceding job         fields 17 and 18: the job is submitted field 18 seconds after the end of job 17, which
                      stands before it in the file; where that is not there or was rejected, at field 2
app                   ``swf``, or ``swf-N`` where field 14 names the application N (positive)
====================  ==================================================================================

One processor is one CPU of a single-CPU node: k processors become k nodes with one CPU each. With
``cpus_per_node=N``, fewer than N processors become that many CPUs of one node, and more for
ceil(k / N) nodes with N CPUs each, so a count that N does not divide is rounded up to whole nodes.

Rejected, with a reason: jobs with a negative run or submit time (-1 is unknown), without processors, or
with more than the machine has. Field 3 gives the recorded start. Fields 6, 7, 10, 11 (status) and 16
are not used: a failed or cancelled job used the machine for the time of field 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dovetail.errors import InputError
from dovetail.files.arrays import Bools, distinct
from dovetail.model import EMPTY, Cluster, JobId, Rejected, Request, Seconds, TableTruth, Workload
from dovetail.model.hostlist import MOST_NAMES
from dovetail.model.tables import JobTable, NumberedIds, Times
from dovetail.workloads.builder import Interned, unique_ids
from dovetail.workloads.resources import Fitting
from dovetail.workloads.swf_arrays import WIDTH, Ints, SwfArrays, read_swf_arrays


def read_swf(
    path: str | Path,
    cluster: Cluster | None = None,
    *,
    lenient: bool = False,
    cpus_per_node: int = 1,
    fields: int = WIDTH,
) -> Workload:
    """Jobs of an SWF file, with the mapping that the module states. O(lines).

    ``cluster`` decides which jobs are too large; ``None``: the machine of the file's header, and where it
    names none, no job is. Raises `InputError` naming file and line at the first malformed line unless
    ``lenient``, which skips and counts.
    """
    arrays = read_swf_arrays(path, lenient=lenient, fields=fields)
    machine = swf_cluster(arrays, cpus_per_node)
    found = swf_workload(
        arrays, machine if cluster is None else cluster, name=str(path), cpus_per_node=cpus_per_node
    )
    return replace(found, machine=machine)


def swf_request(processors: int, cpus_per_node: int = 1) -> Request:
    """What a job of that many processors requests; see the module for nodes with several CPUs.

    >>> [(r.nodes, r.cpus) for r in (swf_request(6), swf_request(6, 4), swf_request(3, 4))]
    [(6, 1), (2, 4), (1, 3)]
    """
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


def swf_cluster(arrays: SwfArrays, cpus_per_node: int = 1) -> Cluster | None:
    """The logged machine as nodes of so many CPUs, rounded up to whole nodes; ``None``: none is logged."""
    processors = swf_machine(arrays)
    if processors is None or cpus_per_node < 1:
        return None
    return Cluster.uniform(-(-processors // cpus_per_node), cpus_per_node)


def swf_workload(
    arrays: SwfArrays, cluster: Cluster | None = None, *, name: str = "swf", cpus_per_node: int = 1
) -> Workload:
    """The workload of arrays that were read before. Raises `InputError` for ``cpus_per_node`` below 1."""
    if cpus_per_node < 1:
        raise InputError(f"found {cpus_per_node}, expected at least 1", where="cpus_per_node")
    count = len(arrays)
    ids: NumberedIds | list[JobId] = NumberedIds(arrays.number)
    if (np.diff(arrays.number) <= 0).any() and np.unique(arrays.number).size != count:
        ids = unique_ids(ids[:])
    reasons = _rejection_reasons(arrays, cluster, cpus_per_node)
    rejected = [Rejected(ids[i], reasons[i]) for i in sorted(reasons)]
    kept = np.ones(count, dtype=np.bool_)
    kept[list(reasons)] = False
    order = np.flatnonzero(kept)
    order = order[np.argsort(arrays.submit[order], kind="stable")]
    jobs = _make_table(arrays, order, ids, cpus_per_node)
    recorded = EMPTY if arrays.wait is None else Times(ids, arrays.submit + arrays.wait)
    return Workload(
        name,
        jobs,
        TableTruth(fixed=jobs.times),
        rejected,
        arrays.skipped,
        recorded=recorded,
        follows=_preceding_jobs(arrays, kept, ids),
    )


def _preceding_jobs(
    arrays: SwfArrays, kept: Bools, ids: NumberedIds | list[JobId]
) -> Mapping[JobId, tuple[JobId, Seconds]]:
    """Of each job that names a preceding one which is kept, that one and the think time."""
    if arrays.preceding is None or arrays.think is None:
        return EMPTY
    wanted = set(arrays.preceding.tolist())
    # Of a number the last place so far.
    last: dict[int, int] = {}
    found: dict[JobId, tuple[JobId, Seconds]] = {}
    rows = zip(arrays.number.tolist(), arrays.preceding.tolist(), arrays.think.tolist(), strict=True)
    for place, (number, preceding, think) in enumerate(rows):
        before = last.get(preceding) if preceding > 0 else None
        if before is not None and kept[place] and kept[before]:
            found[ids[place]] = ids[before], think
        if number in wanted:
            last[number] = place
    return found


def _rejection_reasons(arrays: SwfArrays, cluster: Cluster | None, cpus_per_node: int) -> dict[int, str]:
    """Why jobs are rejected, by place in the file."""
    fitting = Fitting(cluster)
    reasons: dict[int, str] = {}
    for count in distinct(arrays.processors)[0].tolist():
        if count > 0:
            refusal = fitting.refusal_reason(swf_request(count, cpus_per_node))
            if refusal is not None:
                for i in np.flatnonzero(arrays.processors == count).tolist():
                    reasons[i] = f"requests {count} processors: {refusal}"
    for i in np.flatnonzero(arrays.processors <= 0).tolist():
        reasons[i] = "requests no processors"
    for i in np.flatnonzero(arrays.submit < 0).tolist():
        reasons[i] = f"negative submit time ({arrays.submit[i]:g})"
    for i in np.flatnonzero(arrays.run < 0).tolist():
        reasons[i] = f"negative run time ({arrays.run[i]:g})"
    return reasons


def _make_table(
    arrays: SwfArrays, order: Ints, ids: NumberedIds | list[JobId], cpus_per_node: int
) -> JobTable:
    """The jobs at these places, in their order."""
    interned = Interned()
    processors, width = distinct(arrays.processors[order])
    applications, app = distinct(np.maximum(arrays.application[order], 0))
    pairs, form = distinct(width * len(applications) + app)
    forms = []
    for pair in pairs.tolist():
        k, a = int(processors[pair // len(applications)]), int(applications[pair % len(applications)])
        forms.append(interned.get("swf" if a == 0 else f"swf-{a}", swf_request(k, cpus_per_node)))
    return JobTable(
        ids.at(order) if isinstance(ids, NumberedIds) else [ids[i] for i in order.tolist()],
        order,
        arrays.submit[order],
        arrays.run[order],
        arrays.walltime[order],
        form,
        forms,
        arrays.user[order],
        arrays.group[order],
        arrays.queue[order],
    )
