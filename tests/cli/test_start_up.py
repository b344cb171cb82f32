"""What is typed all day loads no arrays, no charts, no service: the list of commands imports none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dovetail.cli.main import _table

HEAVY = (
    "numpy",
    "numba",
    "scipy",
    "matplotlib",
    "fastapi",
    "dovetail.engine.simulation.simulate",
    "dovetail.policies",
)

PROBE = """
import sys
from dovetail.cli.main import status_of
known = set()
for command in sys.argv[2:]:
    try:
        status_of([*command.split(), "--help"])
    except SystemExit:
        pass
    found = [name for name in sys.argv[1].split() if name in sys.modules and name not in known]
    known.update(found)
    if found:
        print(f"{command or 'dovetail'} loads {found}", file=sys.stderr)
"""


def loaded(commands: list[str]) -> str:
    command = [sys.executable, "-c", PROBE, " ".join(HEAVY), *commands]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=True).stderr


DAILY = ["", *(name for name in _table() if not name.startswith("bench"))]


def test_help_of_any_command_waits_for_nothing_heavy() -> None:
    assert loaded(DAILY) == ""


def test_the_probe_sees_what_is_loaded() -> None:
    with pytest.raises(AssertionError):
        assert loaded(["bench"]) == ""
