"""A pytest plugin for the array API standard's own suite: what it imports and nobody here has, and a report.

The suite imports two packages. Of ``ndindex`` it uses one function, which is written out here from its
documentation; of ``pytest-json-report`` it only asks whether it is there. Where they are installed, they are
used. With ``ARRAY_API_TESTS_FAILED`` in the environment, the names of the tests that failed are written to
the file of that name, one a line.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest


class _Index(tuple[Any, ...]):
    """An index; the suite asks for it as ``raw``."""

    @property
    def raw(self) -> tuple[Any, ...]:
        return tuple(self)


def iter_indices(
    *shapes: tuple[int, ...], skip_axes: int | Sequence[int] | Sequence[Sequence[int]] = ()
) -> Iterator[tuple[_Index, ...]]:
    """Indices of elements that are broadcast together; ``slice(None)`` in axes that are skipped.

    Axes are skipped before the shapes are broadcast: the same in each shape, or some for each.
    """
    given: Any = _axes(skip_axes)  # type: ignore[arg-type]
    one_for_all = all(isinstance(axis, int) for axis in given)
    skipped = [given] * len(shapes) if one_for_all else [_axes(axes) for axes in given]
    left: list[list[int]] = []  # for each shape the axes that are not skipped
    for shape, axes in zip(shapes, skipped, strict=True):
        without = {axis % len(shape) for axis in axes if -len(shape) <= axis < len(shape)}
        left.append([axis for axis in range(len(shape)) if axis not in without])
    longest = max(map(len, left))
    lengths = [1] * longest
    for shape, axes in zip(shapes, left, strict=True):
        for place, axis in enumerate(axes, longest - len(axes)):
            if shape[axis] != 1:
                if lengths[place] not in (1, shape[axis]):
                    raise ValueError(f"the shapes {shapes} do not broadcast")
                lengths[place] = shape[axis]
    for at in itertools.product(*map(range, lengths)):
        found = []
        for shape, axes in zip(shapes, left, strict=True):
            index: list[Any] = [slice(None)] * len(shape)
            for place, axis in enumerate(axes, longest - len(axes)):
                index[axis] = at[place] if shape[axis] != 1 else 0
            found.append(_Index(index))
        yield tuple(found)


def _axes(axes: int | Sequence[int]) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


if importlib.util.find_spec("ndindex") is None:
    _made: Any = types.ModuleType("ndindex")
    _made.iter_indices = iter_indices
    sys.modules["ndindex"] = _made
if importlib.util.find_spec("pytest_jsonreport") is None:
    sys.modules["pytest_jsonreport"] = types.ModuleType("pytest_jsonreport")

_failed: dict[str, None] = {}


@pytest.fixture
def json_metadata() -> dict[str, Any]:
    """Where the suite notes what each test was about."""
    return {}


class _Absent:
    """Where the suite's hooks of pytest-json-report go, which nobody calls."""

    def pytest_json_modifyreport(self, json_report: Any) -> None:
        """Never called."""


@pytest.hookimpl(tryfirst=True)
def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Make known the hook that the suite implements."""
    if not hasattr(pluginmanager.hook, "pytest_json_modifyreport"):
        pluginmanager.add_hookspecs(_Absent)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what failed."""
    if report.failed:
        _failed[report.nodeid] = None


def pytest_sessionfinish() -> None:
    """Write down what failed."""
    where = os.environ.get("ARRAY_API_TESTS_FAILED")
    if where:
        Path(where).write_text("".join(f"{name}\n" for name in _failed))
