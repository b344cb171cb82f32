"""The page for people who come from Slurm has the tables of today."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slurm_tables", ROOT / "tools" / "slurm_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_specification() -> None:
    page = (ROOT / "docs" / "how-to" / "coming-from-slurm.md").read_text()
    made = tool().with_tables(page)
    assert page == made, "python tools/slurm_tables.py writes them"
    assert page.count("| `SLURM_") > 50
