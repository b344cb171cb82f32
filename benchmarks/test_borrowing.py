"""Borrowed GPUs: the compiled simulation beside the engine, and the whole command beside its simulations."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from typing import Any

import pytest

import dovetail
from dovetail.cli.main import run_cli

POLICIES = ("fcfs", "rq", "mrq")


def of_all(jobs: int, compiled: str) -> tuple[float, list[list[float | None]]]:
    """CPU seconds of the simulations alone under all three policies, and the ends."""
    work = dovetail.load_workload(f"published:markthub?jobs={jobs}")
    seconds, ends = 0.0, []
    for policy in POLICIES:
        result = dovetail.simulate(work, policy=policy, compiled=compiled).result
        assert result.simulation_seconds is not None
        seconds += result.simulation_seconds
        ends.append([record.end for record in result.records])
    return seconds, ends


@pytest.mark.benchmark(group="borrowed GPUs")
def test_the_papers_jobs_under_three_policies(benchmark: Any) -> None:
    """10,000 jobs: within 0.25 CPU seconds once compiled; the engine within 40; the same ends."""
    of_all(300, "auto")  # compiled, or loaded
    found = benchmark.pedantic(of_all, args=(10_000, "auto"), rounds=3)
    slow, ends = of_all(10_000, "off")
    assert found[1] == ends
    fast = min(found[0], *(of_all(10_000, "auto")[0] for _ in range(2)))
    print(f"\ncompiled {fast:.3f} s, engine {slow:.1f} s: {slow / fast:.0f} times")
    assert fast <= 0.25
    assert slow <= 40


@pytest.mark.benchmark(group="borrowed GPUs")
def test_the_command_beside_its_simulations(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """``compare`` of 10,000 jobs costs at most 4 CPU seconds beside the simulations."""
    of_all(300, "auto")
    source = "published:markthub?jobs=10000"
    command = ["dovetail", "compare", source, "--policy", ",".join(POLICIES), "--json", "--workers", "1"]

    def compare() -> float:
        monkeypatch.setattr(sys, "argv", command)
        out, before = io.StringIO(), time.process_time()
        with contextlib.redirect_stdout(out), pytest.raises(SystemExit):
            run_cli()
        spent = time.process_time() - before
        told = json.loads(out.getvalue())
        decrease = told[1]["metrics"]["median_lifetime_decrease"]
        assert 28 <= decrease <= 32
        return spent - sum(one["metrics"]["simulation_seconds"] for one in told)

    beside = benchmark.pedantic(compare, rounds=3)
    print(f"\nbeside the simulations {beside:.2f} CPU s (the last of three)")
    assert beside <= 4
