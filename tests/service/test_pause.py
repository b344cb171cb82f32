"""A paused queue: what runs goes on, what waits waits, over restarts too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail import Client
from dovetail.client.connection import open_connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def test_a_paused_queue_starts_nothing_and_stays_so_over_a_kill(tmp_path: Path) -> None:
    release = tmp_path / "release"
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        with open_connection(here.folder.path) as service:
            (runs,) = submit(
                service, {"command": ["sh", "-c", f"until [ -e {release} ]; do sleep 0.02; done"], "cpus": 1}
            )
            until(lambda: service.get(f"/api/v1/jobs/{runs}")["state"] == "RUNNING", "it does not start")
            done = here.dovetail("pause")
            assert done.returncode == 0, done.stderr
            assert "what runs goes on" in done.stdout
            (waits,) = submit(service, {"command": ["true"], "cpus": 1})
            until(
                lambda: service.get(f"/api/v1/jobs/{waits}")["reason"] == "the queue is paused",
                "the reason does not come",
            )
            release.touch()
            assert wait(service, [runs]) == {runs: "COMPLETED"}
        here.kill()
        here.start().close()
        with open_connection(here.folder.path) as service:
            assert service.get("/api/v1/info")["paused"] == ["all"]
            until(
                lambda: service.get(f"/api/v1/jobs/{waits}")["reason"] == "the queue is paused", "it starts"
            )
            assert "The queue is paused" in here.dovetail("queue").stderr
            assert json.loads(here.dovetail("resume", "--json").stdout) == {"paused": []}
            assert wait(service, [waits]) == {waits: "COMPLETED"}
        assert "Traceback" not in here.folder.log.read_text()


def test_a_pause_of_one_kind_leaves_the_others(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu+1gpu") as here, open_connection(here.folder.path) as service:
        with Client(here.folder.path) as client:
            assert client.pause("gpu") == ["gpu"]
        only, either = submit(
            service,
            {"command": ["true"], "on": ["gpu"], "cpus": 1},
            {"command": ["true"], "on": ["gpu", "cpu"], "cpus": 1},
        )
        assert wait(service, [either]) == {either: "COMPLETED"}
        assert service.get(f"/api/v1/jobs/{either}")["implementation"] == "cpu"
        assert service.get(f"/api/v1/jobs/{only}")["reason"] == "the queue is paused for gpu"
        assert _refused(here, "pause", "--kind", "tpu").startswith("dovetail: kind: found")
        assert here.dovetail("pause").returncode == 0
        assert "the whole queue is paused" in _refused(here, "resume", "--kind", "gpu")
        assert here.dovetail("resume").returncode == 0
        assert wait(service, [only])[only] in ("COMPLETED", "FAILED")


def _refused(here: Serving, *arguments: str) -> str:
    done = here.dovetail(*arguments)
    assert done.returncode == 2
    return done.stderr
