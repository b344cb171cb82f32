"""MPICH for the tests that run gangs: mpi4py's wheel looks for it under another name than Debian's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

__all__ = ["EXECUTOR", "mpi_environment"]

MPICH = Path("/usr/lib/x86_64-linux-gnu/libmpich.so.12")
EXECUTOR = "slurm?poll=0.5&mpi=pmi2"


def mpi_environment(folder: Path) -> dict[str, str]:
    """Where mpi4py finds MPICH: a link in ``folder``; skips the test where one of them is missing."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install 'dovetail-scheduler[mpi]'")
    if not MPICH.exists():
        pytest.skip("MPICH is not installed here (apt-get install mpich)")
    folder.mkdir()
    (folder / "libmpi.so.12").symlink_to(MPICH)
    return {"LD_LIBRARY_PATH": f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
