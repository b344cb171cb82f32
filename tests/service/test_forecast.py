"""Predicted starts and ends: of running jobs from their predictions, of the queue by a simulation of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import load
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import open_connection
from dovetail.errors import InputError
from dovetail.service import forecast as forecasting
from dovetail.service.forecast import GAP, Forecast

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


def test_the_queue_shows_when_jobs_will_start(service: Serving, tmp_path: Path) -> None:
    sleep = {"command": ["sleep", "1"], "app": "nap", "cpus": "all"}
    with open_connection(service.folder.path) as client:
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
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, sleep))
        blocker = submit(client, {**sleep, "command": ["sleep", "300"], "cpus": "all"})
        ids = submit(client, *[sleep] * 8)
        here = client.post("/api/v1/whatif", {"policy": "fcfs"})
        larger = client.post("/api/v1/whatif", {"policy": "fcfs", "cluster": "2x2cpu"})
        assert set(here["jobs"]) == {*blocker, *ids} == set(larger["jobs"])
        last = {name: max(end or 0.0 for _, end in found["jobs"].values()) - found["at"]
                for name, found in (("here", here), ("larger", larger))}  # fmt: skip
        assert last["larger"] < last["here"] - 0.5
        with pytest.raises(InputError, match="found policy 'fsfc'"):
            client.post("/api/v1/whatif", {"policy": "fsfc"})
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*blocker, *ids])


def test_what_is_not_known_is_not_told(service: Serving) -> None:
    """No end of a job that nobody has seen run, nor of one that has run for longer than predicted."""
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, {"command": ["true"], "app": "seen"}))
        unseen = {"app": "unseen", "cpus": 1}
        runs, late = submit(
            client,
            {**unseen, "command": ["sleep", "300"]},
            {"app": "seen", "command": ["sleep", "300"], "cpus": 1},
        )
        until(lambda: client.get("/api/v1/info")["jobs"]["running"] == 2)
        waits, known, held = submit(
            client,
            {**unseen, "command": ["true"]},
            {"app": "seen", "command": ["true"]},
            {"command": ["true"], "hold": True},
        )
        fcfs = {"policy": "fcfs"}
        until(lambda: client.post("/api/v1/whatif", fcfs)["unknown"] == 3)  # the history has the first run
        found = client.post("/api/v1/whatif", fcfs)
        ends = {id: end is not None for id, (_, end) in found["jobs"].items()}
        assert ends == {runs: False, late: False, waits: False, known: True}
        assert found["left_out"] == 1
        client.post("/api/v1/hold", {"jobs": held})  # news, so that the forecast is made anew
        time.sleep(GAP)  # between two forecasts, at least
        page = client.get("/api/v1/jobs", patience=30)
        rows = {row["id"]: row for row in page["jobs"]}
        assert page["forecast_unknown"] == 3
        assert [rows[id]["predicted_end"] for id in (runs, waits, held)] == [None] * 3
        assert [rows[id]["predicted_start"] for id in (runs, late, held)] == [None] * 3
        assert rows[waits]["predicted_start"] is not None
        shown = service.dovetail("whatif", "--policy", "fcfs").stdout
        assert [line.split()[2] for line in shown.splitlines()[1:5]].count("unknown") == 3
        assert "of 3 jobs it is not known how long they take: starts behind that are guesses\n" in shown
        assert "1 of 4 done in" in shown
        assert "no forecast for 1: held back" in shown
        shown = service.dovetail("queue")
        assert "of 3 jobs it is not known" in shown.stderr
        assert [line.split()[0] for line in shown.stdout.splitlines() if "overdue" in line] == [late]
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [runs, late, waits, known, held])


def test_jobs_that_follow_each_other_in_one_place_are_foreseen(service: Serving) -> None:
    """Who was given the place of one that is about to end has not begun, and is not adopted there too."""
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, *[{"command": ["true"]}] * 20))
        ids = submit(client, *[{"command": ["true"]}] * 1500)
        until(lambda: not client.get("/api/v1/jobs", limit=1, patience=1)["total"], seconds=300)
        assert set(wait(client, ids).values()) == {"COMPLETED"}
    assert "not free" not in service.folder.log.read_text()


def test_the_first_look_after_a_submission_is_fresh(service: Serving) -> None:
    """However short a while ago somebody looked before, and though no process for it may run yet."""
    sleep = {"command": ["sleep", "0.1"], "app": "nap", "cpus": "all"}
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, sleep))
        blocker = submit(client, {**sleep, "command": ["sleep", "300"], "walltime": 600})
        known: list[str] = []
        for _ in range(3):
            client.get("/api/v1/jobs", patience=30)
            known += submit(client, sleep)
            submitted = time.monotonic()
            while True:
                began = time.monotonic()
                page = client.get("/api/v1/jobs", patience=30)
                # Only where the machine is so busy that all patience was spent may it be an older one.
                if time.monotonic() - began < 30:
                    break
                assert began - submitted < 300
            assert page["forecast_age"] <= time.monotonic() - submitted
            rows = {row["id"]: row for row in page["jobs"]}
            assert all(rows[id]["predicted_start"] is not None for id in known)
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*blocker, *known])


def test_starts_come_with_intervals_once_some_have_ended(service: Serving) -> None:
    """Each holds its point; what runs has one for its end; who is held back has none."""
    sleep = {"command": ["sleep", "0.2"], "app": "often", "cpus": "all"}
    names = ("predicted_start_low", "predicted_start_high", "predicted_end_low", "predicted_end_high")
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, *[sleep] * 8))
        runs = submit(client, {**sleep, "command": ["sleep", "300"]})
        until(lambda: client.get("/api/v1/info")["jobs"]["running"] == 1)
        waits = submit(client, *[sleep] * 3)
        held = submit(client, {**sleep, "hold": True})
        time.sleep(GAP)
        rows = {row["id"]: row for row in client.get("/api/v1/jobs", patience=30)["jobs"]}
        for job in waits:
            low, high, end_low, end_high = (rows[job][name] for name in names)
            assert low <= rows[job]["predicted_start"] <= high
            assert end_low <= rows[job]["predicted_end"] <= end_high
            assert rows[job]["confidence"] == 0.9
        assert rows[runs[0]]["predicted_start_low"] is None
        assert rows[runs[0]]["predicted_end_low"] <= rows[runs[0]]["predicted_end_high"]
        assert [rows[held[0]][name] for name in (*names, "confidence")] == [None] * 5
        assert client.get(f"/api/v1/jobs/{waits[0]}")["confidence"] == 0.9
        assert "(90 %)" in service.dovetail("info", waits[0]).stdout
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*runs, *waits, *held])


def test_a_job_that_is_only_tested_gets_the_interval_that_it_would_have(service: Serving) -> None:
    """And leaves nothing: no job, no number, no forecast whose outcome would count."""
    sleep = {"command": ["sleep", "0.2"], "app": "often", "cpus": "all"}
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, *[sleep] * 8))
        runs = submit(client, {**sleep, "command": ["sleep", "300"]})
        until(lambda: client.get("/api/v1/info")["jobs"]["running"] == 1)
        (waits,) = submit(client, sleep)
        found = client.post(
            "/api/v1/jobs/test", {"jobs": [{**sleep, "id": "a"}, {**sleep, "depends": ["afterok:a"]}]}
        )
        first, second = found["jobs"]
        assert first["id"] == str(int(waits) + 1)
        assert first["predicted_start_low"] <= first["predicted_start"] <= first["predicted_start_high"]
        assert first["confidence"] == 0.9
        assert second["predicted_start"] > first["predicted_start"]
        assert second["confidence"] == 0.9
        assert second["predicted_start_high"] > first["predicted_start_high"], "it waits for the first one"
        (real,) = submit(client, sleep)
        assert real == first["id"]
        words = ("submit", "--test", "--cpus", "all", "--walltime", "1h", "--", "sleep", "0.2")
        shown = service.dovetail(*words).stdout
        assert shown.startswith("Nothing is submitted. If it were now:\nstarts ")
        assert "\nwith a walltime of 30:00: " in shown
        assert "(no difference can be shown)" in shown, "it goes behind all others, whatever its walltime"
        with pytest.raises(InputError, match="cpus: found 99"):
            client.post("/api/v1/jobs/test", {"jobs": [{"command": ["true"], "cpus": 99}]})
        open_now = {row["id"] for row in client.get("/api/v1/jobs")["jobs"]}
        assert open_now == {*runs, waits, real}
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*runs, waits, real])


class AnsweringOnce(Forecast):
    """Its process fails as no code foresees, then answers."""

    questions = 0

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.questions += 1
        if self.questions == 2:
            raise RuntimeError("unforeseen")
        return {"jobs": {"1": (1.0, 2.0)}, "unknown": 0}


class Answering(Forecast):
    """Its process answers when it may, with all that had happened when the question was put."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, lambda: self.happened)
        self.happened = 0
        self.questions = 0
        self.may_answer = asyncio.Event()

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        self.questions += 1
        known = range(self.happened + 1)
        await self.may_answer.wait()
        return {"jobs": {str(job): (1.0, 2.0) for job in known}, "unknown": 0}


def test_a_look_does_not_rest_on_a_forecast_that_began_before_it(tmp_path: Path) -> None:
    async def look_on() -> None:
        forecast = Answering(tmp_path)
        forecast.request_forecast()
        await asyncio.sleep(0)
        forecast.happened += 1
        look = asyncio.create_task(forecast.wait(30))
        await asyncio.sleep(0)
        forecast.happened += 1
        forecast.may_answer.set()
        await look
        assert forecast.predicted_times("1") == (1.0, 2.0)
        assert forecast.questions == 2, "what happens during a look does not make it longer"
        await forecast.close()

    asyncio.run(look_on())


def test_a_forecast_that_fails_as_never_foreseen_is_logged_and_made_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[dict[str, Any]] = []
    changes = 0

    async def look_on() -> None:
        nonlocal changes
        asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
        forecast = AnsweringOnce(tmp_path, lambda: changes)
        await forecast.wait(30)
        assert forecast.predicted_times("1") == (1.0, 2.0)
        changes += 1
        for _ in range(3):
            await forecast.wait(30)
            assert forecast.predicted_times("1") == (None, None), "an old forecast is none"
            assert forecast.describe_forecast()["forecast_age"] is None
            changes += 1
        assert forecast.questions == 2, "what has just failed is not made again at every look"
        monkeypatch.setattr(forecasting, "PAUSE", 0.0)
        await forecast.wait(30)
        assert forecast.questions == 3
        assert forecast.predicted_times("1") == (1.0, 2.0)
        await forecast.close()

    asyncio.run(look_on())
    assert not lost, "an error that nothing retrieves"
    (record,) = [record for record in caplog.records if record.name == "dovetail.service.forecast"]
    assert record.exc_info is not None, "with its traceback"
    assert str(record.exc_info[1]) == "unforeseen"


def test_of_a_waiting_job_its_owners_other_requests_are_compared(service: Serving) -> None:
    """A short one goes before a wide one under EASY; the same draws show whether that makes a difference."""
    short = {"command": ["sleep", "0.2"], "app": "often", "cpus": 1, "walltime": 10}
    with open_connection(service.folder.path) as client:
        wait(client, submit(client, *[short] * 8))
        holds = {"command": ["sleep", "300"], "app": "holds", "cpus": 1, "walltime": 4000}
        runs = submit(client, holds)
        until(lambda: client.get("/api/v1/info")["jobs"]["running"] == 1)
        (wide,) = submit(client, {**short, "cpus": 2, "walltime": 4000})
        (other,) = submit(client, {**short, "app": "often", "cpus": 1, "walltime": 8000, "hold": True})
        before = client.get("/api/v1/jobs", patience=30)["jobs"]
        found = client.get(f"/api/v1/jobs/{wide}/sooner")
        assert found["job"]["id"] == wide
        assert found["job"]["predicted_start_low"] <= found["job"]["predicted_start_high"]
        assert [row["with"] for row in found["sooner"]] == [{"walltime": 2000.0}, {"walltime": 1000.0}]
        assert not any(row["differs"] or row["later"] for row in found["sooner"])
        after = client.get("/api/v1/jobs", patience=30)["jobs"]
        assert [row["walltime"] for row in after] == [row["walltime"] for row in before], "nothing is changed"
        with pytest.raises(InputError, match="found no job 99999 that waits"):
            client.get("/api/v1/jobs/99999/sooner")
        shown = service.dovetail("whatif", "--job", wide).stdout
        assert shown.startswith("starts ")
        assert "\nwith a walltime of 33:20: " in shown
        assert shown.count("(no difference can be shown)") == 2
        assert "with a walltime of 33:20: " in service.dovetail("explain", wide).stdout
        assert "differs" not in service.dovetail("explain", other).stdout
        otherwise = load(service.dovetail("whatif", "--policy", "fcfs", "--cluster", "2x2cpu", "--json"))
        there = otherwise["jobs"][wide]
        assert there["predicted_start_low"] <= there["start"] <= there["predicted_start_high"]
        assert there["start"] < otherwise["at"] + 1, "on the second node it starts at once"
        kept = json.loads((service.folder.path / "starts.json").read_text())["calibration"]["forecasts"]
        assert sum(row[0] == wide for row in kept) == 1, "what is only looked at is no forecast to be judged"
        refused = service.dovetail("whatif", "--job", wide, "--policy", "fcfs")
        assert refused.returncode == 2
        assert "expected one of them" in refused.stderr
        client.post("/api/v1/cancel", {"jobs": "all"})
        wait(client, [*runs, wide, other])
