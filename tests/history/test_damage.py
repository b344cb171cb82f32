"""Whatever has happened to a history: a sentence, never an internal error."""

from __future__ import annotations

import contextlib
import io
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from dovetail.cli.main import status_of
from dovetail.history import SqliteHistory
from dovetail.model import DeviceClass, Run, Usage
from dovetail.testing.builders import full

CPU = DeviceClass("cpu", "m")
JOBS = '[[app]]\nname = "mm"\non = ["cpu"]\n[[job]]\napp = "mm"\ninputs = { n = 3 }\n'


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("history") / "whole"
    with SqliteHistory(path) as history:
        history.record_many(
            Run(f"mm{i % 3 or ''}", "cpu", CPU, 1, 1, 0.0, {"n": float(i % 9), "kind": "a"}, 1.0 + i,
                usage=Usage(0.5 + i, 10), uid=f"{i:032x}/j-{i}", job=f"j-{i}", user="u")
            for i in range(200)
        )  # fmt: skip
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


def commands(history: Path, folder: Path) -> list[list[str]]:
    at = ["--history", str(history)]
    return [
        ["history", "list", *at],
        ["history", "show", "mm", *at],
        ["history", "show", "mm", "--runs", "5", *at],
        ["history", "predict", "mm", "n=3", *at],
        ["history", "export", str(folder / "out.jsonl"), *at],
        ["history", "import", str(folder / "in.jsonl"), *at],
        ["history", "forget", "mm1", "--before", "2020-01-01", *at],
        ["model", "list", *at],
        ["model", "show", "mm", *at],
        ["model", "error", "mm", *at],
        ["simulate", str(folder / "j.toml"), "--cluster", str(folder / "c.toml"), "--learn", *at],
        ["explain", str(folder / "j.toml"), "--cluster", str(folder / "c.toml"), *at],
    ]


def told(arguments: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        return status_of(arguments), err.getvalue()


def prepare(folder: Path) -> None:
    (folder / "j.toml").write_text(JOBS)
    (folder / "c.toml").write_text('[[node]]\nname = "n"\ncpus = 1\ncpu_model = "m"\n')
    (folder / "in.jsonl").write_text('{"app": "mm", "device": "cpu:m", "seconds": 1, "inputs": {"n": 1}}\n')


def test_a_whole_history_serves_them_all(whole: Path, tmp_path: Path) -> None:
    prepare(tmp_path)
    shutil.copy(whole, tmp_path / "h")
    for arguments in commands(tmp_path / "h", tmp_path):
        assert told(arguments) == (0, ""), arguments


@pytest.mark.parametrize("seed", range(full(400, 9)))
def test_damaged_pages_are_said_in_a_sentence(whole: Path, tmp_path: Path, seed: int) -> None:
    """A few bytes are changed, a stretch is zeroed, or the end is missing."""
    prepare(tmp_path)
    drawn = random.Random(seed)
    data = bytearray(whole.read_bytes())
    kind = seed % 3
    if kind == 0:
        for _ in range(drawn.randrange(1, 40)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
    elif kind == 1:
        start = drawn.randrange(len(data))
        data[start : start + 2000] = bytes(len(data[start : start + 2000]))
    else:
        del data[drawn.randrange(1, len(data)) :]
    for arguments in commands(tmp_path / "h", tmp_path):
        for name in tmp_path.glob("h*"):
            name.unlink()
        (tmp_path / "h").write_bytes(data)
        status, message = told(arguments)
        assert status in (0, 2), (arguments, message)
        assert status == 0 or message.count("\n") == 1, (arguments, message)
        assert "internal error" not in message


def test_bytes_where_a_name_belongs_are_said_in_a_sentence(whole: Path, tmp_path: Path) -> None:
    with sqlite3.connect(whole) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        cells = [
            (table, row[1])
            for table in tables
            for row in database.execute(f"PRAGMA table_info({table})")
            if row[2] != "BLOB"
        ]
    assert ("groups", "app") in cells
    for table, column in cells:
        for name in tmp_path.glob("h*"):
            name.unlink()
        shutil.copy(whole, tmp_path / "h")
        with (
            contextlib.closing(sqlite3.connect(tmp_path / "h")) as database,
            contextlib.suppress(sqlite3.Error),
        ):
            database.execute(f"UPDATE {table} SET {column} = CAST('é' AS BLOB)")
            database.commit()
        for words in (["export", str(tmp_path / "out")], ["list"], ["show", "mm", "--runs", "5"]):
            status, message = told(["history", *words, "--history", str(tmp_path / "h")])
            assert status in (0, 2), (table, column, words, message)
            assert message.count("\n") == (status == 2), (table, column, words, message)


def test_a_locked_history_is_said(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path)
    shutil.copy(whole, tmp_path / "h")
    monkeypatch.setattr(SqliteHistory.__init__, "__kwdefaults__", {"wait": 0.1, "must_exist": False})
    with contextlib.closing(sqlite3.connect(tmp_path / "h", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        for arguments in commands(tmp_path / "h", tmp_path):
            status, message = told(arguments)
            # In WAL mode readers do not wait; who writes says that another one does.
            assert status in (0, 2), (arguments, message)
            if arguments[1] in ("import", "forget") or "--learn" in arguments:
                assert status == 2
                assert "another process has been writing for more than 0.1 s" in message
        other.execute("ROLLBACK")


@pytest.mark.parametrize("what", ["newer", "foreign", "text", "folder", "empty folder above"])
def test_what_is_no_history_of_ours_is_said(whole: Path, tmp_path: Path, what: str) -> None:
    prepare(tmp_path)
    path = tmp_path / "h"
    if what == "newer":
        shutil.copy(whole, path)
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99")
        expected = "it was written by a newer Dovetail"
    elif what == "foreign":
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE cookies (x)")
        expected = "found the SQLite database of another program"
    elif what == "text":
        path.write_text("no database at all, but long enough to be one " * 30)
        expected = "found a file that is no SQLite database"
    elif what == "folder":
        path.mkdir()
        expected = "folder"
    else:
        path.write_text("a file")
        path = path / "h"
        expected = "history"
    for arguments in commands(path, tmp_path):
        if what == "empty folder above" and arguments[0] in ("simulate", "explain"):
            continue  # as a file that is not there: nothing is known
        status, message = told(arguments)
        assert status == 2, (arguments, message)
        assert expected in message
        assert message.count("\n") == 1
