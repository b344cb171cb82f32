"""Every row of the table for people who come from Slurm is a command that works."""

from __future__ import annotations

import getpass
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import Serving, serving, submit, wait

from dovetail.client.connection import open_connection

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from-slurm.md"
ROWS = re.findall(r"^\| `(s.*?)` \| `(dovetail .*?)`", PAGE.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    root = tmp_path_factory.mktemp("service")
    (root / "job.sh").write_text("#!/bin/sh\n#SBATCH -t 5\ntrue\n")
    with serving(root, "--cluster", "1x2cpu") as found:
        yield found


def test_the_table_is_long_enough() -> None:
    commands = {slurm.split()[0] for slurm, _ in ROWS}
    assert commands >= {"sbatch", "squeue", "scancel", "sacct", "scontrol"}
    assert len(ROWS) >= 25


@pytest.mark.parametrize("ours", list(dict.fromkeys(ours for _, ours in ROWS)))
def test_each_row(service: Serving, ours: str) -> None:
    with open_connection(service.folder.path) as client:
        command = {"command": ["true"], "name": "name"}
        if any(f" {verb} " in ours for verb in ("release", "cancel", "hold", "update", "move")):
            command["hold"] = True
        if "12_3" in ours:
            command["array"] = "0-3"
        ids = submit(client, command)
        number = ids[0].split("_")[0]
        if not command.get("hold"):
            wait(client, ids)
        if " hold " in ours:
            client.post("/api/v1/release", {"jobs": number})
            (blocker,) = submit(client, {"command": ["sleep", "30"], "cpus": "all"})
            (number,) = submit(client, {"command": ["true"]})
        words = shlex.split(ours.replace("12", number).replace("$USER", getpass.getuser()))
        done = service.dovetail(*words[1:])
        assert done.returncode == 0, (ours, done.stderr)
        if " hold " in ours:
            client.post("/api/v1/cancel", {"jobs": blocker})
        client.post("/api/v1/cancel", {"jobs": "all"})
