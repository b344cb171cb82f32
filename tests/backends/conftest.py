"""One service for all programs that speak to Slurm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from services import serving
from slurm_shims import Shims

from backends import VENV, Backends


@pytest.fixture(scope="session")
def backends(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backends]:
    if not (VENV / "bin" / "snakemake").exists():
        pytest.skip(f"{VENV} is not there: make backends")
    with serving(tmp_path_factory.mktemp("backends"), "--cluster", "1x2cpu") as service:
        yield Backends(Shims(service, service.root / "shims"))
