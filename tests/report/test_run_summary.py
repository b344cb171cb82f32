"""What is said after a live run: the outcome, and why jobs failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dovetail.model import App, Cluster, Job, Prediction, Record, Rejected, Result, State
from dovetail.report.run_summary import failure_lines, outcome_line

APP = App("a", ())


def record(id: str, state: State = State.COMPLETED, **fields: object) -> Record:
    found = Record(Job(id, APP, ()), state, start=0.0, end=4.0)
    for name, value in fields.items():
        setattr(found, name, value)
    return found


def result(*records: Record, **fields: Any) -> Result:
    cluster = Cluster.parse("1x1cpu")
    return Result("history", workload="jobs", cluster=cluster, records=list(records), **fields)


def test_all_well() -> None:
    told = outcome_line(result(record("a", predicted=Prediction(5.0, 6.0, 1, "")), record("b")))
    assert told == "2 of 2 jobs done in 4.000 s, predictions off by 25.0 %"


@pytest.mark.parametrize(
    ("alone", "words"),
    [
        (5.0, ", 25% faster than the CPU alone"),
        (3.8, ", 5% slower than the CPU alone"),
        (4.001, ""),
        (12.0, ", 3.0 times as fast as the CPU alone"),
    ],
)
def test_against_the_cpus_alone(alone: float, words: str) -> None:
    assert outcome_line(result(record("a")), alone) == f"1 of 1 job done in 4.000 s{words}"


def test_what_went_otherwise_is_counted() -> None:
    found = result(
        record("a"), record("b", State.FAILED), record("c", State.TIMEOUT), record("d", State.CANCELLED),
        rejected=[Rejected("e", "too large")],
    )  # fmt: skip
    assert outcome_line(found) == (
        "1 of 5 jobs done in 4.000 s, 1 failed, 1 ended at their walltime, 1 cancelled, 1 cannot run here"
    )


def test_a_failure_comes_with_the_last_lines_of_its_errors(tmp_path: Path) -> None:
    errors = tmp_path / "a.err"
    errors.write_text("1\n2\n\n3\n\x1b[31m4: no such thing\n\n")
    detail = "exit code 2; ?[31m4: no such thing"
    failed = record("a", State.FAILED, exit_code=2, detail=detail, stderr=str(errors))
    told = list(failure_lines(result(failed, record("b"))))
    assert told == ["a: FAILED: exit code 2", "    2", "    3", "    ?[31m4: no such thing"]


def test_without_output_the_reason_is_told() -> None:
    lost = record("a", State.NODE_FAIL, detail="its supervisor was killed", stderr="/nowhere/a.err")
    assert list(failure_lines(result(lost))) == ["a: NODE_FAIL: its supervisor was killed"]


def test_many_failures_are_counted() -> None:
    told = list(failure_lines(result(*(record(str(i), State.FAILED, exit_code=1) for i in range(13)))))
    assert told[:2] == ["0: FAILED: exit code 1", "1: FAILED: exit code 1"]
    assert told[10:] == ["… and 3 more; the JSON form has them all"]
