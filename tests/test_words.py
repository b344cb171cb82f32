"""Code, help and pages speak of components: `tools/house.py` counts the words for people."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
MOST = 3
"""In 1,000 lines."""


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["house"] = module  # dataclasses and named tuples look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["code", "pages"])
def test_words_for_people_are_rare(house: ModuleType, kind: str) -> None:
    files = house.list_code(ROOT) if kind == "code" else house.list_pages(ROOT)
    total = house.add_rooms(house.measure_rooms(files, ROOT))
    assert total.lines > 1000
    found = [
        f"{file.relative_to(ROOT)}:{number}: {line}"
        for file in files
        for number, line, _ in house.matching_lines(file, ROOT)
    ]
    few = "\n".join(found[:40])
    assert 1000 * total.words <= MOST * total.lines, (
        f"{total.words} words in {total.lines} lines, expected at most {MOST} in 1,000;\n"
        f"`python tools/house.py --words` lists them all, of which these are the first:\n{few}"
    )


def test_every_exception_has_its_line_and_a_reason(house: ModuleType) -> None:
    assert house.list_stale_exceptions(ROOT) == []
    assert all(reason for reason in house.EXCEPTIONS.values())


def test_the_count_sees_each_word(house: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("Nobody was told.\nThe task is asked, whoever says so.\nA telltale, basking, essays.\n")
    assert [count for _, _, count in house.matching_lines(page, tmp_path)] == [2, 3]
    assert house.measure_file(page, tmp_path).rates()["words_per_1000_lines"] == pytest.approx(
        1000 * 5 / 3, abs=0.01
    )


def test_names_and_comments_are_counted(house: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "src" / "dovetail" / "room" / "part.py"
    file.parent.mkdir(parents=True)
    file.write_text(
        "# why\ndef _fit(x):\n    _log.info(x)\n\n\ndef choose_nodes(x):\n    def __init__(self): ...\n"
    )
    room = house.measure_rooms(house.list_code(tmp_path), tmp_path)["src/dovetail/room"]
    assert (room.lines, room.comments, room.functions, room.letters, room.one_word, room.logging) == (
        7,
        1,
        2,
        15,
        1,
        1,
    )
