"""What the months of a trace differ by, and the intervals that hold it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail.comparison import compare
from dovetail.errors import InputError
from dovetail.model import Record, Replicate, Result
from dovetail.report.drift import MONTH, drift_of, figure_intervals
from dovetail.report.intervals import Interval, student_quantile
from dovetail.report.metrics import TrimmedTrace

Make = Callable[..., Record]
Build = Callable[..., Result]
DAY = 86_400.0


def jobs_of(make_record: Make, waits: list[tuple[float, float]]) -> list[Record]:
    """A job of 100 s for each (day of submission, wait)."""
    return [
        make_record(f"j{n}", submit=day * DAY, start=day * DAY + wait, end=day * DAY + wait + 100.0)
        for n, (day, wait) in enumerate(waits)
    ]


def test_three_spans_by_hand(make_record: Make, make_result: Build) -> None:
    """Days 0 to 30: spans of ten days; the last submission belongs to the last span."""
    waits = [(0.0, 10.0), (9.0, 30.0), (11.0, 100.0), (25.0, 40.0), (30.0, 60.0)]
    found = drift_of(make_result(jobs_of(make_record, waits)))
    assert found is not None
    assert found.length == pytest.approx(10 * DAY)
    assert found.values_of("mean_wait") == pytest.approx([20.0, 100.0, 50.0])
    assert found.between("mean_wait") == pytest.approx(math.sqrt((80.0**2 + 50.0**2) / 2))
    assert found.between("makespan") is None
    wide = found.widen(Interval(56.0, 30.0, 10), "mean_wait")
    reach = student_quantile(2, 0.95) * math.sqrt(4450.0)
    assert wide.half_width == pytest.approx(math.hypot(30.0, reach))
    assert found.widen(Interval(56.0, 30.0, 10), "makespan") == Interval(56.0, 30.0, 10)


def test_a_long_trace_has_a_span_a_month_and_an_empty_one_is_left_out(
    make_record: Make, make_result: Build
) -> None:
    """Five months, the second without a job: two differences between neighbours remain."""
    months = [(0.0, 7.0), (2.2, 10.0), (3.5, 16.0), (5.0, 8.0)]
    waits = [(month * MONTH / DAY, wait) for month, wait in months]
    found = drift_of(make_result(jobs_of(make_record, waits)))
    assert found is not None
    assert found.values_of("mean_wait") == [7.0, None, 10.0, 16.0, 8.0]
    assert found.between("mean_wait") == pytest.approx(math.sqrt((36.0 + 64.0) / 2))


def test_a_cut_and_one_instant(make_record: Make, make_result: Build) -> None:
    waits = [(0.0, 1e6), *((day, day) for day in range(10, 41, 5))]
    result = make_result(jobs_of(make_record, waits))
    found = drift_of(result, TrimmedTrace(5 * DAY))
    assert found is not None
    assert found.values_of("mean_wait") == pytest.approx([12.5, 22.5, 35.0])
    assert drift_of(make_result(jobs_of(make_record, [(3.0, 1.0), (3.0, 2.0)]))) is None


def test_spans_are_those_of_the_trace_as_it_is(make_record: Make, make_result: Build) -> None:
    """Weeks that were drawn anew are not in their order, so what they differ by is no drift."""
    steady = make_result(jobs_of(make_record, [(0.0, 5.0), (15.0, 5.0), (30.0, 5.0)]))
    drawn = make_result(jobs_of(make_record, [(0.0, 5.0), (15.0, 500.0), (30.0, 5.0)]))
    group = [replace(drawn, replicate=Replicate(1, 600.0)), steady]
    (alone,), (wide,) = (
        figure_intervals({"easy": group}, "mean_wait", drift=drift) for drift in (False, True)
    )
    assert alone is not None
    assert wide == alone


LOG = "; MaxProcs: 8\n" + "".join(
    f"{n} {3600 * n} -1 {1800 + 911 * n % 7000} {1 + 3 * n % 8} -1 -1 -1 9000 -1 1 {n % 3} 1 1 1 1 -1 -1\n"
    for n in range(90)
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(LOG)
    return path


def test_tables_json_and_summary(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "summary.json"
    call = ["compare", str(log), "--policy", "fcfs,easy", "--workers", "1", "--replicates", "4"]
    assert status_of([*call, "--summary", str(file)]) == 0
    plain, without = " ".join(capsys.readouterr().out.split()), json.loads(file.read_text())
    assert "± 95 % confidence interval of this log, resampled (4 replicates)" in plain
    assert "--drift adds what the months of this log differ by" in plain
    assert status_of([*call, "--summary", str(file), "--drift"]) == 0
    wide, summary = " ".join(capsys.readouterr().out.split()), json.loads(file.read_text())
    assert "of this log, resampled (4 replicates), with its drift" in wide
    assert "Drift: in 3 consecutive spans of 29.7 h the mean wait under fcfs is" in wide
    # Differences between policies stay; figures come beside them, of the first policy, too.
    assert set(summary["mean_wait"]) == {"fcfs", "easy"}
    figure = summary["mean_wait"]["easy"].pop("figure")
    assert summary["mean_wait"]["easy"] == without["mean_wait"]["easy"]
    assert summary["mean_wait"]["fcfs"]["verdict"] == "none"

    assert status_of([*call, "--json", "--drift"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["replicate"] for entry in entries if "drift" in entry] == [0, 0]
    easy = [entry for entry in entries if entry["policy"] == "easy"]
    spans = easy[0]["drift"]["metrics"]["mean_wait"]
    first, second, third = spans["spans"]
    assert spans["drift"] == pytest.approx(math.hypot(second - first, third - second) / math.sqrt(2))
    jobs = [job for job in easy[0]["jobs"] if job["submit"] <= 29 * 3600]
    assert first == pytest.approx(sum(job["start"] - job["submit"] for job in jobs) / 30)
    means = [entry["metrics"]["mean_wait"] for entry in easy]
    assert figure["mean"] == pytest.approx(sum(means) / 4)
    assert figure["drift"] == spans["drift"]
    most = figure["mean"] + student_quantile(2, 0.95) * spans["drift"]
    assert figure["high"] > most


def test_pages_and_charts_have_it_too(log: Path) -> None:
    one, other = (compare(log, "fcfs,easy", replicates=2, drift=drift) for drift in (False, True))
    assert "with its drift" in other.html()
    assert "with its drift" in " ".join(str(other).split())
    assert "with its drift" not in one.html()


@pytest.mark.parametrize(
    ("source", "arguments", "found"),
    [
        ("LOG", ("--seeds", "2"), "found --drift and --seeds, expected one of them"),
        ("LOG", ("--live",), "found --drift with --live"),
        ("synthetic:rigid?jobs=20&nodes=4", (), "found drift with fresh draws of a model, expected a trace"),
        ("published:gregg-table2", ("--cluster", "1x1cpu+1gpu"), "found drift with jobs of one instant"),
    ],
)
def test_what_has_no_months(
    log: Path, capsys: pytest.CaptureFixture[str], source: str, arguments: tuple[str, ...], found: str
) -> None:
    file = str(log) if source == "LOG" else source
    assert status_of(["compare", file, "--policy", "fcfs", "--drift", *arguments]) == 2
    assert found in capsys.readouterr().err


def test_python_refuses_seeds(log: Path) -> None:
    with pytest.raises(InputError, match="found both drift and seeds"):
        compare(log, "fcfs", drift=True, seeds=2)
