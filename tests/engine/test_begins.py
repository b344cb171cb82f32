"""Jobs that begin at a moment or later, after the start of others, or after one of several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.driver.admission import Admission
from dovetail.engine.journal.codec import decode_job, encode_job
from dovetail.model import Cluster, Dependency, Job, State, TableTruth, Workload
from dovetail.policies.fcfs import Fcfs
from dovetail.runtimes.perfect import PerfectModel
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import rigid


def run(*jobs: Job, cpus: int = 8) -> dict[str, tuple[float | None, State]]:
    times = {job.id: float(job.inputs["seconds"]) for job in jobs}
    truth = TableTruth(fixed=times)
    found = simulate(
        Workload("test", jobs, truth), Cluster.uniform(1, cpus), Fcfs(), PerfectModel(truth),
        options=SimulationOptions(validate=True),
    )  # fmt: skip
    return {record.job.id: (record.start, record.state) for record in found.records}


def job(id: str, seconds: float, *depends: str, begin: float | None = None) -> Job:
    made = rigid([(0.0, 1, 1.0, None)]).jobs[0]
    after = tuple(map(Dependency.parse, depends))
    return replace(made, id=id, inputs={"seconds": seconds}, depends=after, begin=begin)


def test_a_job_does_not_start_before_its_begin() -> None:
    found = run(job("a", 10), job("b", 1, begin=25.0), job("c", 1, begin=0.0))
    assert [start for start, _ in found.values()] == [0.0, 25.0, 0.0]


def test_after_is_the_start_and_perhaps_some_minutes() -> None:
    found = run(job("a", 100), job("b", 1, "after:a"), job("c", 1, "after:a+1"), job("d", 1, "afterok:a"))
    assert [start for start, _ in found.values()] == [0.0, 0.0, 60.0, 100.0]


def test_after_a_job_that_waits_itself() -> None:
    found = run(job("a", 10), job("b", 5, begin=40.0), job("c", 1, "after:b"))
    assert found["c"][0] == 40.0


def test_one_of_several_is_enough() -> None:
    either = job("c", 1, "?afterok:a", "?afterok:b"), job("d", 1, "?afternotok:a", "?afterok:b")
    found = run(job("a", 10), job("b", 30), *either)
    assert found["c"] == (10.0, State.COMPLETED)
    assert found["d"] == (30.0, State.COMPLETED)


def test_where_none_of_several_comes_true_the_job_is_cancelled() -> None:
    found = run(job("a", 10), job("b", 30), job("c", 1, "?afternotok:a", "?afternotok:b"))
    assert found["c"][1] is State.CANCELLED


def test_others_have_to_come_true_as_well() -> None:
    found = run(job("a", 10), job("b", 30), job("c", 1, "?afterok:a", "?afterok:b", "afterany:b"))
    assert found["c"][0] == 30.0


def test_a_begin_and_a_dependency_both_hold() -> None:
    found = run(job("a", 10), job("b", 1, "afterok:a", begin=5.0), job("c", 1, "afterok:a", begin=15.0))
    assert (found["b"][0], found["c"][0]) == (10.0, 15.0)


@pytest.mark.parametrize("text", ["afterok:7", "after:7", "after:7+5", "?afterany:x+1", "?after:a+2"])
def test_dependencies_are_written_as_they_are_read(text: str) -> None:
    found = Dependency.parse(text)
    assert str(found) == text
    made = job("x", 1, text, begin=12.5)
    assert decode_job(encode_job(made), made.app).depends == (found,)
    assert decode_job(encode_job(made), made.app).begin == 12.5


@pytest.mark.parametrize("text", ["afterok", "after:", "before:7", "??after:7"])
def test_what_is_no_dependency(text: str) -> None:
    with pytest.raises(ValueError, match="expected afterok:JOB"):
        Dependency.parse(text)


def test_a_plain_dependency_has_the_form_of_old_ledgers() -> None:
    assert encode_job(job("x", 1, "afterok:7"))["depends"] == [["afterok", "7"]]


def test_admission_alone_has_no_moment() -> None:
    assert Admission(lambda job: None).next_time() == float("inf")
