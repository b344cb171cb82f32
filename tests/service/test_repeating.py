"""A job that runs again and again: one run at a time, over kills of its service, until it is cancelled."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from services import Serving, serving, wait
from waiting import until

from dovetail import Client
from dovetail.client.connection import open_connection
from dovetail.service.repeating import next_begin

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def chain(here: Serving) -> list[dict[str, Any]]:
    """All runs, by number."""
    with open_connection(here.folder.path) as service:
        found = service.get("/api/v1/jobs", name="tick")["jobs"]
        found += service.get("/api/v1/ended", name="tick")["jobs"]
    return sorted(found, key=lambda row: int(row["id"]))


def test_runs_follow_each_other_over_kills_until_the_chain_is_cancelled(tmp_path: Path) -> None:
    out = tmp_path / "ticks"
    with serving(tmp_path, "--cluster", "1x2cpu") as here:
        command = ["sh", "-c", f"echo $DOVETAIL_JOB >> {out}; sleep 0.2"]
        done = here.dovetail("submit", "--every", "1s", "--name", "tick", "--json", "--", *command)
        assert done.returncode == 0, done.stderr

        def ran() -> list[str]:
            return out.read_text().split() if out.exists() else []

        until(lambda: len(ran()) >= 2, "there is no second run")
        here.kill()
        here.start().close()
        seen = len(ran())
        until(lambda: len(ran()) >= seen + 2, "after a kill it does not go on")
        rows = chain(here)
        follows = Counter(row["options"].get("follows") for row in rows)
        assert follows[None] == 1, rows
        assert set(follows.values()) == {1}, "a run has two next ones"
        assert sum(row["state"] in ("PENDING", "RUNNING") for row in rows) <= 2
        spans = sorted((row["start"], row["end"]) for row in rows if row["end"] is not None)
        assert all(later[0] >= earlier[1] for earlier, later in itertools.pairwise(spans))
        last = rows[-1]
        assert last["begin"] > last["submit"] - 1
        assert "every" in here.dovetail("info", last["id"]).stdout
        assert here.dovetail("cancel", "tick").returncode == 0
        with open_connection(here.folder.path) as service:
            until(lambda: not service.get("/api/v1/jobs", name="tick")["total"], "the chain has not ended")
            count = len(chain(here))
            service.post("/api/v1/jobs", {"jobs": [{"command": ["sleep", "1.5"], "cpus": 1}]})
            wait(service, ["last"])
        assert len(chain(here)) == count
        counted = Counter(ran())
        assert max(counted.values()) == 1, "a run was executed twice"
        assert "Traceback" not in here.folder.log.read_text()


def test_cancelling_the_run_that_runs_cancels_the_next(tmp_path: Path) -> None:
    with serving(tmp_path, "--cluster", "1x2cpu") as here, open_connection(here.folder.path) as service:
        with Client(here.folder.path) as client:
            job = client.submit(["sleep", "600"], every="1h", cpus=1).job
        until(lambda: service.get("/api/v1/jobs")["total"] == 2, "the next run is not submitted")
        (waits,) = [row for row in service.get("/api/v1/jobs")["jobs"] if row["state"] == "PENDING"]
        assert waits["depends"] == [f"afterany:{job}"]
        moment = waits["begin"] + 3600
        assert here.dovetail("update", waits["id"], "--begin", "now+2hours", "--every", "2h").returncode == 0
        row = service.get(f"/api/v1/jobs/{waits['id']}")
        assert row["options"]["every"] == 7200
        assert abs(row["begin"] - moment) < 600
        done = json.loads(here.dovetail("cancel", job, "--json").stdout)
        assert done["jobs"] == [job, waits["id"]]
        until(lambda: not service.get("/api/v1/jobs")["total"], "the chain has not ended")


def test_a_line_of_a_script_says_it_and_what_cannot_be_repeated_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "night.sh"
    script.write_text("#!/bin/sh\n#DOVETAIL --every 1d --begin now+1hour\ntrue\n")
    with serving(tmp_path, "--cluster", "1x2cpu") as here, open_connection(here.folder.path) as service:
        job = json.loads(here.dovetail("submit", "--json", str(script)).stdout)["id"]
        assert service.get(f"/api/v1/jobs/{job}")["options"]["every"] == 86_400
        for words, why in (
            (("--every", "0.5s"), "every: found 0.5 s, expected at least 1 s"),
            (("--every", "1d", "--array", "0-3"), "every: found an array"),
            (("--every", "soon"), "--every: found 'soon'"),
        ):
            done = here.dovetail("submit", *words, "--", "true")
            assert done.returncode == 2
            assert why in done.stderr
        # What waits for its moment may begin now.
        assert here.dovetail("update", job, "--begin", "now").returncode == 0
        assert wait(service, [job]) == {job: "COMPLETED"}
        assert service.get("/api/v1/jobs")["total"] == 1


def test_periods_that_have_passed_are_left_out() -> None:
    from dataclasses import replace

    from dovetail.testing.builders import rigid

    job = replace(rigid([(5.0, 1, 1.0, None)]).jobs[0], options={"every": 10.0})
    assert next_begin(job, 1005.0, 1000.0) == 1015.0
    assert next_begin(job, 1044.0, 1000.0) == 1045.0
