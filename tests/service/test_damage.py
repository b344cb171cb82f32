"""Every refusal after damage names a way out, and each way is walked to its end here."""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.errors import DovetailError
from dovetail.process.processes import is_alive
from dovetail.process.spawn_log import read_log

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def refused(service: Serving) -> str:
    """What `dovetail serve` says, which ends with status 2."""
    done = service.dovetail("serve", "--folder", str(service.folder.path), timeout=120)
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def as_it_says(service: Serving, said: str) -> subprocess.CompletedProcess[str]:
    """Do what a message names."""
    found = re.search(r"'dovetail ((?:recover|serve) --[^']*(?:'[^']*')?[^']*)'", said)
    assert found is not None, said
    return service.dovetail(*shlex.split(found[1]), timeout=120)


def cut_in_front(log: Path) -> None:
    log.write_bytes(log.read_bytes().partition(b"\n")[2])


def without_setups(log: Path) -> None:
    log.write_bytes(b"".join(one for one in log.read_bytes().splitlines(True) if b'"t":"setup"' not in one))


def no_records(log: Path) -> None:
    log.write_bytes(log.read_bytes() + b'{"t":"intent","uid":7}\n')


@pytest.mark.parametrize("damage", [cut_in_front, without_setups, no_records])
def test_a_damaged_record_of_starts_is_put_aside_as_the_message_says(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    with service.start() as client:
        done, runs, waits = submit(
            client, *({"command": words} for words in (["true"], ["sleep", "600"], ["true"]))
        )
        wait(client, [done])
        until(lambda: client.get(f"/api/v1/jobs/{runs}")["state"] == "RUNNING")
    service.kill()
    damage(service.folder.path / "spawn.log")
    said = refused(service)
    assert "is damaged" in said
    shown = service.dovetail("recover").stdout
    assert f"{runs} still runs: process" in shown
    assert "'dovetail serve' takes up" in shown
    first = as_it_says(service, said)
    assert first.returncode == 2, "a job of it runs"
    assert as_it_says(service, first.stderr).returncode == 0
    assert as_it_says(service, said).returncode == 0
    with service.start() as client:
        assert wait(client, [done, runs, waits]) == {done: "COMPLETED", runs: "NODE_FAIL", waits: "COMPLETED"}
        assert "not known" in client.get(f"/api/v1/jobs/{runs}")["reason"]
    service.stop()


def test_a_queue_whose_ledger_has_gone_is_not_a_new_one(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    with service.start() as client:
        before = submit(client, *({"command": ["echo", str(n)]} for n in range(3)))
        wait(client, before)
    service.kill()
    for path in service.folder.path.glob("ledger.db*"):
        path.unlink()
    said = refused(service)
    assert "ledger.db: is gone" in said
    assert "'dovetail serve --new'" in said
    service.options = (*service.options, "--new")
    with service.start() as client:
        (job,) = submit(client, {"command": ["echo", "new"]})
        assert int(job) == 4
        assert wait(client, [job]) == {job: "COMPLETED"}
    output = service.folder.path / "output" / "0"
    assert [(output / f"{n}.out").read_text() for n in (1, 2, 3, 4)] == ["0\n", "1\n", "2\n", "new\n"]
    service.stop()


def no_database(ledger: Path) -> None:
    emptied(ledger)
    ledger.write_bytes(b"x" * 5000)


def emptied(ledger: Path) -> None:
    ledger.write_bytes(b"")
    for more in ("-wal", "-shm"):
        ledger.with_name(ledger.name + more).unlink(missing_ok=True)


def test_what_runs_though_its_record_was_deleted_is_ended_before_anything_else_starts(tmp_path: Path) -> None:
    """It had its core beside the next job, for as long as it liked."""
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    with service.start() as client:
        runs, waits = submit(
            client, {"command": ["sh", "-c", f"touch {tmp_path}/on; sleep 600"]}, {"command": ["true"]}
        )
        until((tmp_path / "on").exists)
    (process,) = read_log(service.folder.path / "spawn.log").starts.values()
    service.kill()
    (service.folder.path / "spawn.log").unlink()
    with service.start() as client:
        assert wait(client, [runs, waits]) == {runs: "NODE_FAIL", waits: "COMPLETED"}
        assert not is_alive(process["pid"], process["boot"])
    service.stop()


def a_wrong_cell(ledger: Path) -> None:
    with sqlite3.connect(ledger) as database:
        database.execute("UPDATE job SET doc = '[1]'")
    database.close()


@pytest.mark.parametrize("damage", [no_database, emptied, a_wrong_cell])
def test_a_damaged_ledger_is_put_aside_as_the_message_says(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    with service.start() as client:
        before = submit(client, {"command": ["true"]}, {"command": ["true"], "hold": True})
        wait(client, before[:1])
    service.kill()
    damage(service.folder.ledger_path)
    said = refused(service)
    assert "'dovetail serve --new'" in said
    service.options = (*service.options, "--new")
    with service.start() as client:
        (job,) = submit(client, {"command": ["true"]})
        assert int(job) == 2, "after the one of which there is output"
        assert wait(client, [job]) == {job: "COMPLETED"}
    assert len(list(service.folder.path.glob("ledger.db*.damaged"))) == (damage is not emptied)
    service.stop()


NESTED = "[" * 100_000


def test_what_a_service_can_do_without_stops_no_start(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu", "--half-life", "1d")
    with service.start() as client:
        (runs,) = submit(
            client, {"command": ["sh", "-c", f"until test -e {tmp_path}/go; do sleep 0.02; done"]}
        )
        until(lambda: client.get(f"/api/v1/jobs/{runs}")["state"] == "RUNNING")
    service.kill()
    folder = service.folder.path
    (folder / "address.json").write_text(NESTED)
    (folder / "usage.json").write_text('{"half_life": "x", "shares": 1, "at": [], "used": {"ann": "y"}}')
    for number in range(10, 20):
        (folder / "journal" / f"{number:06d}.jsonl").mkdir()
    (folder / "run.json").write_text(NESTED)
    assert "run.json: is no JSON" in (said := refused(service))
    assert "without this file the next start writes it anew" in said
    (folder / "run.json").unlink()
    with service.start() as client:
        assert client.get(f"/api/v1/jobs/{runs}")["state"] == "RUNNING"
        (tmp_path / "go").touch()
        assert wait(client, [runs]) == {runs: "COMPLETED"}
    service.stop()
    assert "usage.json cannot be read" in service.folder.log.read_text()


@pytest.mark.parametrize("damage", [NESTED, '[{"name": 5, "digest": 7, "created": "x"}]'])
def test_damaged_tokens_are_made_anew_as_the_message_says(tmp_path: Path, damage: str) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu", "--listen", "127.0.0.1:0")
    service.folder.make_private()
    service.folder.tokens_path.write_text(damage)
    said = service.dovetail("serve", *service.options, "--folder", str(service.folder.path), timeout=120)
    assert said.returncode == 2
    assert "tokens.json: is damaged" in said.stderr
    assert "without this file" in said.stderr
    service.folder.tokens_path.unlink()
    service.start().close()
    assert service.dovetail("token", "add", "ann").returncode == 0
    service.stop()


def test_outputs_that_are_there_are_kept_and_a_folder_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x1cpu") as service, open_connection(service.folder.path) as client:
        output = service.folder.path / "output"
        (output / "0").mkdir()
        (output / "0" / "1.out").write_text("of somebody else")
        (job,) = submit(client, {"command": ["echo", "mine"]})
        assert wait(client, [job]) == {job: "COMPLETED"}
        assert (output / "0" / "1.out").read_text() == "mine\n"
        assert [path.read_text() for path in (output / "0").glob("*.old")] == ["of somebody else"]
        shutil.rmtree(output)
        (job,) = submit(client, {"command": ["echo", "again"]})
        assert wait(client, [job]) == {job: "COMPLETED"}
        assert (output / "0" / "2.out").read_text() == "again\n"


def test_nothing_is_acknowledged_that_is_not_on_disk(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--socket", str(tmp_path / "socket"), "--cluster", "1x1cpu")
    with service.start() as client:
        wait(client, submit(client, {"command": ["true"]}))
        shutil.rmtree(service.folder.path)
        with pytest.raises(DovetailError, match=r"is gone|went away|closed|no service"):
            submit(client, {"command": ["true"]})
    assert service.process is not None
    assert service.process.wait(100) not in (0, None)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """The folder of a service, on a file system of its own of 4 MB."""
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(*paths: Path) -> None:
    """Write until there is no byte left; the last of these has room in its last block."""
    for path, piece in zip(paths, (bytes(4096), b"\n"), strict=True):
        with open(path, "ab", buffering=0) as file:
            try:
                while True:
                    file.write(piece)
            except OSError:
                continue


def test_a_job_that_ended_on_a_full_disk_took_as_long_as_the_spawn_log_says(
    small: Path, tmp_path: Path
) -> None:
    """The supervisor keeps what it could not write, until it can; nobody else's clock counts."""
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    log, ballast = small / "spawn.log", small / "ballast"
    with service.start() as client:
        words = ["sh", "-c", f"until test -e {tmp_path}/full; do sleep 0.02; done"]
        (job,) = submit(client, {"command": words})
        until(lambda: log.exists() and read_log(log).starts)
        fill(ballast, log)
        (tmp_path / "full").touch()
        assert wait(client, [job]) == {job: "COMPLETED"}
        service.kill()
    time.sleep(1)
    assert not read_log(log).ends
    ballast.unlink()
    with service.start() as client:
        assert wait(client, [job]) == {job: "COMPLETED"}
        found = client.get(f"/api/v1/jobs/{job}")
        (end,) = read_log(log).ends.values()
        assert found["end"] - found["start"] == pytest.approx(end["at"] - end["from"], abs=1e-5)
    service.stop()


def test_what_is_refused_on_a_full_disk_is_not_done(small: Path, tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    ballast, database = small / "ballast", small / "ledger.db-wal"
    with service.start() as client:
        done, runs, waits, held = submit(
            client, {"command": ["true"]}, *3 * [{"command": ["sleep", "600"], "cpus": 1}]
        )
        wait(client, [done])
        client.post("/api/v1/hold", {"jobs": held})
        until(lambda: client.get(f"/api/v1/jobs/{runs}")["state"] == "RUNNING")
        fill(ballast, small / "more")
        while True:  # what SQLite has room for in its own file
            reply = client.ask("POST", "/api/v1/hold", {"jobs": waits})
            if reply.status == 503:
                break
            client.ask("POST", "/api/v1/release", {"jobs": waits})
        for action, job in (("cancel", runs), ("cancel", waits), ("release", held), ("requeue", done)):
            reply = client.ask("POST", f"/api/v1/{action}", {"jobs": job})
            assert (reply.status, b"nothing was done" in reply.body) == (503, True), reply
        ballast.unlink()
        for again in range(2):
            rows = {row["id"]: row for row in client.get("/api/v1/jobs")["jobs"]}
            assert {id: row["state"] for id, row in rows.items()} == {
                runs: "RUNNING",
                waits: "PENDING",
                held: "PENDING",
            }
            assert rows[held]["reason"] == "held"
            if not again:
                service.kill()
                service.start().close()
                client.close()
        assert client.post("/api/v1/cancel", {"jobs": f"{runs},{waits}"})["jobs"] == [runs, waits]
        assert set(wait(client, [runs, waits]).values()) == {"CANCELLED"}
    assert database.exists()
    service.stop()
