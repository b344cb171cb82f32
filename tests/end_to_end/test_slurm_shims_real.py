"""The shims beside the real Slurm: the same jobs, the same questions, the same columns and statuses."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from services import serving
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from slurm_shims import Shims

from dovetail.testing.builders import full

pytestmark = [
    needs_slurm,
    pytest.mark.live,
    pytest.mark.xdist_group("live"),
    pytest.mark.skipif(not full(1, 0), reason="starts a Slurm and a service: DOVETAIL_TEST_FULL=1"),
]

JOBS = {
    "good": ("--wrap", "true"),
    "bad": ("--wrap", "exit 3"),
    "kept": ("-H", "-t", "90", "--comment", "hello", "--wrap", "true"),
    "some": ("-H", "-a", "1-3,7%2", "--wrap", "true"),
    "later": ("-b", "now+2hours", "--wrap", "true"),
}
"""By their names: jobs of which both have one in the same state."""


class Both:
    """A real Slurm and a service, with the same jobs; their numbers by name."""

    def __init__(self, real: SlurmCluster, ours: Shims, folder: Path) -> None:
        self.real, self.ours, self.folder = real, ours, folder
        self.numbers: dict[str, tuple[str, str]] = {}
        for name, words in JOBS.items():
            argv = ["--parsable", "-J", name, "-o", "/dev/null", *words]
            self.numbers[name] = (
                self.run(0, "sbatch", *argv)[1].strip(),
                self.run(1, "sbatch", *argv)[1].strip(),
            )
        for side in (0, 1):
            deadline = time.monotonic() + 100
            while True:
                found = self.run(side, "squeue", "-h", "-t", "all", "-o", "%j %T")[1].split("\n")
                if {"good COMPLETED", "bad FAILED"} <= {*found}:
                    break
                assert time.monotonic() < deadline, found
                time.sleep(0.1)

    def run(self, side: int, *argv: str) -> tuple[int, str, str]:
        """Status, output and errors of a command: 0 for the real one, 1 for ours."""
        words = [re.sub(r"@(\w+)", lambda match: self.numbers[match[1]][side], word) for word in argv]
        environment = self.ours.environment if side else self.real.environment
        done = subprocess.run(
            words, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=100, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    root = tmp_path_factory.mktemp("both")
    with SlurmCluster([NodeShape(1, 2, 0)]) as real, serving(root, "--cluster", "1x2cpu") as service:
        yield Both(real, Shims(service, root / "shims"), root)


HEADERS = (
    "squeue", "squeue -l", "squeue --start", "sinfo", "sinfo -l", "sinfo -s", "sinfo -N", "sinfo -R",
    *(f"squeue -o %{letter}" for letter in "aABcCdDeEfFgGhHiIjJkKlLmMnNoOpPqQrRSTtuUvVwWxXyYzZb"),
    *(f"sinfo -o %{letter}" for letter in "PRalDtTNncCmeOGfbFAzXYZdwEuHrhgpMvV"),
    *(
        f"squeue -O {name}"
        for name in (
            "jobid,jobarrayid,arrayjobid,arraytaskid", "name:8,username:.8,state:10|,statecompact",
            "account,batchhost,comment,command,cluster", "dependency,endtime,starttime,submittime",
            "timelimit,timeleft,timeused,reason,reasonlist", "numcpus,numnodes,mincpus,minmemory,nodelist",
            "partition,priority,prioritylong,qos,workdir", "groupname,groupid,userid,nice,wckey",
            "tres-per-node,numtasks,requeue,restartcnt", "stdout,stderr,exit_code,oversubscribe,feature",
        )
    ),
)  # fmt: skip


@pytest.mark.parametrize("words", HEADERS)
def test_headers_are_slurms(both: Both, words: str) -> None:
    (status, real, _), (ours_status, ours, _) = (both.run(side, *words.split()) for side in (0, 1))
    line = 1 if " -l" in words else 0  # below the date
    assert (ours_status, ours.split("\n")[line].rstrip()) == (status, real.split("\n")[line].rstrip())


VALUES = (
    "squeue -h -j @kept -o %j|%t|%T|%l|%L|%M|%D|%C|%r|%R|%K|%k|%y|%O|%h",
    "squeue -h -j @some -o %t|%T|%K|%r|%D|%l",
    "squeue -h -r -j @some -o %t|%T|%K|%r",
    "squeue -h -j @later -o %t|%r|%R|%M",
    "squeue -h -t all -j @bad -o %t|%T|%r|%R",
    "squeue -h -t all -j @good -o %t|%T|%r",
    "squeue -h -t all -j @bad,@good,@kept -n bad,kept -o %j|%T",
    "squeue -h -t PD -n kept,some -o %j|%T",
    "squeue -h -j @kept -o [%5t][%.5t][%.1T][%3j]",
    "squeue -h -j @kept -O name:6,state:.9|,timelimit",
    "squeue -h -u nobody-there-is -o %i",
    "scontrol show hostnames n[08-10],m1",
    "scontrol show hostlist n08,n09,n10",
)


@pytest.mark.parametrize("words", VALUES)
def test_values_are_slurms(both: Both, words: str) -> None:
    (status, real, _), (ours_status, ours, _) = (both.run(side, *words.split()) for side in (0, 1))
    if "nobody" in words:  # Slurm names the user that it does not know
        assert ours == real == ""
        return
    # Of equal jobs Slurm's order follows its priorities, which have another scale.
    assert (ours_status, sorted(ours.split("\n"))) == (status, sorted(real.split("\n")))


FIELDS = (
    "JobName", "JobState", "Reason", "Dependency", "Requeue", "Restarts", "BatchFlag", "ExitCode",
    "TimeLimit",
    "NumNodes", "NumTasks", "CPUs/Task", "WorkDir", "Comment", "StdOut", "StdIn", "Nice", "ArrayTaskId",
    "ArrayTaskThrottle", "Features", "Contiguous",
)  # fmt: skip


@pytest.mark.parametrize("name", ["bad", "kept", "some", "later"])
def test_a_job_in_full_has_slurms_fields(both: Both, name: str) -> None:
    found = []
    for side in (0, 1):
        _, text, _ = both.run(side, "scontrol", "-o", "show", "job", f"@{name}")
        fields = dict(re.findall(r"(\S+?)=(.*?)(?=\s+[\w/:.]+=|\s*$)", text.split("\n")[0]))
        found.append({key: fields.get(key, "").strip() for key in FIELDS})
    # A job without a limit that Slurm's backfill starts has a year, one that its other scheduler starts none.
    if found[0]["TimeLimit"] == "365-00:00:00":
        found[0]["TimeLimit"] = "UNLIMITED"
    assert found[1] == found[0]


STATUSES = (
    "squeue --nosuch", "squeue -Z", "squeue -t nosuch", "squeue -j 99999", "squeue -j abc", "squeue -o %!",
    "sinfo --nosuch", "sinfo -p nosuch", "scancel", "scancel abc", "scancel 99999", "scancel -s NOSUCH 1",
    "scancel --nosuch 1", "scancel -t nosuch", "scancel -n nosuch", "scancel --quiet 99999", "scancel @good",
    "sbatch --nosuch", "sbatch --wrap", "sbatch -Y", "sbatch /nosuch", "sbatch --wrap true more",
    "sbatch -p nosuch --wrap true", "sbatch -t nosuch --wrap true",
    "sbatch -a 3-1 --wrap true", "sbatch --test-only --wrap true", "sbatch --test-only -N 9 --wrap true",
    "scontrol nosuch", "scontrol --nosuch show job", "scontrol show job 99999", "scontrol show job nosuch",
    "scontrol hold 99999", "scontrol release 99999", "scontrol requeue 99999",
    "scontrol update JobId=@kept Nosuch=3",
    "scontrol update JobId=@kept TimeLimit=60", "scontrol suspend @kept", "scontrol hold @kept",
    "sacct --nosuch", "sacct -Z", "sacctmgr --nosuch", "sshare --nosuch", "srun", "srun --nosuch true",
)  # fmt: skip
SAME_WORDS = re.compile(
    r"unrecognized option|invalid option|requires an argument|Invalid job state|Invalid job id"
)


@pytest.mark.parametrize("words", STATUSES)
def test_statuses_are_slurms(both: Both, words: str) -> None:
    if words == "sbatch -p nosuch --wrap true":
        pytest.skip("a service without partitions passes them over, and names it")
    (status, _, real), (ours_status, _, ours) = (both.run(side, *words.split()) for side in (0, 1))
    assert ours_status == status, (real, ours)
    assert bool(ours) == bool(real), (real, ours)
    if SAME_WORDS.search(real):
        assert ours.split("\n")[0] == real.split("\n")[0]


def test_steps_have_slurms_statuses(both: Both) -> None:
    for words, status in (
        (("srun", "-n2", "-l", "true"), 0),
        (("srun", "false"), 1),
        (("srun", "-n2", "sh", "-c", "exit $SLURM_PROCID"), 1),
        (("srun", "nosuchprogram"), 2),
        (("sbatch", "--wait", "-o", "/dev/null", "--wrap", "exit 7"), 7),
    ):
        assert [both.run(side, *words)[0] for side in (0, 1)] == [status, status], words
