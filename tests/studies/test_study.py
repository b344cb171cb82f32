"""A study's three forms: nothing is lost at any width, on the page, or in JSON."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from dovetail.cli.main import status_of
from dovetail.errors import InputError
from dovetail.report import tables
from dovetail.report.intervals import Interval
from dovetail_lab.aupy import claims as aupy
from dovetail_lab.claims import Claim, Verdict
from dovetail_lab.gregg import claims as gregg
from dovetail_lab.markthub import claims as markthub
from dovetail_lab.ravi import multi, single
from dovetail_lab.shirahata import study as shirahata
from dovetail_lab.study import (
    Chart,
    Prose,
    Study,
    Table,
    format_interval,
    prepare_folder,
    publish_study,
    show_study,
    study_page,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row:
    name: str
    found: Interval


def drawn() -> Figure:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_axes((0.1, 0.1, 0.8, 0.8)).plot([1, 2], [3, 4])
    return figure


WIDE = Table(
    "A table with more columns than a terminal has room for, and a long title that goes on and on and on",
    ("policy", *(f"mix {i}" for i in range(12))),
    tuple((f"policy-{r}", *(f"1,{r}{c:02}.25 ± 0.{c:02}" for c in range(12))) for r in range(3)),
    faint=frozenset([1]),
    note="What it is about.",
)
LONG = Table(
    "Rows with long names",
    ("clock, applications", "placement", "seconds"),
    (("+0.46 s on the GPU, +0.56 s on the CPU, all sixteen of them", "gpu only, in table order", "11.588"),),
    names=2,
)
STUDY = Study(
    "example",
    "An example",
    "Nothing is studied here; this line only goes on for so long that it must be broken somewhere.",
    (
        WIDE,
        LONG,
        Chart("figure-1", "Figure 1", drawn, lambda width: "#" * width, "A note on the chart."),
        Prose("Words", ("A sentence <b>with</b> signs.", "Another one.")),
    ),
    (
        Claim("It is twice as fast", "2.0", "1.9", "1.95 ± 0.10", Verdict.YES),
        Claim("Something else", "-", "", "1.2", Verdict.UNSAID),
    ),
    {"rows": [Row("a", Interval(1.0, 0.5, 3))]},
)


def text_at(width: int) -> str:
    out = io.StringIO()
    show_study(STUDY, Console(file=out, width=width, highlight=False))
    return out.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
def test_no_width_loses_a_digit_or_a_column(width: int) -> None:
    text = text_at(width)
    assert "…" not in text
    for row in (*WIDE.rows, *LONG.rows):
        for cell in row[1:] if row in WIDE.rows else row[2:]:
            assert cell in text
    for column in WIDE.columns:
        assert re.search(rf"\b{column}\b", text)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    words = " ".join(text.split())
    assert "It is twice as fast" in words
    assert "paper 2.0; reference 1.9; ours 1.95 ± 0.10" in words
    assert "not in the paper: Something else" in words


def test_rows_are_named_again_where_a_table_goes_on_below() -> None:
    assert text_at(60).count("policy-2") > text_at(300).count("policy-2") == 1


def test_away_from_a_terminal_it_is_plain_and_80_wide(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    publish_study(STUDY, as_json=False, out=None)
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    monkeypatch.setenv("COLUMNS", "120")
    assert tables.make_console().width == 120


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br", "path", "use", "image"):
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


def test_the_page_has_every_cell_chart_and_claim() -> None:
    html = study_page(STUDY)
    parser = Cells()
    parser.feed(html)
    for row in (*WIDE.rows, *LONG.rows):
        assert set(row) <= set(parser.cells)
    assert {"It is twice as fast", "1.95 ± 0.10", "yes", "not in the paper"} <= set(parser.cells)
    assert html.count("<svg") == 1
    assert "A sentence &lt;b&gt;with&lt;/b&gt; signs." in html
    assert not re.search(r"<(script|link|img)|url\(http|src=", html)  # nothing is loaded from anywhere


STUDIES = {
    "gregg": gregg,
    "ravi-single": single,
    "ravi-multi": multi,
    "markthub": markthub,
    "aupy": aupy,
    "shirahata": shirahata,
}


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_names_its_constants_and_refuses_others(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ", ".join(constant.name for constant in STUDIES[name].CONSTANTS)
    assert status_of(["reproduce", name, "--set", "nothing=1"]) == 2
    assert f"--set: found 'nothing', expected one of {names}" in " ".join(capsys.readouterr().err.split())
    page = (Path(__file__).parents[2] / "docs/reference/reproduce.md").read_text()
    assert f"| `{name}` | {', '.join(f'`{one}`' for one in names.split(', '))} |" in page


def test_json_has_the_numbers_and_the_claims(capsys: pytest.CaptureFixture[str]) -> None:
    publish_study(STUDY, as_json=True, out=None)
    said = json.loads(capsys.readouterr().out)
    assert said["study"] == "example"
    assert said["rows"] == [{"name": "a", "found": {"mean": 1.0, "half_width": 0.5, "n": 3}}]
    assert said["claims"][0] == {
        "text": "It is twice as fast",
        "paper": "2.0",
        "reference": "1.9",
        "rests_on": [],
        "basis": "simulated",
        "readings": {},
        "over": "the only reading",
        "ours": "1.95 ± 0.10",
        "verdict": "yes",
    }
    with pytest.raises(TypeError, match="no JSON form"):
        Study("x", "", "", (), numbers={"a": object()}).json_text()


def test_the_folder_has_page_json_and_charts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = prepare_folder(tmp_path / "a" / "b")
    publish_study(STUDY, as_json=False, out=out)
    assert out is not None
    assert {path.name for path in out.iterdir()} == {"example.html", "example.json", "figure-1.svg"}
    assert prepare_folder(None) is None
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file/c: cannot be made"):
        prepare_folder(tmp_path / "file" / "c")


def test_a_mean_with_its_interval() -> None:
    assert format_interval(None) == "-"
    assert format_interval(Interval(-0.0001, 0.0, 9)) == "0.00 ± 0.00"
    assert format_interval(Interval(1234.5, 12.3, 9)) == "1,234 ± 12"
    assert format_interval(Interval(12.345, None, 1)) == "12.3"
    assert format_interval(Interval(1.17812, 0.00231, 9), 3) == "1.178 ± 0.002"
    assert format_interval(Interval(1e-16, 1e-16, 2), least=0.0) == "0.00 ± 0.00"
    assert format_interval(Interval(12.0, 50.0, 2), least=0.0) == "12.0 (0.0 to 62.0)"


def test_studies_are_listed_and_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["reproduce", "--help"]) == 0
    said = capsys.readouterr().out
    for name in ("aupy", "gregg", "ravi-multi", "ravi-single", "wrong-predictions"):
        assert name in said
    assert "..." not in said.partition("Commands:")[2]
    assert status_of(["reproduce", "greg"]) == 2
    assert "greg" in capsys.readouterr().err
