"""What waits is changed, and the walltime of what runs; over restarts; or it is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail import Client
from dovetail.client.connection import open_connection
from dovetail.spec.commands import UPDATED

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def update(here: Serving, *arguments: str) -> dict[str, str]:
    """Why it was refused, by job."""
    done = here.dovetail("update", *arguments, "--json")
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, str] = json.loads(done.stdout)["refused"]
    return found


def test_waiting_jobs_become_what_is_wanted_and_stay_so_over_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu+1gpu") as here:
        with open_connection(here.folder.path) as service:
            service.post("/api/v1/queue/pause")
            first, second, third = submit(
                service, *[{"command": ["true"], "cpus": 1, "name": name} for name in ("a", "b", "c")]
            )
            assert update(here, first, "--walltime", "2h", "--priority", "7", "--name", "new") == {}
            assert update(here, second, "--on", "gpu", "--memory", "8MB") == {}
            assert update(here, third, "--depends", f"afterok:{second}", "--retries", "2") == {}
            until(
                lambda: service.get(f"/api/v1/jobs/{third}")["reason"].startswith("depends on"),
                "no dependency",
            )
            assert update(here, second, "--depends", f"afterok:{third}") == {
                second: "it would wait for itself"
            }
            assert "tpu" in update(here, first, "--on", "tpu")[first]
            assert here.dovetail("update", first).returncode == 2
        for restarted in (False, True):
            if restarted:
                here.kill()
                here.start().close()
            with open_connection(here.folder.path) as service:
                rows = [service.get(f"/api/v1/jobs/{job}") for job in (first, second, third)]
                assert (rows[0]["walltime"], rows[0]["priority"], rows[0]["name"]) == (7200.0, 7, "new")
                assert rows[2]["depends"] == [f"afterok:{second}"]
                assert [one["id"] for one in service.get("/api/v1/jobs", name="new")["jobs"]] == [first]
        with open_connection(here.folder.path) as service, Client(here.folder.path) as client:
            assert client.update(third, depends=[]) == {}
            service.post("/api/v1/queue/resume")
            states = wait(service, [first, second, third])
            assert states[first] == states[third] == "COMPLETED"
            assert service.get(f"/api/v1/jobs/{second}")["implementation"] == "gpu"
            assert update(here, first, "--walltime", "1h") == {first: "it has ended"}
        assert "Traceback" not in here.folder.log.read_text()


def test_a_running_job_has_another_walltime(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as here, open_connection(here.folder.path) as service:
        release = tmp_path / "release"
        command = ["sh", "-c", f"until [ -e {release} ]; do sleep 0.02; done"]
        longer, shorter = submit(
            service,
            {"command": command, "cpus": 1, "walltime": 3600},
            {"command": ["sleep", "600"], "cpus": 1},
        )
        for job in (longer, shorter):
            until(lambda job=job: service.get(f"/api/v1/jobs/{job}")["state"] == "RUNNING", "no start")
        assert update(here, longer, "--name", "x") == {longer: "it runs: only its walltime can change"}
        assert "already: cancel it" in update(here, longer, "--walltime", "1ms")[longer]
        assert update(here, shorter, "--walltime", "10s") == {}
        assert update(here, longer, "--walltime", "2h") == {}
        assert service.get(f"/api/v1/jobs/{longer}")["walltime"] == 7200
        assert wait(service, [shorter]) == {shorter: "TIMEOUT"}
        release.touch()
        assert wait(service, [longer]) == {longer: "COMPLETED"}


VALUES: dict[str, tuple[str, Any, Callable[[dict[str, Any]], Any], Any]] = {
    "name": ("new", "new", lambda row: row["name"], "new"),
    "walltime": ("2h", "2h", lambda row: row["walltime"], 7200.0),
    "memory": ("8MB", "8MB", lambda row: row["memory"][0]["reserved"], 8_000_000),
    "priority": ("7", 7, lambda row: row["priority"], 7.0),
    "nice": ("3", 3, lambda row: row["options"].get("nice"), 3),
    "on": ("gpu", ["gpu"], lambda row: list(row["commands"]), ["gpu"]),
    "depends": ("afterany:1", ["afterany:1"], lambda row: row["depends"], ["afterany:1"]),
    "begin": ("2035-01-20T12:34", "2035-01-20T12:34", lambda row: (row["begin"] or 0) > 2e9, True),
    "every": ("1d", "1d", lambda row: row["options"].get("every"), 86_400.0),
    "comment": ("why not", "why not", lambda row: row["options"].get("comment"), "why not"),
}
"""For a field its value as a word and as JSON, where a job shows it, and as what."""
NOT_SHOWN = ("retries", "singleton")
"""Fields that change what happens, and stand in no row."""


def test_every_field_of_the_table_can_be_updated_through_command_http_and_python(tmp_path: Path) -> None:
    assert set(VALUES) | set(NOT_SHOWN) == set(UPDATED)
    with serving(tmp_path, "--cluster", "1x2cpu+1gpu") as here, open_connection(here.folder.path) as service:
        service.post("/api/v1/queue/pause")
        first, *ids = submit(service, *[{"command": ["true"], "cpus": 1, "name": n} for n in "abcd"])
        assert first == "1"
        with Client(here.folder.path) as client:
            for name, (word, value, look, expected) in VALUES.items():
                doors: list[Callable[[str], Any]] = [
                    lambda job, name=name, word=word: update(here, job, f"--{name}", word),
                    lambda job, name=name, value=value: service.post(
                        "/api/v1/update", {"jobs": job, "changes": {name: value}}
                    )["refused"],
                    lambda job, name=name, value=value: client.update(job, **{name: value}),
                ]
                for door, job in zip(doors, ids, strict=True):
                    assert look(service.get(f"/api/v1/jobs/{job}")) != expected, name
                    assert door(job) == {}, (name, job)
                    assert look(service.get(f"/api/v1/jobs/{job}")) == expected, (name, job)
        service.post("/api/v1/cancel", {"jobs": "all"})
