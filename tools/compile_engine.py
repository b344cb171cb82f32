"""Compile the engine's hottest modules ahead of time, into a copy of the packages beside the source tree.

    make compiled
    PYTHONPATH=build/compiled .venv/bin/dovetail simulate LOG.swf --policy easy

What is compiled is the source as it stands, by mypyc, which comes with mypy; it needs a C compiler and
setuptools. Policies and the model stay Python. Nothing needs the copy: see docs/decisions/053.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parents[1]
TARGET = HERE / "build" / "compiled"
MODULES = [
    *(
        f"dovetail/engine/{name}.py"
        for name in (
            "admission", "books", "capacity", "changes", "core", "cores", "deciding", "driver", "ended",
            "gangs", "horizon", "lately", "like_jobs", "occupancy", "predictions", "profiles", "progress",
            "promises", "queue", "shadow", "simulate", "view",
        )
    ),
    "dovetail/model/ways.py",
    "dovetail/model/workload.py",
    "dovetail/runtimes/perfect.py",
]  # fmt: skip
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

modules = mypycify(["--config-file", "mypy.ini", *{modules!r}], opt_level="2", debug_level="0")
setup(name="dovetail-compiled", ext_modules=modules)
"""
CONFIG = """
[mypy]
strict = true
follow_imports = silent
ignore_missing_imports = true
"""


def main() -> int:
    """Make the copy anew, and compile in it."""
    shutil.rmtree(TARGET, ignore_errors=True)
    for package in ("dovetail", "dovetail_studies"):
        shutil.copytree(
            HERE / "src" / package, TARGET / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (TARGET / "setup.py").write_text(SETUP.format(modules=MODULES))
    (TARGET / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    return subprocess.run(command, cwd=TARGET, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
