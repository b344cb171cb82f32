"""Cutting and scaling workloads, and what describes them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InputError
from dovetail.model import WHOLE_POOL, Cluster, Request, TableTruth, Workload
from dovetail.testing.builders import full
from dovetail.workloads.builder import TraceBuilder, gpu_request
from dovetail.workloads.describe import describe_workload
from dovetail.workloads.edit import cut_workload, scale_load
from dovetail.workloads.resources import cpus_of, offered_load, submission_span

MACHINE = Cluster.uniform(4, 1)


def made(*jobs, cluster=None):
    """Jobs as (submit, run, request)."""
    builder = TraceBuilder("made", cluster, app="a")
    for i, (submit, run, request) in enumerate(jobs):
        builder.add(f"j{i}", submit, run, request, walltime=run * 2, user=f"u{i % 2}")
    return builder.build_workload()


FOUR = made((0, 10, Request(1, 1)), (5, 20, Request(2, 1)), (10, 30, Request(4, 1)), (20, 5, Request(1, 1)))


def test_load_is_work_over_capacity_and_span():
    assert submission_span(FOUR) == 20
    assert offered_load(FOUR, MACHINE) == (10 + 40 + 120 + 5) / (4 * 20)


def test_load_counts_gpus_where_jobs_use_them():
    workload = made((0, 10, gpu_request(1, 0.5)), (10, 20, gpu_request(2, 4)), (10, 1, Request(1, 3)))
    cluster = Cluster.uniform(2, 8, 4)
    assert offered_load(workload, cluster) == (5 + 160) / (8 * 10)
    assert offered_load(workload, cluster, devices=False) == 3 / (16 * 10)


def test_load_that_is_not_defined():
    assert offered_load(made((3, 10, Request(1, 1))), MACHINE) is None  # no span
    assert offered_load(Workload("empty", [], TableTruth()), MACHINE) is None
    assert offered_load(Workload("untimed", FOUR.jobs, TableTruth()), MACHINE) is None


def test_a_whole_pool_is_the_smallest_that_will_do():
    assert cpus_of(Request(2, WHOLE_POOL), Cluster.uniform(4, 8)) == 16
    assert cpus_of(Request(2, WHOLE_POOL), None) is None


def test_cut_by_time_and_number():
    assert [j.id for j in cut_workload(FOUR, begin=5, end=20).jobs] == ["j1", "j2"]
    assert [j.id for j in cut_workload(FOUR, begin=5, jobs=1).jobs] == ["j1"]
    assert [j.submit_time for j in cut_workload(FOUR, begin=10).jobs] == [10, 20]  # times stay as they are
    assert cut_workload(FOUR, jobs=99).jobs == FOUR.jobs
    with pytest.raises(InputError, match="found the interval 5 to 5, expected a begin before the end"):
        cut_workload(FOUR, begin=5, end=5)
    with pytest.raises(InputError, match="jobs: found 0, expected at least 1"):
        cut_workload(FOUR, jobs=0)


@pytest.mark.parametrize("load", [0.1, 0.85, 3.0])
def test_scale_meets_the_load(load):
    long = made(*((1000 * i, 700 + i, Request(1 + i % 4, 1)) for i in range(50)))
    scaled = scale_load(long, load, MACHINE)
    assert offered_load(scaled, MACHINE) == pytest.approx(load, rel=1e-4)
    assert all(j.submit_time == int(j.submit_time) for j in scaled.jobs)  # whole seconds stay whole
    assert scaled.truth is long.truth


def test_scale_keeps_the_first_submission_and_the_proportions():
    workload = made((2.5, 10, Request(1, 1)), (4.5, 10, Request(1, 1)), (8.5, 10, Request(1, 1)))
    now = offered_load(workload, MACHINE)
    assert now is not None
    assert [j.submit_time for j in scale_load(workload, now / 2, MACHINE).jobs] == [2.5, 6.5, 14.5]


@pytest.mark.parametrize("load", [0.0, -1.0, float("nan"), float("inf")])
def test_scale_refuses_a_load_that_is_none(load):
    with pytest.raises(InputError, match="expected a number above 0"):
        scale_load(FOUR, load, MACHINE)


@pytest.mark.parametrize("load", [1e-300, 1e-15])
def test_scale_keeps_times_within_bounds(load):
    with pytest.raises(InputError, match="expected one that keeps times below"):
        scale_load(FOUR, load, MACHINE)


def test_scale_refuses_a_workload_without_load():
    with pytest.raises(InputError, match="has no load on this cluster"):
        scale_load(made((3, 10, Request(1, 1))), 0.5, MACHINE)


jobs = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(0, 100), st.integers(1, 6).map(lambda k: Request(k, 1))),
    max_size=8,
)


@settings(deadline=None, max_examples=full(60, 20), derandomize=True)
@given(jobs=jobs)
def test_describe_is_json_of_any_workload(jobs):
    workload = made(*jobs, cluster=MACHINE)
    found = describe_workload(workload, MACHINE)
    json.dumps(found, allow_nan=False)
    assert found["jobs"] + len(found["rejected"]) == len(jobs)
    assert found["rejected"] == [f"j{i}" for i, job in enumerate(jobs) if job[2].nodes > 4]
    assert describe_workload(workload)["load"] is None


def test_describe_tells_the_distributions():
    found = describe_workload(FOUR, MACHINE)
    assert (found["jobs"], found["rejected"], found["skipped"], found["span"]) == (4, [], 0, 20)
    assert found["load"] == 175 / 80
    assert found["sizes"] == {
        "count": 4,
        "min": 1,
        "median": 1.5,
        "mean": 2,
        "p95": pytest.approx(3.7),
        "max": 4,
    }
    assert found["runtimes"]["median"] == 15
    assert found["walltimes"]["max"] == 60
    assert found["users"] == {"count": 2, "jobs": {"u0": 2, "u1": 2}}
    assert found["groups"]["count"] == 0
