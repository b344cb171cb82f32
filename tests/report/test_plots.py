from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.model import Cluster, Record, Result
from dovetail.report import Comparison, plots

Make = Callable[..., Record]
Build = Callable[..., Result]


def test_timeline_has_a_panel_for_each_resource(
    make_record: Make, make_result: Build, tmp_path: Path
) -> None:
    records = [make_record(f"j{i}", submit=i, start=2 * i, end=2 * i + 2) for i in range(10)]
    figure = plots.timeline([make_result(records)])
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "CPUs in use, of 1",
        "Devices in use, of 1",
        "Jobs waiting",
    ]
    only = plots.timeline([make_result(records, Cluster.uniform(4, 2))])
    assert [axes.get_title(loc="left") for axes in only.axes] == ["CPUs in use, of 8", "Jobs waiting"]
    waiting = only.axes[1].lines[0].get_ydata()
    assert max(waiting) == 5  # at 9 s, ten are submitted and five have started
    plots.save_timeline(make_result(records), tmp_path / "t.svg")
    assert (tmp_path / "t.svg").stat().st_size > 1000


def test_long_runs_are_drawn_as_means(make_record: Make, make_result: Build) -> None:
    records = [make_record(f"j{i}", submit=i, start=i, end=i + 0.5) for i in range(2000)]
    figure = plots.timeline([make_result(records)])
    line = figure.axes[0].lines[0]
    assert len(line.get_xdata()) == plots.BINS + 1
    assert line.get_ydata()[10] == pytest.approx(0.5, abs=0.1)


def test_nothing_has_run(make_result: Build) -> None:
    assert len(plots.timeline([make_result([])]).axes) == 3


def test_comparison_draws_what_is_there(make_record: Make, make_result: Build, tmp_path: Path) -> None:
    results = [
        make_result([make_record("a", end=end + s)], Cluster.uniform(1, 1), policy=policy, seed=s)
        for policy, end in (("x", 10), ("y", 20))
        for s in (1, 2)
    ]
    figure = plots.comparison(results)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["Makespan", "Mean wait", "Mean bounded slowdown", "CPU utilisation"]
    assert [bar.get_width() for bar in figure.axes[0].patches] == [11.5, 21.5]
    path = Comparison(results).plot(tmp_path / "c.png")
    assert Path(path).read_bytes()[:4] == b"\x89PNG"
