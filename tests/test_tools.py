"""What helps to build: the list of compiled modules names modules that are there."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_modules_that_are_compiled_ahead_of_time_are_there() -> None:
    modules = runpy.run_path(str(ROOT / "tools" / "compile_engine.py"))["MODULES"]
    assert [module for module in modules if not (ROOT / "src" / module).is_file()] == []
    assert len(modules) == len(set(modules))
