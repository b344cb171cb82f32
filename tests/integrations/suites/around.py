"""A pytest plugin for the tests of other projects: a service of this checkout is around them."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))


@pytest.fixture(scope="session", autouse=True)
def service() -> Iterator[None]:
    """A service of its own, which jobs find by the environment."""
    from services import ANEW, Serving

    with tempfile.TemporaryDirectory() as folder:
        found = Serving(Path(folder))
        found.program = ANEW
        found.start().close()
        for name in ("XDG_STATE_HOME", "DOVETAIL_SERVICE"):
            os.environ[name] = found.environment[name]
        yield
        found.stop()


def skip(items: list[pytest.Item], reasons: dict[str, str]) -> None:
    """Skip tests, each with its reason. Raises `UsageError` for a test that is not there any more."""
    for name, reason in reasons.items():
        found = [item for item in items if item.name == name or item.name.startswith(f"{name}[")]
        if not found:
            raise pytest.UsageError(f"{name}: expected among the tests, and is not there")
        for item in found:
            item.add_marker(pytest.mark.skip(reason=reason))
