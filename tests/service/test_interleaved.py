"""Many clients of a real service at once, which is signalled, killed and started again meanwhile.

Each client does what its seed says with jobs of all; what was acknowledged last is held against what the
service tells in the end. The seeds are printed; a failure names its own.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from services import Serving, submit, wait

from dovetail.client.connection import Connection, NoService, open_connection
from dovetail.client.errors import Full, NotFound
from dovetail.errors import DovetailError, InputError
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
SEEDS = full(12, 1)
CLIENTS = 4
STEPS = full(60, 20)
ACTIONS = ("cancel", "hold", "release", "requeue", "update", "move", "wait", "node", "pause")
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT"}


@dataclass
class Told:
    """What the clients know together: jobs that were acknowledged, and how often what was done."""

    jobs: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def act(client: Connection, rng: random.Random, told: Told) -> None:
    """One thing of one client."""
    with told.lock:
        some = rng.sample(told.jobs, min(len(told.jobs), 3))
    action = rng.choice(["submit", "submit", *ACTIONS]) if some else "submit"
    jobs = ",".join(some)
    if action == "submit":
        job = {"command": ["sleep", str(rng.choice([0, 0.05, 0.2]))], "retries": rng.choice([0, 1])}
        if some and rng.random() < 0.3:
            job["depends"] = [f"{rng.choice(['after', 'afterok', 'afterany'])}:{some[0]}"]
        ids = submit(client, {**job, "hold": rng.random() < 0.2})
        with told.lock:
            told.jobs += ids
    elif action == "update":
        client.post("/api/v1/update", {"jobs": jobs, "changes": {"priority": rng.randrange(3)}})
    elif action == "move":
        client.post("/api/v1/move", {"job": some[0], "after": some[-1] if len(some) > 1 else None})
    elif action == "wait":
        client.post("/api/v1/wait", {"jobs": jobs, "timeout": 0.1, "any": True})
    elif action == "node":
        client.post(f"/api/v1/nodes/n0/{rng.choice(['drain', 'resume'])}")
    elif action == "pause":
        client.post(f"/api/v1/queue/{rng.choice(['pause', 'resume'])}", {})
    else:
        client.post(f"/api/v1/{action}", {"jobs": jobs})
    with told.lock:
        told.counts[action] += 1


def one_client(seed: int, service: Serving, told: Told) -> None:
    rng = random.Random(seed)
    client: Connection | None = None
    done, deadline = 0, time.monotonic() + full(1200, 150)
    while done < STEPS and time.monotonic() < deadline:
        try:
            client = client or open_connection(service.folder.path)
            act(client, rng, told)
            done += 1
        except (NoService, Full):  # it is being killed, or starts: what was wanted may have been done
            told.counts["no answer"] += 1
            if client is not None:
                client.close()
            client = None
            time.sleep(0.2)
        except (InputError, NotFound):
            done += 1
            told.counts["refused"] += 1
        except DovetailError as error:
            told.faults.append(f"seed {seed}: {error}")
    if client is not None:
        client.close()


def disturb(rng: random.Random, service: Serving, told: Told) -> None:
    """The service gets a signal; where it ends by that, it is started again."""
    assert service.process is not None
    number = rng.choice([signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    told.counts[number.name] += 1
    if number == signal.SIGKILL:
        service.kill()
    else:
        service.process.send_signal(number)
    if number != signal.SIGHUP:
        service.process.wait(100)
        service.start().close()


@pytest.mark.timeout(full(3000, 280))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_clients_and_signals_at_once(seed: int, tmp_path: Path) -> None:
    service = Serving(tmp_path, "--cluster", "1x2cpu", "--keep", "0.2", DOVETAIL_CLAIMS=str(tmp_path / "c"))
    service.start().close()
    told = Told()
    clients = [
        threading.Thread(target=one_client, args=(100 * seed + n, service, told)) for n in range(CLIENTS)
    ]
    for one in clients:
        one.start()
    rng = random.Random(seed)
    try:
        while any(one.is_alive() for one in clients):
            time.sleep(rng.uniform(1.0, 4.0))
            disturb(rng, service, told)
    finally:
        for one in clients:
            one.join()
    acknowledged = sum(told.counts[what] for what in ("submit", *ACTIONS))
    print(
        f"seeds {100 * seed} to {100 * seed + CLIENTS - 1}: {acknowledged} done at once, {dict(told.counts)}"
    )
    assert not told.faults
    with open_connection(service.folder.path) as client:
        client.post("/api/v1/queue/resume", {})
        client.post("/api/v1/nodes/n0/resume")
        assert told.jobs
        held = client.get("/api/v1/jobs", limit=10_000)["jobs"]
        if held:
            client.post("/api/v1/release", {"jobs": ",".join(row["id"] for row in held)})
        states = wait(client, told.jobs)
    assert states.keys() == set(told.jobs), "an acknowledged job is missing"
    assert set(states.values()) <= FINAL
    service.stop()
    assert "Traceback" not in service.folder.log.read_text()
