"""Runs inside a Slurm allocation, against real daemons: what jobs get, and what may go wrong meanwhile."""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dovetail_command import DOVETAIL, load, run_command
from queues import Runs, folder_of, kill, processes_of
from services import serving
from slurm_cluster import NodeShape, SlurmCluster, needs_slurm
from strangers import Stranger
from waiting import until

from dovetail.testing.builders import full

pytestmark = [needs_slurm, pytest.mark.live, pytest.mark.xdist_group("live")]

slowly = pytest.mark.skipif(not full(1, 0), reason="takes its time: DOVETAIL_TEST_FULL=1")
ALL = ("-N4", "--exclusive", "--gres=gpu:2", "-t", "30", "--no-kill")
HERE = "slurm?poll=0.5"
COUNT = 48
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "slurm.md"


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with SlurmCluster((NodeShape(4, cpus=4, gpus=2),)) as cluster:
        yield cluster


@pytest.fixture
def allocated(slurm: SlurmCluster) -> Iterator[Mapping[str, str]]:
    with slurm.allocation(*ALL) as environment:
        yield environment


@pytest.fixture
def runs(tmp_path: Path, environment: dict[str, str], state: Path) -> Iterator[Runs]:
    made = Runs(tmp_path, environment, state)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait()
    until(lambda: not processes_of("process/agent.py"), "the agents end", 20)


Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def inside(tmp_path: Path, environment: dict[str, str], allocated: Mapping[str, str]) -> Call:
    """Run ``dovetail ARGUMENTS`` inside the allocation, in a home in which nothing is kept yet."""
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_command(arguments, tmp_path, {**environment, **allocated, **home})

    return call


def test_a_stranger_follows_the_page_word_by_word(
    slurm: SlurmCluster, tmp_path: Path, environment: dict[str, str], state: Path
) -> None:
    """What the page shows first, block by block as it would be copied; the programs are the stranger's."""
    path = environment["PATH"]
    stranger = Stranger(PAGE, tmp_path, {**slurm.environment, "XDG_STATE_HOME": str(state), "PATH": path})
    typed = stranger.types
    guest, inside, service = stranger.blocks
    assert [block.count("dovetail ") for block in stranger.blocks] == [3, 2, 4]
    said = typed(guest)
    assert "n[0-3]" in said
    assert "3 of 3 jobs done" in said
    assert "took" in said
    said = typed(inside)
    assert "3 of 3 jobs done" in said
    batch = tmp_path / f"slurm-{re.findall(r'Submitted batch job ([0-9]+)', said)[0]}.out"
    until(
        lambda: batch.exists() and "3 of 3 jobs done" in batch.read_text(), "the batch job has run them", 60
    )
    try:
        assert "Submitted 3 jobs" in typed(service)
        typed("dovetail wait 1-3")
        assert typed("dovetail logs 1") in {f"{node}\n" for node in slurm.nodes}
    finally:
        typed("dovetail serve --stop")


def agents(runs: Runs) -> dict[str, int]:
    """Process of each node's agent."""
    data: Any = json.loads((folder_of(runs.state) / "agents" / "agents.json").read_text())
    return {agent["node"]: agent["pid"] for agent in data["agents"]}


def attempts(runs: Runs) -> list[tuple[str, str]]:
    """State and detail of the attempts that were followed by another one."""
    with sqlite3.connect(folder_of(runs.state) / "ledger.db") as db:
        return db.execute("SELECT state, detail FROM attempt").fetchall()


def started(
    runs: Runs, allocated: Mapping[str, str], *, count: int = COUNT, seconds: float = 0.3, **fields: Any
) -> Any:
    """A queue that is under way on all nodes."""
    runs.write(count, lambda i: seconds, **fields)
    process = runs.go("jobs.toml", "--executor", HERE, "--policy", "fcfs", "--quiet", environment=allocated)
    runs.wait_for(18)
    return process


# ------------------------------------------------------------------------------------------ what jobs get


def test_cpu_and_gpu_jobs_share_nodes_and_each_sees_its_own_devices(tmp_path: Path, inside: Call) -> None:
    script = (
        "echo $DOVETAIL_NODES $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES; env | grep -c SLURM_STEP; sleep 0.3"
    )
    (tmp_path / "jobs.toml").write_text(
        f"""
[[app]]
name = "both"
[[app.implementation]]
name = "cpu"
cpus = 2
command = ["sh", "-c", "{script}"]
[[app.implementation]]
name = "gpu"
command = ["sh", "-c", "{script}"]
[[job]]
app = "both"
count = 40
"""
    )
    found = inside(
        "run", "jobs.toml", "--executor", HERE, "--policy", "history", "--json", "--run-dir", "run"
    )
    assert found.returncode == 0, found.stderr
    rows = load(found)["jobs"]
    assert Counter(row["state"] for row in rows) == {"COMPLETED": 40}
    kinds = {"cpu": set(), "gpu": set()}
    for row in rows:
        said, steps = (tmp_path / "run" / f"{row['id']}.out").read_text().splitlines()
        node, daemon, *devices = said.split()
        assert node == daemon == row["nodes"]
        assert steps == "0"  # a job is no task of the agents' step
        held = [name.rpartition("gpu")[2] for name in row["devices"]]
        assert devices == ([",".join(held)] if held else [])
        kinds[row["implementation"]].add(node)
    assert kinds["cpu"] & kinds["gpu"]
    assert inside("logs", "--run", "run", "both-1").stdout == (tmp_path / "run" / "both-1.out").read_text()


INNER = """
echo $DOVETAIL_CORES
echo job $SLURM_JOB_ID $SLURM_JOB_NODELIST $SLURM_CPUS_PER_TASK $SLURM_NTASKS ${SLURM_JOB_GPUS:-none}
srun sh -c 'echo step $SLURMD_NODENAME $DOVETAIL_CORES ${CUDA_VISIBLE_DEVICES:-none} $DOVETAIL_JOB'
$SLURM_OWN sh -c 'echo path $SLURMD_NODENAME ${CUDA_VISIBLE_DEVICES:-none}'
"""


def test_slurms_variables_and_srun_are_of_what_a_job_was_given(
    slurm: SlurmCluster, allocated: Mapping[str, str], inside: Call, tmp_path: Path
) -> None:
    """Slurm's own number stays; a step runs on the job's node, cores and device, and nowhere else."""
    (tmp_path / "inner.sh").write_text(INNER)
    words = json.dumps(["sh", "inner.sh"])
    own = f'env = {{ SLURM_OWN = "{shutil.which("srun")}" }}'
    text = "".join(
        f'[[app]]\nname = "{kind}"\n[[app.implementation]]\nname = "{kind}"\ncpus = 2\n{own}\n'
        f'command = {words}\n[[job]]\napp = "{kind}"\ncount = 4\n'
        for kind in ("cpu", "gpu")
    )
    (tmp_path / "jobs.toml").write_text(text)
    found = inside("run", "jobs.toml", "--executor", HERE, "--policy", "fcfs", "--json", "--run-dir", "run")
    rows = load(found)["jobs"]
    first = allocated["SLURM_JOB_NODELIST"].partition("[")[0] + "0"
    for row in rows:
        node = row["nodes"]
        held = [name.rpartition("gpu")[2] for name in row["devices"]] or ["none"]
        cores, job, step, *path = (tmp_path / "run" / f"{row['id']}.out").read_text().splitlines()
        assert job == f"job {allocated['SLURM_JOB_ID']} {node} 2 1 {held[0]}"
        assert step == f"step {node} {cores} {held[0]} {row['id']}"
        # Slurm's own program, called by its path, goes to the first node: there it is refused, or ours.
        assert path == ([f"path {node} {held[0]}"] if node == first else [])
        assert (row["state"] == "COMPLETED") == (node == first)
    assert len({row["nodes"] for row in rows}) > 1
    assert not slurm.call("squeue", "-h", "-o", "%i").split()[1:], "no further job of Slurm's"


TWO = """#!/bin/bash
#SBATCH -N2 -c2 --gres=gpu:2
echo body $SLURM_JOB_ID $SLURM_JOB_NUM_NODES $SLURM_NTASKS
srun sh -c 'echo all $SLURMD_NODENAME'
srun -N1 sh -c 'echo one $SLURMD_NODENAME'
for i in 1 2; do
    srun -N1 -n1 --exact --gres=gpu:1 sh -c 'echo part $CUDA_VISIBLE_DEVICES; sleep 1' &
done
wait
srun --gpus=9 true
"""


def test_a_script_on_two_nodes_is_one_body_whose_steps_are_on_both(
    allocated: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "two.sh").write_text(TWO)
    with serving(tmp_path, "--executor", HERE, "--policy", "easy", **allocated) as service:
        assert service.dovetail("submit", "--on", "gpu", "two.sh").returncode == 0
        service.dovetail("wait", "1")
        row = load(service.dovetail("info", "1", "--json"))
        said = service.dovetail("logs", "1").stdout.splitlines()
        refused = service.dovetail("submit", "--slurm=--nice=7", "--", "true")
        fine = service.dovetail("submit", "--slurm=-pall", "--", "true")
    nodes = row["nodes"].replace("[", "").replace("]", "")
    assert [line for line in said if line.startswith("body")] == [f"body {allocated['SLURM_JOB_ID']} 2 2"]
    assert len({line for line in said if line.startswith("all")}) == 2, nodes
    assert sum(line.startswith("one") for line in said) == 1
    assert {line for line in said if line.startswith("part")} == {"part 0", "part 1"}
    assert row["exit_code"] == 1
    assert refused.returncode == 2
    assert "found --nice=7, expected an option that allocation" in refused.stderr
    assert fine.returncode == 0


TIMES = {"fast": (6.0, 2.0), "even": (4.0, 3.0), "slow": (8.0, 2.5)}


def mixed_queue(path: Path, every: int = 0) -> None:
    """Sixty jobs of three apps that sleep for these seconds on a CPU pool or a GPU.

    With ``every`` each so-manieth one computes something instead, for real.
    """
    text = ""
    if every:
        words = json.dumps(["sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]; seq 3000000 | md5sum"])
        text += '[[app]]\nname = "computes"\n'
        for kind in ("cpu", "gpu"):
            text += f'[[app.implementation]]\nname = "{kind}"\ncpus = 1\ntime = 1.0\ncommand = {words}\n'
    for name, (cpu, gpu) in TIMES.items():
        text += f'[[app]]\nname = "{name}"\n'
        for kind, seconds in (("cpu", cpu), ("gpu", gpu)):
            words = json.dumps(["sh", "-c", f"echo [$CUDA_VISIBLE_DEVICES]; sleep {seconds}"])
            text += f'[[app.implementation]]\nname = "{kind}"\ntime = {seconds}\ncommand = {words}\n'
    for i in range(60):
        app = "computes" if every and i % every == 0 else list(TIMES)[i % 3]
        text += f'[[job]]\nid = "j{i}"\napp = "{app}"\n'
    path.write_text(text)


@slowly
def test_history_beats_static_placement_and_takes_as_long_as_its_simulation(
    tmp_path: Path, inside: Call
) -> None:
    mixed_queue(tmp_path / "jobs.toml")
    learn = ("simulate", "jobs.toml", "--cluster", "4x4cpu+2gpu", "--learn", "--history", "known.db")
    for policy in ("cpu-only", "gpu-only"):
        assert inside(*learn, "--policy", policy, "--json").returncode == 0
    took: dict[str, float] = {}
    for policy in ("history", "gpu-only", "best-device"):
        arguments = ("--executor", HERE, "--policy", policy, "--json", "--run-dir", policy)
        found = inside("run", "jobs.toml", *arguments, "--history", "known.db")
        assert found.returncode == 0, found.stderr
        took[policy] = load(found)["makespan"]
        for row in load(found)["jobs"]:
            held = ",".join(name.rpartition("gpu")[2] for name in row["devices"])
            assert (tmp_path / policy / f"{row['id']}.out").read_text() == f"[{held}]\n"
    simulated = load(
        inside("simulate", "jobs.toml", "--cluster", "4x4cpu+2gpu", "--policy", "history", "--json")
    )["makespan"]
    print(took, simulated)
    assert took["history"] < min(took["gpu-only"], took["best-device"])
    assert abs(took["history"] - simulated) < 0.1 * simulated


@slowly
def test_computing_jobs_beside_sleeping_ones(tmp_path: Path, inside: Call) -> None:
    """What computes shares two real cores with all others: its makespan is shown, and held to nothing."""
    mixed_queue(tmp_path / "jobs.toml", every=5)
    learn = ("simulate", "jobs.toml", "--cluster", "4x4cpu+2gpu", "--learn", "--history", "known.db")
    for policy in ("cpu-only", "gpu-only"):
        assert inside(*learn, "--policy", policy, "--json").returncode == 0
    arguments = ("--executor", HERE, "--policy", "history", "--json", "--run-dir", "run")
    found = inside("run", "jobs.toml", *arguments, "--history", "known.db")
    assert found.returncode == 0, found.stderr
    simulated = load(
        inside("simulate", "jobs.toml", "--cluster", "4x4cpu+2gpu", "--policy", "history", "--json")
    )["makespan"]
    print(load(found)["makespan"], simulated)
    numbers = "".join(f"{i}\n" for i in range(1, 3_000_001)).encode()
    computed = f"{hashlib.md5(numbers, usedforsecurity=False).hexdigest()}  -\n"
    kinds = set()
    for row in load(found)["jobs"]:
        held = ",".join(name.rpartition("gpu")[2] for name in row["devices"])
        said = computed if row["app"] == "computes" else ""
        assert (tmp_path / "run" / f"{row['id']}.out").read_text() == f"[{held}]\n{said}"
        kinds.add((row["app"], row["implementation"]))
    assert {app for app, kind in kinds if kind == "gpu"} & {app for app, kind in kinds if kind == "cpu"}
    assert sum(row["app"] == "computes" for row in load(found)["jobs"]) == 12


@slowly
@pytest.mark.parametrize("policy", ["fms", "fms?devices=each", "lookahead"])
def test_the_first_run_of_a_policy_takes_no_more_of_the_cpu_than_the_second(
    tmp_path: Path, inside: Call, policy: str
) -> None:
    """Nothing is compiled in a home in which nothing was."""
    mixed_queue(tmp_path / "jobs.toml")
    text = (tmp_path / "jobs.toml").read_text()
    (tmp_path / "jobs.toml").write_text(re.sub("sleep [0-9.]+", "sleep 0.1", text))
    used = [resource.getrusage(resource.RUSAGE_CHILDREN)]
    for turn in ("first", "second"):
        arguments = ("--executor", HERE, "--policy", policy, "--history", f"{turn}.db", "--quiet")
        done = inside("run", "jobs.toml", *arguments)
        assert done.returncode == 0, done.stderr
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN))
    first, second = (after.ru_utime - before.ru_utime for before, after in pairwise(used))
    print(policy, first, second)
    assert first <= 1.5 * second


def most_on_one_place(jobs: list[dict[str, Any]], times: list[dict[str, float]]) -> float:
    """The most that one GPU, or one CPU job, has to do by the times that the jobs give themselves."""
    work: dict[str, float] = defaultdict(float)
    for job, own in zip(jobs, times, strict=True):
        for place in job["devices"] or [job["id"]]:
            work[place] += own[job["implementation"]]
    return max(work.values())


@slowly
def test_with_each_device_planned_fms_is_near_easy(tmp_path: Path, inside: Call) -> None:
    """Thirty-two jobs, some of which take a whole node as CPU jobs, on four nodes of two GPUs.

    What counts is where the jobs went: the most that one core or GPU had to do, by the times that the jobs
    give themselves. How long it took is a matter of what else runs on this machine.
    """
    text = ""
    given: list[dict[str, float]] = []
    for app, cpus in (("a", 1), ("whole", 4)):
        text += f'[[app]]\nname = "{app}"\n'
        for kind, own in (("cpu", cpus), ("gpu", 1)):
            sleep = f'command = ["sleep", "{{{kind}}}"]'
            text += f'[[app.implementation]]\nname = "{kind}"\ncpus = {own}\n{sleep}\n'
    for i in range(32):
        app, cpu, gpu = "whole" if i % 11 == 10 else "a", 4.0 + i % 3, 0.5 + (i % 4) / 8
        given.append({"cpu": cpu, "gpu": gpu})
        times = f"{{ cpu = {cpu}, gpu = {gpu} }}"
        text += f'[[job]]\napp = "{app}"\ntimes = {times}\ninputs = {times}\n'
    (tmp_path / "jobs.toml").write_text(text)
    most = {}
    for policy in ("easy", "fms", "fms?devices=each"):
        learn = ("--cluster", "4x4cpu+2gpu", "--learn", "--history", f"{len(most)}.db", "--json")
        for only in ("cpu-only", "gpu-only"):
            assert inside("simulate", "jobs.toml", *learn, "--policy", only).returncode == 0
        arguments = ("--executor", HERE, "--policy", policy, "--history", f"{len(most)}.db", "--json")
        found = inside("run", "jobs.toml", *arguments)
        assert found.returncode == 0, found.stderr
        most[policy] = most_on_one_place(load(found)["jobs"], given)
    print(most)
    assert most["fms?devices=each"] <= 1.3 * most["easy"]


def test_a_gang_is_a_step_whose_tasks_take_their_nodes_cores_and_devices(
    tmp_path: Path, inside: Call
) -> None:
    script = (
        "echo $SLURMD_NODENAME $DOVETAIL_RANK $DOVETAIL_RANKS $CUDA_VISIBLE_DEVICES $OMP_NUM_THREADS; {then}"
    )
    (tmp_path / "jobs.toml").write_text(
        f"""
[[app]]
name = "gang"
[[app.implementation]]
name = "gpu"
cpus = 2
tasks = 2
times = {{ 3 = 1.0 }}
command = ["sh", "-c", "{script}"]
[[app]]
name = "alone"
[[app.implementation]]
name = "gpu"
command = ["sleep", "1"]
[[job]]
app = "alone"
count = 4
[[job]]
id = "works"
app = "gang"
nodes = 3
inputs = {{ then = "true" }}
[[job]]
id = "fails"
app = "gang"
nodes = 3
inputs = {{ then = "exit $DOVETAIL_RANK" }}
"""
    )
    found = inside("run", "jobs.toml", "--executor", HERE, "--policy", "fcfs", "--json", "--run-dir", "run")
    assert found.returncode == 1, found.stderr
    rows = {row["id"]: row for row in load(found)["jobs"]}
    assert rows["works"]["state"] == "COMPLETED"
    tasks = sorted(line.split() for line in (tmp_path / "run" / "works.out").read_text().splitlines())
    assert Counter(task[0] for task in tasks) == dict.fromkeys((t[0] for t in tasks), 2)
    assert sorted(task[1] for task in tasks) == list("012345")
    held = dict(device.split("/gpu") for device in rows["works"]["devices"])
    assert all(
        (ranks, device, threads) == ("6", held[node], "1") for node, _, ranks, device, threads in tasks
    )
    assert rows["fails"]["state"] == "FAILED"
    assert rows["fails"]["exit_code"] != 0


@slowly
def test_a_gang_that_is_stopped_leaves_no_task_behind(tmp_path: Path, inside: Call) -> None:
    (tmp_path / "stubborn.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(100)\n"
    )
    script = str(tmp_path / "stubborn.py")
    (tmp_path / "jobs.toml").write_text(
        f"""
[[app]]
name = "gang"
[[app.implementation]]
name = "cpu"
times = {{ 2 = 1.0 }}
command = ["python3", "{script}"]
[[job]]
app = "gang"
nodes = 2
walltime = 2
"""
    )
    found = inside("run", "jobs.toml", "--executor", HERE, "--policy", "fcfs", "--json", "--grace", "0.5")
    assert load(found)["jobs"][0]["state"] == "TIMEOUT"
    until(lambda: not processes_of(script), "the tasks of the gang end")


# ------------------------------------------------------------------------------------- what may go wrong


def test_an_agent_that_is_killed_costs_its_jobs_an_attempt(runs: Runs, allocated: Mapping[str, str]) -> None:
    """Its node is lost and joins again; what ran there is ended before anything starts there anew."""
    process = started(runs, allocated, retries=1)
    kill(agents(runs)["n1"])
    assert process.wait(200) == 0
    runs.check()
    again = attempts(runs)
    assert 1 <= len(again) <= 4
    assert set(again) == {("NODE_FAIL", "node n1 was lost")}
    on_n1 = [
        line for line in runs.said.read_text().splitlines() if " n1/" in line and line.startswith("began")
    ]
    assert len(on_n1) > 8, "the node has joined again"


@slowly
def test_without_retries_lost_jobs_end_as_node_fail(runs: Runs, allocated: Mapping[str, str]) -> None:
    process = started(runs, allocated)
    kill(agents(runs)["n2"])
    assert process.wait(200) == 1
    runs.check()
    found = Counter(state for state, _, _ in runs.rows().values())
    assert 1 <= found["NODE_FAIL"] <= 4
    assert found["COMPLETED"] + found["NODE_FAIL"] == COUNT


@slowly
def test_a_controller_that_is_away_disturbs_nobody(
    slurm: SlurmCluster, runs: Runs, allocated: Mapping[str, str]
) -> None:
    time.sleep(6.0)  # it writes down within 5 s what it knows; killed before, it forgets the allocation
    process = started(runs, allocated)
    slurm.kill_daemon("slurmctld")
    time.sleep(1.0)
    slurm.start_daemon("slurmctld")
    assert process.wait(200) == 0
    runs.check()
    assert not attempts(runs)


def test_an_allocation_that_is_cancelled_leaves_the_rest_for_the_next(
    slurm: SlurmCluster, runs: Runs, allocated: Mapping[str, str]
) -> None:
    """What ran is requeued as ``retries`` says, what waited waits; another allocation takes both up."""
    process = started(runs, allocated, retries=1)
    slurm.call("scancel", allocated["SLURM_JOB_ID"])
    assert process.wait(200) == 1
    found = Counter(state for state, _, _ in runs.rows().values())
    assert found.keys() == {"COMPLETED", "PENDING"}
    assert re.search(rf"{found['PENDING']} jobs? (is|are) left: the allocation ended;", runs.complaints)
    runs.check(left=found["PENDING"])
    with slurm.allocation("-N2", "-n2", "-c2", "-t", "30") as smaller:
        assert runs.go("--resume", "--quiet", environment=smaller).wait(120) == 0
    runs.check()


def test_dovetail_that_is_ended_with_its_allocation_was_not_interrupted(
    slurm: SlurmCluster, runs: Runs
) -> None:
    """As a batch script it gets the SIGTERM of ``scancel`` itself: that is no Ctrl-C, and nothing is lost."""
    runs.write(60, lambda i: 0.5, retries=1)
    script, status = runs.tmp_path / "batch.sh", runs.tmp_path / "status"
    command = f"{shlex.join(DOVETAIL)} run jobs.toml --executor '{HERE}' --policy fcfs --quiet"
    script.write_text(f"#!/bin/sh\ntrap : TERM\n{command} 2> stderr.txt\necho $? > status\n")
    environ = {**runs.environment, **slurm.environment, "XDG_STATE_HOME": str(runs.state)}
    submit = (
        "sbatch",
        "--parsable",
        "-N2",
        "--exclusive",
        "-t",
        "30",
        f"--chdir={runs.tmp_path}",
        str(script),
    )
    job = subprocess.run(submit, env=environ, capture_output=True, text=True, check=True).stdout.strip()
    runs.wait_for(8)
    slurm.call("scancel", "--full", job)
    assert until(status.exists, "dovetail ends", 20)
    assert until(status.read_text, seconds=5).strip() == "1", runs.complaints
    assert "left: the allocation ended; 'dovetail run --resume" in runs.complaints
    slurm.end(job)


def test_jobs_that_cannot_end_before_the_allocation_does_wait_for_the_next(
    slurm: SlurmCluster, runs: Runs, allocated: Mapping[str, str]
) -> None:
    runs.write(6, lambda i: 0.2 if i < 3 else 0.3, walltime=40)
    slurm.call("scontrol", "update", f"JobId={allocated['SLURM_JOB_ID']}", "EndTime=now+20")
    process = runs.go("jobs.toml", "--executor", HERE, "--quiet", environment=allocated)
    assert process.wait(200) == 1
    assert "6 jobs are left: they cannot end before" in runs.complaints
    assert Counter(state for state, _, _ in runs.rows().values()) == {"PENDING": 6}
    slurm.end(allocated["SLURM_JOB_ID"])
    with slurm.allocation("-N1", "-n1", "-c4", "-t", "30") as longer:
        assert runs.go("--resume", "--quiet", environment=longer).wait(200) == 0
    runs.check()


@pytest.mark.parametrize("victims", [pytest.param("dovetail", marks=slowly), "dovetail and an agent"])
def test_killed_and_taken_up(runs: Runs, allocated: Mapping[str, str], victims: str) -> None:
    """What runs under a living agent is adopted; what an agent took with it is ended."""
    process = started(runs, allocated, count=150, seconds=0.5, retries=2)
    for turn in range(1, 4):
        process.send_signal(signal.SIGKILL)
        process.wait()
        if victims != "dovetail":
            kill(agents(runs)[f"n{turn}"])
        process = runs.go("--resume", "--quiet", environment=allocated)
        runs.wait_for(18 + 30 * turn)
    assert process.wait(200) == 0
    runs.check()
    assert bool(attempts(runs)) == (victims != "dovetail")


@slowly
def test_a_run_whose_dovetail_lives_is_not_taken_up(runs: Runs, inside: Call, allocated: Any) -> None:
    process = started(runs, allocated, count=20, seconds=30.0)
    refused = inside("run", "--resume")
    assert refused.returncode == 3
    assert "still lives" in refused.stderr
    assert process.wait(90) == 0


@pytest.mark.skipif(
    not full(1, 0), reason="Slurm needs half a minute to give a node up: DOVETAIL_TEST_FULL=1"
)
@pytest.mark.parametrize("kept", [True, False])
def test_a_node_that_slurm_gives_up_is_lost(slurm: SlurmCluster, runs: Runs, kept: bool) -> None:
    """With ``--no-kill`` the others go on; without it the allocation ends, and the next takes the rest up."""
    options = ALL if kept else ALL[:-1]
    with slurm.allocation(*options) as allocated:
        runs.write(600, lambda i: 2.0, retries=1)  # more than a minute, however fast the machine
        process = runs.go(
            "jobs.toml", "--executor", HERE, "--policy", "fcfs", "--quiet", environment=allocated
        )
        runs.wait_for(18)
        slurm.kill_daemon("slurmd.n2")
        assert process.wait(200) == (0 if kept else 1)
    slurm.start_daemon("slurmd.n2")
    until(lambda: "idle" in slurm.call("sinfo", "-h", "-n", "n2", "-o", "%T"), "the node is back")
    if not kept:
        with slurm.allocation(*ALL) as allocated:
            assert runs.go("--resume", "--quiet", environment=allocated).wait(200) == 0
    runs.check()
    assert attempts(runs)


def test_a_node_that_has_left_the_allocation_ends_what_only_it_could_run(
    slurm: SlurmCluster, runs: Runs, allocated: Mapping[str, str]
) -> None:
    """Slurm takes a node that is down out of an allocation for good: gangs of four can never run again."""
    runs.write(3, lambda i: 2.0, nodes=4, retries=1)
    arguments = ("jobs.toml", "--executor", HERE, "--policy", "fcfs", "--json", "--quiet")
    process = runs.go(*arguments, environment=allocated)
    runs.wait_for(4)
    slurm.call("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test")
    try:
        assert process.wait(30) == 1
    finally:
        slurm.call("scontrol", "update", "NodeName=n3", "State=RESUME", check=False)
    rows = runs.rows()
    lost = [row for row in rows.values() if row[0] == "CANCELLED"]
    assert lost
    assert all(
        detail == "no node is left that could run it: needs 4 nodes, and there are 3" for _, _, detail in lost
    )
    assert f"{len(lost)} jobs were cancelled: no node is left that could run them" in runs.complaints
    slurm.end(allocated["SLURM_JOB_ID"])
    with slurm.allocation(*ALL) as again:
        assert runs.go("--resume", "--quiet", environment=again).wait(200) == 0
    assert {state for state, _, _ in runs.rows().values()} == {"COMPLETED"}


@slowly
@pytest.mark.parametrize("known", [False, True], ids=["silent", "down"])
def test_a_run_begins_without_a_node_on_which_no_agent_starts(
    slurm: SlurmCluster, runs: Runs, allocated: Mapping[str, str], known: bool
) -> None:
    """Also one that Slurm itself knows to be down, and has taken out of the allocation."""
    if known:
        slurm.call("scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=test")
    else:
        slurm.kill_daemon("slurmd.n3")
    try:
        runs.write(12, lambda i: 0.2)
        arguments = ("jobs.toml", "--executor", HERE, "--policy", "fcfs", "--quiet")
        assert runs.go(*arguments, environment=allocated).wait(90) == 0, runs.complaints
    finally:
        if known:
            slurm.call("scontrol", "update", "NodeName=n3", "State=RESUME", check=False)
        else:
            slurm.start_daemon("slurmd.n3")
    runs.check()
    assert " n3/" not in runs.said.read_text()


# ---------------------------------------------------------------------------------------- what is refused


def test_outside_of_an_allocation_it_is_said_what_to_do(runs: Runs) -> None:
    """Before Slurm is called: none runs here."""
    runs.write(1, lambda i: 0.0)
    assert runs.go("jobs.toml", "--executor", "slurm").wait(200) == 2
    assert "found no SLURM_JOB_ID, expected to be inside an allocation" in runs.complaints


def test_an_allocation_that_is_over_is_refused(runs: Runs, slurm: SlurmCluster) -> None:
    runs.write(1, lambda i: 0.0)
    with slurm.allocation("-N1", "-t", "5") as environment:
        pass
    assert runs.go("jobs.toml", "--executor", "slurm", environment=environment).wait(200) == 2
    assert "expected one that runs: begin another one" in runs.complaints


def test_a_cluster_larger_than_the_allocation_is_refused(inside: Call, tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text("true\n")
    for text, sentence in (
        ('name = "n9"\ncpus = 1', "expected of n0, n1, n2, n3"),
        ('name = "n0"\ncpus = 5', "found core 4, expected 0 to 3: 4 CPUs are ours"),
        ('name = "n0"\ncpus = 1\ngpus = 3', "found 3 devices of kind gpu, expected at most the 2"),
        ('name = "n0"\ncpus = 1\nmemory = "1GB"', "bytes of memory, expected at most the 268435456"),
    ):
        (tmp_path / "cluster.toml").write_text(f"[[node]]\n{text}\n")
        refused = inside("run", "jobs.txt", "--executor", "slurm", "--cluster", "cluster.toml")
        assert refused.returncode == 2
        assert sentence in refused.stderr


def test_devices_shows_the_allocation(inside: Call) -> None:
    shown = inside("devices", "--executor", "slurm")
    assert shown.returncode == 0
    assert "n[0-3]" in shown.stdout
    data: Any = json.loads(inside("devices", "--executor", "slurm", "--json").stdout)
    assert [node["name"] for node in data["nodes"]] == ["n0", "n1", "n2", "n3"]
    assert all(node["cpus"] == 4 and len(node["devices"]) == 2 for node in data["nodes"])


def test_a_history_is_not_taken_from_where_there_is_no_accounting(inside: Call) -> None:
    refused = inside("history", "import-slurm")
    assert refused.returncode == 2
    assert "this cluster keeps no accounting (slurmdbd): a file that sacct printed" in refused.stderr
    assert refused.stderr.count("\n") == 1


def test_without_slurm_here_it_is_said(runs: Runs, tmp_path: Path) -> None:
    runs.write(1, lambda i: 0.0)
    nowhere = {"SLURM_JOB_ID": "1", "PATH": str(tmp_path)}
    assert runs.go("jobs.toml", "--executor", "slurm", environment=nowhere).wait(200) == 3
    assert "scontrol was not found in PATH: Slurm's commands are needed" in runs.complaints
    assert not os.path.exists(tmp_path / "state" / "dovetail" / "runs")


# -------------------------------------------------------------------------------------------------- memory


def test_memory_is_learned_and_a_kill_is_tried_again_where_our_agent_measures(
    tmp_path: Path, inside: Call
) -> None:
    eat = "import sys, time; x = bytearray(int(float(sys.argv[1]) * 1e6)); time.sleep(0.8)"
    lines = []
    programs = (
        ("line", 20, 12.0),
        ("flat", 60, 0.0),
        ("steep", 10, 14.0),
        ("small", 30, 1.0),
        ("large", 80, 10),
    )
    for name, base, slope in programs:
        command = [sys.executable, "-I", "-S", "-c", eat, "{mb}"]
        lines += ["[[app]]", f'name = "{name}"', "[[app.implementation]]", 'name = "cpu"', "cpus = 1"]
        lines += ['memory = "auto"', f"command = {json.dumps(command)}"]
        for n in range(12):
            lines += ["[[job]]", f'app = "{name}"', f"inputs = {{ mb = {base + slope * (1 + n):g} }}"]
    (tmp_path / "jobs.toml").write_text("\n".join(lines) + "\n")
    arguments = ("--executor", HERE, "--policy", "fcfs", "--json", "--history", "h.db", "--run-dir", "run")
    done = inside("run", "jobs.toml", *arguments)
    assert done.returncode == 0, done.stderr
    assert {job["state"] for job in json.loads(done.stdout)["jobs"]} == {"COMPLETED"}
    with sqlite3.connect(tmp_path / "run" / "ledger.db") as db:
        tries = db.execute(
            "SELECT seq, count(*) FROM attempt WHERE state = 'OUT_OF_MEMORY' GROUP BY seq"
        ).fetchall()
    assert all(count == 1 for _, count in tries), "nobody is killed twice"
    with sqlite3.connect(tmp_path / "h.db") as db:
        (peak,) = db.execute("SELECT max(peak_memory) FROM runs").fetchone()
    assert 190e6 < peak < 260e6
