"""Pages say what their commands print (`make figures` rewrites it), and which test holds a claim."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from verdicts_page import ROWS, texts

ROOT = Path(__file__).resolve().parents[1]
EXPLAINED = ROOT / "docs" / "explanation"


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
    assert set(ROWS) == {"gregg", "ravi-single", "ravi-multi", "markthub", "aupy", "shirahata"}
    for study, rows in ROWS.items():
        assert rows, study
        for row in rows:
            tests = figures.holding(study, row[0])
            assert row[-1] == "<br>".join(f"`{test}`" for test in tests) != "", row[0]
    for study, beginning, test in figures.held():
        assert any(text.startswith(beginning) for text in texts(study)), (study, beginning, test)
