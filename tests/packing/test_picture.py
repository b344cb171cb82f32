from __future__ import annotations

import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import InputError
from dovetail_lab.packing.picture import save_picture, task_bars, task_grid, task_symbol, to_svg
from dovetail_lab.packing.registry import solve
from dovetail_lab.packing.schedule import fill_groups
from dovetail_lab.packing.synthetic import set_2

Floats = NDArray[np.float64]


def test_bars_never_overlap() -> None:
    times = set_2(np.random.default_rng(1))
    for name in ("contiguous", "list"):
        schedule = solve(times, 8, name).schedule
        drawn = task_bars(schedule, 16)
        assert sorted(bar.task for bar in drawn) == list(range(65))
        given = {entry.task: entry.processors for entry in schedule.started()}
        for bar in drawn:
            assert len(bar.processors) == given[bar.task]
        for row in range(16):
            mine = sorted((bar.start, bar.end) for bar in drawn if row in bar.processors)
            assert all(later[0] >= earlier[1] * (1 - 1e-9) for earlier, later in pairwise(mine))


def test_the_grid_shows_shares_of_time(golden: Floats) -> None:
    packing = fill_groups(golden, [[0, 1], [2, 3], [4, 5]])
    cells = task_grid(task_bars(packing, 4), 4, 65)
    assert cells[0, :11].tolist() == [4] * 11
    assert cells[0, 11] == -1
    assert cells[3, :12].tolist() == [5] * 12
    assert cells[:, 12].tolist() == [2, 2, 3, 3]
    assert cells[:, 64].tolist() == [0, 0, -1, -1]
    assert [task_symbol(0), task_symbol(10), task_symbol(62)] == ["0", "a", "0"]


def test_files(golden: Floats, tmp_path: Path) -> None:
    packing = fill_groups(golden, [[0, 1], [2, 3], [4, 5]])
    names = ["<a&b>", "b", "c", "d", "e", "f"]
    root = ET.fromstring(to_svg(packing, 4, names, "packs"))
    assert root.tag.endswith("svg")
    save_picture(tmp_path / "packs.svg", packing, 4, names, "packs")
    save_picture(tmp_path / "packs.png", packing, 4, names, "packs")
    assert (tmp_path / "packs.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(InputError, match=r"\.svg or \.png"):
        save_picture(tmp_path / "packs.gif", packing, 4, names, "packs")
    with pytest.raises(InputError, match="cannot be written"):
        save_picture(tmp_path / "none" / "packs.svg", packing, 4, names, "packs")
