"""What a job could ask for instead, and when a difference is shown."""

from __future__ import annotations

from dovetail.cli.tested import job_alternatives
from dovetail.starts.comparing import starts_sooner


def test_one_thing_is_changed_at_a_time() -> None:
    job = {
        "command": ["x"],
        "on": ["cpu", "gpu"],
        "walltime": 3600.0,
        "nodes": 3,
        "memory": 8,
        "partition": "a",
    }
    found = dict(job_alternatives(job, ["a", "b"]))
    assert found["--on gpu"] == {**job, "on": ["gpu"]}
    assert found["a walltime of 15:00"] == {**job, "walltime": 900.0}
    assert found["--partition b"] == {**job, "partition": "b"}
    assert found["2 nodes"] == {**job, "nodes": 2}
    assert found["half the memory"] == {**job, "memory": 4}
    assert len(found) == 7
    assert job_alternatives({"command": ["x"], "on": ["cpu"]}, ["a", "b"]) == []


def test_a_difference_is_shown_where_most_draws_agree() -> None:
    assert starts_sooner([0.0] * 8 + [100.0] * 2, [100.0] * 10)
    assert not starts_sooner([0.0] * 4 + [100.0] * 6, [100.0] * 10)
    assert not starts_sooner([50.0] * 10, [100.0] * 10), "by less than a minute"
    assert not starts_sooner([300.0] * 10, [100.0] * 10)
