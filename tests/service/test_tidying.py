"""What is old leaves the ledger and the folder of output; what is younger, or wanted, stays."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from services import Serving, serving, submit, wait

from dovetail.client.connection import Connection
from dovetail.client.folder import ServiceFolder
from dovetail.model import Cluster
from dovetail.running.ledger import Ledger
from dovetail.service import tidying
from dovetail.service.archive import Archive
from dovetail.service.tidying import DAY, Limits, Tidying
from dovetail.testing.builders import workload

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def make_older(folder: ServiceFolder, ids: list[str], days: float) -> None:
    """Have jobs, and what they wrote, be of so many days ago."""
    then = time.time() - days * DAY
    with sqlite3.connect(folder.ledger_path) as db:
        for id in ids:
            db.execute("UPDATE job SET ended = ?, submitted = ? WHERE id = ?", (then, then - 1, id))
    db.close()
    for id in ids:
        for path in (folder.path / "output").glob(f"*/{id}.*"):
            os.utime(path, (then, then))


def known(folder: ServiceFolder) -> set[str]:
    with sqlite3.connect(folder.ledger_path) as db:
        found = {id for (id,) in db.execute("SELECT id FROM job")}
    db.close()
    return found


def written(folder: ServiceFolder) -> set[str]:
    return {path.name.split(".")[0] for path in (folder.path / "output").glob("*/*")}


@pytest.fixture
def old(tmp_path: Path) -> Serving:
    """A service that is down: jobs 1 to 4 have ended long ago, 2 is wanted by 5, of array 3 a job is held."""
    found = Serving(tmp_path, "--cluster", "1x2cpu", "--keep", "0")
    with found.start() as service:
        submit(service, {"command": ["echo", "one"]}, {"command": ["echo", "two"]})
        submit(service, {"command": ["echo", "three"], "array": "1-2", "hold": True})
        submit(service, {"command": ["sh", "-c", "echo four"]})
        submit(service, {"command": ["echo", "five"], "depends": ["after:2"], "hold": True})
        submit(service, {"command": ["echo", "six"]}, {"script": "#!/bin/sh\necho seven"})
        service.post("/api/v1/release", {"jobs": "3_1"})
        assert set(wait(service, ["1", "2", "3_1", "4", "6", "7"]).values()) == {"COMPLETED"}
    found.kill()
    make_older(found.folder, ["1", "2", "3_1", "4"], 100)
    make_older(found.folder, ["6"], 40)
    return found


def test_what_is_old_is_forgotten_and_what_is_wanted_stays(old: Serving) -> None:
    with old.start() as service:
        assert service.post("/api/v1/forget", {"age": 90 * DAY}) == {"jobs": 2, "files": 4}
        assert known(old.folder) == {"2", "3_1", "3_2", "5", "6", "7"}
        assert written(old.folder) == {"2", "3_1", "6", "7"}
        with sqlite3.connect(old.folder.ledger_path) as db:
            apps = [doc for (doc,) in db.execute("SELECT doc FROM app")]
        db.close()
        assert not [doc for doc in apps if b'"one"' in doc or b"four" in doc]
        kept = service.get("/api/v1/info")["kept"]
        assert (kept["jobs"], kept["output_files"]) == (6, 8)
        with pytest.raises(Exception, match="found no job '1'"):
            service.get("/api/v1/jobs/1")
        # What waited for the one that was wanted starts, and new numbers are new.
        service.post("/api/v1/release", {"jobs": "5,3_2"})
        assert set(wait(service, ["5", "3_2"]).values()) == {"COMPLETED"}
        assert submit(service, {"command": ["echo", "one"]}) == ["8"]
        assert wait(service, ["8"]) == {"8": "COMPLETED"}
        out = old.dovetail("info").stdout
        assert "kept:      7 jobs" in out
    old.kill()
    with old.start() as service:  # the spawn log has them still
        assert service.get("/api/v1/jobs/8")["state"] == "COMPLETED"
    assert "knows more than the ledger" not in old.folder.log.read_text()
    old.stop()


def test_prune_of_runs_is_also_for_the_jobs_of_the_service(old: Serving) -> None:
    done = old.dovetail("runs", "--prune", "30d")
    assert (done.returncode, done.stdout) == (0, "0 runs, 3 jobs of the service removed\n"), done.stderr
    assert known(old.folder) == {"2", "3_1", "3_2", "5", "7"}
    with old.start():  # through the one that lives
        assert old.dovetail("runs", "--prune", "30d").stdout == "0 runs, 0 jobs of the service removed\n"
    old.stop()


def test_nothing_is_old_for_somebody_who_may_not_do_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--listen", "127.0.0.1:0") as service:
        added = service.dovetail("token", "add", "guest")
        address = service.folder.address()
        assert address is not None
        guest = Connection(address.urls[0], added.stdout.split()[-1])
        with pytest.raises(Exception, match="only the service's own account"):
            guest.post("/api/v1/forget", {"age": 0})
        guest.close()


def small(tmp_path: Path, count: int) -> tuple[ServiceFolder, Ledger, Archive]:
    """A ledger of jobs that ended a hundred days ago, in arrays of ten."""
    folder = ServiceFolder(tmp_path)
    folder.make_private()
    jobs = workload([(f"{n // 10 + 1}_{n % 10}", {"cpu": 1.0}, 0.0) for n in range(count)]).jobs
    ledger = Ledger(folder.ledger_path, durable=True)
    numbers = [(n // 10 + 1, n % 10) for n in range(count)]
    ledger.submit(jobs, time.time() - 101 * DAY, numbers=numbers)
    then = time.time() - 100 * DAY
    ledger._db.execute("UPDATE job SET state = 'COMPLETED', ended = ?", (then,))
    return folder, ledger, Archive(folder.ledger_path, lambda: Cluster.uniform(1, 1))


def removed_from(parts: tuple[ServiceFolder, Ledger, Archive], wanted: set[str]) -> tuple[int, set[str]]:
    folder, ledger, archive = parts
    tidy = Tidying(folder, ledger, archive, Limits(), lambda: wanted)
    try:
        found = asyncio.run(tidy.remove_old_jobs(90 * DAY, None))
    finally:
        archive.close()
        ledger.close()
    return found.jobs, known(folder)


def test_many_go_in_slices_and_the_last_number_stays(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tidying, "PAUSE", 0.0)
    parts = small(tmp_path, 2_000)
    sizes: list[int] = []
    forget = parts[1].forget_ended
    monkeypatch.setattr(parts[1], "forget_ended", lambda rows, b: sizes.append(len(rows)) or forget(rows, b))
    jobs, left = removed_from(parts, {"7_3"})
    assert left == {"7_3", *(f"200_{n}" for n in range(10))}
    assert jobs == 1_989
    assert max(sizes) <= tidying.SLICE
    with Ledger(parts[0].ledger_path) as ledger:
        assert ledger.last_number() >= 200


def test_an_array_of_which_one_has_not_ended_stays_whole(tmp_path: Path) -> None:
    parts = small(tmp_path, 50)
    parts[1]._db.execute("UPDATE job SET state = 'RUNNING', ended = NULL WHERE id = '2_5'")
    jobs, left = removed_from(parts, set())
    assert left == {f"{number}_{n}" for number in (2, 5) for n in range(10)}
    assert jobs == 30


def test_a_clock_that_was_set_forward_makes_nothing_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, ledger, archive = small(tmp_path, 30)
    tidy = Tidying(folder, ledger, archive, Limits(), set)
    assert tidy._clock_is_sound()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 1000 * DAY)
    with caplog.at_level(logging.WARNING):
        assert not tidy._clock_is_sound()
    assert "the clock was set forward by 86400000 s" in caplog.text
    assert not tidy._clock_is_sound(), "within a day"
    tidy._not_before -= DAY
    assert tidy._clock_is_sound()
    archive.close()
    ledger.close()
