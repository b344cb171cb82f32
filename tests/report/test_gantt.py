from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from dovetail.errors import InputError
from dovetail.model import Cluster, Device, Node, Record, Result, State
from dovetail.model.node import HERE
from dovetail.report import drawing, tables
from dovetail.report.gantt import figure
from dovetail.report.gantt.terminal import terminal_chart
from dovetail.report.metrics import final_metrics
from dovetail.report.outcome import job_table
from dovetail.report.report import Report

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
    cpu, device, axis, labels = tables.render_plain(terminal_chart(small, width=80)).splitlines()
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
        text = tables.render_plain(terminal_chart(result, width=width), width=width)
        assert max(map(cell_len, text.splitlines())) <= width


def test_every_job_that_shares_a_pool_is_visible(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"job{i}", start=i % 3, end=30, cpus=1 + i) for i in range(4)]
    result = make_result(records, Cluster.uniform(1, 16))
    lines = tables.render_plain(terminal_chart(result, width=80)).splitlines()
    assert all(any(f"job{i}" in line for line in lines) for i in range(4))
    utilisation = final_metrics(result)["utilisation"]
    assert utilisation is not None
    assert lines[0].endswith(f"{utilisation:>5.0%}")
    crowd = make_result([make_record(str(i), end=9, cpus=1) for i in range(64)], Cluster.uniform(1, 64))
    assert len(tables.render_plain(terminal_chart(crowd, width=80)).splitlines()) == 3  # no room for 64 rows


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("count", [1, 3, 60])
def test_node_names_longer_than_the_terminal(
    make_record: Make, make_result: Build, width: int, count: int
) -> None:
    nodes = tuple(Node(f"{'very-long-name-' * 20}{i}", (0,)) for i in range(count))
    result = make_result([make_record("a", end=10)], Cluster(nodes))
    for part in (terminal_chart(result, width=width), job_table(result)):
        lines = tables.render_plain(part, width=width).splitlines()
        assert max(map(cell_len, lines)) <= width
    figure.draw_gantt(result)


def test_many_units_are_grouped(large: Result) -> None:
    lines = tables.render_plain(terminal_chart(large, units=10)).splitlines()
    assert len(lines) == 12
    assert lines[0].startswith("n[0-19] cpu")
    assert "█" in lines[2]
    assert lines[-3].rstrip() == "n[80-99] gpu"  # no device was used


def test_nothing_has_run(make_result: Build, make_record: Make, tmp_path: Path) -> None:
    idle = make_result([make_record("a", start=None, end=None, state=State.PENDING)])
    assert tables.render_plain(terminal_chart(idle)) == "Nothing has run.\n"
    drawing.save_drawing(figure.draw_gantt(idle), tmp_path / "idle.svg")
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
    text = Report(result).gantt() + str(tables.render_plain(job_table(result)))
    assert "\x1b" not in text
    assert "evil?[2J" in text
    Report(result).gantt(tmp_path / "a.svg")
    Report(result).gantt(tmp_path / "a.png")


def test_this_machine_alone_needs_no_name(make_record: Make, make_result: Build) -> None:
    here = Cluster((Node(HERE, (0, 1), (Device("gpu"),)),))
    records = [make_record("a", cpus=2), make_record("b", cpus=0, devices=(0,)), make_record("c", cpus=1)]
    result = make_result(records, here)
    assert tables.render_plain(terminal_chart(result)).splitlines()[0].startswith("cpu ")
    assert job_table(result).columns[4].cells == ["cpu", "gpu0", "1 CPU"]
