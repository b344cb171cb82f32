from __future__ import annotations

import xml.etree.ElementTree as ET
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dovetail.model import Cluster, Prediction, Record, Result
from dovetail.report import drawing, plots
from dovetail.report.drawing import INK, Drawing, Label, Line, Rectangle, Shading
from dovetail.report.report import Comparison

Make = Callable[..., Record]
Build = Callable[..., Result]


def titles(drawn: Drawing) -> list[str]:
    return [shape.text for shape in drawn.shapes if isinstance(shape, Label) and shape.bold]


def test_timeline_has_a_panel_for_each_resource(
    make_record: Make, make_result: Build, tmp_path: Path
) -> None:
    records = [make_record(f"j{i}", submit=i, start=2 * i, end=2 * i + 2) for i in range(10)]
    drawn = plots.draw_timeline([make_result(records)], titled=False)
    assert titles(drawn) == ["CPUs in use, of 1", "Devices in use, of 1", "Jobs waiting"]
    only = plots.draw_timeline([make_result(records, Cluster.uniform(4, 2))], titled=False)
    assert titles(only) == ["CPUs in use, of 8", "Jobs waiting"]
    most = [shape.text for shape in only.shapes if isinstance(shape, Label)]
    assert "5" in most  # at 9 s, ten are submitted and five have started
    drawing.save_drawing(plots.draw_timeline([make_result(records)]), tmp_path / "t.svg")
    root = ET.parse(tmp_path / "t.svg").getroot()
    assert len(root.findall(".//{*}path")) > 6


def test_long_runs_are_drawn_as_means(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", submit=i, start=i, end=i + 0.5) for i in range(2000)]
    drawn = plots.draw_timeline([make_result(records)])
    line = next(shape for shape in drawn.shapes if isinstance(shape, Line) and len(shape.points) > 100)
    area = next(shape for shape in drawn.shapes if isinstance(shape, Line) and shape.filled)
    assert len(line.points) == len(area.points) == 2 * (plots.BINS + 1) + 1
    empty, full = 72.0 + 72.0, 72.0 + 72.0 * 0.04 / 1.04  # of the first panel
    share = (empty - line.points[21][1]) / (empty - full)
    assert share == pytest.approx(0.5, abs=0.1)


def test_nothing_has_run(make_result: Build) -> None:
    assert len(titles(plots.draw_timeline([make_result([])], titled=False))) == 3


def test_comparison_draws_what_is_there(make_record: Make, make_result: Build, tmp_path: Path) -> None:
    results = [
        make_result([make_record("a", end=end + s)], Cluster.uniform(1, 1), policy=policy, seed=s)
        for policy, end in (("x", 10), ("y", 20))
        for s in (1, 2)
    ]
    drawn = plots.draw_comparison(results, titled=False)
    assert titles(drawn) == ["Makespan", "Mean wait", "Mean bounded slowdown", "CPU utilisation"]
    first, second, *_ = [shape.width for shape in drawn.shapes if isinstance(shape, Rectangle)]
    assert second / first == pytest.approx(21.5 / 11.5)
    path = Comparison(results).plot(tmp_path / "c.png")
    assert Path(path).read_bytes()[:4] == b"\x89PNG"


def test_loads_and_predictions_have_axes_of_round_numbers(make_record: Make, make_result: Build) -> None:
    results = [
        make_result([make_record("a", start=wait, end=wait + 10)], policy=policy, load=load)
        for policy, waits in (("x", (0, 50)), ("y", (0, 500)))
        for load, wait in zip((0.5, 0.9), waits, strict=True)
    ]
    texts = [shape.text for shape in plots.over_load(results).shapes if isinstance(shape, Label)]
    assert {"Mean wait (s)", "0", "1", "100", "0.5", "0.9", "x", "y"} <= set(texts)
    learned = [
        make_record(f"{app}{i}", end=10.0**i, predicted=Prediction(3.0 * 10.0**i, 9.0, 3, "mean"))
        for app in ("sort", "sum")
        for i in range(3)
    ]
    drawn = plots.draw_predictions(make_result(learned))
    assert sum(len(shape.points) for shape in drawn.shapes if isinstance(shape, Line) and shape.dots > 0) >= 6
    assert {"1", "10", "100"} <= {shape.text for shape in drawn.shapes if isinstance(shape, Label)}


def test_a_drawing_escapes_what_it_says_and_has_no_colour_of_its_own_on_a_page() -> None:
    drawn = Drawing(100, 50)
    share = np.array([[0.0, 0.5], [1.0, 0.25]])
    drawn.add(Label(1, 2, "a<b>&\x1b[2J"), Rectangle(0, 0, 9, 9, INK, about="<i>"))
    drawn.add(Shading(0, 0, 10, 10, "#2b4595", share))
    root = ET.fromstring(drawn.render_svg("<title>", page=True))
    assert root.attrib["aria-label"] == "<title>"
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")] == ["a<b>&?[2J"]
    assert "var(--ink)" in drawn.render_svg(page=True)
    assert INK not in drawn.render_svg(page=True)
    picture = next(root.iter("{http://www.w3.org/2000/svg}image")).attrib["href"]
    pixels = Image.open(BytesIO(b64decode(picture.partition(",")[2])))
    assert (pixels.size, pixels.getpixel((0, 1))) == ((2, 2), (0x2B, 0x45, 0x95, 255))
