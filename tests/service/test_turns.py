"""A service lets the higher priority go first, whatever its policy, and who used less of the machine."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from services import serving, submit, wait

from dovetail.client.connection import Connection, open_connection
from dovetail.errors import InputError
from dovetail.service.usage import FairUse, Usage, parse_shares

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

SHORT = {"command": ["sleep", "0.1"], "app": "short", "cpus": 1}
LONG = {"command": ["sleep", "600"], "app": "long", "cpus": 1}


def order(service: Connection, *batches: list[str]) -> list[int]:
    """From which batch the jobs are, by their starts."""
    jobs = [(service.get(f"/api/v1/jobs/{id}")["start"], n) for n, ids in enumerate(batches) for id in ids]
    return [n for _, n in sorted(jobs)]


@pytest.mark.parametrize("policy", ["history", "brr"])
def test_a_higher_priority_goes_first_under_any_policy(tmp_path: Path, policy: str) -> None:
    with (
        serving(tmp_path, "--cluster", "1x1cpu", "--policy", policy) as here,
        open_connection(here.folder.path) as service,
    ):
        blocker = submit(service, LONG)
        low, high = submit(service, *[SHORT] * 3), submit(service, *[{**SHORT, "priority": 5}] * 3)
        rows = {row["id"]: row for row in service.get("/api/v1/jobs", patience=30)["jobs"]}
        assert {rows[id]["reason"] for id in low} == {"others go first"}
        service.post("/api/v1/cancel", {"jobs": blocker[0]})
        wait(service, [*low, *high])
        assert order(service, low, high) == [1, 1, 1, 0, 0, 0]


def test_who_used_much_goes_behind_who_used_little_also_after_a_restart(tmp_path: Path) -> None:
    options = ("--cluster", "1x1cpu", "--listen", "127.0.0.1:0", "--half-life", "1h", "--share", "carol=2")
    with serving(tmp_path, *options) as here:
        secrets = [here.dovetail("token", "add", name).stdout.strip() for name in ("much", "little")]

        def people() -> list[Connection]:
            found = here.folder.address()
            assert found is not None
            return [open_connection(found.urls[0], secret) for secret in secrets]

        much, little = people()
        with much, little:
            wait(much, submit(much, {**SHORT, "command": ["sleep", "1.5"]}))
            (told,) = much.get("/api/v1/info")["fair"]["users"]
            assert told == {"user": "much", "used": told["used"], "share": 1.0, "standing": told["used"]}
            assert 1.5 <= told["used"] < 60
        said = here.dovetail("info").stdout
        assert "halved every 1:00:00" in said
        assert "          much: " in said
        assert here.process is not None
        here.process.send_signal(signal.SIGTERM)
        here.process.wait(100)
        kept = json.loads(here.folder.usage_path.read_text())
        assert kept["shares"] == {"carol": 2.0}
        assert kept["used"]["much"] == pytest.approx(told["used"], rel=0.1)
        here.start().close()
        much, little = people()
        with open_connection(here.folder.path) as service, much, little:
            blocker = submit(service, LONG)
            first, second = submit(much, *[SHORT] * 3), submit(little, *[SHORT] * 3)
            service.post("/api/v1/cancel", {"jobs": blocker[0]})
            wait(service, [*first, *second])
            assert order(service, first, second) == [1, 1, 1, 0, 0, 0]


def test_what_was_kept_is_forgotten_by_halves(tmp_path: Path) -> None:
    path = tmp_path / "usage.json"
    first = Usage(path, FairUse(100.0), 1000.0)
    assert first.shares is not None
    path.write_text(json.dumps({"half_life": 100.0, "shares": {"b": 2.0}, "at": 1000.0, "used": {"a": 8.0}}))
    later = Usage.read_kept(path, 1200.0)
    assert later is not None
    assert later.used("a", 0.0) == pytest.approx(2.0)
    Usage(path, None, 1300.0)
    assert Usage.read_kept(path, 1300.0) is None


@pytest.mark.parametrize("text", ["ada", "ada=0", "=2", "ada=x", "ada=inf"])
def test_shares_that_cannot_be(text: str) -> None:
    with pytest.raises(InputError, match=f"found '{text}', expected USER=N with N above 0"):
        parse_shares([text])
