"""Guest of a real Slurm queue: where jobs go and why, what may go wrong meanwhile, and what is refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load, run_command
from queues import FINAL, Runs, processes_of
from services import serving
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from waiting import until

from dovetail.testing.builders import full

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

slowly = pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
QUEUE = "slurm-queue?poll=0.3&partitions=cpu,gpu"
APP = """
[[app]]
name = "both"
restartable = {restartable}
[[app.implementation]]
name = "cpu"
cpus = 4
command = ["python3", "-I", "-S", "{script}", "{said}", "{{cpu}}", "{{gpu}}", "cpu"]
[[app.implementation]]
name = "gpu"
cpus = 1
command = ["python3", "-I", "-S", "{script}", "{said}", "{{cpu}}", "{{gpu}}", "gpu"]
"""
SCRIPT = """
import os, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
where = os.environ["DOVETAIL_NODES"], os.environ.get("CUDA_VISIBLE_DEVICES", "-") or "none"
os.write(out, f"began {os.environ['DOVETAIL_JOB']} {where[0]} {where[1]}\\n".encode())
time.sleep(float(sys.argv[2 if sys.argv[4] == "cpu" else 3]))
os.write(out, f"ended {os.environ['DOVETAIL_JOB']} {where[0]} {where[1]}\\n".encode())
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    shapes = (NodeShape(2, cpus=4, gpus=0, partition="cpu"), NodeShape(2, cpus=4, gpus=2, partition="gpu"))
    with SlurmCluster(shapes) as cluster:
        yield cluster


@pytest.fixture
def runs(tmp_path: Path, environment: dict[str, str], state: Path, slurm: SlurmCluster) -> Iterator[Runs]:
    made = Runs(tmp_path, {**environment, **slurm.environment, "XDG_STATE_HOME": str(state)}, state)
    made.environment = {**slurm.environment, "XDG_STATE_HOME": str(state), "PATH": environment["PATH"]}
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    slurm.call("scancel", "-u", os.environ.get("USER", "root"), check=False)
    slurm.wait_until_idle()


def write(
    runs: Runs, *jobs: Mapping[str, Any], restartable: bool = False, cpu: float = 1.5, gpu: float = 0.3
) -> None:
    """A file of jobs that take ``cpu`` s on the CPU and ``gpu`` s on a GPU, if they do not say otherwise."""
    (runs.tmp_path / "job.py").write_text(SCRIPT)
    script, said = str(runs.tmp_path / "job.py"), str(runs.said)
    text = APP.format(script=script, said=said, restartable=str(restartable).lower())
    for job in jobs:
        inputs = {"cpu": cpu, "gpu": gpu, **job.get("inputs", {})}
        rest = {key: value for key, value in job.items() if key != "inputs"}
        text += '[[job]]\napp = "both"\n' + "".join(f"{k} = {json.dumps(v)}\n" for k, v in rest.items())
        text += "inputs = { " + ", ".join(f"{k} = {v}" for k, v in inputs.items()) + " }\n"
    (runs.tmp_path / "jobs.toml").write_text(text)
    runs.count = sum(int(job.get("count", 1)) for job in jobs)


def run(runs: Runs, *arguments: str, timeout: float = 120) -> Any:
    """``dovetail run ARGUMENTS --json``, as it has ended."""
    words = ["run", *arguments, "--json", "--quiet"]
    return run_command(words, runs.tmp_path, runs.environment, timeout=timeout)


def learned(runs: Runs, **fields: Any) -> dict[str, float]:
    """Have both ways known: the first runs try each; the seconds of each."""
    write(runs, {"id": "first"}, {"id": "second"}, **fields)
    done = run(runs, "jobs.toml", "--executor", QUEUE)
    assert done.returncode == 0, done.stderr
    found = {row["implementation"]: row["end"] - row["start"] for row in load(done)["jobs"]}
    assert found.keys() == {"cpu", "gpu"}
    runs.said.unlink()
    return found


def reasons(runs: Runs) -> dict[str, str]:
    """What ``dovetail explain --json`` says of each job of the last run."""
    said = run_command(["explain", "--json"], runs.tmp_path, runs.environment)
    return {row["id"]: row["reason"] for row in load(said)}


def last_folder(runs: Runs) -> Path:
    """The folder of the newest run."""
    return max((runs.state / "dovetail" / "runs").iterdir(), key=lambda path: path.stat().st_mtime)


def exactly_once(runs: Runs, rows: Mapping[str, tuple[str, int, str]]) -> None:
    """Every job has ended, and none was executed more often than it was started."""
    assert len(rows) == runs.count
    assert {state for state, _, _ in rows.values()} <= FINAL
    lines = [line.split() for line in runs.said.read_text().splitlines()]
    began = Counter(job for what, job, _, _ in lines if what == "began")
    assert all(times <= rows[job][1] for job, times in began.items())
    ended = Counter(job for what, job, _, _ in lines if what == "ended")
    assert {job for job, (state, _, _) in rows.items() if state == "COMPLETED"} <= ended.keys()
    assert set(ended.values()) <= {1}
    until(lambda: not processes_of(str(runs.tmp_path / "job.py")), "nothing is left running", 15)


def hold(slurm: SlurmCluster, *nodes: str, minutes: int) -> None:
    """Be somebody else who has all CPUs of a node, or on one with GPUs these."""
    for node in nodes:
        what = ("-p", "gpu", "--gres=gpu:2") if node in ("n2", "n3") else ("-p", "cpu", "-c4")
        limits = ("-w", node, "-t", str(minutes), "-J", f"held-{node}", "-o", "/dev/null")
        slurm.call("sbatch", *what, *limits, "--wrap", "sleep 100")


def let_go(slurm: SlurmCluster, *nodes: str) -> None:
    """Undo `hold`. scancel knows no lists of names."""
    for node in nodes:
        slurm.call("scancel", f"--name=held-{node}")


# ------------------------------------------------------------------------------------ where jobs go, and why


def test_the_cpu_is_taken_when_the_gpus_are_busy_for_long_and_else_the_gpu(
    slurm: SlurmCluster, runs: Runs
) -> None:
    took = learned(runs)
    write(runs, {"id": "one"}, {"id": "two"})
    done = run(runs, "jobs.toml", "--executor", QUEUE)
    assert [row["implementation"] for row in load(done)["jobs"]] == ["gpu", "gpu"]
    assert [row["nodes"] for row in load(done)["jobs"]] <= ["n2", "n3"]
    assert load(done)["policy"] == "earliest-completion"
    hold(slurm, "n2", "n3", minutes=30)
    until(lambda: slurm.call("squeue", "-h", "-t", "R").count("\n") == 2, "the GPUs are busy")
    done = run(runs, "jobs.toml", "--executor", QUEUE)
    assert [row["implementation"] for row in load(done)["jobs"]] == ["cpu", "cpu"], done.stderr
    reason = reasons(runs)["one"]
    assert reason.startswith(
        f"ends first: cpu in cpu,gpu: starts in 0 s, takes {took['cpu']:.3g} s, ends in "
    )
    assert "; against " in reason
    waits = float(reason.partition("gpu in gpu: starts in ")[2].split()[0])
    assert 0.4 * 1500 < waits <= 0.4 * 1800 + 1, "two fifths of what is foreseen"


def test_jobs_of_an_array_that_go_another_way_leave_the_others_where_they_are(
    slurm: SlurmCluster, runs: Runs
) -> None:
    """All wait for GPUs as one array; a node comes free on which one at a time can run as ``cpu``."""
    learned(runs)
    shutil.rmtree(last_folder(runs))
    write(runs, {"id": "j", "count": 6})
    hold(slurm, "n0", "n1", "n2", "n3", minutes=2)
    until(lambda: slurm.call("squeue", "-h", "-t", "R").count("\n") == 4, "all is busy")
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    until(lambda: slurm.call("squeue", "-h", "-r", "-t", "PD").count("\n") == 6, "all wait")
    let_go(slurm, "n0")
    runs.wait_for(1)
    let_go(slurm, "n2", "n3")
    assert process.wait(60) == 0, runs.complaints
    rows = runs.rows()
    exactly_once(runs, rows)
    where = {line.split()[2] for line in runs.said.read_text().splitlines()}
    assert "n0" in where
    assert where & {"n2", "n3"}


def test_many_small_jobs_are_one_array_and_each_is_run_once(slurm: SlurmCluster, runs: Runs) -> None:
    learned(runs)
    write(runs, {"id": "small", "count": 40, "inputs": {"cpu": 0.0, "gpu": 0.0}})
    done = run(runs, "jobs.toml", "--executor", QUEUE)
    assert done.returncode == 0, done.stderr
    lines = (last_folder(runs) / "queue" / "handed.jsonl").read_text().splitlines()
    sent = [json.loads(line) for line in lines if line]
    assert sum(record["t"] == "sent" for record in sent) <= 4
    assert Counter(runs.said.read_text().split()[1::4]) == {f"small-{i}": 2 for i in range(1, 41)}


def test_each_job_sees_its_own_devices(runs: Runs) -> None:
    learned(runs)
    write(runs, {"id": "g", "count": 8, "implementation": "gpu"})
    done = run(runs, "jobs.toml", "--executor", QUEUE, "--policy", "earliest-completion?only=gpu")
    assert {row["implementation"] for row in load(done)["jobs"]} == {"gpu"}
    rows = {row["id"]: row for row in load(done)["jobs"]}
    for line in runs.said.read_text().splitlines():
        _, job, node, visible = line.split()
        assert rows[job]["devices"] == [f"{node}/gpu{visible}"]


def test_what_the_user_says_is_passed_on(slurm: SlurmCluster, runs: Runs) -> None:
    write(runs, {"id": "a", "slurm": ["--comment=mine", "-p", "gpu"], "inputs": {"cpu": 2, "gpu": 2}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--slurm=--nice=7", environment=runs.environment)
    until(lambda: "Comment=mine" in slurm.call("scontrol", "show", "job", check=False), "it is there", 20)
    shown = slurm.call("scontrol", "show", "job")
    assert "Nice=7" in shown
    assert "Partition=gpu" in shown
    assert process.wait(30) == 0


def test_options_of_a_kind_and_a_prologue_reach_its_jobs(slurm: SlurmCluster, runs: Runs) -> None:
    text = ""
    for kind in ("cpu", "gpu"):
        text += f'[[app]]\nname = "{kind}"\nprologue = "export SAID=prologue"\n[[app.implementation]]\n'
        text += f'name = "{kind}"\ncpus = 1\nslurm = ["--comment=by-{kind}"]\n'
        text += f'command = ["sh", "-c", "echo $SAID"]\n[[job]]\nid = "{kind}"\napp = "{kind}"\n'
    (runs.tmp_path / "jobs.toml").write_text(text)
    done = run(runs, "jobs.toml", "--executor", QUEUE, "--slurm=gpu:--nice=7", "--run-dir", "run")
    assert done.returncode == 0, done.stderr
    for id in ("cpu", "gpu"):
        shown = run_command(["logs", "--run", "run", id], runs.tmp_path, runs.environment)
        assert shown.stdout == "prologue\n", shown.stderr
    jobs = slurm.call("scontrol", "show", "job", "-o").splitlines()
    nice = {kind: [line for line in jobs if f"Comment=by-{kind}" in line] for kind in ("cpu", "gpu")}
    assert [len(lines) for lines in nice.values()] == [1, 1]
    assert "Nice=7" in nice["gpu"][0]
    assert "Nice=0" in nice["cpu"][0]


def test_what_is_submitted_to_a_service_is_passed_on(slurm: SlurmCluster, runs: Runs) -> None:
    write(runs, {"id": "a", "slurm": ["--comment=mine"], "inputs": {"cpu": 300, "gpu": 300}})
    with serving(runs.tmp_path, "--executor", QUEUE, **runs.environment) as service:
        for what in (["jobs.toml"], ["--", "sleep", "300"]):
            done = service.dovetail("submit", "--slurm=--nice=7", "--slurm=-pgpu", *what)
            assert done.returncode == 0, done.stderr
        until(lambda: slurm.call("squeue", "-h").count("\n") == 2, "both are there")
        shown = slurm.call("scontrol", "show", "job", "-o").splitlines()
        shown = [line for line in shown if str(runs.tmp_path) in line]  # not those of earlier tests
        mine = [line for line in shown if "Nice=7" in line and "Partition=gpu" in line]
        assert len(mine) == 2
        assert sum("Comment=mine" in line for line in mine) == 1


def test_a_gang_is_started_by_srun_on_all_its_nodes(runs: Runs) -> None:
    (runs.tmp_path / "jobs.toml").write_text(
        """
[[app]]
name = "gang"
[[app.implementation]]
name = "cpu"
cpus = 2
tasks = 2
times = { 2 = 1.0 }
command = ["sh", "-c", "echo $SLURMD_NODENAME $DOVETAIL_RANK $DOVETAIL_RANKS"]
[[job]]
id = "g"
app = "gang"
nodes = 2
"""
    )
    done = run(runs, "jobs.toml", "--executor", QUEUE, "--run-dir", "run")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in (runs.tmp_path / "run" / "g.out").read_text().splitlines()]
    assert sorted(rank for _, rank, _ in lines) == list("0123")
    assert sorted(Counter(node for node, _, _ in lines).values()) == [2, 2]
    assert {ranks for *_, ranks in lines} == {"4"}


@slowly
@pytest.mark.timeout(900)
def test_beside_others_the_total_is_below_that_of_either_static_choice(
    slurm: SlurmCluster, runs: Runs
) -> None:
    """The GPUs are busy for a minute; 4 s on a CPU node, 1 s on a GPU: some wait for it, most do not."""
    learned(runs, cpu=4.0, gpu=1.0)
    responses: dict[str, float] = {}
    for choice in ("", "?only=gpu", "?only=cpu"):
        for node in ("n2", "n3"):
            asked = ("-p", "gpu", "-w", node, "--gres=gpu:2", "-t", "1")
            slurm.call("sbatch", "-o", "/dev/null", *asked, "--wrap", "sleep 57")
        until(lambda: slurm.call("squeue", "-h", "-t", "R").count("\n") == 2, "the GPUs are busy")
        write(runs, {"count": 48, "id": "j"}, cpu=4.0, gpu=1.0)
        done = run(
            runs, "jobs.toml", "--executor", QUEUE, "--policy", f"earliest-completion{choice}", timeout=280
        )
        assert done.returncode == 0, done.stderr
        responses[choice] = load(done)["metrics"]["mean_response"]
        slurm.wait_until_idle(70)
    print(responses)
    assert responses[""] < min(responses["?only=gpu"], responses["?only=cpu"])


# ---------------------------------------------------------------------------------------- what may go wrong


def test_cancelled_from_outside_a_job_ends_once_and_the_others_go_on(slurm: SlurmCluster, runs: Runs) -> None:
    write(runs, {"id": "j", "count": 12, "inputs": {"cpu": 1.5, "gpu": 1.5}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    runs.wait_for(3)
    ids = slurm.call("squeue", "-h", "-r", "-o", "%i %T").splitlines()
    running = next(line.split()[0] for line in ids if line.endswith("RUNNING"))
    waiting = next(line.split()[0] for line in ids if line.endswith("PENDING"))
    slurm.call("scancel", running, waiting)
    assert process.wait(60) == 1  # which is no Ctrl-C
    rows = runs.rows()
    exactly_once(runs, rows)
    assert Counter(state for state, _, _ in rows.values()) == {"COMPLETED": 10, "CANCELLED": 2}


def test_a_job_that_slurm_puts_back_into_its_queue_is_another_attempt(
    slurm: SlurmCluster, runs: Runs
) -> None:
    """As ``sbatch --requeue`` has it: no retry is spent, its number stays; Slurm lets two minutes pass."""
    write(runs, {"id": "one", "inputs": {"cpu": 5.0, "gpu": 5.0}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    runs.wait_for(1)
    id = slurm.call("squeue", "-h", "-o", "%i").strip()
    slurm.call("scontrol", "requeue", id)
    until(lambda: "PENDING" in slurm.call("squeue", "-h", "-o", "%T"), "it waits again")
    slurm.start_again(id)
    assert process.wait(100) == 0, runs.complaints
    assert "Restarts=1" in slurm.call("scontrol", "show", "job", id)
    rows = runs.rows()
    assert rows["one"][:2] == ("COMPLETED", 2)
    exactly_once(runs, rows)


def test_killed_and_taken_up(slurm: SlurmCluster, runs: Runs) -> None:
    """Jobs stay in Slurm's hands while Dovetail is gone; none is handed over twice."""
    write(runs, {"id": "j", "count": 30, "inputs": {"cpu": 1.0, "gpu": 0.8}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    for turn in range(3):
        runs.wait_for(2 + 7 * turn)
        process.send_signal(signal.SIGKILL)
        process.wait()
        time.sleep(0.7)
        process = runs.go("--resume", "--quiet", environment=runs.environment)
    assert process.wait(60) == 0, runs.complaints
    rows = runs.rows()
    exactly_once(runs, rows)
    assert {(state, attempt) for state, attempt, _ in rows.values()} == {("COMPLETED", 1)}


def test_a_controller_that_is_away_disturbs_nobody(slurm: SlurmCluster, runs: Runs) -> None:
    write(runs, {"id": "j", "count": 16, "inputs": {"cpu": 1.0, "gpu": 1.0}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    runs.wait_for(3)
    slurm.restart_daemon("slurmctld")
    assert process.wait(90) == 0, runs.complaints
    exactly_once(runs, runs.rows())


def test_interrupted_it_leaves_nothing_in_the_queue(slurm: SlurmCluster, runs: Runs) -> None:
    write(runs, {"id": "j", "count": 20, "inputs": {"cpu": 5.0, "gpu": 5.0}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    runs.wait_for(3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not slurm.call("squeue", "-h").strip()
    assert {state for state, _, _ in runs.rows().values()} == {"CANCELLED"}
    assert not processes_of(str(runs.tmp_path / "job.py"))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB, for a run's folder."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0700", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no byte free."""
    filler = folder / "filler"
    with open(filler, "wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


def test_a_disk_that_is_full_for_ten_seconds_hangs_no_job(
    slurm: SlurmCluster, runs: Runs, small: Path
) -> None:
    """All forty end. What Slurm itself starts meanwhile it fails: it cannot make the file of its output."""
    write(runs, {"id": "j", "count": 40, "inputs": {"cpu": 1.0, "gpu": 1.0}})
    place = ("--run-dir", str(small / "run"))
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", *place, environment=runs.environment)
    runs.wait_for(2)
    filler = fill(small)
    time.sleep(10.0)
    filler.unlink()
    assert process.wait(150) in (0, 1), runs.complaints
    with closing(sqlite3.connect(small / "run" / "ledger.db")) as db:
        rows = dict(db.execute("SELECT id, state FROM job"))
    assert len(rows) == 40
    assert set(rows.values()) <= {"COMPLETED", "FAILED"}
    lines = [line.split() for line in runs.said.read_text().splitlines()]
    ended = Counter(job for what, job, _, _ in lines if what == "ended")
    assert set(ended.values()) == {1}
    assert {job for job, state in rows.items() if state == "COMPLETED"} == ended.keys()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_signal_ends_it_in_time_while_the_disk_is_full(
    slurm: SlurmCluster, runs: Runs, small: Path, number: signal.Signals
) -> None:
    write(runs, {"id": "j", "count": 40, "inputs": {"cpu": 5.0, "gpu": 5.0}})
    place = ("--run-dir", str(small / "run"))
    process = runs.go(
        "jobs.toml", "--executor", QUEUE, "--quiet", "--grace", "1", *place, environment=runs.environment
    )
    runs.wait_for(2)
    filler = fill(small)
    time.sleep(2.0)
    process.send_signal(number)
    try:
        assert process.wait(1 + 3 + 30 + 3 + 2 + 20) != 0  # grace, what Slurm is given, to close, and spare
    finally:
        filler.unlink()
    until(lambda: not processes_of(str(runs.tmp_path / "job.py")), "nothing is left running", 60)


@slowly
def test_a_node_that_slurm_gives_up_costs_its_jobs_an_attempt(slurm: SlurmCluster, runs: Runs) -> None:
    """Slurm lets their processes run on; they are ended before they can disturb anybody for long."""
    write(runs, {"id": "j", "count": 2, "inputs": {"cpu": 40.0, "gpu": 40.0}})
    process = runs.go("jobs.toml", "--executor", QUEUE, "--quiet", environment=runs.environment)
    runs.wait_for(2)
    node = runs.said.read_text().split()[2]
    slurm.kill_daemon(f"slurmd.{node}")
    try:
        until(lambda: "PENDING" in slurm.call("squeue", "-h", "-r", "-o", "%T"), "it waits again", 100)
        back = slurm.call("squeue", "-h", "-r", "-t", "PD", "-o", "%i").split()[0]
        time.sleep(3.0)  # what still runs there is ended first
        slurm.start_again(back)
        assert process.wait(200) == 0, runs.complaints
    finally:
        slurm.start_daemon(f"slurmd.{node}")
        until(lambda: "idle" in slurm.call("sinfo", "-h", "-n", node, "-o", "%T"), "the node is back")
    rows = runs.rows()
    assert sorted(attempt for _, attempt, _ in rows.values())[-1] == 2
    exactly_once(runs, rows)


@slowly
def test_a_job_that_runs_into_its_cut_walltime_goes_again_with_its_own(runs: Runs) -> None:
    """Slurm counts minutes: twenty runs of a second make it ask for one; what then takes longer is ended."""
    write(runs, {"id": "known", "count": 24, "inputs": {"cpu": 0.2, "gpu": 0.2}}, restartable=True)
    only = "earliest-completion?only=cpu"
    assert run(runs, "jobs.toml", "--executor", QUEUE, "--policy", only).returncode == 0
    runs.said.unlink()
    write(runs, {"id": "long", "inputs": {"cpu": 0.2, "gpu": 0.2}, "walltime": 3600}, restartable=True)
    script = runs.tmp_path / "job.py"
    script.write_text(script.read_text().replace("time.sleep(", "time.sleep(140 + ", 1))
    done = run(runs, "jobs.toml", "--executor", QUEUE, "--policy", only, "--cut-walltimes", timeout=290)
    assert done.stdout, (done.returncode, done.stderr[-3000:])
    (row,) = load(done)["jobs"]
    assert (done.returncode, row["state"]) == (0, "COMPLETED")
    lines = (last_folder(runs) / "queue" / "handed.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines if line]
    assert [record["walltime"] for record in records if record["t"] == "batch"] == [60.0, 3600]


def test_with_cut_walltimes_jobs_are_backfilled_that_were_not_before(slurm: SlurmCluster, runs: Runs) -> None:
    """All CPU nodes are promised from ten minutes on: what asks for an hour waits, for a minute not."""
    write(runs, {"id": "known", "count": 24, "inputs": {"cpu": 0.1, "gpu": 0.1}}, restartable=True)
    only = "earliest-completion?only=cpu"
    cpus = ("--slurm", "--partition=cpu")
    assert run(runs, "jobs.toml", "--executor", QUEUE, "--policy", only, *cpus).returncode == 0
    slurm.call("sbatch", "-o", "/dev/null", "-p", "cpu", "-w", "n0", "-c4", "-t", "10", "--wrap", "sleep 60")
    until(lambda: "R" in slurm.call("squeue", "-h", "-o", "%t"), "one node is busy")
    slurm.call("sbatch", "-o", "/dev/null", "-p", "cpu", "-N2", "-c4", "-t", "10", "--wrap", "sleep 60")
    write(runs, {"id": "j", "inputs": {"cpu": 0.1, "gpu": 0.1}, "walltime": 3600}, restartable=True)
    runs.said.unlink()
    process = runs.go("jobs.toml", "--executor", QUEUE, "--policy", only, *cpus, environment=runs.environment)
    time.sleep(6.0)
    assert not runs.said.exists()
    process.send_signal(signal.SIGINT)
    process.wait(30)
    done = run(runs, "jobs.toml", "--executor", QUEUE, "--policy", only, *cpus, "--cut-walltimes", timeout=50)
    assert load(done)["jobs"][0]["state"] == "COMPLETED"


# ---------------------------------------------------------------------------------------- what is refused


def test_a_policy_that_decides_where_jobs_run_is_refused(runs: Runs) -> None:
    write(runs, {"id": "a"})
    done = run(runs, "jobs.toml", "--executor", QUEUE, "--policy", "fcfs")
    assert done.returncode == 2
    assert "leaves it to the cluster's own scheduler when and where jobs start" in done.stderr


def test_what_slurm_refuses_is_told_before_anything_runs(runs: Runs) -> None:
    write(runs, {"id": "a", "slurm": ["--constraint=nosuch"]})
    done = run(runs, "jobs.toml", "--executor", QUEUE)
    assert done.returncode == 2
    assert "Invalid feature specification: 'sinfo -o %f' lists the features" in done.stderr
    assert not runs.said.exists()


def test_devices_shows_the_partitions(runs: Runs) -> None:
    def devices(*options: str) -> Any:
        argv = [*DOVETAIL, "devices", "--executor", *options]
        return subprocess.run(
            argv, env=dict(runs.environment), text=True, capture_output=True, timeout=280, check=False
        )

    shown = devices("slurm-queue")
    assert "n[0-1]" in shown.stdout
    assert "n[2-3]" in shown.stdout
    data = json.loads(devices("slurm-queue?partitions=gpu", "--json").stdout)
    assert [(n["name"], n["partitions"], len(n["devices"])) for n in data["nodes"]] == [
        ("n2", ["gpu"], 2),
        ("n3", ["gpu"], 2),
    ]
    refused = devices("slurm-queue?partitions=nosuch")
    assert refused.returncode == 2
    assert "found no node of partitions nosuch that takes jobs" in refused.stderr


@slowly
def test_what_keeps_a_job_is_told_after_a_minute_of_silence(slurm: SlurmCluster, runs: Runs) -> None:
    """All nodes are drained while it waits: Slurm's reason, instead of nothing."""
    for partition in ("cpu", "gpu"):
        slurm.call("sbatch", "-p", partition, "-N2", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 300")
    write(runs, {"id": "one"})
    process = runs.go("jobs.toml", "--executor", QUEUE)
    until(lambda: "both" in slurm.call("squeue", "-h", "-o", "%j"), "it is handed over")
    slurm.call("scontrol", "update", "NodeName=n[0-3]", "State=DRAIN", "Reason=test")
    try:
        slurm.call("scancel", "--name=wrap")
        until(lambda: "nothing has happened for " in runs.complaints, "it is told", 250)
        assert re.search(r"nothing runs, 1 job waits: Slurm: .*(DRAIN|UnavailableNodes)", runs.complaints)
    finally:
        slurm.call("scontrol", "update", "NodeName=n[0-3]", "State=RESUME")
    assert process.wait(60) == 0


@slowly
def test_a_controller_that_stays_away_is_told_after_a_minute_of_silence(
    slurm: SlurmCluster, runs: Runs
) -> None:
    hold(slurm, *slurm.nodes, minutes=5)
    write(runs, {"id": "one"})
    process = runs.go("jobs.toml", "--executor", QUEUE)
    until(lambda: "both" in slurm.call("squeue", "-h", "-o", "%j"), "it is handed over")
    slurm.stop_daemon("slurmctld")
    try:
        until(lambda: "nothing has happened for " in runs.complaints, "it is told", 250)
        assert "nothing runs, 1 job waits: Slurm has not answered for " in runs.complaints
    finally:
        slurm.start_daemon("slurmctld")
    until(lambda: slurm.call("squeue", "-h", check=False), "it is back")
    let_go(slurm, *slurm.nodes)
    assert process.wait(60) == 0
