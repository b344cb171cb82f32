"""The real command, in a process of its own, with a state folder of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DOVETAIL = [sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()"]


def load(process: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on standard output, which must be alone there."""
    return json.loads(process.stdout)


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

    def call(*arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*DOVETAIL, *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            text=True,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    return call
