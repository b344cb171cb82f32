"""Guest of a real Slurm queue that takes few jobs: limits of a user, a QOS, arrays, the whole queue."""

from __future__ import annotations

import getpass
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load, run_command
from services import serving
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm, needs_slurmdbd
from waiting import until

from dovetail.testing.builders import full
from dovetail_slurm.batch import times_used

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
    inside = {**environment, **cluster.environment, "XDG_STATE_HOME": environment["XDG_STATE_HOME"]}
    return run_command(["run", *arguments, "--json", "--executor", QUEUE], folder, inside)


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
@pytest.mark.skipif(not full(1, 0), reason="starts a service: DOVETAIL_TEST_FULL=1")
def test_what_a_limit_keeps_back_is_told_in_the_queue(accounted: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("sleep 300\n" * 5)
    inside = {**accounted.environment, "XDG_STATE_HOME": str(tmp_path / "state")}
    with serving(tmp_path, "--executor", QUEUE, **inside) as service:
        assert service.dovetail("submit", "--slurm=--account=lab", "jobs.txt").returncode == 0

        def told() -> Counter[str]:
            return Counter(row["reason"] for row in load(service.dovetail("queue", "--json")))

        until(lambda: sum("AssocMaxSubmitJobLimit" in why for why in told().elements()) == 2, "it is told")
        assert "AssocMaxSubmitJobLimit" in service.dovetail("explain", "5").stdout


@needs_slurmdbd
@pytest.mark.skipif(not full(1, 0), reason="waits for the accounting: DOVETAIL_TEST_FULL=1")
def test_what_jobs_use_of_their_walltimes_is_read_from_the_accounting(
    accounted: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job without a limit does not count."""
    for name, value in accounted.environment.items():
        monkeypatch.setenv(name, value)
    sbatch = ("sbatch", "--parsable", "-W", "-A", "open", "-o", "/dev/null")
    endless = accounted.call(*sbatch, "--wrap", "sleep 2").strip()
    job = accounted.call(*sbatch, "-t", "1", "--wrap", "sleep 3").strip()
    until(lambda: ("all", False) in times_used(), "it is known", 20)
    found = times_used()["all", False]
    assert found.jobs == 1
    ran = accounted.call("sacct", "-nXP", "-j", job, "-o", "ElapsedRaw,TimelimitRaw").strip().split("|")
    assert (int(ran[0]) >= 2, ran[1]) == (True, "1")
    assert found.share == min(1.0, int(ran[0]) / 60)
    # Slurm's backfill notes it as a year, its other scheduler as none: whichever starts the job.
    limits = accounted.call("sacct", "-nXP", "-j", endless, "-o", "TimelimitRaw,State")
    assert limits in ("525600|COMPLETED\n", "UNLIMITED|COMPLETED\n")


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


def test_what_slurm_does_to_a_job_is_told_as_what_it_is(tmp_path: Path, environment: dict[str, str]) -> None:
    """One preempted, one on a node that goes down, one on a node that is drained, one that eats too much."""
    settings = {
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "JobAcctGatherParams": "OverMemoryKill",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "CANCEL",
    }
    go = tmp_path / "go"
    waits = f"until [ -e {go} ]; do sleep 0.1; done"
    nap = json.dumps(["sh", "-c", waits])
    eats = f"{waits}; exec python3 -c 'x = bytearray(400_000_000); import time; time.sleep(60)'"
    text = f'[[app]]\nname = "nap"\n[[app.implementation]]\nname = "cpu"\ncpus = 4\ncommand = {nap}\n'
    text += '[[app]]\nname = "eats"\n[[app.implementation]]\nname = "cpu"\ncpus = 1\nmemory = 1e8\n'
    text += f"command = {json.dumps(['sh', '-c', eats])}\n"
    text += '[[job]]\nid = "big"\napp = "eats"\nretry_memory = "no"\n'
    for name in ("preempted", "downed", "drained"):
        text += f'[[job]]\nid = "{name}"\napp = "nap"\nretries = {int(name == "downed")}\n'
    (tmp_path / "jobs.toml").write_text(text)
    with SlurmCluster((NodeShape(4, cpus=4, gpus=0),), settings) as cluster:
        cluster.call("scontrol", "create", "PartitionName=first", "Nodes=ALL", "PriorityTier=9")
        process = subprocess.Popen(
            [*DOVETAIL, "run", "jobs.toml", "--json", "--quiet", "--executor", f"{QUEUE}&partitions=all"],
            cwd=tmp_path,
            env={**environment, **cluster.environment, "XDG_STATE_HOME": environment["XDG_STATE_HOME"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: cluster.call("squeue", "-h", "-t", "R").count("\n") == 4, "all run")
        places = cluster.call("squeue", "-h", "-r", "-t", "R", "-o", "%C %N").splitlines()
        nodes = sorted(line.split()[1] for line in places if line.startswith("4 "))
        cluster.call("scontrol", "update", f"NodeName={nodes[2]}", "State=DRAIN", "Reason=test")
        cluster.call("scontrol", "update", f"NodeName={nodes[1]}", "State=DOWN", "Reason=test")
        limits = ("-p", "first", "-w", nodes[0], "-c4", "-t", "1", "-o", "/dev/null")
        cluster.call("sbatch", *limits, "--wrap", "true")
        until(lambda: "PREEMPTED" in cluster.call("scontrol", "show", "jobs"), "one is preempted")
        until(lambda: "Restarts=1" in cluster.call("scontrol", "show", "jobs"), "one is put back")
        (back,) = cluster.call("squeue", "-h", "-r", "-t", "PD", "-o", "%i").split()
        cluster.start_again(back)
        go.touch()
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    rows = {row["id"]: row for row in json.loads(out)["jobs"]}
    assert {id: row["state"] for id, row in rows.items()} == {
        "big": "OUT_OF_MEMORY",
        "preempted": "NODE_FAIL",
        "downed": "COMPLETED",
        "drained": "COMPLETED",
    }
    assert "Slurm: PREEMPTED" in rows["preempted"]["detail"]
    assert "emory limit" in rows["big"]["detail"]


@needs_slurmdbd
def test_partitions_of_other_accounts_and_qos_are_left_out_with_the_reason(
    accounted: SlurmCluster, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Slurm takes such a job, and would keep it for ever: AccountNotAllowed, QOSNotAllowed."""
    write(tmp_path, 1)
    for name, limit, word in (
        ("theirs", "AllowAccounts=others", "AllowAccounts"),
        ("gold", "AllowQos=small", "AllowQos"),
    ):
        accounted.call("scontrol", "create", f"PartitionName={name}", "Nodes=ALL", limit)
        where = f"{QUEUE}&partitions={name}"
        inside = {**environment, **accounted.environment, "XDG_STATE_HOME": environment["XDG_STATE_HOME"]}
        done = run_command(["run", "jobs.toml", "--executor", where], tmp_path, inside)
        assert done.returncode == 2
        assert f"({word})" in done.stderr
    fine = f"{QUEUE}&partitions=gold&sbatch=--qos=small --account=open"
    assert run_command(["run", "jobs.toml", "--executor", fine], tmp_path, inside).returncode == 0
    accounted.call("scontrol", "delete", "PartitionName=theirs")
    accounted.call("scontrol", "delete", "PartitionName=gold")


# ----------------------------------------------------------------------------- a QOS that preempts others

RANKS = (
    "add cluster onehost",
    "add account lab cluster=onehost",
    "add qos low",
    "add qos hi set Preempt=low",
    "add user USER account=lab",
    "modify user USER set qos=hi,low DefaultQOS=hi",
)


@needs_slurmdbd
def test_a_usual_qos_that_preempts_is_used_by_jobs_alone_that_name_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Nodes are full of jobs of QOS ``low``; ours, whose usual QOS ``hi`` would preempt them, wait."""
    settings = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE"}
    (tmp_path / "jobs.txt").write_text("true\n")
    with SlurmCluster((NodeShape(1, cpus=2, gpus=0),), settings, RANKS) as cluster:
        full_node = ["-N1", "--exclusive", "--qos=low", "--requeue", "-o/dev/null", "--wrap", "sleep 4"]
        theirs = cluster.call("sbatch", "--parsable", *full_node).strip()
        until(lambda: "R" in cluster.call("squeue", "-h", "-j", theirs, "-o", "%t"), "it does not run")
        done = run(cluster, tmp_path, environment, "jobs.txt")
        assert done.returncode == 0, done.stderr
        shown = cluster.call("scontrol", "show", "job", theirs)
        assert "JobState=COMPLETED" in shown
        assert "Restarts=0" in shown
        theirs = cluster.call("sbatch", "--parsable", *full_node[:-1], "sleep 300").strip()
        until(lambda: "R" in cluster.call("squeue", "-h", "-j", theirs, "-o", "%t"), "it does not run")
        named = run(cluster, tmp_path, environment, "jobs.txt", "--slurm=--qos=hi")
        assert named.returncode == 0, named.stderr
        assert "Restarts=1" in cluster.call("scontrol", "show", "job", theirs)
        cluster.call("scancel", theirs)
        cluster.call("sacctmgr", "-i", "modify", "user", getpass.getuser(), "set", "qos=hi", "DefaultQOS=hi")
        refused = run(cluster, tmp_path, environment, "jobs.txt")
        assert refused.returncode == 2
        assert "its QOS hi preempts running jobs of QOS low" in refused.stderr
