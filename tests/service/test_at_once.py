"""Many clients want different things of the same jobs at the same time; the service answers all of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.errors import DovetailError
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

ROUNDS = full(150, 40)
CLIENTS = 6
WISHES = full(400, 40)
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL"}


def test_four_requeues_at_the_same_time_are_one(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x1cpu") as here:
        with open_connection(here.folder.path) as service:
            (job,) = submit(service, {"command": ["true"], "cpus": 1})
            wait(service, [job])
        begin = threading.Barrier(4)

        def requeue() -> list[Any]:
            with open_connection(here.folder.path) as mine:
                found = []
                for _ in range(ROUNDS):
                    begin.wait(60)
                    found.append(mine.post("/api/v1/requeue", {"jobs": job}))
                    begin.wait(60)
                    mine.post("/api/v1/wait", {"jobs": job, "timeout": 20})
                return found

        with ThreadPoolExecutor(4) as pool:
            answers = [future.result(200) for future in [pool.submit(requeue) for _ in range(4)]]
        for together in zip(*answers, strict=True):
            assert any(one["jobs"] == [job] for one in together)
            assert all(one["jobs"] or one["refused"][job] for one in together), "each hears what and why"
        with open_connection(here.folder.path) as service:
            shown = service.get(f"/api/v1/jobs/{job}")
            done = sum(bool(one["jobs"]) for together in answers for one in together)
            assert 2 <= shown["attempts"] <= 1 + done
        assert "Traceback" not in here.folder.log.read_text()


def test_whatever_is_wanted_at_once_all_is_answered_and_comes_to_its_end(tmp_path: Path) -> None:
    """With a kill and a restart in the middle; what was acknowledged before stays so."""
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        jobs: list[str] = []
        with open_connection(here.folder.path) as service:
            jobs += submit(service, *[{"command": ["sleep", "0.05"], "cpus": 1, "retries": 1}] * 4)
            jobs += submit(service, {"command": ["false"], "cpus": 1, "retries": 2})
            jobs += submit(service, {"command": ["true"], "cpus": 1, "depends": [f"afterany:{jobs[0]}"]})
        for seed in range(2):
            at_once(here, jobs, seed)
            assert here.process is not None
            assert here.process.poll() is None, here.folder.log.read_text()
            here.kill()
            here.start().close()
        with open_connection(here.folder.path) as service:
            for node in service.get("/api/v1/nodes")["nodes"]:
                service.post(f"/api/v1/nodes/{node['name']}/resume")
            service.post("/api/v1/release", {"jobs": ",".join(jobs)})
            states = wait(service, jobs)
            assert set(states.values()) <= FINAL
            service.post("/api/v1/cancel", {"jobs": "all"})
            until(lambda: not service.get("/api/v1/jobs", limit=1)["total"], "some jobs do not end")
        assert "Traceback" not in here.folder.log.read_text()


def at_once(here: Serving, jobs: list[str], seed: int) -> None:
    """Clients, each with a seed of its own (which a failure names)."""

    def client(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        with open_connection(here.folder.path) as mine:
            nodes = [node["name"] for node in mine.get("/api/v1/nodes")["nodes"]]
            for step in range(WISHES):
                action = rng.choice(["cancel", "hold", "release", "requeue", "requeue", "drain", "submit"])
                try:
                    if action == "drain":
                        node = rng.choice(nodes)
                        mine.post(f"/api/v1/nodes/{node}/{rng.choice(['drain', 'resume', 'resume'])}")
                    elif action == "submit":
                        submit(mine, {"command": ["true"], "cpus": 1, "priority": rng.randint(-3, 3)})
                    else:
                        some = rng.sample(jobs, rng.randint(1, len(jobs)))
                        found = mine.post(f"/api/v1/{action}", {"jobs": ",".join(some)})
                        assert sorted([*found["jobs"], *found["refused"]]) == sorted(some)
                except (DovetailError, AssertionError) as error:
                    error.add_note(f"seed {seed}, client {number}, step {step}: {action}")
                    raise

    everybody: list[Callable[[], None]] = [lambda n=n: client(n) for n in range(CLIENTS)]  # type: ignore[misc]
    with ThreadPoolExecutor(CLIENTS) as pool:
        for future in [pool.submit(one) for one in everybody]:
            future.result(300)
