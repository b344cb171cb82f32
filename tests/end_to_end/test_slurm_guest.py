"""A guest that harms nobody, on a real Slurm with a partition that preempts; scripts, what is put back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dovetail_command import load, run_command
from services import Serving, serving
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.testing.builders import full

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

slowly = pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
QUEUE = "slurm-queue?poll=0.3"
PREEMPTING = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE"}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    """Everybody's nodes are in ``low``; ``hi`` preempts what runs there."""
    with SlurmCluster((NodeShape(2, cpus=4, gpus=2, partition="low"),), PREEMPTING) as cluster:
        cluster.call("scontrol", "create", "PartitionName=hi", "Nodes=ALL", "PriorityTier=10")
        yield cluster


@pytest.fixture
def service(slurm: SlurmCluster, tmp_path: Path) -> Iterator[Serving]:
    variables = {**slurm.environment, "XDG_STATE_HOME": str(tmp_path / "state")}
    with serving(tmp_path, "--executor", QUEUE, **variables) as found:
        yield found
    slurm.call("scancel", "--state=PENDING,RUNNING", "--partition=low", check=False)
    slurm.wait_until_idle()


def submit(service: Serving, *words: str, **environment: str) -> str:
    """The number that a job gets."""
    done = service.dovetail("submit", "--parsable", *words, env={**service.environment, **environment})
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


def info(service: Serving, job: str) -> dict[str, object]:
    found: dict[str, object] = load(service.dovetail("info", job, "--json"))
    return found


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return name


# ---------------------------------------------------------------------------------------- a guest never harms


def test_where_the_default_partition_is_full_jobs_wait_and_nobody_is_preempted(
    slurm: SlurmCluster, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A partition of a higher tier has the same nodes: Slurm would start our jobs there at once."""
    theirs = slurm.call(
        "sbatch", "--parsable", "-N2", "--exclusive", "-o/dev/null", "--wrap", "sleep 3"
    ).strip()
    until(lambda: "R" in slurm.call("squeue", "-h", "-j", theirs, "-o", "%t"), "it runs")
    (tmp_path / "jobs.txt").write_text("true\n")
    home = environment["XDG_STATE_HOME"]
    inside = {**environment, **slurm.environment, "XDG_STATE_HOME": home}
    done = run_command(["run", "jobs.txt", "--json", "--quiet", "--executor", QUEUE], tmp_path, inside)
    assert done.returncode == 0, done.stderr
    (job,) = load(done)["jobs"]
    shown = slurm.call("scontrol", "show", "job", theirs)
    assert "JobState=COMPLETED" in shown
    assert "Restarts=0" in shown
    assert job["nodes"] in ("n0", "n1")
    refused = run_command(["run", "jobs.txt", "--executor", f"{QUEUE}&partitions=hi"], tmp_path, inside)
    assert refused.returncode == 2
    assert "found partition hi: its tier 10 preempts running jobs of low (tier 1" in refused.stderr


def test_a_job_that_names_a_preempting_partition_is_refused_with_the_reason(
    service: Serving, tmp_path: Path
) -> None:
    both = submit(
        service, write(tmp_path, "both.sh", "#!/bin/sh\n#SBATCH -p hi,low\necho $SLURM_JOB_PARTITION\n")
    )
    only = submit(service, write(tmp_path, "hi.sh", "#!/bin/sh\n#SBATCH --partition=hi\n"))
    word = submit(service, "--slurm=-phi", "--", "true")
    assert service.dovetail("wait", both).returncode == 0
    assert service.dovetail("logs", both).stdout == "low\n"
    for job in (only, word):
        service.dovetail("wait", job)
        assert "its tier 10 preempts running jobs of low" in str(info(service, job)["detail"])


# --------------------------------------------------------------------------------------- scripts as they are


SCRIPT = """#!/bin/bash
#SBATCH -J my-name -N2 --ntasks=4 --cpus-per-task=1
# a comment of its own
   # and another

#SBATCH --comment='two words' --nice=7 --exclusive=user --mem-per-cpu=10 --wckey=key
#SBATCH --signal=B:USR1@55 --time=1 --begin=now --mail-type=NONE --open-mode=append
#SBATCH --output=%x-%j.txt
trap 'echo heard; exit 3' USR1
echo body $SLURM_JOB_ID $DOVETAIL_JOB $SLURM_NTASKS $SLURM_JOB_NUM_NODES "$@"
srun bash -c 'echo task $SLURM_PROCID $SLURMD_NODENAME' | sort
sleep 60 & wait
"""


def test_a_script_is_handed_over_as_it_is(slurm: SlurmCluster, service: Serving, tmp_path: Path) -> None:
    """One body on two nodes, whose srun starts four tasks; its signal reaches the shell that traps it."""
    job = submit(service, write(tmp_path, "job.sh", SCRIPT), "a", "b c")
    until(lambda: "my-name" in slurm.call("squeue", "-h", "-t", "R", "-o", "%j"), "it runs, with its name")
    id = slurm.call("squeue", "-h", "-n", "my-name", "-o", "%i").strip()
    shown = slurm.call("scontrol", "show", "job", id)
    for said in ("NumNodes=2 NumCPUs=4 NumTasks=4", "Comment=two words", "Nice=7", "MinMemoryCPU=10M"):
        assert said in shown
    assert f"StdOut={tmp_path}/my-name-{id}.txt" in shown
    assert f"WorkDir={tmp_path}" in shown
    kept = slurm.call("scontrol", "write", "batch_script", id, "-")
    assert kept.strip("\n\0") == SCRIPT.strip("\n")
    service.dovetail("wait", job)
    found = info(service, job)
    assert (found["state"], found["exit_code"]) == ("FAILED", 3)
    said = (tmp_path / f"my-name-{id}.txt").read_text()
    assert said.splitlines()[0] == f"body {id} {job} 4 2 a b c"
    assert [line.split()[1] for line in said.splitlines() if line.startswith("task")] == list("0123")
    assert {line.split()[2] for line in said.splitlines() if line.startswith("task")} == {"n0", "n1"}
    assert "heard" in said.splitlines()  # slurmstepd may add a line of its own
    assert service.dovetail("logs", job).stdout == said


def test_tasks_that_no_node_holds_are_spread_by_slurm(
    slurm: SlurmCluster, service: Serving, tmp_path: Path
) -> None:
    """Eight tasks, and three GPUs, on nodes of four CPUs and two GPUs; what all nodes lack is refused."""
    body = "echo $SLURM_NNODES $SLURM_NTASKS; srun -l true && echo started\n"
    for name, options in (("tasks", "-n 8"), ("gpus", "-n 2 -G 3")):
        job = submit(service, write(tmp_path, name, f"#!/bin/sh\n#SBATCH {options} -t 1\n{body}"))
        assert service.dovetail("wait", job).returncode == 0
        tasks = options.split()[1]
        assert service.dovetail("logs", job).stdout == f"2 {tasks}\nstarted\n"
    write(tmp_path, "many", "#!/bin/sh\n#SBATCH -n 80\n")
    done = service.dovetail("submit", "many")
    assert done.returncode == 2
    assert "many: line 2: -n 80: cpus: found 80, the largest node has 4" in done.stderr


def test_what_submit_is_given_wins_over_the_script(
    slurm: SlurmCluster, service: Serving, tmp_path: Path
) -> None:
    write(tmp_path, "job.sh", "#!/bin/sh\n#SBATCH -N2 -c1 -t 5 --mem=20\nsleep 30\n")
    submit(service, "-N1", "-c", "2", "-t", "3m", "--on", "cpu,gpu", "job.sh")
    until(lambda: "R" in slurm.call("squeue", "-h", "-o", "%t"), "it runs")
    told = slurm.call("squeue", "-h", "-o", "%j %D %C %l %m %b").split()
    assert told[:5] == ["job.sh", "1", "2", "3:00", "20M"]
    assert told[5] in ("gres:gpu:1", "N/A")


def test_an_array_goes_as_one_with_its_limit(slurm: SlurmCluster, service: Serving, tmp_path: Path) -> None:
    first = submit(service, "--", "true")
    lines = f"#SBATCH --array=0-2,5%2\n#SBATCH -d afterok:{first} --hold -o a-%A_%a.txt\n"
    body = "echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT; exit $SLURM_ARRAY_TASK_ID\n"
    job = submit(service, write(tmp_path, "array.sh", f"#!/bin/sh\n{lines}{body}"))
    assert service.dovetail("release", job).returncode == 0
    service.dovetail("wait", job)
    rows = {index: info(service, f"{job}_{index}") for index in (0, 1, 2, 5)}
    assert [row["exit_code"] for row in rows.values()] == [0, 1, 2, 5]
    said = sorted(path.read_text() for path in tmp_path.glob("a-*_*.txt"))
    assert said == ["0 of 4\n", "1 of 4\n", "2 of 4\n", "5 of 4\n"]
    assert service.dovetail("logs", f"{job}_5").stdout == "5 of 4\n"


def test_a_kill_of_the_service_loses_no_script(service: Serving, tmp_path: Path) -> None:
    job = submit(service, write(tmp_path, "job.sh", "#!/bin/sh\n#SBATCH -c1\nsleep 3\necho done\nexit 4\n"))
    until(lambda: info(service, job)["state"] == "RUNNING", "it runs")
    service.kill()
    service.start().close()
    service.dovetail("wait", job)
    assert (info(service, job)["state"], info(service, job)["exit_code"]) == ("FAILED", 4)
    assert service.dovetail("logs", job).stdout == "done\n"


def test_the_submitters_variables_do_not_steer_the_service(slurm: SlurmCluster, service: Serving) -> None:
    theirs = {"SLURM_CONF": "/nowhere/slurm.conf", "SLURM_CLUSTERS": "other", "SLURM_JOB_ID": "1"}
    job = submit(service, "--name", "mine", "--", "sh", "-c", "echo $SLURM_CONF; sleep 1", **theirs)
    until(lambda: "mine" in slurm.call("squeue", "-h", "-o", "%j"), "squeue shows the job's name")
    assert service.dovetail("wait", job).returncode == 0
    assert service.dovetail("logs", job).stdout == f"{slurm.environment['SLURM_CONF']}\n"


# ---------------------------------------------------------------------- what is put back, what is impossible


def test_what_is_preempted_goes_back_into_the_queue(
    slurm: SlurmCluster, service: Serving, tmp_path: Path
) -> None:
    """A script and a command: both start again with their number in Slurm, and count as started twice."""
    body = 'echo run ${SLURM_RESTART_COUNT:-0}; [ -n "$SLURM_RESTART_COUNT" ] || sleep 60; echo done'
    text = f"#!/bin/sh\n#SBATCH -c4 -J again --open-mode=append\n{body}\n"
    script = submit(service, write(tmp_path, "again.sh", text))
    command = submit(service, "-c4", "--", "sh", "-c", body)
    until(lambda: slurm.call("squeue", "-h", "-t", "R").count("\n") == 2, "both run")
    until(lambda: {info(service, job)["state"] for job in (script, command)} == {"RUNNING"}, "that is known")
    before = slurm.call("squeue", "-h", "-o", "%i").split()
    slurm.call("sbatch", "-W", "-phi", "-N2", "--exclusive", "-o/dev/null", "--wrap", "true")
    until(
        lambda: {info(service, job)["state"] for job in (script, command)} == {"PENDING"}, "both wait again"
    )
    for id in before:
        slurm.start_again(id)
    assert service.dovetail("wait", f"{script},{command}").returncode == 0
    for job in (script, command):
        assert info(service, job)["attempts"] == 2
        said = service.dovetail("logs", job).stdout
        assert [line for line in said.splitlines() if "error" not in line] == ["run 0", "run 1", "done"]
    assert all("Restarts=1" in slurm.call("scontrol", "show", "job", id) for id in before)


def test_what_is_impossible_ends_in_a_sentence_and_is_asked_about_no_more(
    slurm: SlurmCluster, service: Serving, tmp_path: Path
) -> None:
    write(tmp_path, "no.sh", "#!/bin/sh\n#SBATCH --constraint=nosuch\n")
    for words in (("--slurm=--constraint=nosuch", "--", "true"), ("no.sh",)):
        job = submit(service, *words)
        assert service.dovetail("wait", job).returncode != 0
        found = info(service, job)
        assert found["state"] == "FAILED"
        assert "Invalid feature specification" in str(found["detail"])
    log = slurm.folder / "log" / "slurmctld.log"
    before = log.read_text().count("REQUEST_JOB_WILL_RUN") + log.read_text().count("nosuch")
    time.sleep(1.0)
    assert log.read_text().count("REQUEST_JOB_WILL_RUN") + log.read_text().count("nosuch") == before


def test_two_services_do_not_take_each_others_jobs(
    slurm: SlurmCluster, service: Serving, tmp_path: Path
) -> None:
    """Both begin to count at 1, and their jobs have the same name; each cancels its own."""
    (tmp_path / "other").mkdir()
    variables = {**slurm.environment, "XDG_STATE_HOME": str(tmp_path / "other" / "state")}
    with serving(tmp_path / "other", "--executor", QUEUE, **variables) as other:
        jobs = [submit(one, "--name", "same", "--", "sleep", "60") for one in (service, other)]
        until(lambda: slurm.call("squeue", "-h", "-t", "R", "-n", "same").count("\n") == 2, "both run")
        assert jobs[0] == jobs[1]
        other.kill()
        other.start().close()
        assert service.dovetail("cancel", jobs[0]).returncode == 0
        until(lambda: info(service, jobs[0])["state"] == "CANCELLED", "it is cancelled")
        until(lambda: info(other, jobs[1])["state"] == "RUNNING", "the other one runs on")
        assert slurm.call("squeue", "-h", "-t", "R", "-n", "same").count("\n") == 1
