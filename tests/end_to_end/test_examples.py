"""The examples' stored output is what they print now."""

from __future__ import annotations

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def test_what_if_prints_what_its_page_says() -> None:
    spec = importlib.util.spec_from_file_location("what_if_make", EXAMPLES / "what-if" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page() == (EXAMPLES / "what-if" / "README.md").read_text(encoding="utf-8")
