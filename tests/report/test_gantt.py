from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from dovetail.errors import InputError
from dovetail.model import Cluster, Record, Result, State
from dovetail.report import Report, gantt, tables

Make = Callable[..., Record]
Build = Callable[..., Result]


@pytest.fixture
def small(make_record: Make, make_result: Build) -> Result:
    records = [
        make_record("sort", start=0, end=50),
        make_record("sum", start=50, end=100, state=State.FAILED),
        make_record("a$b$", start=0, end=25, cpus=0, devices=(0,)),
    ]
    return make_result(records)


@pytest.fixture
def large(make_record: Make, make_result: Build) -> Result:
    records = [make_record(f"j{i}", start=i, end=i + 50, nodes=range(i, i + 20)) for i in range(80)]
    return make_result(records, Cluster.uniform(100, 1, 1))


def test_in_the_terminal(small: Result) -> None:
    cpu, device, axis, labels = tables.render(gantt.terminal(small, width=80)).splitlines()
    assert cpu.startswith("n0/cpu  █sort███")
    assert "▓sum▓▓▓" in cpu
    assert cpu.endswith("100%")
    assert device.startswith("n0/gpu0 █a$b$██")
    assert device.endswith(" 25%")
    assert axis.strip().startswith("┬──")
    assert labels.split() == ["0", "20", "s", "40", "s", "60", "s", "80", "s", "100", "s"]
    bars = cpu[8:73]
    assert abs(bars.index("▓") - len(bars.rstrip(" %0123456789")) / 2) <= 1.5


@pytest.mark.parametrize("width", [40, 80, 133])
def test_fits_the_width(small: Result, large: Result, width: int) -> None:
    for result in (small, large):
        text = tables.render(gantt.terminal(result, width=width), width=width)
        assert max(map(cell_len, text.splitlines())) <= width


def test_many_units_are_grouped(large: Result) -> None:
    lines = tables.render(gantt.terminal(large, rows=10)).splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("n[0-19] cpu")
    assert "█" in lines[2]
    assert lines[-3].rstrip() == "n[80-99] gpu"  # no device was used


def test_nothing_has_run(make_result: Build, make_record: Make, tmp_path: Path) -> None:
    idle = make_result([make_record("a", start=None, end=None, state=State.PENDING)])
    assert tables.render(gantt.terminal(idle)) == "Nothing has run.\n"
    gantt.save(idle, tmp_path / "idle.svg")
    ET.parse(tmp_path / "idle.svg")


@pytest.mark.parametrize("which", ["small", "large"])
def test_svg_is_the_same_every_time(which: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    result = request.getfixturevalue(which)
    for name in ("a.svg", "b.svg"):
        assert Report(result).gantt(tmp_path / name) == str(tmp_path / name)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    ET.fromstring(text)
    if which == "small":
        assert "sort" in text
        assert "a$b$" in text  # no formula


def test_png_and_pdf(small: Result, tmp_path: Path) -> None:
    assert Path(Report(small).gantt(tmp_path / "a.png")).read_bytes()[:4] == b"\x89PNG"
    assert Path(Report(small).gantt(tmp_path / "a.pdf")).read_bytes()[:4] == b"%PDF"


def test_says_where_it_cannot_write(small: Result, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be written \(no such file or directory"):
        Report(small).gantt(tmp_path / "not there" / "a.svg")


def test_names_move_no_cursor(make_record: Make, make_result: Build, tmp_path: Path) -> None:
    result = make_result([make_record("evil\x1b[2J", end=10), make_record("日本", start=10, end=20)])
    text = Report(result).gantt() + str(tables.render(tables.job_table(result)))
    assert "\x1b" not in text
    assert "evil?[2J" in text
    Report(result).gantt(tmp_path / "a.svg")
    Report(result).gantt(tmp_path / "a.png")
