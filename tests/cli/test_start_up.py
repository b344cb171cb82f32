"""What is typed all day loads no arrays, no charts, no service: the list of commands imports none of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import dovetail
from dovetail import plugins
from dovetail.cli.main import _command_table

HEAVY = (
    "numpy",
    "numba",
    "scipy",
    "matplotlib",
    "fastapi",
    "dovetail.simulation.simulate",
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


DAILY = ["", *(name for name in _command_table() if not name.startswith("bench"))]


def test_help_of_any_command_waits_for_nothing_heavy() -> None:
    assert loaded(DAILY) == ""


def test_the_probe_sees_what_is_loaded() -> None:
    with pytest.raises(AssertionError):
        assert loaded(["bench"]) == ""


def test_a_list_of_policies_loads_none_and_a_run_loads_what_it_draws_later() -> None:
    """Imported when a run begins: all that starts jobs, nothing that tells of them."""
    program = """
import sys
import dovetail.api, dovetail.cli.live_progress, dovetail.cli.run
found = [name for name in sys.argv[1:] if name in sys.modules]
from dovetail.cli.main import status_of
status_of(["policies"])
print([*found, *(name for name in ("rich", "dovetail.policies.fms") if name in sys.modules)])
"""
    late = ("numpy", "rich", "dovetail.report.report", "dovetail.simulation.simulate")
    late += ("pydantic", "tomllib", "secrets", "statistics", "importlib.metadata")
    command = [sys.executable, "-c", program, *late]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.splitlines()[-1] == "[]"


def test_what_a_run_takes_by_default_is_what_is_registered() -> None:
    for (group, name), place in plugins._USUAL.items():
        assert plugins.registered_entries(group)[name].value == place


def test_a_supervisor_waits_for_no_dataclasses() -> None:
    program = (
        "import sys; sys.path.append(sys.argv[1]); import dovetail.process.supervisor; print(*sys.modules)"
    )
    command = [sys.executable, "-I", "-S", "-c", program, str(Path(dovetail.__file__).parents[1])]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert [name for name in ("dataclasses", "inspect", "asyncio") if name in told] == []
