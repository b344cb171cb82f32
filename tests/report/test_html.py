from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.model import Cluster, Prediction, Record, Rejected, Result, State
from dovetail.report import Comparison, Report

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
            local = (value or "").startswith(("#", "data:"))
            if name in ("src", "href", "xlink:href", "srcset", "data") and not local:
                self.loaded.append(f"{tag} {name}={value}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag


def check(page: str) -> Checker:
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    assert checker.loaded == []
    assert not re.search(r"url\((?!['\"]?(#|data:))", page)
    assert "@import" not in page
    assert page.isprintable() or "\x1b" not in page
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
    page = Path(path).read_text(encoding="utf-8")
    checker = check(page)
    assert page.startswith("<!doctype html>")
    assert 'lang="en"' in page
    assert checker.tags.count("h1") == 1
    assert "prefers-color-scheme: dark" in page
    assert "&lt;b&gt;x&lt;/b&gt;" in page
    assert "<b>x</b>" not in page
    assert "Rejected: &lt;huge&gt;" in page
    assert "predicted 9.000 s (least squares on n)" in page
    assert page == Report(result).html()


def test_tables_sort_by_numbers(result: Result) -> None:
    page = Report(result).html()
    assert '<button type="button">run s</button>' in page
    assert 'data-v="25.0"' in page
    assert 'data-v=""' in page  # no start: sorted last
    assert "nan" not in re.findall(r'data-v="([^"]*)"', page)


def test_comparison_page(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", end=end + s)], policy=policy, seed=s)
        for policy, end in (("x<y", 10), ("z", 20))
        for s in (1, 2, 3)
    ]
    page = Comparison(results).html()
    check(page)
    assert "2 policies compared" in page
    assert "Seed by seed" in page
    assert "x&lt;y" in page
    assert '<td class="number best" data-v="12.0">12.000 ± 2.484</td>' in page
    assert page.count("<details") == 2


def test_large_results_stay_small(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", start=i, end=i + 1, nodes=[i % 200]) for i in range(5000)]
    page = Report(make_result(records, Cluster.uniform(200, 1))).html()
    check(page)
    assert "the JSON form has 3,000 more" in page
    assert len(page) < 2_000_000


def test_nothing_has_run(make_result: Build) -> None:
    page = Report(make_result([])).html()
    check(page)
    assert "Nothing has run." in page
    check(Comparison([]).html())


def test_notebooks(result: Result) -> None:
    assert "<svg" in Report(result)._repr_html_()
    assert "<table" in Comparison([result, result])._repr_html_()


def test_says_where_it_cannot_write(result: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be written \(no such file"):
        Report(result).html(tmp_path / "no" / "a.html")
