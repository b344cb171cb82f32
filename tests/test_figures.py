"""Pages say what their commands print (`make figures` rewrites it), and which test holds a claim."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from verdicts_page import ROWS

ROOT = Path(__file__).resolve().parents[1]
EXPLAINED = ROOT / "docs" / "explanation"
STUDIES = {"gregg", "ravi-single", "ravi-multi", "markthub", "aupy", "shirahata"}


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "tools" / "figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("page", "command"), [("hybrid-maps.md", "dovetail split"), ("ravi.md", "dovetail compare")]
)
def test_a_page_says_what_its_command_prints(
    figures: ModuleType, page: str, command: str, tmp_path: Path
) -> None:
    text = (EXPLAINED / page).read_text()
    assert f"<!-- figures: {command}" in text
    assert figures.refreshed(text, tmp_path, command) == text
    wrong = re.sub(r"\d(?=[^<>]*<!-- /figures -->)", "7", text)
    assert wrong != text
    assert figures.refreshed(wrong, tmp_path, command) != wrong


def test_tables_of_a_study_are_filled_in(figures: ModuleType, tmp_path: Path) -> None:
    """One cheap run gives its table, some columns of it, and a row for each entry of its JSON."""
    command = "dovetail reproduce wrong-predictions --seeds 2 --policies history,best-device --workers 1"
    text = "".join(
        f"<!-- figures: {command} | {what} -->\nold\n<!-- /figures -->\n"
        for what in ("Makespan over that", "Makespan over that | 10x; 2x", ".rows | f=factor:.1f; to=policy")
    )
    whole, some, rows = figures.refreshed(text, tmp_path).split("<!-- /figures -->\n")[:3]
    assert "| predictions off by up to | right | 1.5x | 2x | 3x | 5x | 10x |\n" in whole
    assert "± is half of the 95 % interval" in whole
    assert re.search(r"\| 10x \| 2x \|\n\| --- \| --- \|\n\| \d\.\d\d ±", some)
    assert "| f | to |\n| --- | --- |\n| 1.0 | history |\n| 1.5 | history |\n" in rows
    assert "old" not in whole + some + rows
    with pytest.raises(SystemExit, match="expected one title 'Makespan under'"):
        figures.refreshed(f"<!-- figures: {command} | Makespan under -->\n<!-- /figures -->\n", tmp_path)


def test_each_claim_has_a_test(figures: ModuleType) -> None:
    """The page of verdicts names the tests that hold a claim, and each mark is of a claim there."""
    assert {about.split()[0] for about in ROWS} == STUDIES
    for about, rows in ROWS.items():
        assert rows, about
        for row in rows:
            tests = figures.holding(about.split()[0], row[0])
            assert row[-1] == "<br>".join(f"`{test}`" for test in tests) != "", row[0]
    for study, beginning, test in figures.held():
        known = [row[0] for about, rows in ROWS.items() for row in rows if about.split()[0] == study]
        assert any(text.startswith(beginning) for text in known), (study, beginning, test)


def test_each_claim_has_what_it_was_judged_on() -> None:
    """Reproduces or not, live, simulated or stored, the command and its seconds, in each row."""
    for about, rows in ROWS.items():
        for _, _, outcome, basis, command, seconds, *_ in rows:
            assert outcome in ("reproduces", "in direction only", "does not", "open", "not in the paper")
            assert basis in ("live",) if "--live" in about else ("live", "simulated", "stored")
            assert command.startswith(f"`dovetail reproduce {about}")
            assert re.fullmatch(r"(> )?\d+ CPU|\d+ clock", seconds)


def test_a_table_of_claims_is_of_what_it_rests_on(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below each stands the digest of its study: what is of before a change of it fails here."""
    page = (ROOT / "docs" / "reference" / "verdicts.md").read_text()
    stored = [rows[0][4].strip("`") for rows in ROWS.values() if {row[3] for row in rows} == {"stored"}]
    assert figures.stale_tables(page, own=True) == stored
    assert len(stored) <= 2  # which are too dear to be made anew with each change
    assert len(figures.stale_tables(page.replace("<!-- rests on:", "<!-- of:"), own=True)) == len(ROWS)

    path = tmp_path / "study.py"
    path.write_text('"""One."""\nlimit = 1  # of what\n')
    before = figures._digest([path])
    path.write_text('"""Another."""\n\n\nlimit = 1\n')
    assert figures._digest([path]) == before
    path.write_text('"""One."""\nlimit = 2  # of what\n')
    assert figures._digest([path]) != before
    library = "from dovetail.a import two\nfrom dovetail.b import one\n"
    path.write_text(library)
    before = figures._digest([path])
    path.write_text("from dovetail.c import one\nfrom dovetail.a import two\n")  # one has moved
    assert figures._digest([path]) == before
    path.write_text("from dovetail.c import one, two\n")
    assert figures._digest([path]) == before
    path.write_text(library.replace("one", "other"))
    assert figures._digest([path]) != before
    assert figures.own_digest("aupy") != figures.own_digest("gregg")
    assert figures.own_digest("gregg", live=True) != figures.own_digest("gregg")

    monkeypatch.setattr(figures, "schedules_digest", lambda study: "0" * 12)
    assert len(figures.stale_tables(page)) == len(ROWS)


def test_a_table_of_claims_is_of_todays_schedules(
    figures: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper's workload under its policies, here and when the study ran; all papers by `make stale`."""
    page = (ROOT / "docs" / "reference" / "verdicts.md").read_text()
    (line,) = re.findall(
        r"<!-- rests on: \w+ (\w+) -->", page[page.index("reproduce ravi-single --seeds") :]
    )[:1]
    assert figures.schedules_digest("ravi-single") == line
    figures.schedules_digest.cache_clear()
    monkeypatch.setitem(
        figures.PLAYED, "ravi-single", (("published:ravi-single", {"cluster": "1x8cpu+1gpu"}, ("rsa",)),)
    )
    assert figures.schedules_digest("ravi-single") != line
    figures.schedules_digest.cache_clear()
