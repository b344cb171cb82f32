"""Ground that moves under a service: its socket, its lock and its ledger's files are removed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Timer

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.client.folder import ServiceFolder
from dovetail.errors import HistoryError
from dovetail.model import App, Choice, Command, Implementation, Job, Request
from dovetail.process.processes import process_origin
from dovetail.process.spawn_log import read_log
from dovetail.running.ledger import Ledger
from dovetail.service import ground
from dovetail.service.serve import _try_lock

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def log_of(service: Serving) -> str:
    return service.folder.log.read_text()


def test_the_runtime_folder_goes_with_the_last_logout(tmp_path: Path) -> None:
    """Clients find the service again by themselves, and it can be ended."""
    runtime = tmp_path / "run"
    runtime.mkdir()
    with serving(tmp_path, "--cluster", "1x2cpu", XDG_RUNTIME_DIR=str(runtime)) as service:
        assert service.folder.address().socket.startswith(str(runtime))  # type: ignore[union-attr]
        shutil.rmtree(runtime)
        done = service.dovetail("submit", "--wait", "--", "true", timeout=60)
        assert (done.returncode, done.stdout) == (0, "Submitted job 1\n"), done.stderr
        address = service.folder.address()
        assert address is not None
        assert address.socket == str(service.folder.path / "service.sock")
        assert "the socket was removed; clients find a new one at" in log_of(service)
        os.unlink(address.socket)  # and where only the file goes, it is made anew in its place
        assert service.dovetail("queue", timeout=60).returncode == 0
        assert service.dovetail("serve", "--stop", timeout=60).returncode == 0
        assert service.process is not None
        service.process.wait(30)


def test_a_service_that_does_not_answer_is_named_and_can_be_stopped(tmp_path: Path) -> None:
    """Its socket is gone, and it never looks (the test has it look once in a million seconds)."""
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.program = (
        "-c",
        "import dovetail.service.ground as g; g.LOOK = 1e6\nfrom dovetail.start import main; main()",
    )
    service.start().close()
    assert service.process is not None
    address = service.folder.address()
    assert address is not None
    os.unlink(address.socket)
    done = service.dovetail("serve", "--stop", timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"(process {service.process.pid}) did not answer at {address.socket}" in done.stderr
    assert f"'kill {service.process.pid}' ends it, what runs goes on" in done.stderr
    service.process.wait(30)
    assert not service.folder.is_locked()


def test_the_lock_is_held_though_its_file_is_removed(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as service:
        (service.folder.path / "lock").unlink()
        until(service.folder.is_locked)
        done = service.dovetail("serve", "--folder", str(service.folder.path), timeout=60)
        assert done.returncode == 2
        assert "a service runs already" in done.stderr


def test_lingering_that_is_off_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    socket, login = tmp_path / "user" / "1000" / "s", tmp_path / "seats"
    monkeypatch.setattr(ground, "RUNTIME", tmp_path / "user")
    monkeypatch.setattr(ground, "LOGIN", login)
    monkeypatch.setattr(ground, "LINGERING", tmp_path / "linger")
    monkeypatch.setattr(ground, "name_of", lambda uid: "ann")
    assert not ground.why_ended_at_logout(socket, 1000), "no logind runs here"
    login.mkdir()
    assert "'loginctl enable-linger' has both stay" in ground.why_ended_at_logout(socket, 1000)
    assert not ground.why_ended_at_logout(socket, 0)
    assert not ground.why_ended_at_logout(tmp_path / "state" / "s", 1000)
    (tmp_path / "linger").mkdir()
    (tmp_path / "linger" / "ann").touch()
    assert not ground.why_ended_at_logout(socket, 1000)


def test_serve_and_its_unit_name_lingering(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    service.program = (
        "-c",
        "import dovetail.service.serve as s, dovetail.service.ground as g\n"
        "g.RUNTIME = g.LOGIN = g.Path('/'); g.LINGERING = g.Path('/nowhere')\n"
        "s.why_ended_at_logout = lambda path, uid: g.why_ended_at_logout(path, 1000)\n"
        "from dovetail.start import main; main()",
    )
    service.start().close()
    service.stop()
    assert "lingering is off for this account: at its last logout" in log_of(service)
    unit = Path(__file__).parents[2] / "share" / "systemd" / "user" / "dovetail.service"
    assert "loginctl enable-linger" in unit.read_text()


def replace_by(path: Path, make: Callable[[Path], object]) -> None:
    """Put something else at this path, whatever the service makes there meanwhile."""
    while True:
        path.unlink(missing_ok=True)
        with suppress(FileExistsError):
            make(path)
            return


def link_to_nothing(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def test_the_lock_is_held_whatever_is_put_in_its_place(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x1cpu") as service:
        lock = service.folder.path / "lock"
        makes: list[Callable[[Path], object]] = [Path.mkdir, os.mkfifo, link_to_nothing]
        for n, make in enumerate(makes):
            replace_by(lock, make)
            until(lambda n=n: log_of(service).count("was no file, and is lock.") > n)
            until(service.folder.is_locked)
        assert service.dovetail("queue", timeout=60).returncode == 0


def write_nonsense(path: Path) -> None:
    path.write_bytes(b"\xff{[\0")


def test_clients_find_it_whatever_is_put_in_the_place_of_socket_and_address(tmp_path: Path) -> None:
    socket = tmp_path / "service" / "service.sock"
    with serving(tmp_path, "--cluster", "1x1cpu", "--socket", str(socket)) as service:
        address = service.folder.path / "address.json"
        makes: list[Callable[[Path], object]] = [write_nonsense, os.mkfifo]
        for n, make in enumerate(makes):
            replace_by(address, make)
            until(lambda n=n: log_of(service).count("address.json: was removed or changed") > n)
            assert service.folder.address() is not None
        replace_by(socket, Path.mkdir)
        until(lambda: "the socket was removed; clients find a new one" in log_of(service))
        until(socket.is_socket)
        assert service.dovetail("queue", timeout=60).returncode == 0


@pytest.mark.parametrize("damage", ["wal cut", "wal begins otherwise", "ledger cut"])
def test_nothing_acknowledged_is_lost_where_a_file_is_cut(tmp_path: Path, damage: str) -> None:
    """In its place, which leaves it the same file; the service is killed then."""
    with serving(tmp_path, "--cluster", "1x1cpu") as service:
        with open_connection(service.folder.path) as client:
            ids = submit(client, *({"command": ["sleep", "600"]} for _ in range(5)))
            file = service.folder.ledger_path
            if damage == "ledger cut":
                os.truncate(file, 0)
            elif damage == "wal cut":
                os.truncate(f"{file}-wal", 0)
            else:
                with open(f"{file}-wal", "r+b") as wal:
                    wal.write(b"otherwise")
            until(lambda: "nothing is lost" in log_of(service), seconds=30)
        service.kill()
        with service.start() as client:
            assert {row["id"] for row in client.get("/api/v1/jobs")["jobs"]} == set(ids)
    with sqlite3.connect(service.folder.ledger_path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_nothing_acknowledged_is_lost_with_a_file_beside_the_ledger(tmp_path: Path, ending: str) -> None:
    """Removed under a living service, which is killed some seconds later."""
    with serving(tmp_path, "--cluster", "1x1cpu") as service:
        with open_connection(service.folder.path) as client:
            ids = submit(client, *({"command": ["sleep", "600"]} for _ in range(5)))
            os.unlink(f"{service.folder.ledger_path}{ending}")
            ids += submit(client, {"command": ["true"]})  # looks before it acknowledges
            assert "nothing is lost" in log_of(service)
            os.unlink(f"{service.folder.ledger_path}{ending}")
            until(lambda: log_of(service).count("nothing is lost") == 2, seconds=30)  # looks by itself
            ids += submit(client, {"command": ["true"]})
            assert client.get(f"/api/v1/jobs/{ids[-1]}")["state"] == "PENDING"
            assert {row["id"] for row in client.get("/api/v1/jobs")["jobs"]} == set(ids)
        service.kill()
        with service.start() as client:
            assert {row["id"] for row in client.get("/api/v1/jobs")["jobs"]} == set(ids)
            client.post("/api/v1/cancel", {"jobs": f"{ids[0]}-{ids[4]}"})
            assert set(wait(client, ids).values()) == {"CANCELLED", "COMPLETED"}
    with sqlite3.connect(service.folder.ledger_path) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()


def test_a_spawn_log_that_knows_more_than_the_ledger_is_said_with_numbers(tmp_path: Path) -> None:
    """The ledger of an hour ago, put back: what was acknowledged since is gone, but what ran is on record."""
    with serving(tmp_path, "--cluster", "1x2cpu") as service:
        with open_connection(service.folder.path) as client:
            ids = submit(client, {"command": ["true"]}, {"command": ["true"], "depends": [], "hold": True})
            assert wait(client, ids[:1]) == {ids[0]: "COMPLETED"}
            older = tmp_path / "older.db"
            with sqlite3.connect(service.folder.ledger_path) as database:
                database.execute("VACUUM INTO ?", (str(older),))
            database.close()
            client.post("/api/v1/release", {"jobs": ids[1]})
            (running,) = ids[2:] or submit(client, {"command": ["sleep", "600"]})
            later = submit(client, {"command": ["true"]}, {"command": ["true"]})
            wait(client, [ids[1], *later])
        service.kill()
        for name in ("ledger.db-wal", "ledger.db-shm"):
            (service.folder.path / name).unlink(missing_ok=True)
        os.rename(older, service.folder.ledger_path)
        with service.start() as client:
            told = log_of(service)
            assert "knows more than the ledger: 3 jobs (3-5) on record only there" in told
            assert "1 job (2) started after what the ledger knows" in told
            assert "of these 1 still ran, which is ended" in told
            (new,) = submit(client, {"command": ["true"]})
            assert new == "6", "no number is given twice"
            client.post("/api/v1/release", {"jobs": ids[1]})
            assert wait(client, [ids[1], new]) == {ids[1]: "COMPLETED", new: "COMPLETED"}
            assert client.get(f"/api/v1/jobs/{ids[1]}")["attempts"] == 2, "of a uid of its own"
        start = read_log(service.folder.path / "spawn.log").starts
        assert not any(
            uid.endswith(f"/{running}") and Path(f"/proc/{one['pid']}").exists() for uid, one in start.items()
        )


def test_a_ledger_that_cannot_be_written_anew_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk (here: a name that is taken by a folder); the next look tries again."""
    with Ledger(tmp_path / "ledger.db", durable=True) as ledger:
        ledger.submit([_job("a")], 0.0)
        os.unlink(tmp_path / "ledger.db-wal")
        assert not ledger.is_whole
        with monkeypatch.context() as broken:
            broken.setattr(os, "rename", _refuse)
            with pytest.raises(HistoryError, match="cannot be written anew"):
                ledger.write_anew()
        assert [entry.job.id for entry in ledger.entries()] == ["a"]
        ledger.submit([_job("b")], 0.0)
        ledger.write_anew()
        assert ledger.is_whole
        ledger.submit([_job("c")], 0.0)
        ledger.sync()
    with Ledger(tmp_path / "ledger.db") as ledger:
        assert [entry.job.id for entry in ledger.entries()] == ["a", "b", "c"]
    assert not list(tmp_path.glob("*.new"))


def _refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def _job(id: str) -> Job:
    request = Request(1, 1)
    way = Implementation("cpu", "cpu", request, Command(("true",)))
    return Job(id, App("a", (way,)), (Choice(way, request),))


def test_a_lock_that_outlives_its_service_for_an_instant_is_waited_for(tmp_path: Path) -> None:
    """As process 1 of a container: the number in the address is that of the one that starts."""
    folder = ServiceFolder(tmp_path / "service")
    folder.make_private()
    killed = folder.take_lock()
    assert killed is not None
    elsewhere = {**process_origin(), "ns": "1.1", "pid": os.getpid()}
    (folder.path / "lock").write_text(json.dumps(elsewhere))
    (folder.path / "address.json").write_text(json.dumps({"socket": "/none", "pid": os.getpid()}))
    Timer(0.2, os.close, (killed,)).start()
    lock = _try_lock(folder)
    assert lock is not None
    os.close(lock)


def test_a_file_system_that_becomes_read_only_hides_no_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an error of a disk: whoever would open the lock to write it is refused."""
    folder = ServiceFolder(tmp_path / "service")
    folder.make_private()
    assert not folder.is_locked()
    lock = folder.take_lock()
    assert lock is not None
    opens = os.open

    def open_read_only(path: str | Path, flags: int, *more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return opens(path, flags, *more)

    monkeypatch.setattr(os, "open", open_read_only)
    assert folder.is_locked()
    os.close(lock)
    assert not folder.is_locked()
