"""The real command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

DOVETAIL = [sys.executable, "-c", "from dovetail.cli.main import run_cli; run_cli()"]


def load(process: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on standard output, which must be alone there."""
    return json.loads(process.stdout)
