"""What a job has of whoever submitted it: folder, environment, umask and soft limits travel together."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait

from dovetail.client.connection import open_connection
from dovetail.process.starting import take_on

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
SHOW = "umask; ulimit -Sn; touch private"


def run_after(service: Serving, before: str, *arguments: str) -> str:
    """The output of a command of the service's user, in a shell that has done something before."""
    done = subprocess.run(
        ["sh", "-c", f'{before}; exec "$@"', "sh", sys.executable, "-m", "dovetail", *arguments],
        cwd=service.root, env=service.environment, text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_umask_and_limits_are_those_of_the_submitter(tmp_path: Path) -> None:
    """Also after a restart, and for a file that its user has named; others keep what is theirs."""
    with serving(tmp_path, "--cluster", "1x2cpu") as service:
        before = "umask 077; ulimit -S -n 256"
        run_after(service, before, "submit", "--wait", "--output", "named", "--", "sh", "-c", SHOW)
        assert (tmp_path / "named").read_text().split() == ["0077", "256"]
        for name in ("private", "named"):
            assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        run_after(service, before, "submit", "--hold", "--", "sh", "-c", "umask; ulimit -Sn")
        run_after(
            service, "umask 027; ulimit -S -n 300", "submit", "--wait", "--", "sh", "-c", "umask; ulimit -Sn"
        )
        assert service.dovetail("logs", "last").stdout.split() == ["0027", "300"]
        service.kill()
        with service.start() as client:
            client.post("/api/v1/release", {"jobs": "2"})
            assert wait(client, ["2"]) == {"2": "COMPLETED"}
            assert service.dovetail("logs", "2").stdout.split() == ["0077", "256"]
            # Who brings nothing along has what the service has, whatever others brought before.
            (plain,) = submit(client, {"command": ["sh", "-c", "umask; ulimit -Sn"]})
            wait(client, [plain])
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        umask = os.umask(0o022)
        os.umask(umask)
        assert service.dovetail("logs", plain).stdout.split() == [f"{umask:04o}", str(soft)]


def test_a_limit_that_ends_a_job_ends_no_supervisor(tmp_path: Path) -> None:
    """A file of at most 1,024 bytes, and a second of CPU time."""
    with serving(tmp_path, "--cluster", "1x2cpu") as service, open_connection(service.folder.path) as client:
        write = ["sh", "-c", "dd if=/dev/zero of=big bs=4096 count=1 2>/dev/null"]
        spin = ["sh", "-c", "while :; do :; done"]
        for n in range(3):
            ids = submit(client, {"command": write}, folder=str(tmp_path), limits={"FSIZE": 1024, "CORE": 0})
            ids += submit(client, {"command": ["true"]}, limits={"CPU": 1})
            assert set(wait(client, ids).values()) == {"FAILED", "COMPLETED"}, n
        (id,) = submit(client, {"command": spin}, limits={"CPU": 1, "CORE": 0})
        assert wait(client, [id]) == {id: "FAILED"}
        assert "signal 24" in client.get(f"/api/v1/jobs/{id}")["reason"]


def test_what_our_hard_limit_forbids_becomes_that_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    changed = take_on({"CORE": -1, "UNKNOWN": 5})
    try:
        assert resource.getrlimit(resource.RLIMIT_CORE) == (hard, hard)
    finally:
        for number, own in changed:
            resource.setrlimit(number, own)
