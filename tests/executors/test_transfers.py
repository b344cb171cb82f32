"""The line in which an app reports its transfers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.executors.spawnlog import last_line
from dovetail.executors.transfers import reported
from dovetail.model import Usage

PLAIN = Usage(1.5, 1000, wall_time=2.0)


def test_times_by_direction_are_taken_as_they_are() -> None:
    line = {"bytes_to_device": 10, "bytes_from_device": 20, "seconds_to_device": 1, "seconds_from_device": 3}
    assert reported(json.dumps(line), 1.5, 1000, 2.0) == Usage(1.5, 1000, 10, 1, 20, 3, 2.0)


def test_a_joint_time_is_divided_by_bytes() -> None:
    line = {"device": "cpu", "bytes_to_device": 10, "bytes_from_device": 30, "transfer_seconds": 4}
    assert reported(json.dumps(line), 1.5, 1000, 2.0) == Usage(1.5, 1000, 10, 1, 30, 3, 2.0)
    line = {"device": "cpu", "bytes_to_device": 0, "bytes_from_device": 0, "transfer_seconds": 0.0}
    assert reported(json.dumps(line), 1.5, 1000, 2.0) == Usage(1.5, 1000, 0, None, 0, None, 2.0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "done",
        "{device",
        '["device"]',
        '{"device": 1}',
        '{"bytes_to_device": "many"}',
        '{"bytes_to_device": true}',
        '{"bytes_to_device": -5}',
        '{"bytes_to_device": NaN}',
        '{"bytes_to_device": 1e999}',
    ],
)
def test_anything_else_is_ignored(line: str) -> None:
    assert reported(line, 1.5, 1000, 2.0) == PLAIN


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    reported("{" + text + "device", 1.5, 1000, 2.0)


def test_the_last_line_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert last_line(str(path)) == ""
    for content, expected in (
        (b"", ""),
        (b"\n\n", ""),
        (b"one", "one"),
        (b"one\ntwo\n", "two"),
        (b"one\ntwo\n\n \n", "two"),
        (b"x" * 9000 + b"\nlast\n", "last"),
        (b"x" * 9000, ""),
        (b"a\n\xff\n", "\ufffd"),
    ):
        path.write_bytes(content)
        assert last_line(str(path)) == expected
