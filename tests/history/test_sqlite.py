"""The database: several processes, crashes, older and newer versions, files that are none."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dovetail.errors import HistoryError, InputError
from dovetail.history import SqliteHistory, default_history_path
from dovetail.history.rows import pack_uid, unpack_uid
from dovetail.history.schema import SCHEMA_VERSION, create_or_migrate
from dovetail.model import DeviceClass, Run, State
from dovetail.testing.builders import full

CPU = DeviceClass("cpu")


def run(seconds: float = 1.0, n: float = 8, **more: object) -> Run:
    fields: dict[str, object] = {
        "app": "mm",
        "implementation": "cpu",
        "device_class": CPU,
        "nodes": 1,
        "cpus": -1,
        "gpus": 0.0,
        "inputs": {"n": n},
        "seconds": seconds,
    }
    return Run(**(fields | more))  # type: ignore[arg-type]


def python(code: str, *arguments: object, **options: object) -> subprocess.Popen[str]:
    """Another process that runs this code with the helpers of this file."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-c", "from test_sqlite import *\n" + code, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, **options)  # type: ignore[call-overload, no-any-return]


def test_a_new_file_belongs_to_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "history.sqlite"
    with SqliteHistory(path) as history:
        history.record(run())
        for name in path.parent.iterdir():
            assert stat.S_IMODE(name.stat().st_mode) == 0o600


def test_default_place_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_history_path() == tmp_path / "dovetail" / "history.sqlite"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_history_path() == tmp_path / "home/.local/state/dovetail/history.sqlite"


def test_everything_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path) as history:
        history.record_many(run(float(i), n=i % 3, uid=str(i)) for i in range(1, 10))
        before = (history.runs("mm"), history.list_aggregates("mm", "cpu", CPU), history.list_groups())
    with SqliteHistory(path) as history:
        assert (
            history.runs("mm"),
            history.list_aggregates("mm", "cpu", CPU),
            history.list_groups(),
        ) == before
        assert history.known_uids(["1", "9", "10", ""]) == {"1", "9"}


def test_many_runs_are_recorded_all_or_none(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "h.sqlite") as history:
        with pytest.raises(InputError, match="seconds is -1"):
            history.record_many([run(uid="a"), run(-1.0, uid="b")])
        assert history.list_groups() == []
        assert history.record_many([run(uid="a"), run(uid="a"), run(2.0, uid="b")]) == 2
        assert history.record_many([run(uid="a"), run(uid="b")]) == 0
        assert history.count("mm", "cpu", CPU) == 2


def test_averages_written_run_by_run_equal_those_written_at_once(tmp_path: Path) -> None:
    runs = [
        run(1.0 + i % 7, n=i % 5, state=State.FAILED if i % 11 == 0 else State.COMPLETED) for i in range(60)
    ]
    with SqliteHistory(tmp_path / "a.sqlite") as one, SqliteHistory(tmp_path / "b.sqlite") as many:
        for r in runs:
            one.record(r)
        many.record_many(runs)
        assert one.list_aggregates("mm", "cpu", CPU) == many.list_aggregates("mm", "cpu", CPU)
        assert one.list_groups() == many.list_groups()


def test_mirrored_figures_equal_those_read_anew(tmp_path: Path) -> None:
    """Recording carries what was read forward; a second connection reads everything."""
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path) as history, SqliteHistory(path) as other:
        for i in range(40):
            history.record(
                run(1.0 + i, n=i % 9, nodes=1 + i % 2, state=State.TIMEOUT if i % 5 == 4 else State.COMPLETED)
            )
            if i % 13 == 0:
                other.record(run(0.5, n=100 + i))
            assert list(history.recent("mm", "cpu", CPU, 6)) == list(other.recent("mm", "cpu", CPU, 6))
            for limit in (4, 100):
                mine = history.list_aggregates("mm", "cpu", CPU, limit)
                assert list(mine) == list(other.list_aggregates("mm", "cpu", CPU, limit))
            assert history.count("mm", "cpu", CPU) == other.count("mm", "cpu", CPU)


def test_another_process_is_seen_at_the_next_question(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path) as history:
        history.record(run(1.0, uid="a"))
        version, stamp = history.version, history.app_stamp("mm")
        assert history.version == version
        code = (
            "with SqliteHistory(sys.argv[1]) as h:\n"
            "    print(h.record(run(3.0, uid='b')), h.record(run(9.0, uid='a')))\n"
        )
        out, _ = python(code, path).communicate(timeout=280)
        assert out.split() == ["True", "False"]
        assert history.version > version
        assert history.app_stamp("mm") != stamp
        assert [r.seconds for r in history.runs("mm")] == [1.0, 3.0]
        assert history.list_aggregates("mm", "cpu", CPU)[0].mean == 2.0


def test_processes_write_at_the_same_time_and_lose_nothing(tmp_path: Path) -> None:
    """Four processes make the file and write 50 runs each, every second uid the same in all."""
    code = (
        "with SqliteHistory(sys.argv[1]) as h:\n"
        "    for i in range(50):\n"
        "        h.record(run(1.0 + i % 3, n=i % 4, uid=f'{i}' if i % 2 else f'{sys.argv[2]}-{i}'))\n"
    )
    path = tmp_path / "h.sqlite"
    children = [python(code, path, name) for name in range(4)]
    assert [child.wait(timeout=120) for child in children] == [0] * 4
    for child in children:
        child.communicate()
    with SqliteHistory(path) as history:
        assert history.count("mm", "cpu", CPU) == 25 + 4 * 25
        whole = sum(a.count for a in history.list_aggregates("mm", "cpu", CPU))
        assert whole == len({r.uid for r in history.runs("mm")}) == 125


def test_a_killed_process_leaves_no_half(tmp_path: Path) -> None:
    """kill -9 while it records: what it said was recorded is there, averages and raw runs agree."""
    path = tmp_path / "h.sqlite"
    code = (
        "h = SqliteHistory(sys.argv[1])\n"
        "i = 0\n"
        "while True:\n"
        "    h.record(run(1.0 + i % 3, n=i % 4, uid=f'{sys.argv[2]}-{i}')); print(i, flush=True); i += 1\n"
    )
    told = 0
    for attempt in range(10 if os.environ.get("DOVETAIL_TEST_FULL") else 3):
        child = python(code, path, attempt)
        assert child.stdout is not None
        while int(child.stdout.readline()) < 20 + 7 * attempt:
            pass
        child.send_signal(signal.SIGKILL)
        told += 1 + max([20 + 7 * attempt, *map(int, child.communicate()[0].split())])
        with SqliteHistory(path) as history:
            runs = history.runs("mm")
            assert told <= len(runs) <= told + 1
            told = len(runs)
            assert sum(a.count for a in history.list_aggregates("mm", "cpu", CPU)) == len(runs)
            assert sum(g.completed for g in history.list_groups()) == len(runs)
            for a in history.list_aggregates("mm", "cpu", CPU):
                times = [r.seconds for r in runs if r.inputs["n"] == a.inputs[0][1]]
                assert a.mean == pytest.approx(sum(times) / len(times))


def test_a_writer_that_holds_the_file_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path, wait=0.05) as history:
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            HistoryError, match=r"h\.sqlite: cannot be written: another process has been writing"
        ):
            history.record(run())
        assert list(history.runs("mm")) == []  # readers do not wait
        blocker.execute("ROLLBACK")
        blocker.close()
        assert history.record(run())


def old_database(path: Path) -> None:
    """A version 1 database, as that version wrote it: raw runs without averages."""
    db = sqlite3.connect(path, isolation_level=None)
    create_or_migrate(db, up_to=1)
    db.execute("INSERT INTO users VALUES (1, 'ann')")
    for group in (1, 2):
        db.execute("INSERT INTO groups VALUES (?, 'mm', 'cpu', 'cpu', '', ?, -1, 0)", (group, group))
    db.execute("""INSERT INTO keys VALUES (1, 1, '{"n":8}'), (2, 2, '{"n":8}'), (3, 1, '{"n":9}')""")
    rows = [
        (1, 1, "a", 0, 1.0, 4.0),
        (1, 1, "b", 0, 3.0, None),
        (1, 1, "c", 2, 60.0, None),
        (2, 2, "d", 0, 5.0, None),
        (1, 3, "e", 1, 7.0, None),
    ]
    db.executemany(
        "INSERT INTO runs (group_id, key_id, uid, state, seconds, sent, finished, user_id, first_on_device) "
        "VALUES (?, ?, ?, ?, ?, ?, 0, 1, 0)",
        rows,
    )
    db.close()


def test_an_older_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old_database(path)
    with SqliteHistory(path) as history:
        first, second, third = history.list_aggregates("mm", "cpu", CPU)
        assert (first.count, first.mean, first.m2, first.minimum, first.maximum) == (2, 2.0, 2.0, 1.0, 3.0)
        assert (first.failed, first.transfers, first.sent) == (1, 1, 4.0)
        assert (second.count, second.mean, second.request) == (1, 5.0, (2, -1, 0.0))
        assert (third.count, third.failed) == (0, 1)
        assert [(g.completed, g.failed) for g in history.list_groups()] == [(2, 2), (1, 0)]
        assert {r.user for r in history.runs("mm")} == {"ann"}
        assert not history.record(run(uid="a"))
        assert history.record(run(5.0, uid="f"))
        assert history.list_aggregates("mm", "cpu", CPU)[0].mean == 3.0
    version = sqlite3.connect(path).execute("PRAGMA user_version").fetchone()
    assert version == (SCHEMA_VERSION,)


def test_an_upgraded_database_has_the_schema_of_a_new_one(tmp_path: Path) -> None:
    old_database(tmp_path / "old.sqlite")
    schemas = []
    for name in ("old.sqlite", "new.sqlite"):
        with SqliteHistory(tmp_path / name):
            pass
        db = sqlite3.connect(tmp_path / name)
        schemas.append(sorted(db.execute("SELECT type, name, sql FROM sqlite_master").fetchall()))
        db.close()
    assert schemas[0] == schemas[1]


def test_a_failed_upgrade_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old_database(path)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DROP TABLE runs")
    with pytest.raises(HistoryError, match="cannot be opened: no such table"):
        SqliteHistory(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    assert len(db.execute("PRAGMA table_info(keys)").fetchall()) == 3
    db.close()


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    SqliteHistory(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    db.close()
    with pytest.raises(HistoryError, match=rf"found schema version {SCHEMA_VERSION + 1}, expected at most"):
        SqliteHistory(path)


def test_a_file_that_is_no_database_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("[[app]]\n" * 100)
    with pytest.raises(HistoryError, match=r"jobs\.toml: cannot be opened: found a file that is no SQLite"):
        SqliteHistory(path)
    assert path.read_text() == "[[app]]\n" * 100


def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "browser.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE bookmarks (url TEXT)")
    db.commit()
    db.close()
    with pytest.raises(HistoryError, match="database of another program"):
        SqliteHistory(path)


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path) as history:
        history.record_many(run(1.0, n=i, uid=f"uid-{i}") for i in range(2000))
        history.vacuum_file()
    data = bytearray(path.read_bytes())
    for at in range(4096 * 3, len(data)):
        data[at] = 0x5A
    path.write_bytes(data)
    with pytest.raises(HistoryError, match="the database is damaged"), SqliteHistory(path) as history:
        history.runs("mm")


def test_folders_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="found a folder, expected a database file"):
        SqliteHistory(tmp_path)
    with pytest.raises(HistoryError, match="no such file"):
        SqliteHistory(tmp_path / "none.sqlite", must_exist=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(HistoryError, match="cannot be made: found a file, expected a folder"):
        SqliteHistory(tmp_path / "file" / "h.sqlite")


def test_a_full_disk_is_named_and_loses_nothing(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "h.sqlite") as history:
        history.record_many(run(uid=f"a{i}") for i in range(10))
        (pages,) = history._db.execute("PRAGMA page_count").fetchone()
        history._db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(HistoryError, match="cannot be written: the disk is full"):
            history.record_many(run(n=i, uid=f"b{i}") for i in range(5000))
        assert history.count("mm", "cpu", CPU) == 10
        history._db.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert history.record(run(uid="c"))


@pytest.mark.skipif(os.name != "posix" or not hasattr(os, "fork"), reason="needs users")
def test_a_read_only_file_can_be_read_not_written(tmp_path: Path) -> None:
    """As an ordinary user: permissions do not bind root."""
    folder = tmp_path / "shared"
    path = folder / "h.sqlite"
    with SqliteHistory(path) as history:
        history.record(run(4.0))
    path.chmod(0o444)
    code = (
        "import os\n"
        "from dovetail.errors import HistoryError\n"
        "os.chdir(sys.argv[1])\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "h = SqliteHistory('h.sqlite')\n"
        "print(len(h.runs('mm')), end=' ')\n"
        "try: h.record(run())\n"
        "except HistoryError as error: print(error)\n"
    )
    folder.chmod(0o777)
    for parent in folder.parents:  # pytest's folders are closed to other users
        if parent.name.startswith(("pytest-", "popen-")) or parent == tmp_path:
            parent.chmod(0o755)
    out, _ = python(code, folder).communicate(timeout=280)
    assert out.strip() == "1 history h.sqlite: cannot be written: the file or its folder is read-only"


@pytest.mark.skipif(os.name != "posix" or not hasattr(os, "fork"), reason="needs users")
def test_a_read_only_folder_can_be_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "a %3f folder?"
    with SqliteHistory(folder / "h.sqlite") as history:
        history.record(run(4.0))
    (folder / "h.sqlite").chmod(0o444)
    folder.chmod(0o555)
    code = (
        "import os\n"
        "from dovetail.errors import HistoryError\n"
        "os.chdir(sys.argv[1])\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "with SqliteHistory('h.sqlite', must_exist=True) as h:\n"
        "    print(len(h.runs('mm')), end=' ')\n"
        "    try: h.record(run())\n"
        "    except HistoryError as error: print(error)\n"
        "try: SqliteHistory('h.sqlite')\n"
        "except HistoryError as error: print(error)\n"
    )
    for parent in folder.parents:
        if parent.name.startswith(("pytest-", "popen-")) or parent == tmp_path:
            parent.chmod(0o755)
    try:
        out, _ = python(code, folder).communicate(timeout=280)
    finally:
        folder.chmod(0o755)
    assert out.splitlines() == [
        "1 history h.sqlite: cannot be written: the file or its folder is read-only",
        "history h.sqlite: cannot be opened: the file or its folder is read-only",
    ]
    assert [path.name for path in folder.iterdir()] == ["h.sqlite"]


def test_forget_by_app_device_and_age(tmp_path: Path) -> None:
    gpu = DeviceClass("gpu")
    with SqliteHistory(tmp_path / "h.sqlite") as history:
        history.record_many([run(float(i), when=float(i), uid=f"c{i}") for i in range(1, 6)])
        history.record_many([run(device_class=gpu, when=9.0), run(app="fft")])
        stamp = history.app_stamp("mm")
        assert history.delete_runs("mm", before=3.0) == 2
        assert history.app_stamp("mm") != stamp
        (aggregate,) = history.list_aggregates("mm", "cpu", CPU)
        assert (aggregate.count, aggregate.mean, aggregate.minimum) == (3, 4.0, 3.0)
        assert history.delete_runs("mm", device=gpu) == 1
        assert history.delete_runs("nothing") == 0
        assert [g.app for g in history.list_groups()] == ["fft", "mm"]
        assert history.delete_runs("mm") == 3
        assert history.count("mm", "cpu", CPU) == 0
        assert history.record(run(uid="c1"))
        assert history.delete_runs() == 2
        assert history.list_groups() == []


def test_vacuum_gives_space_back(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "h.sqlite") as history:
        history.record_many(run(n=i, uid=f"uid-{i}") for i in range(5000))
        history.delete_runs()
        history.record(run(uid="x"))
        before, after = history.vacuum_file()
        assert after < before / 5
        assert history.count("mm", "cpu", CPU) == 1


HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "uid",
    [
        "",
        "a",
        HEX,
        HEX.upper(),
        f"{HEX}/job-1",
        f"{HEX}/",
        f"{HEX}/jöb",
        f"{HEX}x",
        "01234567-89ab-cdef-0123-456789abcdef",
        "-",
        "/",
        "/" + HEX,
    ],
)
def test_uids_survive_packing(uid: str) -> None:
    packed = pack_uid(uid)
    assert unpack_uid(packed) == uid
    assert len(packed or "") <= len(uid.encode())


def test_versions_cost_little(tmp_path: Path) -> None:
    """No timing: the version is one PRAGMA, asked without a transaction, so it never blocks a writer."""
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path, wait=0.05) as history, SqliteHistory(path, wait=0.05) as other:
        for _ in range(3):
            _ = history.version, history.app_stamp("mm"), history.count("mm", "cpu", CPU)
            assert other.record(run())
        assert not history._db.in_transaction


def test_usable_from_another_thread(tmp_path: Path) -> None:
    import threading

    with SqliteHistory(tmp_path / "h.sqlite") as history:
        threads = [
            threading.Thread(target=lambda: [history.record(run()) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert history.count("mm", "cpu", CPU) == 80


def test_what_was_read_is_carried_forward_over_several_runs_at_once(tmp_path: Path) -> None:
    """Averages, newest runs, groups and counts, also of runs known already and of new groups."""
    path = tmp_path / "h.sqlite"
    gpu = DeviceClass("gpu")
    with SqliteHistory(path) as ours:
        ours.record(run(1.0, uid="a"))

        def seen(history: SqliteHistory) -> tuple[object, ...]:
            return (
                list(history.list_aggregates("mm", "cpu", CPU, 10)),
                [r.uid for r in history.recent("mm", "cpu", CPU, 10)],
                history.list_groups("mm"),
                history.count("mm", "cpu", CPU),
                history.find_aggregate("mm", "cpu", CPU, (1, -1, 0.0), (("n", 8.0),)),
                history.find_aggregate("mm", "cpu", CPU, (1, -1, 0.0), (("n", 9.0),)),
                history.app_stamp("mm"),
            )

        batches = (
            [run(2.0, uid="b"), run(3.0, 9, uid="c"), run(9.0, uid="a")],
            [run(2.0, uid="d", state=State.FAILED), run(1.0, uid="e", device_class=gpu)],
            [run(5.0, uid="b", device_class=DeviceClass("new"))],
            [run(5.0, uid="f"), run(6.0, uid="g", app="other")],
        )
        for batch, new in zip(batches, (2, 2, 0, 2), strict=True):
            seen(ours)
            assert ours.record_many(batch) == new
            with SqliteHistory(path) as fresh:
                assert seen(ours) == seen(fresh)


def test_a_batch_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    with SqliteHistory(tmp_path / "h.sqlite") as history:
        history.record(run(1.0, uid="a"))
        with pytest.raises(InputError):
            history.record_many([run(2.0, uid="b"), run(-1.0, uid="c")])
        history.record(run(3.0, uid="d"))
        (found,) = history.list_aggregates("mm", "cpu", CPU)
        assert (found.count, found.mean) == (2, 2.0)


def test_what_others_record_is_seen_after_it_was_held_still(tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    with SqliteHistory(path) as ours, SqliteHistory(path) as theirs:
        assert ours.count("mm", "cpu", CPU) == 0
        with ours.hold_still():
            theirs.record(run(1.0))
            assert ours.count("mm", "cpu", CPU) == 0
            ours.record(run(3.0))  # under the write lock all is seen
            assert ours.count("mm", "cpu", CPU) == 2
        (found,) = ours.list_aggregates("mm", "cpu", CPU)
        assert found.mean == 2.0


def test_an_import_lets_others_write_in_between(tmp_path: Path) -> None:
    """While many runs come in, another process records one by one: it does not wait for all of them."""
    path, count = tmp_path / "h", full(60_000, 20_000)
    SqliteHistory(path).close()
    importer = python(
        "with SqliteHistory(sys.argv[1]) as h:\n"
        "    print('begun', flush=True)\n"
        f"    print(h.record_in_pieces(run(n=i % 50, uid=f'a{{i}}') for i in range({count})), flush=True)",
        path,
    )
    assert importer.stdout is not None
    beside = 0
    with importer, SqliteHistory(path, wait=60) as history:
        assert importer.stdout.readline() == "begun\n"
        while importer.poll() is None:
            history.record(run(app="other", uid=f"b{beside}"))
            beside += 1
        assert importer.stdout.read() == f"{count}\n"
        assert beside >= 10
        assert history.count("mm", "cpu", CPU) == count
        assert history.count("other", "cpu", CPU) == beside


def test_pieces_give_what_one_transaction_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.history.sqlite.PIECE", 7)
    runs = [run(1.0 + i % 5, n=i % 3, uid=f"u{i}", app=f"a{i % 2}") for i in range(40)]
    with SqliteHistory(tmp_path / "a") as one, SqliteHistory(tmp_path / "b") as pieces:
        assert one.record_many(iter(runs)) == 40
        assert pieces.record_in_pieces(iter(runs + runs[:5])) == 40
        assert one.list_groups() == pieces.list_groups()
        for app in ("a0", "a1"):
            assert one.list_aggregates(app, "cpu", CPU) == pieces.list_aggregates(app, "cpu", CPU)


def test_pieces_that_were_committed_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.history.sqlite.PIECE", 10)
    with SqliteHistory(tmp_path / "h") as history:
        with pytest.raises(InputError, match="seconds is nan"):
            history.record_in_pieces(run(float("nan") if i == 25 else 1.0, uid=str(i)) for i in range(40))
        assert history.count("mm", "cpu", CPU) == 20
        assert history.record_in_pieces(run(uid=str(i)) for i in range(40)) == 20


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE keys SET inputs = '{\"n\":'",
        "UPDATE keys SET inputs = '[1]'",
        "UPDATE keys SET inputs = 7",
        "UPDATE keys SET mean = 'x'",
        "UPDATE keys SET count = 1e999",
        "UPDATE runs SET seconds = 'much'",
        "UPDATE runs SET state = 99",
        "UPDATE runs SET cpu_time = 'x'",
        "UPDATE runs SET job = 7, walltime = 'x'",
        "UPDATE groups SET app = x'ff'",
        "UPDATE groups SET nodes = 'x'",
        "DROP TABLE keys",
    ],
)
def test_rows_that_cannot_be_are_said(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "h"
    with SqliteHistory(path) as history:
        history.record_many([run(uid="0" * 32), run(2.0, uid="1" * 32)])
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(statement)
    told: list[str] = []
    with SqliteHistory(path) as history:
        for question in (
            lambda: history.list_groups(),
            lambda: history.list_groups("mm"),
            lambda: history.list_aggregates("mm", "cpu", CPU),
            lambda: history.recent("mm", "cpu", CPU, 9),
            lambda: history.find_aggregate("mm", "cpu", CPU, (1, -1, 0.0), (("n", 8.0),)),
            lambda: list(history.all_runs()),
            lambda: history.runs("mm"),
        ):
            try:
                question()  # type: ignore[no-untyped-call]
            except HistoryError as error:
                told.append(str(error))
    assert told
    assert all(message.startswith(f"history {path}: cannot be read: ") for message in told)
