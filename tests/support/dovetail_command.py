"""The real command, in a process of its own, with a state folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import ready_command

from dovetail.testing.builders import full

DOVETAIL = [sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()"]


def load(process: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on standard output, which must be alone there."""
    return json.loads(process.stdout)


def run_command(
    arguments: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    *,
    timeout: float = 280,
    input: str | None = None,  # noqa: A002 - as of `subprocess.run`
) -> subprocess.CompletedProcess[str]:
    """Run ``dovetail ARGUMENTS`` to its end, in a process of its own (`ready_command`)."""
    told = list(map(str, arguments))
    if not full(1, 0) and input is None and ready_command.can_serve(environment):
        return ready_command.run(told, cwd, environment, timeout)
    return subprocess.run(
        [*DOVETAIL, *told], cwd=cwd, env=environment, text=True, capture_output=True, timeout=timeout,
        input=input, check=False,
    )  # fmt: skip


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(state: Path) -> dict[str, str]:
    folder = str(Path(sys.executable).parent)
    return {**os.environ, "XDG_STATE_HOME": str(state), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.fixture
def dovetail(tmp_path: Path, environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run ``dovetail ARGUMENTS`` in the test's folder."""

    def call(*arguments: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, tmp_path, environment, timeout=timeout)

    return call
