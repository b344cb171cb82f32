"""Borrowed GPUs from the command line: job files, the published workload, comparisons."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dovetail_command import load
from gangs_on_gpus import TWO_NODES

from dovetail.testing.builders import full

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(TWO_NODES)
    return path


@pytest.mark.parametrize(
    ("policy", "ends", "borrowed", "migrations"),
    [
        ("fcfs", [110.1429, 320.2857, 220.2857], [0, 0, 0], [0, 0, 0]),
        ("rq", [110.1429, 253.1143, 262.2483], [0, 1, 1], [0, 0, 0]),
        ("mrq", [110.1429, 231.5169, 220.2857], [0, 1, 0], [0, 1, 0]),
    ],
)
def test_the_scenario_of_two_nodes(
    dovetail: Call,
    two_nodes: Path,
    policy: str,
    ends: list[float],
    borrowed: list[int],
    migrations: list[int],
) -> None:
    done = dovetail("simulate", two_nodes, "--cluster", "2x8cpu+3gpu", "--policy", policy, "--json")
    assert done.returncode == 0, done.stderr
    jobs = load(done)["jobs"]
    assert [job["id"] for job in jobs] == ["J1", "J2", "J3"]
    assert [job["end"] for job in jobs] == pytest.approx(ends, abs=5e-5)
    assert [job["remote_gpus"] for job in jobs] == borrowed
    assert [job["migrations"] for job in jobs] == migrations


def test_compare_tells_the_decrease_against_the_first(dovetail: Call, two_nodes: Path) -> None:
    # What looks ahead compiles its kernel first, for most of a minute on one core.
    policies = full("fcfs,rq,mrq,mrq-aware", "fcfs,rq,mrq")
    done = dovetail("compare", two_nodes, "--cluster", "2x8cpu+3gpu", "--policy", policies, "--json")
    assert done.returncode == 0, done.stderr
    fcfs, rq, mrq, *aware = (found["metrics"] for found in load(done))
    assert fcfs["median_lifetime_decrease"] == 0
    # J2 lives 252.1143 instead of 319.2857 s, J3 212.2483 instead of 170.2857 s; J1 as long as before.
    assert rq["median_lifetime_decrease"] == pytest.approx(0.0)
    assert mrq["median_lifetime_decrease"] == pytest.approx(0.0)
    assert [metrics["median_lifetime_decrease"] for metrics in aware] == pytest.approx([0.0] * len(aware))
    assert all(metrics["simulation_seconds"] > 0 for metrics in (fcfs, rq, mrq, *aware))


def test_borrowing_shortens_the_lives_of_the_published_jobs(dovetail: Call) -> None:
    jobs = full(1000, 220)
    command = ["compare", f"published:markthub?jobs={jobs}", "--policy", "fcfs,rq,mrq", "--json"]
    fcfs, rq, _ = load(dovetail(*command))
    assert rq["metrics"]["median_lifetime_decrease"] > 20
    assert fcfs["cluster"] == "100x8cpu+3gpu"


def test_what_the_published_workload_does_not_know(dovetail: Call) -> None:
    for option in ("spread=broad", "gpus=0.5,0.6,0.1", "gpu_calls=1e5|many", "negative=abs"):
        done = dovetail("simulate", f"published:markthub?{option}", "--policy", "rq")
        assert done.returncode == 2
        assert option.partition("=")[0] in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
