"""The command as a whole: what it prints where, and its exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from dovetail import plugins

DOVETAIL = [sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()"]
JOBS = """
[[app]]
name = "mm"
[[app.implementation]]
name = "cpu"
time = 1.0
[[job]]
id = "ж"
app = "mm"
"""


def test_names_that_the_terminal_cannot_spell_do_not_stop_the_output(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(JOBS, encoding="utf-8")
    arguments = [*DOVETAIL, "simulate", str(path), "--cluster", "1x1cpu"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    found = [
        subprocess.run([*arguments, *more], env=ascii_only, capture_output=True, text=True, check=False)
        for more in ([], ["--json"])
    ]
    assert [(done.returncode, done.stderr) for done in found] == [(0, ""), (0, "")]
    assert json.loads(found[1].stdout)["jobs"][0]["id"] == "ж"


def test_the_list_of_policies_is_what_they_say_themselves() -> None:
    """Where this fails: `make schemas` writes the list anew."""
    told = plugins.list_policies(loading=True)
    assert plugins.list_policies() == told
    listed = set(json.loads(plugins.LISTED.read_text()))
    own = {
        n
        for n, e in plugins.registered_entries("dovetail.policies").items()
        if e.value.startswith("dovetail.policies.")
    }
    assert listed == own
