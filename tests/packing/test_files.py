from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InputError
from dovetail_lab.packing.files import read_instance
from dovetail_lab.packing.synthetic import model_times


def written(folder: Path, content: Any, name: str = "tasks.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_a_table(tmp_path: Path) -> None:
    table = {"processors": 2, "times": [[4, 3], [2.5, 2]], "names": ["a", "b"]}
    instance = read_instance(written(tmp_path, table))
    assert instance.times.tolist() == [[4.0, 3.0], [2.5, 2.0]]
    assert instance.names == ("a", "b")
    assert instance.processors == 2
    assert instance.warning is None


def test_names_default_to_numbers(tmp_path: Path) -> None:
    assert read_instance(written(tmp_path, {"processors": 1, "times": [[4], [2]]})).names == ("0", "1")


def test_a_repair_is_told(tmp_path: Path) -> None:
    table = {
        "processors": 3,
        "times": [[4, 3, 3.5], [9, 3, 2], [4, 2, 4 / 3]],
        "names": ["slow", "fast", "fine"],
    }
    instance = read_instance(written(tmp_path, table))
    assert instance.times.tolist()[0] == [4, 3, 3]
    assert instance.times.tolist()[1] == [9, 4.5, 3]
    assert instance.warning is not None
    assert "slow: 1 slower than with fewer processors" in instance.warning
    assert "fast: 2 with superlinear speed-up" in instance.warning
    assert "fine" not in instance.warning


def test_models_and_observations(tmp_path: Path) -> None:
    tasks = [
        {
            "name": "m",
            "sequential": 1000.0,
            "serial_fraction": 0.1,
            "overhead": "log2 q",
            "cores_per_processor": 1,
        },
        {"name": "o", "observed": {"1": [60, 62, 61], "4": 20}},
        {"times": [8, 5, 4, 3]},
    ]
    instance = read_instance(written(tmp_path, {"processors": 4, "tasks": tasks}))
    assert instance.names == ("m", "o", "2")
    expected = model_times(1000.0, 0.1, "log2 q", 4, cores_per_processor=1)
    assert instance.times[0] == pytest.approx(expected)
    assert instance.times[1, [0, 3]] == pytest.approx([61.0, 20.0])
    assert np.all(np.diff(instance.times[1]) <= 0)


def test_csv_with_gaps(tmp_path: Path) -> None:
    text = "name,1,2,4\na,60,32,20\nb,48,,18\n"
    instance = read_instance(written(tmp_path, text, "tasks.csv"))
    assert instance.names == ("a", "b")
    assert instance.processors == 4
    assert instance.times[0, [0, 1, 3]] == pytest.approx([60, 32, 20])
    assert 20 < instance.times[0, 2] < 32
    assert instance.times[1, [0, 3]] == pytest.approx([48, 18])


def test_complete_csv_is_taken_as_it_is(tmp_path: Path) -> None:
    instance = read_instance(written(tmp_path, "name,1,2\na,60,32\nb,48,30\n", "tasks.csv"))
    assert instance.times.tolist() == [[60, 32], [48, 30]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1, column 2: found a fault in the JSON"),
        ([1], "expected an object"),
        ({"times": [[1]]}, "processors: found None"),
        ({"processors": 0, "times": [[1]]}, "processors: found 0"),
        ({"processors": True, "times": [[1]]}, "processors: found true"),
        ({"processors": 2.5, "times": [[1]]}, "processors: found 2.5"),
        (
            {"processors": 10**9, "tasks": [{"observed": {"1": 3}}]},
            "found 1000000000, expected a whole number",
        ),
        ("[" * 100_000, "beyond all bounds"),
        ({"processors": 2, "times": [[1e308, 1e308]]}, "task 0: time on 1 processors is 1e[+]308, expected"),
        ({"processors": 2, "tasks": [{"observed": {"1": 1e308}}]}, "task 0: observed 1e[+]308 seconds"),
        ({"processors": 2, "tasks": [{"sequential": 1e308}]}, "task 0: found 6.25e[+]306 to "),
        (
            {"processors": 2, "tasks": [{"sequential": 1, "cores_per_processor": float("inf")}]},
            "found|is inf",
        ),
        (
            {"processors": 2, "tasks": [{"sequential": 1, "cores_per_processor": float("nan")}]},
            "found|is nan",
        ),
        ({"processors": 1, "times": [[1]], "task": []}, "unknown key 'task'"),
        ({"processors": 1}, "neither of times and tasks"),
        ({"processors": 1, "times": []}, "non-empty list"),
        ({"processors": 1, "times": 3}, "non-empty list"),
        ({"processors": 1, "times": [[]]}, "task 0: found \\[\\]"),
        ({"processors": 2, "times": [[2, 1], [3]]}, "task 1: has 1 times, expected 2"),
        ({"processors": 3, "times": [[2, 1]]}, "task 0: has 2 times, expected 3"),
        ({"processors": 2, "times": [[2, -1]]}, "task 0: time on 2 processors is -1"),
        ({"processors": 2, "times": [[2, 0]]}, "time on 2 processors is 0"),
        ({"processors": 2, "times": [[2, float("nan")]]}, "time on 2 processors is nan"),
        ({"processors": 2, "times": [[float("inf"), 1]]}, "time on 1 processors is inf"),
        ({"processors": 2, "times": [[2, "1"]]}, "is '1', expected a number"),
        ({"processors": 2, "times": [[2, True]]}, "is True, expected a number"),
        ({"processors": 2, "times": [[2, None]]}, "is None, expected a number"),
        ({"processors": 1, "times": [[1]], "names": ["a", "b"]}, "names: expected 1 strings"),
        ({"processors": 1, "tasks": [3]}, "task 0: found 3, expected an object"),
        ({"processors": 1, "tasks": [{}]}, "task 0: found nothing"),
        ({"processors": 1, "tasks": [{"name": 3, "times": [1]}]}, "name is 3"),
        ({"processors": 1, "tasks": [{"observed": {}}]}, "expected an object of seconds"),
        ({"processors": 1, "tasks": [{"observed": {"x": 1}}]}, "'x' is not a number of processors"),
        ({"processors": 1, "tasks": [{"observed": {"0": 1}}]}, "on 0 processors"),
        ({"processors": 1, "tasks": [{"observed": {"1": -1}}]}, "observed -1.0 seconds"),
        ({"processors": 1, "tasks": [{"sequential": 1, "overhead": "q!"}]}, "overhead 'q!' is not known"),
        ({"processors": 1, "tasks": [{"sequential": "1"}]}, "sequential is '1'"),
        ({"processors": 1, "tasks": [{"sequential": 1, "serial_fraction": 2}]}, "serial fraction 2"),
    ],
)
def test_refusals(tmp_path: Path, content: Any, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_instance(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found an empty file, expected times by task"),
        ("name,1,2\n", "expected a header"),
        ("name,2,1\na,1,2\n", "line 1: header"),
        ("name,x\na,1\n", "line 1: header"),
        ("name,1,1000000000\na,1,1\n", "line 1: header"),
        ("name,1,2\na,1\n", "line 2: has 2 cells, expected 3"),
        ("name,1,2\n\na,1,x\n", "line 3: found 'x'"),
        ("name,1,2\na,1,-2\n", "line 2: time on 2 processors is -2"),
        ("name,1,2\na,,\n", "line 2: no observation"),
    ],
)
def test_csv_refusals(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_instance(written(tmp_path, text, "tasks.csv"))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: found no such file, expected times by task"):
        read_instance(tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="UTF-8"):
        read_instance(tmp_path / "bytes.json")
