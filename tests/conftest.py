"""What all tests have in common."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail.testing.builders import full

LONG = {
    "end_to_end/test_lent.py",
    "end_to_end/test_moldable.py",
    "end_to_end/test_ray.py",
    "end_to_end/test_slurm.py",
    "end_to_end/test_slurm_queue.py",
    "faults/test_crashes.py",
    "mapping/test_ray.py",
}
"""Whole clusters are started and killed there: minutes, and moments that a busy machine stretches."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the long ones to `make test-all`."""
    if full(1, 0):
        return
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.path.relative_to(here).as_posix() in LONG:
            item.add_marker(pytest.mark.skip(reason="starts whole clusters: make test-all"))


@pytest.fixture(autouse=True, scope="session")
def _claims_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests claim cores among themselves: others on this machine are not in their way, nor they in theirs."""
    folder = tmp_path_factory.mktemp("claims")
    before = os.environ.get("DOVETAIL_CLAIMS")
    os.environ["DOVETAIL_CLAIMS"] = str(folder)
    yield folder
    if before is None:
        del os.environ["DOVETAIL_CLAIMS"]
    else:
        os.environ["DOVETAIL_CLAIMS"] = before
