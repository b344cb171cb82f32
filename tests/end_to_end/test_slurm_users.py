"""Two services of two users before one Slurm: limits that slurmdbd keeps, and what each may do to the other.

Neither user is Slurm's own, which may do everything: both are accounts that every Debian has.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm, needs_slurmdbd
from waiting import until

from dovetail.testing.builders import full

ONE, TWO = "daemon", "games"
MINOR = f"python{sys.version_info.major}.{sys.version_info.minor}"
PYTHON = shutil.which(MINOR, path="/usr/bin:/usr/local/bin")
"""One that other users can run: the one of the tests may lie in the home of the account that runs them."""
QUEUE = "slurm-queue?poll=0.3"
ACCOUNTS = (
    "add cluster onehost",
    "add account lab cluster=onehost",
    "add account guests cluster=onehost",
    "add qos single set MaxJobsPerUser=1",
    "add qos narrow set MaxTRESPerUser=cpu=2",
    "add qos small set MaxTRESPerJob=cpu=1",
    "add qos short set MaxWallDurationPerJob=2",
    "add qos least set MinTRESPerJob=cpu=3",
    f"add user {ONE} account=lab",
    f"add user {TWO} account=guests",
    f"modify user {ONE} set qos=normal,single,narrow,small,short,least DefaultQOS=normal",
    "add user USER account=lab",
)
PREEMPTING = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}

pytestmark = [
    *(needs_slurm, needs_slurmdbd, pytest.mark.live, pytest.mark.xdist_group("live")),
    pytest.mark.skipif(not full(1, 0), reason="starts slurmdbd and two services: DOVETAIL_TEST_FULL=1"),
    pytest.mark.skipif(os.getuid() != 0 or PYTHON is None, reason="only root can be two users"),
]


class Person:
    """A user with a home, and a service of their own in it."""

    def __init__(self, name: str, home: Path, slurm: SlurmCluster) -> None:
        home.mkdir()
        entry = pwd.getpwnam(name)
        os.chown(home, entry.pw_uid, entry.pw_gid)
        self.name, self.home = name, home
        self.user = ("setpriv", f"--reuid={name}", f"--regid={entry.pw_gid}", "--init-groups")
        kept = {word: slurm.environment[word] for word in ("SLURM_CONF", "MUNGE_SOCKET")}
        self.environment = {
            **kept,
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "HOME": str(home),
            "USER": name,
            "LOGNAME": name,
            "XDG_STATE_HOME": str(home / "state"),
            "DOVETAIL_SERVICE": str(home / "service"),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def call(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A program of this user's, in their home."""
        return subprocess.run(
            [*self.user, *argv], cwd=self.home, env=self.environment, text=True, capture_output=True,
            timeout=280, check=False,
        )  # fmt: skip

    def dovetail(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call(str(PYTHON), "-m", "dovetail", *words)

    def serve(self, options: str = "") -> None:
        """Start the service (again)."""
        with open(self.home.parent / f"{self.name}.log", "ab") as log:
            words = [str(PYTHON), "-m", "dovetail", "serve", "--executor", QUEUE + options]
            self.process = subprocess.Popen(
                [*self.user, *words], cwd=self.home, env=self.environment, stdout=log, stderr=log
            )
        until(lambda: self.dovetail("queue").returncode == 0, "the service does not answer", 100)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def submit(self, *words: str) -> str:
        done = self.dovetail("submit", "--parsable", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, name: str, text: str) -> str:
        (self.home / name).write_text(text)
        return name

    def info(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.dovetail("info", job, "--json").stdout)
        return found

    def states(self, jobs: list[str]) -> Counter[str]:
        return Counter(self.info(job)["state"] for job in jobs)


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """``hi`` preempts what runs in everybody's partition; ``labs`` and ``daemons`` are not for all."""
    with SlurmCluster((NodeShape(2, cpus=4, gpus=0, partition="low"),), PREEMPTING, ACCOUNTS) as cluster:
        cluster.folder.chmod(0o755)
        cluster.call("scontrol", "create", "PartitionName=hi", "Nodes=ALL", "PriorityTier=10")
        cluster.call("scontrol", "create", "PartitionName=labs", "Nodes=ALL", "AllowAccounts=lab")
        cluster.call("scontrol", "create", "PartitionName=daemons", "Nodes=ALL", f"AllowGroups={ONE}")
        cluster.call("scontrol", "create", "PartitionName=singles", "Nodes=ALL", "AllowQos=single")
        yield cluster


@pytest.fixture(scope="module")
def people(slurm: SlurmCluster) -> Iterator[tuple[Person, Person]]:
    # Not in pytest's own folder, which every pytest that begins closes to other users.
    homes = Path(tempfile.mkdtemp(prefix="homes-", dir=slurm.folder))
    homes.chmod(0o755)
    both = Person(ONE, homes / ONE, slurm), Person(TWO, homes / TWO, slurm)
    try:
        for one in both:
            one.serve()
        yield both
    finally:
        for one in both:
            if one.process is not None:
                one.dovetail("cancel", "all")
                one.process.terminate()
                one.process.wait(100)


def test_neither_disturbs_the_other(slurm: SlurmCluster, people: tuple[Person, Person]) -> None:
    """Jobs of the same number and name: each service shows, cancels and takes up those of its own user."""
    jobs = [one.submit("--name", "same", "--", "sleep", "3000") for one in people]
    assert jobs == ["1", "1"]
    until(lambda: slurm.call("squeue", "-h", "-t", "R", "-n", "same").count("\n") == 2, "both run")
    owners = slurm.call("squeue", "-h", "-n", "same", "-o", "%u %a").splitlines()
    assert sorted(owners) == [f"{ONE} lab", f"{TWO} guests"]
    first, second = people
    second.kill()
    second.serve()
    assert first.dovetail("cancel", jobs[0]).returncode == 0
    until(lambda: first.info(jobs[0])["state"] == "CANCELLED", "it is cancelled")
    until(lambda: second.info(jobs[1])["state"] == "RUNNING", "the other one runs on")
    assert slurm.call("squeue", "-h", "-n", "same", "-o", "%u %T").splitlines() == [f"{TWO} RUNNING"]
    assert "same" not in first.dovetail("queue").stdout
    assert second.dovetail("cancel", jobs[1]).returncode == 0


def test_a_full_cluster_is_waited_for_and_nobody_is_preempted(
    slurm: SlurmCluster, people: tuple[Person, Person]
) -> None:
    """One user's jobs fill all nodes: the other's, of both sorts, wait though ``hi`` would start them."""
    first, second = people
    until_gone = "until [ -e go ]; do sleep 0.2; done"
    script = first.write("full.sh", f"#!/bin/sh\n#SBATCH -N2 --exclusive\n{until_gone}\n")
    theirs = first.submit(script)
    until(lambda: first.info(theirs)["state"] == "RUNNING", "it runs")
    ours = [second.submit("--", "true"), second.submit(second.write("job.sh", "#!/bin/sh\ntrue\n"))]
    named = second.submit(second.write("hi.sh", "#!/bin/sh\n#SBATCH -p hi\ntrue\n"))
    second.dovetail("wait", named)
    assert "its tier 10 preempts running jobs of low" in second.info(named)["detail"]
    assert second.states(ours) == {"PENDING": 2}
    first.write("go", "")
    assert second.dovetail("wait", ",".join(ours)).returncode == 0
    found = first.info(theirs)
    assert (found["state"], found["attempts"]) == ("COMPLETED", 1)
    assert "Restarts=1" not in slurm.call("scontrol", "show", "jobs")
    assert all(second.info(job)["start"] >= found["end"] - 1 for job in ours)


@pytest.mark.parametrize(
    ("partition", "word"),
    [
        ("labs", "(AllowAccounts)"),
        (
            "daemons",
            "it names partition daemons, and this guest may use low",
        ),  # Slurm does not show it to others
        ("singles", "(AllowQos)"),
    ],
)
def test_what_is_open_to_one_is_closed_to_the_other(
    people: tuple[Person, Person], partition: str, word: str
) -> None:
    first, second = people
    qos = "--qos=single" if partition == "singles" else "--qos=normal"
    body = f"#!/bin/sh\n#SBATCH -p {partition} {qos}\necho $SLURM_JOB_PARTITION\n"
    job = first.submit(first.write("there.sh", body))
    assert first.dovetail("wait", job).returncode == 0, first.info(job)
    assert first.dovetail("logs", job).stdout == f"{partition}\n"
    job = second.submit(second.write("there.sh", body))
    second.dovetail("wait", job)
    found = second.info(job)
    assert found["state"] == "FAILED"
    assert word in found["detail"]


SPAN = 'echo + >> "$HOME/{0}"; until [ -e "$HOME/go-{0}" ]; do sleep 0.2; done; echo - >> "$HOME/{0}"'


@pytest.mark.parametrize(
    ("qos", "most", "reason"),
    [("single", 1, "QOSMaxJobsPerUserLimit"), ("narrow", 2, "QOSMaxCpuPerUserLimit")],
)
def test_what_a_qos_lets_run_at_once_runs_and_the_others_wait(
    people: tuple[Person, Person], qos: str, most: int, reason: str
) -> None:
    """The witness is what the jobs wrote: in the order of their beginnings and ends no more run than may."""
    first, _ = people
    span = SPAN.format(qos)
    script = first.write("span.sh", f"#!/bin/sh\n#SBATCH --qos={qos} -c1\n{span}\n")
    jobs = [first.submit(script) for _ in range(3)]
    jobs += [first.submit(f"--slurm=--qos={qos}", "-c", "1", "--", "sh", "-c", span) for _ in range(3)]
    until(lambda: reason in first.dovetail("queue", "--json").stdout, "the limit is not in the queue", 200)
    first.write(f"go-{qos}", "")
    assert first.dovetail("wait", ",".join(jobs)).returncode == 0
    running, largest = 0, 0
    lines = (first.home / qos).read_text().split()
    for line in lines:
        running += 1 if line == "+" else -1
        largest = max(largest, running)
    assert (len(lines), running, largest) == (12, 0, most)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("--qos=small -c2", "QOSMaxCpuPerJobLimit"),
        ("--qos=short -t 5", "QOSMaxWallDurationPerJobLimit"),
        ("--qos=least -c2", "QOSMinCpuNotSatisfied"),
        ("--qos=narrow -c3", "QOSMaxCpuPerUserLimit"),
    ],
)
def test_what_a_limit_never_lets_start_ends_in_a_sentence(
    slurm: SlurmCluster, people: tuple[Person, Person], options: str, reason: str
) -> None:
    """Slurm takes such a job and would keep it for ever; others of the same user go on."""
    first, _ = people
    job = first.submit(first.write("never.sh", f"#!/bin/sh\n#SBATCH {options}\ntrue\n"))
    command = first.submit(*(f"--slurm={one}" for one in options.split()), "--", "true")
    other = first.submit("--", "true")
    assert first.dovetail("wait", "--timeout", "200s", f"{job},{command}").returncode == 1
    for one in (job, command):
        found = first.info(one)
        assert found["state"] == "FAILED", found
        assert reason in found["detail"]
    assert first.dovetail("wait", other).returncode == 0
    until(lambda: not slurm.call("squeue", "-h").strip(), "it is left in Slurm's queue")
