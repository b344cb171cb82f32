"""A cut, break-downs and a reference reach the JSON form, the tables, the pages and the charts alike."""

from __future__ import annotations

import json

import pytest

from dovetail.errors import InputError
from dovetail.report import drawing, plots, tables
from dovetail.report.compared import later_table
from dovetail.report.intervals import compare_paired
from dovetail.report.json_form import text_of, to_json
from dovetail.report.metrics import TrimmedTrace, break_down, final_metrics
from dovetail.report.options import ReportOptions
from dovetail.report.outcome import breakdown_table, outcome_summary
from dovetail.report.report import Comparison, Report


@pytest.fixture
def run(make_record, make_result):
    """Jobs submitted at 0, 10, 20, 30 and 40 that wait for 0, 1, 2, 3 and 4 times a factor."""

    def make(factor=1.0, **about):
        records = [
            make_record(
                f"j{i}",
                submit=10.0 * i,
                start=10.0 * i + factor * i,
                end=10.0 * i + factor * i + 5,
                user="ann" if i % 2 else "bob",
            )
            for i in range(5)
        ]
        return make_result(records, **about)

    return make


MIDDLE = TrimmedTrace(10.0, 10.0)


def test_the_cut_decides_which_jobs_count(run):
    result = run()
    assert final_metrics(result)["mean_wait"] == 2.0
    assert final_metrics(result, MIDDLE)["mean_wait"] == 2.0
    assert final_metrics(result, MIDDLE)["jobs_counted"] == 3
    assert final_metrics(result, TrimmedTrace(15.0, 0.0))["mean_wait"] == 3.0
    assert final_metrics(result)["jobs_counted"] == 5  # each cut is remembered apart
    assert {name: m["jobs"] for name, m in break_down(result, "user", cut=MIDDLE).items()} == {
        "ann": 2,
        "bob": 1,
    }


def test_the_json_form_says_what_was_asked(run):
    result, other = run(2.0), run(1.0, policy="fcfs")
    form = to_json(result, ReportOptions(MIDDLE, ["user"]).with_references([other]))
    assert form["cut"] == {"warmup": 10.0, "cooldown": 10.0, "fraction": False}
    assert form["breakdown"]["user"]["ann"]["jobs"] == 2
    assert form["later_than"] == {"policy": "fcfs", "jobs": {"j1": 1.0, "j2": 2.0, "j3": 3.0, "j4": 4.0}}
    assert (form["metrics"]["later_jobs"], form["metrics"]["later_max"]) == (4, 4.0)
    assert json.loads(text_of([form]))[0] == json.loads(text_of(form))
    assert not {"cut", "breakdown", "later_than"} & set(to_json(result))


def test_tables_and_pages_say_that_means_are_cut(run):
    result = run()
    said = tables.render_plain(outcome_summary(result, cut=MIDDLE))
    assert "Means are over 3 jobs, without warm-up and cool-down." in said
    assert "bob      1 " in tables.render_plain(breakdown_table(result, "user", cut=MIDDLE))
    page = Report(result).html(cut=MIDDLE)
    assert "Means are over 3 jobs" in page
    assert "Means are over" not in Report(result).html()
    both = Comparison([run(policy="a"), run(2.0, policy="b")]).html(cut=MIDDLE)
    assert "Means leave out the warm-up and the cool-down." in both


def test_later_than_the_reference_by_policy(run):
    results = [run(2.0, policy="b", seed=1), run(3.0, policy="b", seed=2)]
    references = [run(1.0, policy="fcfs", seed=1), run(3.0, policy="fcfs", seed=2)]
    said = tables.render_plain(later_table(results, ReportOptions().with_references(references)))
    assert "Jobs that end later than under fcfs" in said
    assert "b                2" in said  # 4 of one seed, 0 of the other
    assert "mean over the seeds" in said


def test_pairs_are_compared_within_the_cut(run):
    first = [run(1.0, policy="a", seed=s) for s in (1, 2)]
    second = [run(2.0, policy="b", seed=s) for s in (1, 2)]
    assert compare_paired(first, second, "mean_wait").difference.mean == -2.0
    assert compare_paired(first, second, "mean_wait", cut=TrimmedTrace(25.0, 0.0)).difference.mean == -3.5


def test_a_chart_over_the_load(run, tmp_path):
    results = [run(x, policy=p, load=x) for x in (0.5, 1.0) for p in ("a", "b")]
    drawing.save_drawing(plots.over_load(results), tmp_path / "loads.svg")
    text = (tmp_path / "loads.svg").read_text()
    assert "offered load" in text
    assert "Mean wait (s)" in text


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1.0])
def test_a_cut_is_finite(value):
    with pytest.raises(InputError):
        TrimmedTrace(value)


def test_a_cut_that_leaves_no_job_compares_nothing_seed_by_seed(run):
    results = [run(f * s, policy=p, seed=s) for f, p in ((1.0, "a"), (2.0, "b")) for s in (1, 2)]
    assert "wait difference" in Comparison(results).html(cut=MIDDLE).partition("seed by seed")[2]
    page = Comparison(results).html(cut=TrimmedTrace(1e6, 1e6))
    assert "makespan difference" in page.partition("seed by seed")[2]
    assert "wait difference" not in page.partition("seed by seed")[2]


@pytest.mark.parametrize(
    ("warmup", "found"),
    [("60%", "found 60.0% and 60.0%"), ("-5", "found -5 and -5"), ("nan", "found nan and nan")],
)
def test_a_cut_that_cannot_be_is_one_sentence(warmup, found):
    with pytest.raises(InputError, match=rf"warm-up and cool-down: {found}, expected two finite numbers"):
        TrimmedTrace.parse_trim(warmup)
    with pytest.raises(InputError, match="found '10%%' and '10%%', expected seconds or 10%"):
        TrimmedTrace.parse_trim("10%%")
