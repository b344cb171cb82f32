from __future__ import annotations

import json
import re
import shutil
import subprocess
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dovetail import __version__
from dovetail.comparison import compare
from dovetail.errors import InputError
from dovetail.model import Cluster, Prediction, Record, Rejected, Result, State
from dovetail.report.html import report_page
from dovetail.report.options import ReportOptions
from dovetail.report.report import Comparison, Report
from dovetail.report.wording import spell_seconds_shortly

Make = Callable[..., Record]
Build = Callable[..., Result]

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Checker(HTMLParser):
    """Finds tags that are not closed, and everything that would be loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            local = (value or "").startswith(("#", "data:")) or tag == "a"
            if name in ("src", "href", "xlink:href", "srcset", "data") and not local:
                self.loaded.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag


def check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert checker.loaded == []
    assert not re.search(r"url\((?!['\"]?(#|data:))", text)
    assert "@import" not in text
    assert "\x1b" not in text
    return checker


@pytest.fixture
def result(make_record: Make, make_result: Build) -> Result:
    predicted = Prediction(9.0, 12.0, 3, "least squares on n")
    records = [
        make_record("<b>x</b>", app="a&b", end=10, predicted=predicted, user='"u"'),
        make_record("g", start=0, end=25, cpus=0, devices=(0,), state=State.FAILED, user="v"),
        make_record("p", start=None, end=None, state=State.PENDING),
    ]
    return make_result(records, rejected=[Rejected("<huge>", "asks for 3 nodes of 1")])


def test_one_self_contained_page(result: Result, tmp_path: Path) -> None:
    path = Report(result).html(tmp_path / "out.html")
    text = Path(path).read_text(encoding="utf-8")
    checker = check(text)
    assert text.startswith("<!doctype html>")
    assert 'lang="en"' in text
    assert checker.tags.count("h1") == 1
    assert "prefers-color-scheme: dark" in text
    assert "&lt;b&gt;x&lt;/b&gt;" in text
    assert "<b>x</b>" not in text
    assert "Rejected: &lt;huge&gt;" in text
    assert text == Report(result).html()
    assert f"Made by Dovetail {__version__} on {date.today().isoformat()}." in text


def test_the_page_is_named_after_the_workload_and_says_what_made_it(result: Result) -> None:
    text = report_page([result], ReportOptions(command="dovetail simulate 'a <b>.toml'"))
    assert "<title>jobs.toml under history · Dovetail</title>" in text
    assert "<h1>jobs.toml</h1>" in text
    assert "by <code>dovetail simulate &#x27;a &lt;b&gt;.toml&#x27;</code>" in text
    both = report_page([result, replace(result, policy="easy")])
    assert "<title>jobs.toml: 2 compared · Dovetail</title>" in both


def test_metrics_are_explained_when_pointed_at(result: Result) -> None:
    assert re.search(r'title="Maximum idle time \(Ravi 2012\): [^"]+"', report_page([result]))
    both = report_page([result, replace(result, policy="easy")])
    assert 'title="Mean of start minus submission."' in both.partition("Outcome")[2]


def test_jobs_say_what_went_wrong_and_where_their_output_is(make_record: Make, make_result: Build) -> None:
    bad = make_record("bad", state=State.FAILED)
    bad.detail, bad.stderr = "no <gpu>", "/tmp/a run/bad.err"
    good = make_record("good")
    good.stdout, good.considered = "/tmp/a run/good.out", (("gpu", 3600.0 * 5), ("cpu", None))
    text = report_page([make_result([bad, good])])
    check(text)
    assert '<td class="bad">no &lt;gpu&gt;</td>' in text
    assert '<a href="file:///tmp/a%20run/bad.err">bad.err</a>' in text
    assert '<a href="file:///tmp/a%20run/good.out">good.out</a>' in text
    assert "gpu: 5.0 h; cpu: no history" in text


def test_learned_runs_show_predicted_against_actual(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", end=i + 1.0, predicted=Prediction(5.0, 9.0, 3, "mean")) for i in range(4)]
    assert "Predicted against actual" in report_page([make_result(records, knowledge="learned")])
    assert "Predicted against actual" not in report_page([make_result(records)])


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_schedules_are_data_on_one_axis(make_record: Make, make_result: Build) -> None:
    predicted = Prediction(9.0, 12.0, 3, "least squares on n")
    one = make_result([make_record("a/</script>", submit=10, start=12, end=15, predicted=predicted)])
    late = make_result([make_record("a/</script>", submit=10, start=14, end=30)], policy="easy")
    text = report_page([one, late])
    check(text)
    data = data_of(text)
    assert data["span"] == [10, 30]
    assert [names[0] for names, *_ in data["jobs"]] == ["a/</script>"]  # told once for both
    first, second = (chart["bars"][0] for chart in data["charts"])
    assert (first[:3], second[:3]) == ([0, 2, 5], [0, 4, 20])
    assert [data["words"][i] for i in (first[3], first[4], first[6])] == [
        "COMPLETED",
        "cpu",
        "least squares on n",
    ]
    assert (first[5], second[5]) == (9.0, None)
    assert first[-1] == [0, 0, 1000]


SAVED = """<script>
picture(document.querySelector("[data-save] svg")).then((url) => { document.title = url; });
</script>"""
browser = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.mark.skipif(browser is None, reason="needs a browser that draws pages without a screen")
def test_a_browser_draws_the_schedule_and_explains_each_bar(
    make_record: Make, make_result: Build, tmp_path: Path
) -> None:
    records = [
        make_record("a", end=7200, predicted=Prediction(9.0, 12.0, 3, "mean")),
        make_record("b", start=7200, end=9000, state=State.FAILED),
    ]
    wide = make_result(
        [make_record(f"j{i}", start=i, end=i + 1, nodes=[i]) for i in range(200)], Cluster.uniform(200, 1)
    )
    dom = {}
    for name, result in (("few", make_result(records)), ("many", wide)):
        path = tmp_path / f"{name}.html"
        Report(result).html(path)
        # What the button does, with the picture where the page's title was.
        path.write_text(path.read_text() + SAVED)
        command = [
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path}/b",
        ]
        done = subprocess.run(
            [*command, "--virtual-time-budget=2000", "--dump-dom", path.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        dom[name] = done.stdout
    drawn = dom["few"].partition('<svg class="gantt"')[2]
    assert drawn.count('<rect class="bar"') == 2
    said = "a: a (cpu)\nCOMPLETED, from 0 s to 2.0 h\nran 2.0 h, predicted 9 s (mean)\nwaited 0 s"
    assert f"<title>{said}</title>" in drawn
    assert '<g class="failed">' in drawn
    assert drawn.count('class="tick"') > 4
    assert "did not complete" in drawn
    for page in dom.values():
        assert page.count("Save as PNG</button>") == 1
        picture = b64decode(page.partition("<title>data:image/png;base64,")[2].partition("</title>")[0])
        assert picture[:8] == b"\x89PNG\r\n\x1a\n"
        assert int.from_bytes(picture[16:20]) >= 1500  # pixels: sharp on a slide
    assert "<image" in dom["many"].partition('<svg class="gantt"')[2]


def test_tables_sort_by_numbers(result: Result) -> None:
    text = Report(result).html()
    assert '<button type="button">run s</button>' in text
    assert 'data-v="25.0"' in text
    assert 'data-v=""' in text  # no start: sorted last
    assert "nan" not in re.findall(r'data-v="([^"]*)"', text)


def test_comparison_page(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=end + s)], policy=policy, seed=s)
        for policy, end in (("x<y", 10), ("z", 20))
        for s in (1, 2, 3)
    ]
    text = Comparison(results).html()
    check(text)
    assert "2 policies, on 1x1cpu+1gpu, 3 seeds" in text
    assert "<h2>Against x&lt;y, seed by seed</h2>" in text
    assert text.count("clear: zero is left out") == 1
    assert ">others</li>" in text
    assert ">95 % confidence interval, as in the table</li>" in text
    assert "x&lt;y" in text
    assert '<td class="number best" data-v="12.0">12.00 ± 2.48</td>' in text
    assert text.count("<details open") == 2


def test_the_legend_of_bars_names_only_colours_that_are_there(make_record: Make, make_result: Build) -> None:
    alike = [make_result([make_record("a", end=10)], policy=policy) for policy in ("x", "z")]
    legend = Comparison(alike).html().partition("<ul class='legend'>")[2].partition("</ul>")[0]
    assert "</span>the best</li>" in legend
    assert "others" not in legend


def test_large_results_stay_small(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", start=i, end=i + 1, nodes=[i % 200]) for i in range(5000)]
    text = Report(make_result(records, Cluster.uniform(200, 1))).html()
    check(text)
    assert "and 3,000 more; the JSON form has them all" in text
    assert len(text) < 2_000_000


def test_large_comparisons_open_without_schedules(make_record: Make, make_result: Build) -> None:
    records = [
        make_record(f"job-{i}", submit=i, start=i, end=i + 9, nodes=[i % 16, (i + 1) % 16], user="ann")
        for i in range(2900)
    ]
    results = [make_result(records, Cluster.uniform(16, 8), policy=p) for p in ("a", "b", "c", "d")]
    text = Comparison(results).html()
    check(text)
    assert "<details open" not in text
    assert text.index("Use over time") < text.index("<h2>Schedules")
    assert len(text) < 1_200_000


def test_nothing_has_run(make_result: Build) -> None:
    text = Report(make_result([])).html()
    check(text)
    assert "Nothing has run." in text
    check(Comparison([]).html())


def test_notebooks(result: Result) -> None:
    assert "<svg" in Report(result)._repr_html_()
    assert "<table" in Comparison([result, result])._repr_html_()


def test_says_where_it_cannot_write(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be written \(no such file"):
        Report(result).html(tmp_path / "no" / "a.html")


@pytest.mark.parametrize(
    ("jobs", "end"),
    [(120, "; the difference is clear."), (20, "; 20 jobs are too few for a verdict.")],
)
def test_a_comparison_begins_with_a_plain_sentence(jobs: int, end: str) -> None:
    found = compare(f"synthetic:rigid?jobs={jobs}&nodes=8&load=1.2", ["fcfs", "easy"], seeds=6)
    page = report_page(list(found.results))
    sentence = page.partition("<p><strong>")[2].partition("</strong>")[0]
    assert sentence.startswith("easy would have cut the mean wait of fcfs from ")
    assert sentence.endswith(end)
    waits = [
        sum(r.start - r.job.submit_time for r in result.records if r.start is not None) / jobs
        for result in found.results
    ]
    was, becomes = sum(waits[:6]) / 6, sum(waits[6:]) / 6
    assert f"from {spell_seconds_shortly(was)} to {spell_seconds_shortly(becomes)};" in sentence
    heads = re.findall(r"<h3>([^<]*)</h3>|<caption>([^<]*)</caption>", page)
    titles = [a or b for a, b in heads if "Against" in a + b]
    assert len(titles) == len(set(titles))


def test_one_policy_or_one_draw_has_no_sentence() -> None:
    found = compare("synthetic:rigid?jobs=120&nodes=8&load=1.2", ["fcfs", "easy"], seeds=2)
    for chosen in (found.results[:2], found.results[::2]):
        assert len(list(chosen)) == 2
        assert "<p><strong>" not in report_page(list(chosen))
