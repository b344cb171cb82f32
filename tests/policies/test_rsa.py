"""RSA and RSC: what they know of a job, and clusters beyond one CPU and one GPU a node."""

from __future__ import annotations

import pytest

from dovetail import api
from dovetail.history.memory import MemoryHistory
from dovetail.model import Cluster, TableTruth, Way, Workload
from dovetail.policies.rsa import Rsa, speedups_by_kind
from dovetail.policies.rsc import Rsc
from dovetail.runtimes.least_squares import LeastSquaresModel
from dovetail.simulation.simulate import simulate
from dovetail.testing.builders import TrueTimesModel, timed, workload
from dovetail.testing.invariants import check_schedule


def way(job, **seconds):
    return {
        kind: Way(next(c for c in job.choices if c.implementation.kind == kind), s)
        for kind, s in seconds.items()
    }


def test_speedups_are_the_jobs_own_where_it_gives_them() -> None:
    job, _ = timed("a", {"cpu": 5.0, "gpu": 2.0}, speedup={"cpu": 5.1, "gpu": 8.2}, sequential=100.0)
    assert speedups_by_kind(job, way(job, cpu=5.0, gpu=2.0)) == {"cpu": 5.1, "gpu": 8.2}


def test_speedups_from_the_sequential_time_else_from_the_cpu_time() -> None:
    job, _ = timed("a", {"cpu": 5.0, "gpu": 2.0}, sequential=20.0)
    assert speedups_by_kind(job, way(job, cpu=5.0, gpu=2.0)) == {"cpu": 4.0, "gpu": 10.0}
    job, _ = timed("a", {"cpu": 5.0, "gpu": 2.0})
    assert speedups_by_kind(job, way(job, cpu=5.0, gpu=2.0)) == {"cpu": 1.0, "gpu": 2.5}


def test_what_is_unknown_is_no_better_and_no_worse() -> None:
    job, _ = timed("a", {"cpu": 5.0, "gpu": 2.0})
    assert speedups_by_kind(job, way(job, cpu=5.0, gpu=None)) == {"cpu": 1.0, "gpu": 1.0}
    assert speedups_by_kind(job, way(job, cpu=None, gpu=None)) == {"cpu": 1.0, "gpu": 1.0}


SPEEDUPS = """
[[app]]
name = "x"
on = ["cpu", "gpu"]
[[job]]
id = "a"
app = "x"
speedup = { cpu = 2.0, gpu = 9.0 }
[[job]]
id = "b"
app = "x"
speedup = { cpu = 2.0, gpu = 3.0 }
[[job]]
id = "c"
app = "x"
speedup = { cpu = 8.0, gpu = 2.0 }
"""


def test_speedups_alone_are_enough(tmp_path) -> None:
    """Live, or in a simulation of which the policy knows nothing: no time is predicted."""
    path = tmp_path / "jobs.toml"
    path.write_text(SPEEDUPS)
    jobs = api.load_workload(path).jobs
    table = {(j.id, kind, 1): 10.0 for j in jobs for kind in ("cpu", "gpu")}
    work = Workload("told", jobs, TableTruth(table))
    unknowing = LeastSquaresModel(MemoryHistory())
    result = simulate(work, Cluster.parse("1x2cpu+1gpu"), Rsa(), unknowing)
    check_schedule(result, work)
    ran = {r.job.id: (r.implementation.name, r.start) for r in result.records}
    # GJQ is a (difference 7), b (1); CJQ is c. The free CPU then takes the back of GJQ: nothing is left.
    assert ran == {"a": ("gpu", 0.0), "b": ("cpu", 10.0), "c": ("cpu", 0.0)}
    waits = simulate(work, Cluster.parse("1x2cpu+1gpu"), Rsc(), unknowing)
    assert {r.job.id: (r.implementation.name, r.start) for r in waits.records} == {
        "a": ("gpu", 0.0),
        "b": ("gpu", 10.0),
        "c": ("cpu", 0.0),
    }


def test_a_pool_takes_as_many_jobs_as_fit(tmp_path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[[app]]\nname = "x"\n'
        '[[app.implementation]]\nname = "cpu"\ncpus = 1\ntime = 4.0\n'
        '[[app.implementation]]\nname = "gpu"\ngpus = 1\ntime = 1.0\n'
        '[[job]]\napp = "x"\ncount = 6\n'
    )
    for policy in ("rsa", "heteroprio", "brr-dynamic"):
        report = api.simulate(path, cluster="1x2cpu+2gpu", policy=policy)
        starts = sorted((job["start"], job["implementation"]) for job in report.jobs)
        assert starts[:4] == [(0.0, "cpu"), (0.0, "cpu"), (0.0, "gpu"), (0.0, "gpu")], policy


def test_jobs_without_an_implementation_for_a_resource_are_passed_over() -> None:
    work = workload([("a", {"gpu": 5.0}), ("b", {"gpu": 5.0}), ("c", {"gpu": 6.0, "cpu": 7.0})])
    result = simulate(work, Cluster.parse("1x1cpu+1gpu"), Rsa(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    assert {r.job.id: r.start for r in result.records} == {"a": 0.0, "b": 5.0, "c": 0.0}


def test_a_third_kind_of_device(tmp_path) -> None:
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(
        '[[node]]\nname = "n"\ncpus = 2\ngpus = 1\ndevices = [{ kind = "opencl", model = "pocl" }]\n'
    )
    rows = [
        ("a", {"cpu": 9.0, "gpu": 1.0, "opencl": 3.0}),
        ("b", {"cpu": 9.0, "gpu": 2.0, "opencl": 2.5}),
        ("c", {"cpu": 9.0, "gpu": 3.0, "opencl": 3.5}),
    ]
    work = workload(rows)
    machine = Cluster.parse(str(cluster))
    result = simulate(work, machine, Rsa(), TrueTimesModel(work.truth))
    check_schedule(result, work)
    # All prefer the GPU, a most. The CPU is asked first and takes the one that loses least there: c; then
    # OpenCL takes b.
    assert {r.job.id: r.implementation.name for r in result.records} == {
        "a": "gpu",
        "b": "opencl",
        "c": "cpu",
    }


@pytest.mark.parametrize(
    "policy", ["rsa", "rsc", "asjf", "heteroprio", "min-min", "max-min", "sufferage", "brr"]
)
def test_every_policy_learns_from_nothing(policy: str, tmp_path) -> None:
    """Without any history nothing is predicted at first; everything runs all the same, once each."""
    report = api.simulate(
        "published:ravi-single-table?jobs=24", cluster="2x4cpu+1gpu", policy=policy, knowledge="learned"
    )
    assert all(job["state"] == "COMPLETED" for job in report.jobs)
    check_schedule(report.result, api.load_workload("published:ravi-single-table?jobs=24"))
