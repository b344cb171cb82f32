"""Device servers that tests of this folder share; each worker of the test run has its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from device_servers import Served, serving


@pytest.fixture(scope="session")
def numpy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two devices of NumPy."""
    with serving(Path(tmp_path_factory.mktemp("numpy")), "numpy", "numpy") as served:
        yield served
