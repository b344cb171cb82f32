"""What a killed run left behind, damaged in every way: it is set aside with a sentence, and stops nobody."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load
from waiting import until

from dovetail.errors import HistoryError
from dovetail.history.sqlite import SqliteHistory
from dovetail.process.spawn_log import read_log
from dovetail.running.ledger import Ledger

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a run that was killed; of its three jobs one had been recorded, all have ended."""
    folder = tmp_path_factory.mktemp("left")
    (folder / "jobs.txt").write_text("true\nsh job.sh\nsh job.sh\n")
    (folder / "job.sh").write_text("until test -e go; do sleep 0.02; done\n")
    cluster = folder / "cluster.toml"
    core = min(os.sched_getaffinity(0))
    cluster.write_text(f'[[node]]\nname = "here"\ncores = [{core}]\n')
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    process = subprocess.Popen(
        [*DOVETAIL, "run", "jobs.txt", "--cluster", "cluster.toml", "--history", "h.sqlite"],
        cwd=folder, env=environment, text=True, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while "sh-1 starts" not in process.stderr.readline():
        assert process.poll() is None
    until(lambda: recorded(folder / "h.sqlite") == 1)
    until(lambda: len(read_log(run_of(folder) / "spawn.log").starts) == 2)
    process.kill()
    process.wait()
    process.stderr.close()
    (folder / "go").touch()
    until(lambda: b'"t":"done"' in (run_of(folder) / "spawn.log").read_bytes())
    return folder


def run_of(folder: Path) -> Path:
    (found,) = (folder / "state" / "dovetail" / "runs").iterdir()
    return found


@pytest.fixture
def here(left: Path, tmp_path: Path) -> Path:
    """A copy of it, whose paths are its own."""
    shutil.copytree(left, tmp_path, dirs_exist_ok=True)
    run = run_of(tmp_path)
    about = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**about, "history": str(tmp_path / "h.sqlite")}))
    return tmp_path


def recorded(history: Path) -> int:
    with SqliteHistory(history, must_exist=True) as found:
        return len(list(found.all_runs()))


def test_a_whole_leftover_is_recorded_and_settled(dovetail: Call, here: Path) -> None:
    assert recorded(here / "h.sqlite") == 1
    (told,) = load(dovetail("recover", "--json"))
    assert told["trouble"] is None
    assert told["recorded"] == 1
    assert recorded(here / "h.sqlite") == 2
    assert dovetail("recover").stdout == "Nothing was left behind.\n"


def corrupt_history(here: Path, run: Path) -> None:
    (here / "h.sqlite").write_bytes(b"nonsense" * 1000)


def newer_history(here: Path, run: Path) -> None:
    with sqlite3.connect(here / "h.sqlite") as database:
        database.execute("PRAGMA user_version = 99")


def history_is_a_folder(here: Path, run: Path) -> None:
    no_history(here, run)
    (here / "h.sqlite").mkdir()


def no_history(here: Path, run: Path) -> None:
    for path in here.glob("h.sqlite*"):
        path.unlink()


def damaged_history(here: Path, run: Path) -> None:
    with sqlite3.connect(here / "h.sqlite") as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = here / "h.sqlite"
    path.write_bytes(path.read_bytes()[:4096] + b"\xff" * (path.stat().st_size - 4096))


def edit_log(run: Path, edit: Callable[[list[dict[str, Any]]], list[Any]]) -> None:
    path = run / "spawn.log"
    records = edit([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def without(kind: str) -> Callable[[Path, Path], None]:
    def damage(here: Path, run: Path) -> None:
        edit_log(run, lambda records: [one for one in records if one["t"] != kind])

    return damage


def wrong(kind: str, **fields: Any) -> Callable[[Path, Path], None]:
    def damage(here: Path, run: Path) -> None:
        edit_log(run, lambda records: [one | fields if one["t"] == kind else one for one in records])

    return damage


def halved_log(here: Path, run: Path) -> None:
    path = run / "spawn.log"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed_log(here: Path, run: Path) -> None:
    path = run / "spawn.log"
    path.write_bytes(bytes(path.stat().st_size))


def empty_log(here: Path, run: Path) -> None:
    (run / "spawn.log").write_bytes(b"")


def log_is_a_folder(here: Path, run: Path) -> None:
    (run / "spawn.log").unlink()
    (run / "spawn.log").mkdir()


def log_is_a_pipe(here: Path, run: Path) -> None:
    (run / "spawn.log").unlink()
    os.mkfifo(run / "spawn.log")


def about_is(text: str | None) -> Callable[[Path, Path], None]:
    def damage(here: Path, run: Path) -> None:
        if text is None:
            (run / "run.json").unlink()
        else:
            (run / "run.json").write_text(text)

    return damage


def corrupt_ledger(here: Path, run: Path) -> None:
    for path in run.glob("ledger.db*"):
        path.unlink()
    (run / "ledger.db").write_bytes(b"nonsense" * 1000)


DAMAGES: dict[str, tuple[Callable[[Path, Path], None], str]] = {
    "history corrupt": (corrupt_history, "no SQLite database"),
    "history newer": (newer_history, "schema version 99"),
    "history a folder": (history_is_a_folder, "found a folder"),
    "history gone": (no_history, "no such file"),
    "history damaged": (damaged_history, "damaged"),
    "no intents": (without("intent"), "it lacks the requests of"),
    "no setups": (without("setup"), "it lacks what 2 jobs share"),
    "no header": (without("run"), "it lacks the line with which it begins"),
    "wrong pid": (wrong("start", pid="one"), "no records"),
    "wrong status": (wrong("end", status=[]), "no records"),
    "wrong inputs": (wrong("intent", inputs=3), "no records"),
    "wrong walltime": (wrong("intent", walltime=10**400), "no records"),
    "wrong class": (wrong("setup", run={"class": 3}), "no records"),
    "log halved": (halved_log, ""),
    "log zeroed": (zeroed_log, "it lacks the line with which it begins"),
    "log empty": (empty_log, "it lacks the line with which it begins"),
    "log a folder": (log_is_a_folder, "spawn.log"),
    "log a pipe": (log_is_a_pipe, "spawn.log"),
    "run.json a list": (about_is("[1]"), "expected the description of a run"),
    "run.json cut": (about_is('{"version": 1'), "is no JSON"),
    "run.json gone": (about_is(None), "found no such file"),
    "run.json empty": (about_is('{"version": 1}'), "is damaged"),
    "ledger corrupt": (corrupt_ledger, "no ledger"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_leftover_is_set_aside_and_stops_nobody(dovetail: Call, here: Path, name: str) -> None:
    damage, words = DAMAGES[name]
    before, run = recorded(here / "h.sqlite"), run_of(here)
    damage(here, run)
    history = ("--history", "other.sqlite")
    done = dovetail("run", "jobs.txt", "--cluster", "cluster.toml", *history, "--json", timeout=280)
    assert done.returncode == 0, done.stderr
    assert "internal error" not in done.stderr
    assert recorded(here / "other.sqlite") == 3
    told = done.stderr + dovetail("recover").stdout
    assert words in told
    if name != "log halved":  # what is left of the log is whole: the job that it lacks is named
        assert "Nothing was left behind" not in told
        assert "set aside" in told
        assert "set aside" in dovetail("recover").stdout  # again, until somebody gives it up
        given_up = dovetail("recover", "--give-up", run.name)
        assert given_up.returncode == 0, given_up.stderr
        assert given_up.stdout == "Nothing was left behind.\n"
    else:
        assert any(f"{job}" in told for job in ("job.sh-1", "job.sh-2"))
    if "history" not in name:
        assert recorded(here / "h.sqlite") >= before


def test_what_a_damaged_ledger_quotes_moves_no_cursor(here: Path) -> None:
    path = run_of(here) / "ledger.db"
    with sqlite3.connect(path) as database:
        clears = "1b5b324a"  # a screen; and then what is no UTF-8
        database.execute(f"UPDATE app SET name = CAST(x'{clears}ff' AS TEXT)")
    database.close()
    with Ledger(path) as ledger, pytest.raises(HistoryError, match="cannot be read") as found:
        list(ledger.entries())
    assert str(found.value).isprintable()


def test_a_ledger_that_has_lost_what_a_job_runs_has_not_lost_the_job(here: Path) -> None:
    path = run_of(here) / "ledger.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA foreign_keys = OFF")
        database.execute("DELETE FROM app")
    database.close()
    with Ledger(path) as ledger, pytest.raises(HistoryError, match="job 1 is damaged"):
        list(ledger.entries())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def test_a_locked_history_of_a_leftover_is_not_waited_for(dovetail: Call, here: Path) -> None:
    with locked(here / "h.sqlite"):
        done = dovetail("run", "jobs.txt", "--cluster", "cluster.toml", "--history", "other.sqlite")
        assert done.returncode == 0, done.stderr
        assert "another process" in done.stderr
    assert "1 ended runs recorded" in dovetail("recover").stdout
    assert recorded(here / "h.sqlite") == 2


def test_two_leftovers_one_bad(dovetail: Call, here: Path) -> None:
    run = run_of(here)
    shutil.copytree(run, run.with_name("0" * 32))
    (run.with_name("0" * 32) / "run.json").write_text("[1]")
    told = {row["run"]: row for row in load(dovetail("recover", "--json"))}
    assert told[run.name]["recorded"] == 1
    assert told["0" * 32]["trouble"]
    assert [row["run"] for row in load(dovetail("recover", "--json"))] == ["0" * 32]


def test_a_job_that_never_started_is_named_and_no_run(dovetail: Call, here: Path) -> None:
    """Its supervisor was killed before the request came, then Dovetail, before it had said so."""
    run = run_of(here)
    lines = (run / "spawn.log").read_text().splitlines()
    uid = next(
        record["uid"]
        for record in map(json.loads, lines)
        if record["t"] == "end" and "sh:job.sh-1" in record["uid"]
    )
    edit_log(run, lambda records: [one for one in records if one.get("uid") != uid])
    (told,) = load(dovetail("recover", "--json"))
    assert [lost["id"] for lost in told["lost"]] == ["sh:job.sh-1"]
    assert told["trouble"] is None
    assert recorded(here / "h.sqlite") == 1
