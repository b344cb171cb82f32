"""Slurm's commands over a service of ours, in a folder of their own, and what tests ask of them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from services import Serving

COMMANDS = ("sbatch", "srun", "scancel", "squeue", "sacct", "scontrol", "sinfo", "sacctmgr", "sshare")


class Shims:
    """The commands of a service; ``environment`` is that of a program which finds them first."""

    def __init__(self, service: Serving, folder: Path) -> None:
        self.service, self.folder = service, folder
        made = service.dovetail("slurm-shims", "--dir", str(folder))
        assert made.returncode == 0, made.stderr
        clean = {
            name: value
            for name, value in service.environment.items()
            if not name.startswith(("SLURM", "SBATCH", "SQUEUE", "SACCT", "SINFO"))
        }
        self.environment = {**clean, "PATH": f"{folder}:{os.environ['PATH']}"}

    def run(
        self,
        *argv: str,
        cwd: Path | None = None,
        stdin: str = "",
        env: Mapping[str, str] | None = None,
        timeout: float = 200,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of the commands."""
        return subprocess.run(
            argv,
            cwd=cwd or self.service.root,
            env={**self.environment, **(env or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def out(self, *argv: str, cwd: Path | None = None, stdin: str = "") -> str:
        """Its standard output, where it succeeds."""
        done = self.run(*argv, cwd=cwd, stdin=stdin)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def submit(self, *argv: str, cwd: Path | None = None, stdin: str = "") -> str:
        """The number of a batch job."""
        return self.out("sbatch", "--parsable", *argv, cwd=cwd, stdin=stdin).strip()

    def state(self, job: str) -> str:
        """The state of a job or element, by sacct."""
        return self.out("sacct", "-X", "-n", "-P", "-o", "State", "-j", job).strip()

    def until_state(self, job: str, *states: str, seconds: float = 120) -> str:
        """Wait until all that sacct has of a job is in one of these states."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.state(job)
            if found and all(line.partition(" ")[0] in states for line in found.split("\n")):
                return found
            assert time.monotonic() < deadline, (job, found, states)
            time.sleep(0.05)

    def ended(self, job: str) -> str:
        """Wait for the end of a job; its states."""
        return self.until_state(
            job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"
        )
