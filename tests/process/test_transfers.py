"""The line in which an app reports its transfers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.model import Usage
from dovetail.process.spawn_log import end_event, last_line
from dovetail.process.transfers import MOST_BYTES, reported_usage

PLAIN = Usage(1.5, 1000, wall_time=2.0)
BEYOND = [
    '{"device":1,"bytes_to_device":' + "9" * 400 + "}",
    '{"bytes_to_device":1e308,"bytes_from_device":1e308,"transfer_seconds":1}',
    '{"bytes_to_device":' + "9" * 4000 + "}",
    '{"bytes_to_device":2e18,"bytes_from_device":5}',
    '{"bytes_to_device":5,"seconds_to_device":1e10}',
    '{"bytes_to_device": "many"}',
    '{"bytes_to_device": true}',
    '{"bytes_to_device": -5}',
    '{"bytes_to_device": NaN}',
    '{"bytes_to_device": 1e999}',
    '{"bytes_to_device":' + "[" * 1500,
    '{"bytes_to_device": 3',
]
"""What claims to be a report and is none that can be kept."""


def test_times_by_direction_are_taken_as_they_are() -> None:
    line = {"bytes_to_device": 10, "bytes_from_device": 20, "seconds_to_device": 1, "seconds_from_device": 3}
    assert reported_usage(json.dumps(line), 1.5, 1000, 2.0) == (Usage(1.5, 1000, 10, 1, 20, 3, 2.0), "")


def test_a_joint_time_is_divided_by_bytes() -> None:
    line = {"device": "cpu", "bytes_to_device": 10, "bytes_from_device": 30, "transfer_seconds": 4}
    assert reported_usage(json.dumps(line), 1.5, 1000, 2.0) == (Usage(1.5, 1000, 10, 1, 30, 3, 2.0), "")
    line = {"device": "cpu", "bytes_to_device": 0, "bytes_from_device": 0, "transfer_seconds": 0.0}
    assert reported_usage(json.dumps(line), 1.5, 1000, 2.0) == (Usage(1.5, 1000, 0, None, 0, None, 2.0), "")


@pytest.mark.parametrize(
    "line", ["", "done", '["device"]', '{"device": 1}', "{}", "{device", '{"device":' + "[" * 1500]
)
def test_what_is_no_report_is_not_looked_at(line: str) -> None:
    assert reported_usage(line, 1.5, 1000, 2.0) == (PLAIN, "")


@pytest.mark.parametrize("line", BEYOND, ids=range(len(BEYOND)))
def test_what_is_wrong_is_ignored_with_a_note(line: str) -> None:
    usage, note = reported_usage(line, 1.5, 1000, 2.0)
    assert usage == PLAIN
    assert note.startswith("what it reported of its transfers is ignored: ")
    assert note.isprintable()
    assert len(note) < 200


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    reported_usage("{" + text + "device", 1.5, 1000, 2.0)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("bytes_to_device", "bytes_from_device", "transfer_seconds"),
                *("seconds_to_device", "seconds_from_device"),
            ]
        ),
        st.one_of(st.integers(), st.floats(), st.none(), st.booleans(), st.integers(0, 10**400)),
    )
)
def test_what_is_kept_is_finite_and_within_bounds(said: dict[str, object]) -> None:
    usage, note = reported_usage(json.dumps(said), 1.5, 1000, 2.0)
    kept = (usage.sent, usage.received, usage.sent_time, usage.received_time)
    assert all(value is None or 0 <= value <= MOST_BYTES for value in kept)
    assert not note or usage == PLAIN


def test_the_note_is_in_the_detail_of_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text(BEYOND[0] + "\n")
    intent = {"job": "a", "files": [str(out), str(out)]}
    event = end_event(intent, {"status": 0, "cpu": 0.1, "rss": 5, "from": 1.0, "at": 2.0})
    assert event.state == "COMPLETED"
    assert event.detail.startswith("what it reported of its transfers is ignored: ")


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
