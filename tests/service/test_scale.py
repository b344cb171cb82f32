"""A service with a past: it starts within seconds, keeps little in memory, and answers at once."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from services import ANEW, Serving, cpu_seconds, submit, wait
from waiting import until

from dovetail.running.ledger import Ledger
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def spent_by(service: Serving) -> float:
    """CPU seconds of its process."""
    assert service.process is not None
    return cpu_seconds(service.process.pid)


def with_a_past(service: Serving, count: int) -> None:
    """So many jobs that have ended, copied from one real one."""
    with service.start() as client:
        wait(client, submit(client, {"command": ["true"]}))
    service.stop()
    db = sqlite3.connect(service.folder.ledger_path)
    names = [
        row[1]
        for row in db.execute("PRAGMA table_info(job)")
        if row[1] not in ("seq", "id", "number", "batch")
    ]
    db.execute(
        f"WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {count})"
        f" INSERT INTO job (seq, id, number, batch, {', '.join(names)})"
        f" SELECT i, i, i, i, {', '.join(names)} FROM n, job WHERE job.id = '1'"
    )
    db.commit()
    db.close()


@pytest.mark.timeout(600)
def test_a_long_past_costs_neither_time_nor_memory(tmp_path: Path) -> None:
    count = full(1_000_000, 50_000)
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.program = ANEW
    with_a_past(service, count)
    try:
        began = time.monotonic()
        with service.start() as client:
            took = time.monotonic() - began
            assert service.process is not None
            memory = Path(f"/proc/{service.process.pid}/status").read_text().split("VmRSS:")[1].split()[0]
            spent = spent_by(service)
            print(f"{count} past jobs: {took:.2f} s, {spent:.2f} s of CPU, {int(memory) >> 10} MiB")
            assert int(memory) < 200_000
            assert client.get("/api/v1/ended", limit=5)["jobs"][0]["state"] == "COMPLETED"
            (job,) = submit(client, {"command": ["true"]})
            assert job == str(count + 1)
            assert wait(client, [job]) == {job: "COMPLETED"}
            assert spent < 4  # most of it is the loading of modules
    finally:
        service.stop()


def test_ended_jobs_leave_memory_and_can_still_be_asked_about(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x2cpu", "--keep", "0.2")
    try:
        with service.start() as client:
            (old,) = submit(client, {"command": ["sh", "-c", "echo old; exit 3"], "name": "old"})
            wait(client, [old])
            time.sleep(0.5)
            (new,) = submit(client, {"command": ["true"], "depends": [f"afterany:{old}"]})
            assert wait(client, [new, old]) == {new: "COMPLETED", old: "FAILED"}
            row = client.get(f"/api/v1/jobs/{old}")
            assert (row["state"], row["exit_code"], row["name"]) == ("FAILED", 3, "old")
            assert client.ask("GET", f"/api/v1/jobs/{old}/log").body == b"old\n"
            (late,) = submit(client, {"command": ["true"], "depends": [f"afterok:{old}"]})
            assert wait(client, [late]) == {late: "CANCELLED"}
            assert client.post("/api/v1/requeue", {"jobs": old})["jobs"] == [old]
            assert wait(client, [old]) == {old: "FAILED"}
            assert client.get(f"/api/v1/jobs/{old}")["attempts"] == 2
    finally:
        service.stop()


def test_a_drained_service_ends_when_its_jobs_have(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    with service.start() as client:
        running, waiting = submit(client, {"command": ["sleep", "1"]}, {"command": ["true"]})
        until(lambda: client.get("/api/v1/info")["jobs"]["running"] >= 1)
        client.post("/api/v1/service/drain")
    assert service.process is not None
    assert service.process.wait(100) == 0
    with Ledger(service.folder.ledger_path) as ledger:
        states = {entry.job.id: str(entry.state) for entry in ledger.entries()}
    assert states == {running: "COMPLETED", waiting: "PENDING"}
    with service.start() as client:
        assert wait(client, [waiting]) == {waiting: "COMPLETED"}
    service.stop()


def test_an_idle_service_uses_no_cpu(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.program = ANEW
    try:
        with service.start() as client:
            wait(client, submit(client, {"command": ["true"]}))
        spent = []
        while not spent or spent[-1] > 0.011:  # what it does after a job may take a while on a busy machine
            assert len(spent) < 20, spent
            time.sleep(1.0)
            before = spent_by(service)
            time.sleep(2.0)
            spent.append(spent_by(service) - before)
    finally:
        service.stop()


@pytest.mark.skipif(not full(True, False), reason="ten thousand commands: DOVETAIL_TEST_FULL=1")
@pytest.mark.timeout(900)
def test_a_job_runs_on_beside_thousands_of_different_ones(tmp_path: Path) -> None:
    """Different commands, folders and environments, as people have them; not one array of equal ones."""
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    folders = [tmp_path / f"folder {n}" for n in range(7)]
    for folder in folders:
        folder.mkdir()
    try:
        with service.start() as client:
            (long,) = submit(client, {"command": ["sleep", "3600"]})
            for n in range(70):
                jobs = [
                    {
                        "command": ["sh", "-c", f'test "$N$M" = {n}{m % 13} # {n}.{m}'],
                        "env": {"M": str(m % 13)},
                    }
                    for m in range(143)
                ]
                around = {
                    "folder": str(folders[n % 7]),
                    "environment": {"PATH": "/usr/bin:/bin", "N": str(n)},
                }
                ids = submit(client, *jobs, **around)
                assert set(wait(client, ids, timeout=300).values()) == {"COMPLETED"}
            assert client.get(f"/api/v1/jobs/{long}")["state"] == "RUNNING"
    finally:
        service.stop()


@pytest.mark.timeout(600)
def test_a_drained_node_makes_nothing_dearer(tmp_path: Path) -> None:
    """What is recomputed for all that wait, with every one who comes, is not."""
    service = Serving(tmp_path, "--cluster", "1x1cpu", "--grace", "0")
    service.program = ANEW
    count = full(100_000, 10_000)
    try:
        with service.start() as client:
            client.post("/api/v1/nodes/n0/drain")
            submit(client, {"command": ["true"], "array": f"1-{count}"})
            until(lambda: client.get("/api/v1/jobs", limit=1)["total"] >= count, seconds=300)
            time.sleep(full(5.0, 1.0))  # the forecast of all these
            before = spent_by(service)
            for _ in range(20):
                submit(client, {"command": ["true"]})
            each = (spent_by(service) - before) / 20
            print(f"{each * 1e3:.2f} ms of CPU a submission")
            assert each < 0.020, "it was 25 ms with 10,000 jobs, 230 ms with 100,000"
            for action in ("hold", "cancel"):
                before = spent_by(service)
                for element in range(20):
                    client.post(f"/api/v1/{action}", {"jobs": f"1_{element + 1}"})
                assert (spent_by(service) - before) / 20 < 0.015, "it was 29 ms with 10,000 jobs"
            before = spent_by(service)
            for _ in range(20):
                assert len(client.get("/api/v1/jobs", jobs="1", limit=10)["jobs"]) == 10
            assert (spent_by(service) - before) / 20 < 0.010, "it was 40 ms with 10,000 jobs"
    finally:
        service.kill()


def test_pages_are_the_whole_list_in_pieces(tmp_path: Path) -> None:
    """What runs, then the queue, then what is held back: each once, whatever is asked for."""
    service = Serving(tmp_path, "--cluster", "1x1cpu", "--grace", "0")
    with service.start() as client:
        (runs,) = submit(client, {"command": ["sleep", "60"], "name": "odd"})
        until(lambda: client.get(f"/api/v1/jobs/{runs}")["state"] == "RUNNING")
        names = ("even", "odd")
        ids = submit(
            client, *({"command": ["true"], "name": names[n % 2], "hold": n % 5 == 0} for n in range(30))
        )
        client.post("/api/v1/cancel", {"jobs": ids[7]})
        client.post("/api/v1/hold", {"jobs": ids[8]})
        client.post("/api/v1/release", {"jobs": ids[10]})
        whole = client.get("/api/v1/jobs")["jobs"]
        assert len(whole) == 30
        queued = [id for n, id in enumerate(ids) if n == 10 or (n % 5 and n not in (7, 8))]
        assert [row["id"] for row in whole][: len(queued) + 1] == [runs, *queued]
        user = whole[0]["user"]
        for query in (
            {},
            {"name": "odd"},
            {"state": "PENDING"},
            {"user": user, "name": "even"},
            {"user": "nobody"},
            {"state": "RUNNING"},
            {"state": "FAILED"},
        ):
            wanted = [row["id"] for row in whole if all(row[key] == query[key] for key in query)]
            found: list[str] = []
            for offset in range(0, 35, 7):
                page = client.get("/api/v1/jobs", limit=7, offset=offset, **query)
                assert page["total"] == len(wanted), query
                found += [row["id"] for row in page["jobs"]]
            assert found == wanted, query
    service.stop()
