"""What squeue and sacct have said, as recorded: of jobs killed for memory, of walltimes and their use."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dovetail.batch.system import JobFacts, Phase
from dovetail.model import Request, Shape, State
from dovetail.model.batch_options import script_options
from dovetail_slurm import batch as slurm_batch
from dovetail_slurm import commands as slurm_commands

SQUEUE = (
    "4711|OUT_OF_MEMORY|n3|2026-05-04T12:30:00|OutOfMemory|/home/a b/queue/0123456789ab.sh x|y\n"
    "4712|RUNNING|n4|1777890600|None|(null)\n4713|PENDING||N/A|BadConstraints|/home/queue/job.sh\n"
)
SACCT = "4711_3|OUT_OF_MEMORY|n3|1777890600\n4711_4|CANCELLED by 1000|None assigned|Unknown\n"
SHOWN = """JobId=6 ArrayJobId=3 ArrayTaskId=2 JobName=a b=c
   UserId=root(0) GroupId=root(0) MCS_label=N/A
   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=3:0
   RunTime=00:00:01 TimeLimit=UNLIMITED TimeMin=N/A
   StartTime=1777890600 EndTime=1777890601 Deadline=N/A
   Command=/tmp/a.sh --x=1 StdOut=/nowhere
   WorkDir=/tmp/a b
   StdErr=/tmp/a b/slurm-3_2.out
   StdIn=/dev/null
   StdOut=/tmp/a b/slurm-3_2.out
   Power=

JobId=3 ArrayJobId=3 ArrayTaskId=3-5%2 JobName=a
   JobState=PENDING Reason=None Dependency=(null)
   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0
   StartTime=Unknown EndTime=Unknown Deadline=N/A
"""


def test_a_kill_for_memory_is_a_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(argv: Sequence[str], **_: object) -> tuple[str, str]:
        return (SQUEUE if argv[0] == "squeue" else SACCT), ""

    monkeypatch.setattr(slurm_commands, "run_command", call)
    seen = slurm_batch.query_jobs()
    assert seen["4711"].end is State.OUT_OF_MEMORY
    assert [one.batch for one in seen.values()] == ["0123456789ab", "", ""]
    assert seen["4713"].is_hopeless
    assert [one.phase for one in seen.values()] == [Phase.ENDED, Phase.RUNNING, Phase.WAITING]
    again = slurm_batch.look_again(["4711_3", "4711_4"], accounting=True)
    assert [one.end for one in again.values()] == [State.OUT_OF_MEMORY, State.CANCELLED]


def test_what_jobs_use_of_their_walltimes_is_told_by_partition_and_kind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = (
        "cpu|COMPLETED|30|1|billing=1,cpu=1\n"
        "cpu|FAILED|6|1|billing=1,cpu=1\n"
        "cpu|RUNNING|50|1|billing=1,cpu=1\n"
        "cpu|COMPLETED|50|UNLIMITED|billing=1,cpu=1\n"
        "gpu|TIMEOUT|66|1|cpu=1,gres/gpu=1\n"
        "gpu|CANCELLED by 7|0|1|\n"
    )
    monkeypatch.setattr(slurm_commands, "run_command", lambda argv, **_: (said, ""))
    found = slurm_batch.times_used()
    assert found.keys() == {("cpu", False), ("gpu", True)}
    assert (found["cpu", False].share, found["cpu", False].jobs) == (0.3, 2)
    assert found["gpu", True] == (1.0, 0.0, 1)


def test_a_job_at_length_has_its_files_and_each_task_of_an_array(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slurm_batch, "run_command", lambda argv, **_: (SHOWN, ""))
    found = slurm_batch.facts_of("3", accounting=False)
    path = "/tmp/a b/slurm-3_2.out"
    assert found["3_2"] == JobFacts("FAILED", 3, 1777890600.0, 1777890601.0, path, path, 2)
    assert found["3_3-5%2"].start is None


def test_what_slurm_has_forgotten_the_accounting_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(argv: Sequence[str], **_: object) -> tuple[str, str]:
        raise slurm_commands.SlurmError("Invalid job id specified")

    said = "7|FAILED|0:9|1777890600|1777890601\n"
    monkeypatch.setattr(slurm_batch, "run_command", gone)
    monkeypatch.setattr(slurm_commands, "run_command", lambda argv, **_: (said, ""))
    assert slurm_batch.facts_of("7", accounting=True)["7"].exit_code == -9
    with pytest.raises(slurm_commands.SlurmError):
        slurm_batch.facts_of("7", accounting=False)


def test_a_users_word_on_partitions_is_not_the_last() -> None:
    """``-p low,hi`` of a job that is only to go to ``low``."""
    shape = Shape("low", Request(cpus=1), None, ("-phi,low", "--qos=a"))
    assert slurm_batch.job_options(shape, ())[-3:] == ["-phi,low", "--qos=a", "--partition=low"]
    script = Shape("low", Request(cpus=1), 60.0, script_options(["-phi"], ["--array=0-3%2", "--nodes=2"]))
    assert slurm_batch.job_options(script, ()) == ["--nodes=2", "--partition=low"]


def test_a_submitters_variables_do_not_say_which_cluster_it_is() -> None:
    theirs = {"SLURM_CONF": "/theirs", "SLURM_CLUSTERS": "x", "SBATCH_ACCOUNT": "a", "PATH": "/bin"}
    ours = {"SLURM_CONF": "/ours", "PATH": "/ours"}
    assert slurm_batch.steer_environment(theirs, ours) == {
        "SLURM_CONF": "/ours",
        "SBATCH_ACCOUNT": "a",
        "PATH": "/bin",
    }


@pytest.mark.parametrize(
    ("reason", "hopeless"),
    [
        ("QOSMaxCpuPerJobLimit", True),
        ("QOSMaxGRESPerJob", True),
        ("AssocMaxWallDurationPerJobLimit", True),
        ("AssocMaxCpuMinutesPerJobLimit", True),
        ("QOSMaxNodePerNode", True),
        ("QOSMinGRES", True),
        ("QOSMinCpuNotSatisfied", True),
        ("QOSMaxJobsPerUserLimit", False),
        ("QOSMaxCpuPerUserLimit", False),
        ("AssocGrpCpuLimit", False),
        ("AssocMaxJobsLimit", False),
        ("QOSUsageThreshold", False),
        ("QOSResourceLimit", False),
    ],
)
def test_a_limit_of_one_job_never_lets_it_start(reason: str, hopeless: bool) -> None:
    assert slurm_batch.status_of("1", "PENDING", "", "N/A", reason=reason).is_hopeless == hopeless


@pytest.mark.parametrize(
    ("requested", "limits", "exceeds"),
    [
        ("TRES=cpu=3,mem=192M,node=1", "cpu=2||\n", True),
        ("TRES=cpu=2,mem=192M,node=1", "cpu=2||\n", False),
        ("ReqTRES=cpu=1,mem=1G,gres/gpu=8 AllocTRES=(null)", "cpu=4|gres/gpu=4|\n", True),
        ("TRES=cpu=1,mem=300G", "||mem=200G\n", True),
        ("TRES=cpu=1", "\n", False),
    ],
)
def test_a_limit_of_several_jobs_that_one_exceeds_alone(
    monkeypatch: pytest.MonkeyPatch, requested: str, limits: str, exceeds: bool
) -> None:
    def call(argv: Sequence[str], **_: object) -> tuple[str, str]:
        if argv[0] == "sacctmgr":
            assert argv[4] == "gold"
            return limits, ""
        return f"JobId=7 QOS=gold JobState=PENDING {requested}\n", ""

    monkeypatch.setattr(slurm_commands, "run_command", call)
    monkeypatch.setattr(slurm_batch, "run_command", call)
    assert slurm_batch.exceeds_alone("7") == exceeds
