"""Interference: jobs on a device slow down while the CPU of their node computes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.model import Cluster, Result, Workload
from dovetail.plugins import load_policy
from dovetail.rates.gpu_slowdown import GpuSlowdown
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import full, workload

TWO = Cluster.parse("1x1cpu+1gpu")


def run(w: Workload, cluster: Cluster = TWO, factor: float = 1.2) -> Result:
    rates = GpuSlowdown(factor)
    return simulate(w, cluster, load_policy("best-device").policy, PerfectModel(w.truth), rates=rates)


def ends(result: Result) -> dict[str, float]:
    return {r.job.id: r.end for r in result.records if r.end is not None}


def test_a_gpu_job_is_slowed_just_as_long_as_the_cpu_computes() -> None:
    found = ends(run(workload([("g", {"gpu": 10.0}), ("c", {"cpu": 6.0})])))
    # 6 s at 1 / 1.2 do 5 s of work; 5 s are left.
    assert found == pytest.approx({"c": 6.0, "g": 11.0})


def test_without_cpu_work_nothing_slows_down() -> None:
    assert ends(run(workload([("g", {"gpu": 10.0})])))["g"] == 10.0


def test_cpu_jobs_are_never_slowed() -> None:
    found = ends(run(workload([("c", {"cpu": 8.0}), ("g", {"gpu": 2.0})]), factor=5.0))
    assert found == pytest.approx({"c": 8.0, "g": 8.0 + 0.4})


def test_a_job_that_starts_beside_cpu_work_is_slowed_at_once() -> None:
    found = ends(run(workload([("c", {"cpu": 12.0}), ("g", {"gpu": 5.0}), ("h", {"gpu": 5.0})])))
    assert found == pytest.approx({"c": 12.0, "g": 6.0, "h": 12.0})


def test_other_nodes_do_not_matter() -> None:
    cluster = Cluster.parse("2x1cpu+1gpu")
    w = workload([("g", {"gpu": 10.0}), ("h", {"gpu": 10.0}), ("c", {"cpu": 12.0})])
    assert sorted(ends(run(w, cluster)).values()) == pytest.approx([10.0, 12.0, 12.0])


@given(
    st.lists(st.tuples(st.sampled_from(["cpu", "gpu"]), st.integers(1, 20)), min_size=1, max_size=10),
    st.floats(1.0, 4.0),
)
@settings(max_examples=full(60, 20), deadline=None, derandomize=True)
def test_the_gpu_does_its_work_at_the_rate_of_each_moment(jobs: list[tuple[str, int]], factor: float) -> None:
    """CPU work is contiguous from 0 (FIFO), so the GPU's end follows from the two totals alone."""
    w = workload([(f"j{i}", {kind: float(t)}) for i, (kind, t) in enumerate(jobs)])
    cpu = float(sum(t for kind, t in jobs if kind == "cpu"))
    gpu = float(sum(t for kind, t in jobs if kind == "gpu"))
    slowed = min(cpu, gpu * factor)
    assert run(w, factor=factor).makespan == pytest.approx(max(cpu, slowed + gpu - slowed / factor))


@pytest.mark.parametrize("factor", [0.9, float("inf"), float("nan")])
def test_a_factor_below_one_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="expected a number of 1 or more"):
        GpuSlowdown(factor)
