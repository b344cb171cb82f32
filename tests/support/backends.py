"""Programs that speak to Slurm, unmodified, in a venv of their own (`make backends`), over the shims."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from slurm_shims import Shims

VENV = Path(os.environ.get("DOVETAIL_BACKENDS", Path(__file__).parents[2] / "build" / "backends"))
PROGRAMS = Path(__file__).parents[1] / "backends" / "programs"


class Backends:
    """The venv of these programs, with the commands of a service before all others in PATH."""

    def __init__(self, slurm: Shims) -> None:
        self.slurm = slurm
        path = f"{slurm.folder}:{VENV / 'bin'}:{os.environ['PATH']}"
        self.environment = {**slurm.environment, "PATH": path, "PYTHONPATH": str(PROGRAMS)}

    def command(self, *words: str | Path) -> list[str]:
        """A program of the venv, with its words."""
        return [str(VENV / "bin" / str(words[0])), *map(str, words[1:])]

    def run(
        self, *words: str | Path, cwd: Path, status: int = 0, timeout: float = 500
    ) -> subprocess.CompletedProcess[str]:
        """Run one to its end."""
        done = subprocess.run(
            self.command(*words), cwd=cwd, env=self.environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert done.returncode == status, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done
