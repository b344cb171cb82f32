"""Values of ``--each`` and ``grid``."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail.errors import InputError
from dovetail.workloads.grids import grid_combinations, parse_each, parse_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.10,1e-3", ["0.10", "1e-3"]),
        ("1..5", ["1", "2", "3", "4", "5"]),
        ("5..1..2", ["5", "3", "1"]),
        ("-1..1", ["-1", "0", "1"]),
        ("1..10..4", ["1", "5", "9"]),
        ("a,1..2,b c", ["a", "1", "2", "b c"]),
        ("01..03", ["01", "02", "03"]),
        ("8..010", ["008", "009", "010"]),
        ("-01..1", ["-01", "000", "001"]),
        ("10..08..2", ["10", "08"]),
        ("0..2", ["0", "1", "2"]),
        ("a..b", ["a..b"]),
        ("0.1..0.5", ["0.1..0.5"]),
    ],
)
def test_values(text: str, values: list[str]) -> None:
    assert parse_values(text, "--each x") == values


def test_patterns_are_files(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv"):
        (tmp_path / name).write_text("")
    assert parse_values("*.csv,x", "--each x", tmp_path) == ["a.csv", "b.csv", "x"]
    with pytest.raises(InputError, match="which no file matches"):
        parse_values("*.none", "--each x", tmp_path)


@pytest.mark.parametrize(
    ("each", "message"),
    [
        (["lr"], "--each: found 'lr', expected NAME=VALUES"),
        (["1x=2"], "--each: found '1x=2', expected NAME=VALUES"),
        (["a=1", "a=2"], "--each: found the name 'a' a second time"),
        (["device=cpu"], "--each: found the name 'device' which stands for the device"),
        (["a="], "--each a: found '', expected values with commas between them"),
        (["a=1,,2"], "--each a: found '1,,2', expected values"),
        (["a=1..3..0"], "--each a: found '1..3..0', expected a range"),
        (["a=1..99999999"], "--each a: found '1..99999999', expected a range of at most 1000000 values"),
        (["a=1..2000", "b=1..2000"], "--each: found 4000000 combinations, expected at most 1000000"),
    ],
)
def test_what_is_no_grid_is_refused(each: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_each(each)
    assert str(caught.value).startswith(message)


def test_the_last_name_changes_fastest() -> None:
    found = list(grid_combinations({"a": [1, 2], "b": [3, 4]}))
    assert [tuple(one.values()) for one in found] == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert list(grid_combinations({})) == [{}]
