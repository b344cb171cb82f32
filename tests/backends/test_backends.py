"""submitit, Dask and Snakemake over a service: as their users use them, and submitit's own tests."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from waiting import until

from backends import PROGRAMS, Backends

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live"), pytest.mark.timeout(900)]

SNAKEMAKE = (
    "snakemake", "--executor", "slurm", "-j", "4", "--latency-wait", "10",
    "--slurm-init-seconds-before-status-checks", "1",
)  # fmt: skip


def test_submitit(backends: Backends, tmp_path: Path) -> None:
    done = backends.run("python", PROGRAMS / "submitit_jobs.py", tmp_path / "logs", cwd=tmp_path)
    assert done.stdout.endswith("all well\n")


def test_submitits_own_tests(backends: Backends, tmp_path: Path) -> None:
    """Those of its Slurm executor with its own stand-in, and those of its local executor on our commands."""
    words = ("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, "--pyargs")
    own = backends.run(*words, "submitit.slurm.test_slurm", cwd=tmp_path)
    assert " passed" in own.stdout
    ours = "map_array or submit_array or local_error or pickle_output or stdout"
    real = backends.run(
        *words, "submitit.local.test_local", "-p", "slurm_for_local", "-k", ours, cwd=tmp_path
    )
    assert "5 passed" in real.stdout, real.stdout


def test_dask(backends: Backends, tmp_path: Path) -> None:
    done = backends.run("python", PROGRAMS / "dask_cluster.py", tmp_path, cwd=tmp_path)
    assert done.stdout.endswith("all well\n")


@pytest.mark.parametrize("status", ["sacct", "squeue"])
def test_snakemake(backends: Backends, tmp_path: Path, status: str) -> None:
    shutil.copy(PROGRAMS / "Snakefile", tmp_path)
    more = ("--slurm-pass-command-as-script",) if status == "squeue" else ("--slurm-efficiency-report",)
    done = backends.run(*SNAKEMAKE, "--slurm-status-command", status, *more, cwd=tmp_path)
    assert "(100%) done" in done.stderr, done.stderr
    assert (tmp_path / "total.txt").read_text() == "0\n1\n2\n2\n"


def test_a_rule_that_fails(backends: Backends, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "Snakefile", tmp_path)
    done = backends.run(*SNAKEMAKE, "never.txt", cwd=tmp_path, status=1)
    assert "SLURM status is: 'FAILED'" in done.stderr, done.stderr


def test_a_workflow_that_is_interrupted(backends: Backends, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "Snakefile", tmp_path)
    process = subprocess.Popen(
        backends.command(*SNAKEMAKE, "late.txt"), cwd=tmp_path, env=backends.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until((tmp_path / "began.txt").exists, "the rule does not begin", 300)
        process.send_signal(signal.SIGINT)
        assert process.wait(300) != 0
    finally:
        process.kill()
    until(lambda: not backends.slurm.out("squeue", "-h", "-t", "R"), "its job runs on", 100)
