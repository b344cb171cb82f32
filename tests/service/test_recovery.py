"""Killed at any moment: what was acknowledged ends once, in one state, and no core is shared."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from places import AS_PROCESS_1, containers
from queues import processes_of
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import Connection, open_connection
from dovetail.client.futures import Client
from dovetail.errors import DovetailError
from dovetail.process.processes import started_at
from dovetail.process.spawn_log import read_log
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

NOTE = 'echo "$DOVETAIL_UID $DOVETAIL_CORES + $(date +%s%N)" >> $0; sleep $1; echo "$DOVETAIL_UID $DOVETAIL_CORES - $(date +%s%N)" >> $0'  # noqa: E501
SHORT = 'echo "$DOVETAIL_UID $DOVETAIL_CORES + ${EPOCHREALTIME/./}000" >> $0; [ $1 = 0 ] || sleep $1; echo "$DOVETAIL_UID $DOVETAIL_CORES - ${EPOCHREALTIME/./}000" >> $0'  # noqa: E501
MIXED_JOBS = (["sh", "-c", NOTE], ["0", "0.01", "0.05", "0.2"])
SHORT_JOBS = (["bash", "--norc", "-c", SHORT], ["0"] * 60 + ["0.2"])
"""Nearly all take 2 ms, and follow each other without asking; some go on against all expectation."""
MANY = 300
"""Jobs that wait: no more are submitted, so that strikes hit a service at work."""
FINAL = {"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL"}


class Load(threading.Thread):
    """Submits, cancels, holds, releases, requeues, as fast as it is answered."""

    def __init__(self, serving: Serving, notes: Path, seed: int, kind: tuple[list[str], list[str]]) -> None:
        super().__init__()
        self.program, self.lengths = kind
        self.serving, self.notes, self.rng = serving, notes, random.Random(seed)
        self.acknowledged: list[str] = []
        self.requeued: Counter[str] = Counter()
        self.refused = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                self.step()
            except DovetailError:
                self.refused += 1
                time.sleep(0.02)

    def step(self) -> None:
        rng = self.rng
        with open_connection(self.serving.folder.path) as client:
            for n in itertools.count():
                if self.over.is_set():
                    return
                if n % 10 == 0:
                    many = client.get("/api/v1/info")["jobs"]["waiting"] > MANY
                action = rng.choice([*["submit"] * 3 * (not many), "cancel", "hold", "release", "requeue"])
                if action == "submit":
                    words = [*self.program, str(self.notes), rng.choice(self.lengths)]
                    job = {"command": words, "app": "note", "hold": rng.random() < 0.1}
                    if rng.random() < 0.3:
                        job["array"] = "0-4%2" if self.lengths[1] != "0" else "0-40"
                    self.acknowledged += submit(client, job)
                elif self.acknowledged:
                    target = rng.choice(self.acknowledged[-20:])
                    if action == "requeue":
                        self.requeued[target] += 1  # asked for, whether or not it was heard
                    client.post(f"/api/v1/{action}", {"jobs": target})
                time.sleep(rng.random() * 0.01)


LONG = pytest.mark.skipif(not full(True, False), reason="200 kills: DOVETAIL_TEST_FULL=1")
PORTIONS = full(8, 1)
"""Of a fresh service and 25 strikes each: one that fails names its seed and is soon run again."""
KINDS = ("service", "supervisor", "job", "both")


def strike(service: Serving, kind: str, rng: random.Random) -> bool:
    """Kill -9 the service, its supervisor, both, or a job that runs; whether all of that lived."""
    log, until = service.folder.path / "spawn.log", time.monotonic() + 10
    order = ["service", "supervisor"] if rng.random() < 0.5 else ["supervisor", "service"]
    struck = True
    for what in order if kind == "both" else [kind]:
        if what == "service":
            service.kill()
            time.sleep(rng.random() * 0.01)
            continue
        struck = any(killed(service.here(pid), boot) for pid, boot in victims(log, what, rng))
        while not struck and kind != "both" and time.monotonic() < until:  # the next one comes
            time.sleep(0.002)
            struck = any(killed(service.here(pid), boot) for pid, boot in victims(log, what, rng))
    if kind in ("service", "both"):
        service.start().close()
    return struck


def victims(log: Path, what: str, rng: random.Random) -> list[tuple[int, float]]:
    """(pid, when it lived) of the last supervisor, or of a job that runs, by the record of starts."""
    try:
        found = read_log(log)
    except FileNotFoundError:  # nothing was started yet
        return []
    running = [found.starts[uid] for uid in found.unended_uids() if uid in found.starts]
    chosen = found.supervisors[-1:] if what == "supervisor" else rng.sample(running, min(1, len(running)))
    return [(one["pid"], one["boot"]) for one in chosen]


def killed(pid: int, boot: float) -> bool:
    """Kill this very process; ``False`` where it lives no more, whoever has its number now."""
    if not pid:
        return False
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        now = started_at(pid)
        if now is None or now > boot + 0.05:
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True


@pytest.mark.timeout(full(7200, 590))
@pytest.mark.parametrize("portion", range(PORTIONS))
@pytest.mark.parametrize(
    ("jobs", "kinds", "times", "clients", "around"),
    [
        (MIXED_JOBS, KINDS, full(25, 4), full(5, 1), ()),
        (SHORT_JOBS, ("service",), full(25, 2), full(2, 1), ()),
        pytest.param(*(SHORT_JOBS, KINDS, 25, 5), (), marks=LONG),
        # As process 1, in a namespace that is new each time.
        pytest.param(MIXED_JOBS, KINDS, full(25, 3), full(5, 1), AS_PROCESS_1, marks=containers()),
    ],
    ids=("mixed", "short", "short-all", "process-1"),
)
def test_killed_at_random_moments_under_load(
    tmp_path: Path, jobs: Any, kinds: tuple[str, ...], times: int, clients: int, around: Any, portion: int
) -> None:
    rng = random.Random(14 + portion)
    struck: Counter[str] = Counter()
    notes = tmp_path / "notes"
    notes.touch()
    with serving(tmp_path, "--cluster", "1x2cpu", "--policy", "fcfs", around=around) as service:
        loads = [Load(service, notes, portion * clients + n, jobs) for n in range(clients)]
        for load in loads:
            load.start()
        try:
            for n in range(portion * times, (portion + 1) * times):
                time.sleep(rng.random() * 0.5)
                kind = kinds[n % len(kinds)]
                struck[kind] += strike(service, kind, rng)
        finally:
            for load in loads:
                load.over.set()
            for load in loads:
                load.join()
        ids = [id for load in loads for id in load.acknowledged]
        assert len(ids) == len(set(ids))
        with open_connection(service.folder.path) as client:
            client.post("/api/v1/release", {"jobs": "all"})
            found = wait_while_some_end(client, sorted({id.split("_")[0] for id in ids}))
            assert found.keys() >= set(ids), "none is lost"
            assert set(found.values()) <= FINAL
            # Jobs that came in, and were not acknowledged any more, end as well.
            until(lambda: not client.get("/api/v1/jobs")["jobs"], seconds=200)
            attempts = {
                row["id"]: row["attempts"] for row in client.get("/api/v1/ended", limit=100_000)["jobs"]
            }
    begun = check_notes(notes, found, attempts)
    journals = [path.read_text() for path in (service.folder.path / "journal").iterdir()]
    given = sum(text.count('["ending",') for text in journals)  # none, where the machine is too busy for that
    told = f"{len(ids)} jobs acknowledged, {begun} runs begun, {given} places given away early"
    print(f"struck {dict(struck)}: {told}")


def wait_while_some_end(client: Connection, ids: list[str]) -> dict[str, str]:
    """Final states by id. How long all take depends on the machine; but one ends in every minute."""
    left = None
    while True:
        found = client.post("/api/v1/wait", {"jobs": ",".join(ids), "timeout": 60})
        if not found["left"]:
            return {one["id"]: one["state"] for one in found["jobs"]}
        assert found["left"] != left, found
        left = found["left"]


def check_notes(notes: Path, states: dict[str, str], attempts: dict[str, int]) -> int:
    """Every attempt began once at most; those of completed jobs began; no core was used by two at a time.

    Returns how many have begun.
    """
    lines = [line.split() for line in notes.read_text().splitlines()]
    begun = Counter(uid for uid, _, sign, _ in lines if sign == "+")
    assert set(begun.values()) <= {1}, "an attempt is executed once"
    jobs = Counter(uid.rpartition("/")[2] for uid in begun)
    for job, state in states.items():
        if state == "COMPLETED":
            assert jobs[job] >= 1
        assert jobs[job] <= attempts[job]
    busy: dict[str, str] = {}
    spans = sorted(lines, key=lambda line: (int(line[3]), line[2] == "+"))
    ended = {uid for uid, _, sign, _ in lines if sign == "-"}
    for uid, cores, sign, _ in spans:
        if uid not in ended:
            continue  # it was cancelled: when it ended it could not say
        for core in cores.split(","):
            if sign == "+":
                assert busy.setdefault(core, uid) == uid, "a core belongs to one job at a time"
            else:
                del busy[core]
    return len(begun)


def test_cancel_and_requeue_are_kept_until_they_are_done(tmp_path: Path) -> None:
    """Somebody wants a running job stopped; the service is killed before it has ended."""
    once = "trap '' TERM; echo $DOVETAIL_UID >> $0; test $(wc -l < $0) -gt 1 || sleep 60"
    stubborn = ["sh", "-c", once]
    with serving(tmp_path, "--cluster", "1x2cpu", "--grace", "2") as service:
        with open_connection(service.folder.path) as client:
            files = [tmp_path / "cancelled", tmp_path / "requeued"]
            ids = submit(client, *({"command": [*stubborn, str(file)]} for file in files))
            until(lambda: all(file.exists() for file in files))
            client.post("/api/v1/cancel", {"jobs": ids[0]})
            client.post("/api/v1/requeue", {"jobs": ids[1]})
        service.kill()
        with service.start() as client:
            assert wait(client, ids[:1])[ids[0]] == "CANCELLED"
            assert wait(client, ids)[ids[1]] == "COMPLETED"
            assert client.get(f"/api/v1/jobs/{ids[1]}")["attempts"] == 2
        assert len(files[0].read_text().split()) == 1
        assert len(files[1].read_text().split()) == 2


def test_the_supervisor_is_killed_as_well(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as service:
        with open_connection(service.folder.path) as client:
            began = [tmp_path / "one", tmp_path / "two"]
            one, two = (["sh", "-c", "touch $0; sleep 60", str(file)] for file in began)
            ids = submit(
                client,
                {"command": one, "id": "first"},
                {"command": two, "retries": 1, "name": "again"},
                {"command": ["true"], "depends": ["afterany:first"]},
            )
            until(lambda: all(file.exists() for file in began))
        (pid,) = {*processes_of(str(service.folder.path))} & {*processes_of("supervisor.py")}
        service.kill()
        os.kill(pid, signal.SIGKILL)
        with service.start() as client:
            assert wait(client, [ids[0], ids[2]]) == {ids[0]: "NODE_FAIL", ids[2]: "COMPLETED"}
            rows = {row["id"]: row for row in client.get("/api/v1/jobs")["jobs"]}
            assert rows[ids[1]]["attempts"] == 2, "its user allowed a retry"


SHORT_LOGS = """
import dovetail.local.executor
dovetail.local.executor.LONG_LOG = 20_000
from dovetail.start import main
main()
"""


def test_the_record_of_what_was_started_does_not_grow_for_ever(tmp_path: Path) -> None:
    """What is in the ledger leaves the spawn log; killed after that, the service knows every end."""
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.program = ("-c", SHORT_LOGS)
    log = service.folder.path / "spawn.log"
    try:
        with service.start() as client:
            ids = submit(client, {"command": ["true"], "array": "0-999"})
            assert set(wait(client, ids).values()) == {"COMPLETED"}
            (long,) = submit(client, {"command": ["sleep", "2"]})
            ids += submit(client, {"command": ["true"], "array": "0-99"})
            wait(client, ids[-1:])
            # Those on their way, and as many again; on a busy machine that is many until later ends come.
            until(lambda: len(read_log(log).intents) < 500, "nothing was dropped from the record")
        service.kill()
        with service.start() as client:
            assert set(wait(client, [*ids, long]).values()) == {"COMPLETED"}
            assert client.get(f"/api/v1/jobs/{long}")["attempts"] == 1
        assert not read_log(log).describe_damage()
    finally:
        service.stop()


def test_the_record_is_shortened_though_a_service_has_few_instants_between_restarts(tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x2cpu")
    service.program = ("-c", SHORT_LOGS.replace("20_000", "2_000"))
    log = service.folder.path / "spawn.log"
    try:
        with service.start() as client:
            for _ in range(2):
                wait(client, submit(client, *({"command": ["true"]} for _ in range(8))))
            # With the ends that come, the next look is not far.
            until(lambda: len(read_log(log).intents) < 16, "nothing was dropped from the record")
        assert not read_log(log).describe_damage()
    finally:
        service.stop()


def test_who_waits_is_not_dropped_by_a_restart(tmp_path: Path) -> None:
    """`wait`, `logs -f`, `submit --wait` and futures go on where they were, with one line on stderr."""
    script = "for n in 1 2 3 4 5 6; do echo $n; sleep 1; done"
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        with open_connection(here.folder.path) as service:
            (job,) = submit(service, {"command": ["sh", "-c", script], "cpus": 1})
            until(lambda: service.get(f"/api/v1/jobs/{job}")["state"] == "RUNNING", "it does not start")
        waits = [
            ["wait", job],
            ["logs", "-f", job],
            ["submit", "--wait", "--cpus", "1", "--", "sleep", "5"],
            ["wait", "--patience", "0", job],
        ]
        with ThreadPoolExecutor(len(waits)) as pool, Client(here.folder.path) as client:
            future = client.submit(["sleep", "4"], cpus=1)
            answers = [pool.submit(here.dovetail, *words) for words in waits]
            with open_connection(here.folder.path) as service:
                until(lambda: service.get("/api/v1/info")["jobs"]["waiting"] == 1, "all have begun")
            time.sleep(1.0)
            here.kill()
            time.sleep(1.0)
            here.start().close()
            *done, impatient = [answer.result(120) for answer in answers]
            assert future.result(120).state == "COMPLETED"
        assert [one.returncode for one in done] == [0, 0, 0], done
        assert done[1].stdout == "".join(f"{n}\n" for n in range(1, 7))
        for one in done:
            (line,) = [line for line in one.stderr.splitlines() if "does not answer" in line]
            assert line.endswith("waiting for it, 300 s at most")
        assert impatient.returncode == 2
        assert "no service answers" in impatient.stderr
