"""`dovetail reproduce` begins, on a terminal, with how long the study took the last time."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail_lab.commands.expected import MOST_KEPT, durations_path, keep_duration, read_durations

TRACE = (
    "task_id\tprocess\tname\tstatus\texit\tstart\tcomplete\trealtime\tcpus\tmemory\tpeak_rss\n"
    "0\tp\tp (0)\tCOMPLETED\t0\t1700000000000\t1700000001000\t1000\t1\t4000000000\t1000000000\n"
)


def reproduce_on_a_terminal(folder: Path, *words: str) -> str:
    """What the command writes to a terminal as its standard error."""
    main, side = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", "dovetail", "reproduce", *words],
        cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=side,
    )  # fmt: skip
    os.close(side)
    seen = b""
    while True:
        try:
            piece = os.read(main, 4096)
        except OSError:  # the last process has closed it
            break
        if not piece:
            break
        seen += piece
    os.close(main)
    assert process.wait(100) == 0, seen
    return seen.decode()


def test_a_study_shows_how_long_it_took_the_last_time(tmp_path: Path) -> None:
    (tmp_path / "trace.txt").write_text(TRACE)
    kept = tmp_path / "state" / "dovetail" / "studies.json"
    assert reproduce_on_a_terminal(tmp_path, "memory", "trace.txt", "--quiet") == ""
    assert not kept.exists()
    assert "the last time" not in reproduce_on_a_terminal(tmp_path, "memory", "trace.txt")
    assert list(json.loads(kept.read_text())) == ["memory trace.txt"]
    kept.write_text(json.dumps({"memory trace.txt": 4000.0}))
    assert reproduce_on_a_terminal(tmp_path, "memory", "trace.txt", "--json") == ""
    seen = reproduce_on_a_terminal(tmp_path, "memory", "trace.txt")
    assert seen.count("This took 66.7 min here the last time.") == 1
    assert json.loads(kept.read_text())["memory trace.txt"] < 4000


def test_durations_are_bounded_and_survive_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for number in range(MOST_KEPT + 5):
        keep_duration(["study", str(number)], number)
    assert next(iter(read_durations(durations_path()))) == "study 5"
    assert read_durations(durations_path())["study 104"] == 104.0
    for damage in ("{", "[1]", "[" * 100_000, '{"a": 1e999, "b": "x", "c": -1}'):
        durations_path().write_text(damage)
        assert read_durations(durations_path()) == {}
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    keep_duration(["study"], 1.0)
    assert "cannot be kept" in caplog.text
