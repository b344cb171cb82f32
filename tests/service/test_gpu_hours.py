"""GPU hours of each user of a service: refused, made to wait, shown, kept over a kill."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait
from waiting import until

from dovetail.client.connection import Connection, open_connection
from dovetail.service.people import name_of
from dovetail.service.tokens import Tokens

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
LIMITED = ("--cluster", "1x2cpu+2gpu", "--max-gpu-hours-per-user", "1", "--gpu-hours-window", "1d")


def token_of(here: Serving, name: str) -> Connection:
    """The service over the network, as another user."""
    secret = Tokens(here.folder.tokens_path).add(name, admin=False)
    address = here.folder.address()
    assert address is not None
    return Connection(address.urls[0], secret)


def test_a_user_waits_for_hours_and_others_do_not(tmp_path: Path) -> None:
    me = name_of(tmp_path.stat().st_uid)
    until_there = {"command": ["sh", "-c", f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"], "on": ["gpu"]}
    with serving(tmp_path, *LIMITED, "--listen", "127.0.0.1:0") as here:
        with open_connection(here.folder.path) as service, token_of(here, "ben") as ben:
            refused = here.dovetail("submit", "-G", "2", "-t", "1h", "--on", "gpu", "--", "true")
            assert refused.returncode == 2
            assert (
                "found a job for 2 GPUs and up to 1 hours, that is 2 GPU hours, and one user may use at "
                "most 1 in 1 day here"
            ) in " ".join(refused.stderr.split())
            first, second = submit(service, *[{**until_there, "cpus": 0, "walltime": 2400}] * 2)
            until(lambda: service.get(f"/api/v1/jobs/{first}")["state"] == "RUNNING", "it does not run")
            row = service.get(f"/api/v1/jobs/{second}")
            assert row["reason"].startswith(f"waits: {me} has used "), row["reason"]
            assert "of 1 GPU hours in 1 day, and jobs before it may use 0.666" in row["reason"]
            assert row["reason"].endswith("hours come back when these have ended")
            assert "GPU hours in 1 day" in " ".join(here.dovetail("explain", second).stdout.split())
            (free,) = submit(service, {"command": ["true"]})
            (other,) = submit(ben, {**until_there, "cpus": 0, "walltime": 2400, "command": ["true"]})
            assert wait(service, [free, other]) == {free: "COMPLETED", other: "COMPLETED"}
            longer = here.dovetail("update", second, "--walltime", "2h", "--json")
            assert "walltime: found a job for 1 GPU and up to 2 hours" in longer.stdout
        here.kill()
        here.start().close()
        with open_connection(here.folder.path) as service:
            assert service.get(f"/api/v1/jobs/{second}")["reason"].startswith("waits: ")
            shown = service.get("/api/v1/info")["gpu_hours"]
            assert (shown["limit"], shown["window"]) == (1, 86400)
            assert any(one["user"] == me and one["claimed"] > 0.6 for one in shown["users"])
            assert "gpu hours: at most 1 for each user in 1 day" in here.dovetail("info").stdout
            (tmp_path / "go").touch()
            assert wait(service, [first, second]) == {first: "COMPLETED", second: "COMPLETED"}


def test_hours_that_are_used_up_come_back_by_a_moment_that_is_named(tmp_path: Path) -> None:
    me = name_of(tmp_path.stat().st_uid)
    here = Serving(tmp_path, *LIMITED)
    here.folder.make_private()
    kept = {"most": 3600.0, "window": 86400.0, "at": time.time()}
    used = {me: {repr(time.time() - 1800.0): 3590.0}}
    (here.folder.path / "gpu_hours.json").write_text(json.dumps({**kept, "used": used}))
    here.start().close()
    try:
        with open_connection(here.folder.path) as service:
            (job,) = submit(service, {"command": ["true"], "on": ["gpu"], "cpus": 0, "walltime": 60})
            until(lambda: "waits" in service.get(f"/api/v1/jobs/{job}")["reason"], "it does not wait")
            assert (
                "0.9972 of 1 GPU hours in 1 day; enough come back by "
                in service.get(f"/api/v1/jobs/{job}")["reason"]
            )
            (short,) = submit(service, {"command": ["true"], "on": ["gpu"], "cpus": 0, "walltime": 5})
            assert here.dovetail("cancel", job).returncode == 0
            assert wait(service, [short]) == {short: "COMPLETED"}
    finally:
        here.stop()


def test_a_window_without_a_limit_is_refused(tmp_path: Path) -> None:
    here = Serving(tmp_path)
    done = here.dovetail("serve", "--gpu-hours-window", "1d")
    assert done.returncode == 2
    assert "--gpu-hours-window: found it without --max-gpu-hours-per-user" in done.stderr
