"""Folders that may not be looked into, and files in the place of folders: named as what they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until

from dovetail.client.folder import ServiceFolder
from dovetail.process.processes import started_at
from dovetail.testing.builders import full

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

_RIGHTS = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
BOUND = _RIGHTS if os.geteuid() == 0 else ()
"""Root without the right to pass over the modes of files; other accounts have none to give up."""


def _why_not() -> str:
    if not BOUND:
        return ""
    if shutil.which(BOUND[0]) is None:
        return "root passes over modes, and there is no setpriv here"
    done = subprocess.run([*BOUND, "true"], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"root cannot give up its rights here: {done.stderr.strip()}"


needs_modes = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "modes bind this account")


def dovetail(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command for which modes count; its output goes to files, since a service would keep pipes open."""
    environment = {**os.environ, "XDG_STATE_HOME": str(root / "state")}
    environment.pop("DOVETAIL_SERVICE", None)
    command = [*BOUND, sys.executable, "-m", "dovetail", *arguments]
    with open(root / "out", "w+") as out, open(root / "err", "w+") as err:
        done = subprocess.run(
            command, cwd=root, env=environment, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
            timeout=120, check=False,
        )  # fmt: skip
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, done.returncode, out.read(), err.read())


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    folder.chmod(0)
    try:
        yield
    finally:
        folder.chmod(0o700)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[ServiceFolder]:
    """The folder of a service that runs in the background, bound by modes."""
    assert dovetail(tmp_path, "submit", "--wait", "--", "true").returncode == 0
    found = ServiceFolder(tmp_path / "state" / "dovetail" / "service")
    yield found
    if found.is_locked():
        dovetail(tmp_path, "cancel", "all")
        assert dovetail(tmp_path, "serve", "--stop").returncode == 0


@needs_modes
def test_runs_in_a_folder_that_cannot_be_read(tmp_path: Path) -> None:
    assert dovetail(tmp_path, "run", "-q", "--", "true").returncode == 0
    runs = tmp_path / "state" / "dovetail" / "runs"
    for folder in (runs, runs.parent):
        with closed(folder):
            done = dovetail(tmp_path, "runs")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"dovetail: {runs}: cannot be read: Permission denied\n"
    (run,) = runs.iterdir()
    with closed(run):
        done = dovetail(tmp_path, "runs")
        assert (done.returncode, done.stdout) == (1, "No run can be read.\n")
        assert f"{run}/run.json: cannot be read (permission denied)" in done.stderr
        done = dovetail(tmp_path, "runs", "--json")
        assert (done.returncode, json.loads(done.stdout)) == (1, [])
        done = dovetail(tmp_path, "runs", "--prune", "0s")
        assert (done.returncode, done.stdout) == (0, "0 runs removed\n")
        assert "(permission denied), expected the description of a run; it stays" in done.stderr
    assert dovetail(tmp_path, "runs", "--prune", "0s").stdout == "1 run removed\n"


COMMANDS = full(
    ["queue", "info", "submit -- true", "logs 1", "wait 1", "cancel 1", "serve", "serve --stop", "token list",
     "recover", "recover --json", "runs --prune 0s"],
    ["queue", "submit -- true", "logs 1", "serve", "recover"],
)  # fmt: skip


@needs_modes
def test_a_service_whose_folder_is_closed_is_not_gone(place: ServiceFolder, tmp_path: Path) -> None:
    """Its clients name the folder; it goes on, starts nothing, and takes jobs in again when it is open."""
    address = place.address()
    assert address is not None
    before = started_at(address.pid)
    with place.log.open() as log, closed(place.path):
        for command in COMMANDS:
            done = dovetail(tmp_path, *command.split())
            assert done.returncode == 2, command
            assert done.stderr.startswith(f"dovetail: {place.path}"), command
            assert "Permission denied" in done.stderr
            assert done.stderr.count("\n") == 1
            assert "left behind.\n" not in done.stdout
        told = ""

        def noticed() -> bool:
            nonlocal told
            told += log.read()
            return f"{place.path}: cannot be looked into: Permission denied: nothing starts" in told

        until(noticed, seconds=60)
    assert started_at(address.pid) == before is not None
    until(lambda: "blocked" not in dovetail(tmp_path, "info").stdout, seconds=60)
    assert dovetail(tmp_path, "submit", "--wait", "--", "true").returncode == 0
    told += place.log.read_text()[len(told) :]
    for wrong in ("is gone", "was removed", "were removed", "written anew", "was cut short"):
        assert wrong not in told


def test_a_file_in_the_place_of_the_output(place: ServiceFolder, tmp_path: Path) -> None:
    """Under a service that runs, and before one is started: the same words."""
    expected = "output: found a file, expected a folder"
    shutil.rmtree(place.path / "output")
    (place.path / "output").touch()
    until(lambda: expected in dovetail(tmp_path, "info").stdout, seconds=60)
    done = dovetail(tmp_path, "submit", "--", "true")
    assert (done.returncode, done.stderr) == (1, f"dovetail: {place.path}: {expected}\n")
    assert dovetail(tmp_path, "serve", "--stop").returncode == 0
    for command in ("serve", "submit -- true"):
        done = dovetail(tmp_path, *command.split())
        assert done.returncode == 2, command
        expected = f"{place.path}/output: cannot be used: found a file, expected a folder"
        assert done.stderr == f"dovetail: {expected}\n"
    (place.path / "output").unlink()
    assert dovetail(tmp_path, "submit", "--wait", "--", "true").returncode == 0
