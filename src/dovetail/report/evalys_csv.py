"""The schedule as CSV, one line a job, in the columns that the evalys tools read (Batsim's job table)."""

from __future__ import annotations

import csv
import io
from itertools import accumulate
from pathlib import Path

from dovetail.model import Cluster, Record, Result, State, bits
from dovetail.workloads.textfile import write_text
from dovetail.workloads.writers.swf import as_number

__all__ = ["COLUMNS", "FINAL_STATES", "ResourceNumbers", "to_evalys_csv", "write_csv"]

COLUMNS = (
    "job_id",
    "workload_name",
    "profile",
    "submission_time",
    "requested_number_of_resources",
    "requested_time",
    "success",
    "final_state",
    "starting_time",
    "execution_time",
    "finish_time",
    "waiting_time",
    "turnaround_time",
    "stretch",
    "allocated_resources",
)
FINAL_STATES = {
    State.COMPLETED: "COMPLETED_SUCCESSFULLY",
    State.FAILED: "COMPLETED_FAILED",
    State.NODE_FAIL: "COMPLETED_FAILED",
    State.TIMEOUT: "COMPLETED_WALLTIME_REACHED",
    State.CANCELLED: "COMPLETED_KILLED",
    State.RUNNING: "RUNNING",
    State.PENDING: "SUBMITTED",
}
"""Our states in Batsim's words."""
NEVER = "-1"


class ResourceNumbers:
    """One number for each CPU and device: node by node, a node's CPUs first, then its devices.

    On a cluster of single-CPU nodes a resource is a node, under the node's index.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        sizes = [len(node.cores) + len(node.devices) for node in cluster.nodes]
        self._first = [0, *accumulate(sizes)]
        self._place = [{core: i for i, core in enumerate(node.cores)} for node in cluster.nodes]

    def held(self, record: Record) -> list[int]:
        """Numbers of what the job holds or held, ascending. O(nodes of the job)."""
        allocation = record.allocation
        if allocation is None:
            return []
        found: list[int] = []
        for part in allocation.parts:
            for index in bits(part.nodes):
                node, first = self._cluster.nodes[index], self._first[index]
                if part.cpus:
                    cores = allocation.cores_on(index, node)
                    found += [first + self._place[index][core] for core in cores]
                found += [first + len(node.cores) + device for device in part.devices]
        for donor in allocation.donors:
            cores = self._cluster.nodes[donor.donor].cores
            found.append(self._first[donor.donor] + len(cores) + donor.device)
        return sorted(set(found))


def intervals(numbers: list[int]) -> str:
    """Ascending numbers as ``0-3 7 9-10``."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return " ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def to_evalys_csv(result: Result) -> str:
    """The records as CSV text with a header, in file order.

    ``requested_number_of_resources`` and ``allocated_resources`` count CPUs and devices (`ResourceNumbers`);
    ``stretch`` is the turnaround time over the execution time, 1 where both are 0. Times that do not exist
    are -1, as is the requested time of a job without a walltime. Rejected jobs have no line. O(jobs).
    """
    numbers = ResourceNumbers(result.cluster)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in result.records:
        writer.writerow(_row(record, result.workload, numbers))
    return out.getvalue()


def _row(record: Record, workload: str, numbers: ResourceNumbers) -> list[str | int]:
    job = record.job
    held = numbers.held(record)
    request = job.choices[0].request
    asked = len(held) or request.nodes * max(1, max(0, request.cpus) + int(request.gpus))
    start, end = record.start, record.end
    times = [NEVER] * 6
    if start is not None:
        times[0], times[3] = as_number(start), as_number(start - job.submit_time)
        if end is not None:
            run, turnaround = end - start, end - job.submit_time
            stretch = turnaround / run if run > 0 else 1.0 if turnaround <= 0 else float("inf")
            times[1], times[2] = as_number(run), as_number(end)
            times[4], times[5] = as_number(turnaround), repr(stretch)
    return [
        job.id,
        workload,
        job.app.name,
        as_number(job.submit_time),
        asked,
        NEVER if job.walltime is None else as_number(job.walltime),
        int(record.state is State.COMPLETED),
        FINAL_STATES[record.state],
        *times,
        intervals(held),
    ]


def write_csv(result: Result, path: str | Path) -> None:
    """Write the CSV (as gzip where the name ends in ``.gz``). Raises `InputError` where it cannot be."""
    write_text(path, to_evalys_csv(result))
