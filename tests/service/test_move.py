"""Waiting jobs change places: in the order in which they start, also after a kill."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from services import serving, submit, wait

from dovetail.client.connection import open_connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.mark.parametrize("policy", ["fcfs", "history"])
def test_jobs_start_in_the_order_to_which_they_were_moved(tmp_path: Path, policy: str) -> None:
    with serving(tmp_path, "--cluster", "1x1cpu", "--policy", policy) as here:
        with open_connection(here.folder.path) as service:
            service.post("/api/v1/queue/pause")
            jobs = submit(service, *[{"command": ["true"], "cpus": 1} for _ in range(5)])
            high = submit(service, {"command": ["true"], "cpus": 1, "priority": 5})[0]
            a, b, c, d, e = jobs
            assert here.dovetail("move", high, "--first").returncode == 0
            refused = json.loads(here.dovetail("move", e, "--first", "--json").stdout)["refused"]
            assert refused == {e: f"job {high} has priority 5, this one 0: update it"}
            service.post("/api/v1/cancel", {"jobs": high})
            assert here.dovetail("move", e, "--first").stdout == f"Moved: {e}\n"
            assert here.dovetail("move", a, "--after", c).returncode == 0
            assert here.dovetail("move", b, "--after", c).returncode == 0
            assert here.dovetail("move", b).returncode == 2
            assert here.dovetail("move", high, "--first").returncode == 1
        here.kill()
        here.start().close()
        with open_connection(here.folder.path) as service:
            assert here.dovetail("move", d, "--after", e).returncode == 0
            service.post("/api/v1/queue/resume")
            wait(service, jobs)
            rows = [service.get(f"/api/v1/jobs/{job}") for job in jobs]
            order = [row["id"] for row in sorted(rows, key=lambda row: row["start"])]
            assert order == [e, d, c, b, a]
        assert "Traceback" not in here.folder.log.read_text()


def test_a_name_moves_all_its_jobs_in_their_order(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x1cpu") as here:
        service = open_connection(here.folder.path)
        service.post("/api/v1/queue/pause")
        single = {"command": ["true"], "cpus": 1}
        jobs = submit(service, *[{**single, "name": name} for name in "abcabc"])
        one, two, three, *_ = jobs

        def order() -> list[str]:
            return [row["id"] for row in service.get("/api/v1/jobs")["jobs"]]

        assert order() == jobs
        assert here.dovetail("move", "c", "--first").stdout == "Moved: 3, 6\n"
        assert order() == ["3", "6", "1", "2", "4", "5"]
        # Behind the last one of that name.
        assert here.dovetail("move", "c", "--after", "a").stdout == "Moved: 3, 6\n"
        assert order() == ["1", "2", "4", "3", "6", "5"]
        # One of a group cannot stand after itself; the others go behind it.
        assert here.dovetail("move", "b,1", "--after", one).returncode == 0
        assert order() == ["1", "2", "5", "4", "3", "6"]
        many = submit(service, *[{**single, "name": "many"} for _ in range(17)])
        refused = here.dovetail("move", "many", "--after", two)
        assert refused.returncode == 2
        assert "found 17 jobs, expected at most 16 behind another one" in refused.stderr
        assert here.dovetail("move", "many", "--first").returncode == 0
        assert order()[:17] == many
        assert here.dovetail("move", ",".join(many[:16]), "--after", three).returncode == 0
        assert order()[:6] == [many[16], "1", "2", "5", "4", "3"]
        assert order()[6:22] == many[:16]
        before = order()
        service.close()
        here.kill()
        here.start().close()
        service = open_connection(here.folder.path)
        assert [row["id"] for row in service.get("/api/v1/jobs")["jobs"]] == before
        service.close()
