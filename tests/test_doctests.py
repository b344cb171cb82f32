"""The examples in docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import dovetail

ROOT = Path(dovetail.__file__).parent


def with_examples() -> list[str]:
    """Names of the modules that hold an example; the others are not imported for it."""
    found = []
    for module in pkgutil.walk_packages([str(ROOT)], "dovetail."):
        parts = module.name.split(".")[1:]
        path = (
            ROOT.joinpath(*parts, "__init__.py") if module.ispkg else ROOT.joinpath(*parts).with_suffix(".py")
        )
        if path.exists() and ">>> " in path.read_text(encoding="utf-8"):  # not of compiled files
            found.append(module.name)
    return found


@pytest.mark.parametrize("name", with_examples())
def test_examples(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.attempted
    assert not found.failed


def test_the_page_on_python_shows_what_happens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    page = Path(__file__).parents[1] / "docs" / "reference" / "python.md"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    found = doctest.testfile(str(page), module_relative=False, optionflags=flags, encoding="utf-8")
    assert found.attempted >= 10
    assert not found.failed
