"""A day of a service: a million jobs fed to the driver one at a time; memory must stay flat.

Run with ``make bench``, or as a program for the figures alone: ``python benchmarks/test_driver.py``.
"""

from __future__ import annotations

import heapq
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.engine.state.core import no_bound
from dovetail.model import Cluster, Ended, Placed
from dovetail.policies.easy import Easy
from dovetail.runtimes.perfect import PerfectModel
from workloads import rigid_jobs

JOBS = int(os.environ.get("DOVETAIL_BENCH_JOBS", "1000000"))
NODES = 256


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def a_day(count: int) -> tuple[list[int], float, int]:
    """Memory (bytes) at each twentieth of the jobs, CPU seconds, and the longest queue."""
    template = rigid_jobs(10_000, NODES, 0.85)
    policy = Easy()
    driver = Driver(
        Cluster.uniform(NODES, 1),
        policy,
        PerfectModel(template.truth),
        bound=no_bound,
        options=DriverOptions(),
    )
    running: list[tuple[float, str]] = []
    memory: list[int] = []
    longest, began = 0, time.process_time()
    span = template.jobs[-1].submit_time
    for i in range(count):
        form = template.jobs[i % len(template.jobs)]
        when = form.submit_time + span * (i // len(template.jobs))
        while running and running[0][0] <= when:
            now, job = heapq.heappop(running)
            _instant(driver, now, [Ended(job)], running)
        driver.submit(replace(form, id=f"{i}", index=i, submit_time=when))
        _instant(driver, when, [], running)
        longest = max(longest, len(driver.engine.queue))
        if i % (count // 20) == count // 20 - 1:
            memory.append(resident())
    return memory, time.process_time() - began, longest


def _instant(driver: Driver, now: float, events: list[Ended], running: list[tuple[float, str]]) -> None:
    for order in driver.process_instant(now, events):
        assert isinstance(order, Placed)
        assert order.job.walltime is not None
        heapq.heappush(running, (now + order.job.walltime / 3, order.job.id))
    driver.write_last_instant()
    for record in driver.ended():
        driver.retire_job(record.job.id)


def test_memory_of_a_service_stays_flat(benchmark: object) -> None:
    memory, seconds, longest = benchmark.pedantic(a_day, (JOBS,), rounds=1)  # type: ignore[attr-defined]
    print(f"\n{JOBS} jobs: {JOBS / seconds:.0f} jobs/s, longest queue {longest}")
    print("MiB:", " ".join(f"{m >> 20}" for m in memory))
    assert memory[-1] < 1.1 * memory[1]


if __name__ == "__main__":
    found, spent, queued = a_day(JOBS)
    print(f"{JOBS} jobs: {JOBS / spent:.0f} jobs per CPU-second, longest queue {queued}")
    print("MiB:", " ".join(f"{m >> 20}" for m in found))
