"""Borrowed GPUs: the compiled simulation of the study beside the engine, and the engine's own time."""

from __future__ import annotations

import time
from typing import Any

import pytest

import dovetail
from dovetail_lab.markthub.lifetimes import simulate_lifetimes

POLICIES = ("fcfs", "rq", "mrq")


def compiled(jobs: int) -> tuple[float, list[list[float]]]:
    """CPU seconds under all three policies, jobs made into arrays included, and the ends."""
    work = dovetail.load_workload(f"published:markthub?jobs={jobs}")
    begin = time.process_time()
    ends = [found.end.tolist() for found in simulate_lifetimes(work, POLICIES)]
    return time.process_time() - begin, ends


@pytest.mark.benchmark(group="borrowed GPUs")
def test_the_papers_jobs_under_three_policies(benchmark: Any) -> None:
    """10,000 jobs: within 1 CPU second once compiled; the engine within 40; the same ends."""
    compiled(300)  # compiles, or loads
    fast, ends = benchmark.pedantic(compiled, args=(10_000,), rounds=3)
    work, slow = dovetail.load_workload("published:markthub?jobs=10000"), 0.0
    for policy, expected in zip(POLICIES, ends, strict=True):
        result = dovetail.simulate(work, policy=policy).result
        assert result.simulation_seconds is not None
        slow += result.simulation_seconds
        assert [record.end for record in result.records] == expected
    fast = min(fast, compiled(10_000)[0])
    print(f"\ncompiled {fast:.3f} s, engine {slow:.1f} s: {slow / fast:.0f} times")
    assert fast <= 1
    assert slow <= 40
