"""Predicted starts and ends: of running jobs from their predictions, of the queue by a simulation of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.errors import InputError
from dovetail.service.client import connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


def test_the_queue_shows_when_jobs_will_start(service: Serving, tmp_path: Path) -> None:
    sleep = {"command": ["sleep", "1"], "app": "nap", "cpus": "all"}
    with connection(service.folder.path) as client:
        wait(client, submit(client, sleep))
        held = submit(client, {"command": ["true"], "hold": True})
        asked = time.time()
        ids = submit(client, {**sleep, "command": ["sleep", "300"]}, *[sleep] * 6)
        after = submit(client, {**sleep, "depends": [f"afterok:{ids[-1]}"]})
        found = client.get("/api/v1/jobs", patience=30)
        assert found["forecast_age"] < 30
        rows = {row["id"]: row for row in found["jobs"]}
        starts = [rows[id]["predicted_start"] for id in (*ids[1:], *after)]
        assert starts == sorted(starts)
        assert all(asked < start < time.time() + 60 for start in starts)
        assert all(rows[id]["predicted_end"] >= rows[id]["predicted_start"] + 0.5 for id in ids[1:])
        assert rows[held[0]]["predicted_start"] is None, "its user holds it back"
        assert rows[ids[0]]["predicted_end"] is not None
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*ids, *after, *held])


def test_whatif_answers_for_other_policies_and_clusters(service: Serving) -> None:
    sleep = {"command": ["sleep", "1"], "app": "nap", "cpus": 1}
    with connection(service.folder.path) as client:
        wait(client, submit(client, sleep))
        blocker = submit(client, {**sleep, "command": ["sleep", "300"], "cpus": "all"})
        ids = submit(client, *[sleep] * 8)
        here = client.post("/api/v1/whatif", {"policy": "fcfs"})
        larger = client.post("/api/v1/whatif", {"policy": "fcfs", "cluster": "2x2cpu"})
        assert set(here["jobs"]) == {*blocker, *ids} == set(larger["jobs"])
        last = {name: max(end for _, end in found["jobs"].values()) - found["at"]
                for name, found in (("here", here), ("larger", larger))}  # fmt: skip
        assert last["larger"] < last["here"] - 0.5
        with pytest.raises(InputError, match="found policy 'fsfc'"):
            client.post("/api/v1/whatif", {"policy": "fsfc"})
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*blocker, *ids])


def test_jobs_that_follow_each_other_in_one_place_are_foreseen(service: Serving) -> None:
    """Who was given the place of one that is about to end has not begun, and is not adopted there too."""
    with connection(service.folder.path) as client:
        wait(client, submit(client, *[{"command": ["true"]}] * 20))
        ids = submit(client, *[{"command": ["true"]}] * 1500)
        until(lambda: not client.get("/api/v1/jobs", limit=1, patience=1)["total"], seconds=300)
        assert set(wait(client, ids).values()) == {"COMPLETED"}
    assert "not free" not in service.folder.log.read_text()
