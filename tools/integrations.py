"""Runs the tests of the adapters, and other projects' own tests over them, with this Python's environment.

    make integrations

Each suite is one run of pytest; its counts are printed, and the exit status is 1 where one has failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUITES = ROOT / "tests" / "integrations" / "suites"
LOKY = [
    *("--pyargs", "joblib.test.test_parallel", "-p", "joblib_backend", "-k", "loky"),
]
SUBMITIT = [
    *("--pyargs", "-p", "submitit_executor", "submitit.local.test_local", "submitit.auto.test_auto"),
    *("submitit.test_helpers", "submitit.core.test_core", "submitit.test_pickle"),
]
"""Of submitit's tests those that use an executor."""
RUNS: dict[str, list[str]] = {
    "hydra": ["--noconftest", str(SUITES / "hydra_launcher.py")],
    "snakemake": ["--noconftest", str(SUITES / "snakemake_executor.py")],
    "submitit": SUBMITIT,
    "joblib": LOKY,
}
"""Arguments of pytest, by the project whose tests they are."""


def main(chosen: list[str]) -> int:
    """Run these suites (none: all, and the adapters' own tests). The exit status."""
    status = 0
    environ = {**os.environ, "PYTHONPATH": str(SUITES)}
    for name, arguments in RUNS.items():
        if chosen and name not in chosen:
            continue
        began = time.monotonic()
        # An empty file of settings: those of this repository are not other projects' own.
        words = [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            os.devnull,
            "--confcutdir",
            str(SUITES),
            "--rootdir",
            str(SUITES),
            "-p",
            "no:cacheprovider",
        ]
        words += ["--import-mode=importlib", "-q", "-rs", "--timeout=300", *arguments]
        done = subprocess.run(words, cwd=SUITES, env=environ)
        print(f"{name}: status {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        status = status or int(done.returncode != 0)
    if not chosen or "own" in chosen:
        own = [
            sys.executable,
            "-m",
            "pytest",
            "-n0",
            "-p",
            "no:cacheprovider",
            str(ROOT / "tests" / "integrations"),
        ]
        status = status or subprocess.run(own, cwd=ROOT).returncode
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
