"""``dovetail devices``."""

from __future__ import annotations

import json
import os

import pytest
import typer
from typer.testing import CliRunner

from dovetail.cli import devices
from dovetail.local.discovery import Cores, FailedProbe, FoundDevice, Inventory

FOUND = Inventory(
    Cores((0, 1, 2, 5), 8, "Some CPU [x]", 32_000_000_000, 2.5),
    (
        FoundDevice("nvidia", "gpu", "NVIDIA T4", 0, 16_000_000_000, "550.1"),
        FoundDevice("opencl", "opencl", "pocl", 0, 0, "3.0", used=False, note="a CPU device"),
    ),
    (FailedProbe("amd", "the kernel driver amdgpu (KFD) is not loaded"),),
)


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(devices.devices)
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_table_says_what_was_found_and_why_something_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "take_inventory", lambda timeout: FOUND)
    lines = run().splitlines()
    assert lines[1].split("  ")[0] == "cpu"
    assert "Some CPU [x]" in lines[1]
    assert "4 of 8 cores" in lines[1]
    assert "NVIDIA T4" in lines[2]
    assert lines[-4:] == [
        "cores that may be used: 0-2,5",
        "a cgroup limits CPU time to that of 2.5 cores",
        "opencl 0 (pocl): a CPU device",
        "amd: nothing found: the kernel driver amdgpu (KFD) is not loaded",
    ]


def test_json_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "take_inventory", lambda timeout: FOUND)
    assert json.loads(run("--json"))["devices"][0]["model"] == "NVIDIA T4"


def test_this_machine() -> None:
    found = json.loads(run("--json", "--timeout", "60"))
    assert found["cores"]["usable"] == sorted(os.sched_getaffinity(0))
    assert {d["probe"] for d in found["devices"]} | {m["probe"] for m in found["missing"]} == {
        "nvidia",
        "amd",
        "opencl",
    }
