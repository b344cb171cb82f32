"""EASY on whole traces against a second implementation: counts and one loop, no shared code."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from pathlib import Path

import pytest

from dovetail.model import Cluster, TableTruth
from dovetail.policies.easy import Easy
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, full
from dovetail.workloads.swf import read_swf

TRACES = Path(__file__).parents[3] / "shared" / "traces"
Row = tuple[float, int, float, float]


def easy_by_counting(rows: Sequence[Row], nodes: int) -> list[float]:
    """Starts of rigid jobs (submit, size, run time, walltime) in order of submission."""
    ends: list[tuple[float, int]] = []
    limits: dict[int, tuple[float, int]] = {}
    queue: list[int] = []
    starts = [0.0] * len(rows)
    free, coming = nodes, 0

    def start(job: int, now: float) -> None:
        nonlocal free
        _, size, run_time, wall = rows[job]
        starts[job] = now
        free -= size
        heapq.heappush(ends, (now + min(run_time, wall), job))
        limits[job] = (now + wall, size)

    while coming < len(rows) or ends:
        times = [ends[0][0]] if ends else []
        if coming < len(rows):
            times.append(rows[coming][0])
        now = min(times)
        while (ends and ends[0][0] <= now) or (coming < len(rows) and rows[coming][0] <= now):
            for job in [job for end, job in ends if end <= now]:
                free += rows[job][1]
                del limits[job]
            ends = [entry for entry in ends if entry[0] > now]
            heapq.heapify(ends)
            while coming < len(rows) and rows[coming][0] <= now:
                queue.append(coming)
                coming += 1
            while queue and rows[queue[0]][1] <= free:
                start(queue.pop(0), now)
            if len(queue) < 2 or not free:
                continue
            extra, shadow = free - rows[queue[0]][1], -1.0
            for limit, size in sorted(limits.values()):
                if extra >= 0 and limit > shadow:
                    break
                extra += size
                if extra >= 0:
                    shadow = limit
            for job in queue[1:]:
                size, in_time = rows[job][1], now + rows[job][3] <= shadow
                if size <= free and (in_time or size <= extra):
                    extra -= 0 if in_time else size
                    queue.remove(job)
                    start(job, now)
    return starts


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("kth-sp2-1996-2.1-cln.first8000.swf.gz", 100),
        ("hpc2n-2002-2.1.first3170.swf.gz", 240),
        ("theta-2022.first8000.swf.gz", 4360),
        ("nasa-ipsc-1993-3.1-cln.first6000.swf.gz", 128),
        ("lublin-256.swf.gz", 256),
    ],
)
@pytest.mark.skipif(not TRACES.is_dir(), reason="needs the sample traces beside the repository")
def test_every_start_of_a_trace_agrees(name: str, nodes: int) -> None:
    workload = read_swf(TRACES / name, Cluster.uniform(nodes, 1))
    workload = type(workload)(name, workload.jobs[: full(10_000, 3000)], workload.truth)
    assert isinstance(workload.truth, TableTruth)
    fixed = workload.truth.fixed
    rows = [
        (job.submit_time, job.nodes, fixed[job.id], fixed[job.id] if job.walltime is None else job.walltime)
        for job in workload.jobs
    ]
    result = simulate(workload, Cluster.uniform(nodes, 1), Easy(), TrueTimesModel(workload.truth))
    starts = {record.job.id: record.start for record in result.records}
    assert [starts[job.id] for job in workload.jobs] == easy_by_counting(rows, nodes)
