from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail import extras
from dovetail.errors import InputError
from dovetail.model import Record, Rejected, Result
from dovetail.report.report import Comparison, Report

Make = Callable[..., Record]
Build = Callable[..., Result]


@pytest.fixture
def report(make_record: Make, make_result: Build) -> Report:
    records = [make_record("a", end=3.0), make_record("b", start=3.0, end=4.0)]
    return Report(make_result(records, rejected=[Rejected("c", "too large")]))


def test_what_it_offers(report: Report) -> None:
    assert report.makespan == 4.0
    assert report.policy == "history"
    assert [job["id"] for job in report.jobs] == ["a", "b"]
    assert report.metrics["mean_wait"] == 1.5
    assert report.rejected == ["c"]
    assert json.loads(report.json()) == json.loads(json.dumps(report.to_json()))
    assert "Makespan" in str(report)
    assert repr(report) == "Report('history', 2 jobs, makespan=4)"


def test_to_pandas(report: Report) -> None:
    pytest.importorskip("pandas")
    frame = report.jobs.to_pandas()
    assert frame.loc["b", "start"] == 3.0
    assert list(frame.index) == ["a", "b"]


def test_to_pandas_without_pandas(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    with pytest.raises(InputError, match="needs pandas, which is not installed"):
        report.jobs.to_pandas()


def test_refuses_a_figure_of_another_kind(report: Report, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a name that ends in \.svg, \.png, \.pdf"):
        report.gantt(tmp_path / "out.bmp")


def test_comparison(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=e)], policy=p, seed=s)
        for p, e in (("x", 1.0), ("y", 2.0))
        for s in (1, 2)
    ]
    comparison = Comparison(results)
    assert len(comparison) == 4
    assert comparison[0].policy == "x"
    assert comparison.policies == ["x", "y"]
    assert comparison.paired("x", "y").wins == 2
    assert [form["policy"] for form in json.loads(comparison.json())] == ["x", "x", "y", "y"]
    assert "policy" in str(comparison)
    with pytest.raises(InputError, match="expected one of x, y"):
        comparison.paired("x", "z")
