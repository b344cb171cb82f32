"""Guest of a real Slurm queue that takes few jobs: limits of a user, a QOS, arrays, the whole queue."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm, needs_slurmdbd
from waiting import until

from dovetail.executors.slurm_batch import times_used
from dovetail.testing.builders import full

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

QUEUE = "slurm-queue?poll=0.3"
ACCOUNTS = (
    "add cluster onehost",
    "add account lab cluster=onehost",
    "add account open cluster=onehost",
    "add user USER account=lab",
    "add user USER account=open",
    "modify user USER where account=lab set MaxSubmitJobs=3",
    "add qos small set MaxSubmitJobsPerUser=2",
    "modify user USER set qos+=small",
)


@pytest.fixture(scope="module")
def accounted() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(2, cpus=4, gpus=0),), {"MaxArraySize": "5"}, ACCOUNTS) as cluster:
        yield cluster


def run(cluster: SlurmCluster, folder: Path, environment: dict[str, str], *arguments: str) -> Any:
    """``dovetail run ARGUMENTS --json`` in this cluster."""
    return subprocess.run(
        [*DOVETAIL, "run", *arguments, "--json", "--executor", QUEUE],
        cwd=folder,
        env={**environment, **cluster.environment, "XDG_STATE_HOME": environment["XDG_STATE_HOME"]},
        text=True,
        capture_output=True,
        timeout=200,
        check=False,
    )


def write(folder: Path, count: int) -> None:
    """So many jobs, each of which says that it ran."""
    words = json.dumps(["sh", "-c", "echo $DOVETAIL_JOB >> said.txt; sleep 0.2"])
    app = f'[[app]]\nname = "a"\n[[app.implementation]]\nname = "cpu"\ncpus = 1\ncommand = {words}\n'
    (folder / "jobs.toml").write_text(f'{app}[[job]]\napp = "a"\ncount = {count}\n')


@needs_slurmdbd
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--account=lab",), id="AssocMaxSubmitJobLimit"),
        pytest.param(("--account=open", "--qos=small"), id="QOSMaxSubmitJobPerUserLimit"),
        pytest.param(("--account=open",), id="MaxArraySize"),
    ],
)
def test_a_limit_keeps_jobs_back_and_fails_none(
    accounted: SlurmCluster, tmp_path: Path, environment: dict[str, str], options: tuple[str, ...]
) -> None:
    """The witness is what the jobs wrote, and Slurm's own accounting: none was refused, none ran twice."""
    write(tmp_path, 12)
    done = run(accounted, tmp_path, environment, "jobs.toml", *(f"--slurm={one}" for one in options))
    assert done.returncode == 0, done.stderr
    assert Counter(row["state"] for row in load(done)["jobs"]) == {"COMPLETED": 12}
    assert len(set((tmp_path / "said.txt").read_text().split())) == 12
    assert len((tmp_path / "said.txt").read_text().split()) == 12


@needs_slurmdbd
@pytest.mark.skipif(not full(1, 0), reason="waits for the accounting: DOVETAIL_TEST_FULL=1")
def test_what_jobs_use_of_their_walltimes_is_read_from_the_accounting(
    accounted: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in accounted.environment.items():
        monkeypatch.setenv(name, value)
    accounted.call("sbatch", "-W", "-A", "open", "-t", "1", "-o", "/dev/null", "--wrap", "sleep 3")
    until(lambda: ("all", False) in times_used(), "it is known", 20)
    found = times_used()["all", False]
    assert found.jobs == 1
    assert 0.04 < found.share < 0.2


@pytest.mark.skipif(not full(1, 0), reason="Slurm forgets jobs every minute: DOVETAIL_TEST_FULL=1")
def test_a_full_queue_is_waited_for(tmp_path: Path, environment: dict[str, str]) -> None:
    with SlurmCluster((NodeShape(1, cpus=4, gpus=0),), {"MaxJobCount": "9", "MinJobAge": "2"}) as cluster:
        write(tmp_path, 16)
        done = run(cluster, tmp_path, environment, "jobs.toml")
    assert done.returncode == 0, done.stderr
    assert Counter(row["state"] for row in load(done)["jobs"]) == {"COMPLETED": 16}


@needs_slurmdbd
@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--partition=gpuX", "found --partition=gpuX, expected one of: all"),
        ("--constraint=nosuch", "Invalid feature specification"),
        ("--qos=nosuch", "Invalid qos specification"),
    ],
)
def test_a_typo_is_refused_before_anything_runs(
    accounted: SlurmCluster, tmp_path: Path, environment: dict[str, str], option: str, sentence: str
) -> None:
    write(tmp_path, 2)
    done = run(accounted, tmp_path, environment, "jobs.toml", f"--slurm={option}")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "said.txt").exists()
    assert not list(Path(environment["XDG_STATE_HOME"]).glob("dovetail/runs/*/ledger.db"))
