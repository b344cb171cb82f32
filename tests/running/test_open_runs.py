"""Runs that have ended cost the next one nothing; one that was killed is found among them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dovetail.process import recovery
from dovetail.process.recovery import NEVER_BEGUN, OPEN, note_open, note_settled, open_runs
from dovetail.process.spawn_log import LOG_NAME

SETTLED = b'{"t":"run"}\n{"t":"settled"}\n'


def run_of(root: Path, name: str, log: bytes | None = SETTLED) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    if log is not None:
        (folder / LOG_NAME).write_bytes(log)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_a_run_is_open_until_it_is_settled(root: Path, tmp_path: Path) -> None:
    folder = run_of(root, "a", None)
    note_open(root, folder, "a")
    assert open_runs(root) == [], "nothing has begun"
    assert (root.with_name(OPEN) / "a").is_file(), "and it still may"
    (folder / LOG_NAME).write_bytes(b'{"t":"run"}\n')
    note_open(root, folder, "a")
    elsewhere = run_of(tmp_path / "mine", "b", b'{"t":"run"}\n')
    note_open(root, elsewhere, "b")
    assert set(open_runs(root)) == {folder, elsewhere}
    note_settled(root, "a")
    assert open_runs(root) == [elsewhere]
    (elsewhere / LOG_NAME).write_bytes(SETTLED)
    assert open_runs(root) == []
    assert not list(root.with_name(OPEN).iterdir()), "a link that was left is removed"


def test_runs_that_have_ended_are_not_looked_at(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(50):
        run_of(root, f"ended{n}")
    left = run_of(root, "left", b'{"t":"run"}\n')
    aside = run_of(root, "aside")
    (aside / recovery.UNRECORDED).touch()
    looked: list[str] = []
    last = recovery._last_written
    monkeypatch.setattr(recovery, "_last_written", lambda log: looked.append(log) or last(log))
    assert set(open_runs(root)) == {left, aside}, "runs of before are found the first time"
    looked.clear()
    assert set(open_runs(root)) == {left, aside}
    assert len(looked) == 2
    shutil.rmtree(root.with_name(OPEN))
    assert set(open_runs(root)) == {left, aside}, "and where somebody has removed the notes"


def test_what_never_began_is_forgotten_in_the_end(root: Path) -> None:
    folder = run_of(root, "a", None)
    note_open(root, folder, "a")
    link = root.with_name(OPEN) / "a"
    then = time.time() - 2 * NEVER_BEGUN
    os.utime(link, (then, then), follow_symlinks=False)
    assert open_runs(root) == []
    assert not link.exists()


def test_where_nothing_can_be_noted_every_run_is_looked_at(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = run_of(root, "left", b'{"t":"run"}\n')

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(recovery, "private_folder", refuse)
    assert open_runs(root) == [left]


def test_a_state_folder_that_was_copied_has_its_own_runs(root: Path, tmp_path: Path) -> None:
    note_open(root, run_of(root, "a", b'{"t":"run"}\n'), "a")
    shutil.copytree(tmp_path, tmp_path.with_name(f"{tmp_path.name}-copy"))
    copy = tmp_path.with_name(f"{tmp_path.name}-copy") / "runs"
    assert open_runs(copy) == [copy / "a"]


PROGRAM = """
import os, sys
seen = 0
def count(path):
    global seen
    if isinstance(path, (str, bytes, os.PathLike)) and {root!r} in os.fsdecode(path):
        seen += 1
def counted(call):
    def made(path=".", *more, **named):
        count(path)
        return call(path, *more, **named)
    return made
for name in ("stat", "lstat", "readlink", "access"):
    setattr(os, name, counted(getattr(os, name)))
sys.addaudithook(lambda event, got: event in ("open", "os.listdir", "os.scandir") and count(got[0]))
from dovetail.cli.main import run_cli
try:
    run_cli()
finally:
    os.write(2, b"calls %d" % seen)
"""


def test_a_run_looks_at_as_many_files_whatever_has_ended_before(tmp_path: Path) -> None:
    """Calls, not seconds: files of runs that a whole `run` opens, lists or looks at."""
    root = tmp_path / "state" / "dovetail"
    command = [sys.executable, "-c", PROGRAM.format(root=str(root)), "run", "--quiet", "--", "true"]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "DOVETAIL_CGROUPS": "off"}

    def calls() -> int:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
        assert done.returncode == 0, done.stderr
        return int(done.stderr.rpartition("calls ")[2])

    calls()  # the first makes the history
    before = calls()
    for n in range(500):
        run_of(root / "runs", f"ended{n}")
    calls()
    assert abs(calls() - before) <= 5
